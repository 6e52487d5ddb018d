//! The header's group "Parameters". Not available yet: everything answers `hipFileInternalError` and touches nothing.

use core::ffi::{c_char, c_int};

use crate::abi::*;
use crate::dispatch::forward;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
///
/// # Safety
/// `value` is NULL or points to a `size_t` that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetParameterSizeT(
    param: hipFileSizeTConfigParameter_t,
    value: *mut usize,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_parameter_size_t(param, value))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `value` is NULL or points to a `bool` that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetParameterBool(
    param: hipFileBoolConfigParameter_t,
    value: *mut bool,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_parameter_bool(param, value))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `desc_str` is NULL or has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetParameterString(
    param: hipFileStringConfigParameter_t,
    desc_str: *mut c_char,
    len: c_int,
) -> hipFileError_t {
    forward!(pfn_hipfile_get_parameter_string(param, desc_str, len))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileSetParameterSizeT(
    param: hipFileSizeTConfigParameter_t,
    value: usize,
) -> hipFileError_t {
    forward!(pfn_hipfile_set_parameter_size_t(param, value))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileSetParameterBool(
    param: hipFileBoolConfigParameter_t,
    value: bool,
) -> hipFileError_t {
    forward!(pfn_hipfile_set_parameter_bool(param, value))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `desc_str` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileSetParameterString(
    param: hipFileStringConfigParameter_t,
    desc_str: *const c_char,
) -> hipFileError_t {
    forward!(pfn_hipfile_set_parameter_string(param, desc_str))
}

pub(crate) extern "C" fn get_size_t(
    _param: hipFileSizeTConfigParameter_t,
    _value: *mut usize,
) -> hipFileError_t {
    guard::status(c"hipFileGetParameterSizeT", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn get_bool(_param: hipFileBoolConfigParameter_t, _value: *mut bool) -> hipFileError_t {
    guard::status(c"hipFileGetParameterBool", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn get_string(
    _param: hipFileStringConfigParameter_t,
    _desc_str: *mut c_char,
    _len: c_int,
) -> hipFileError_t {
    guard::status(c"hipFileGetParameterString", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_size_t(_param: hipFileSizeTConfigParameter_t, _value: usize) -> hipFileError_t {
    guard::status(c"hipFileSetParameterSizeT", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_bool(_param: hipFileBoolConfigParameter_t, _value: bool) -> hipFileError_t {
    guard::status(c"hipFileSetParameterBool", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_string(
    _param: hipFileStringConfigParameter_t,
    _desc_str: *const c_char,
) -> hipFileError_t {
    guard::status(c"hipFileSetParameterString", || Err(Failure::not_available()))
}
