//! The functions of the `wait_value` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamWaitValue32(
    _stream: StreamPtr,
    _ptr: *mut c_void,
    _value: u32,
    _flags: c_uint,
    _mask: u32,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamWaitValue64(
    _stream: StreamPtr,
    _ptr: *mut c_void,
    _value: u64,
    _flags: c_uint,
    _mask: u64,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamWriteValue32(
    _stream: StreamPtr,
    _ptr: *mut c_void,
    _value: u32,
    _flags: c_uint,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamWriteValue64(
    _stream: StreamPtr,
    _ptr: *mut c_void,
    _value: u64,
    _flags: c_uint,
) -> HipError {
    HipError::NOT_SUPPORTED
}
