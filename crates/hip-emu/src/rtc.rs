//! The functions of the `rtc` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcVersion(_major: *mut c_int, _minor: *mut c_int) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcGetErrorString(_result: RtcResult) -> *const c_char {
    core::ptr::null()
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcCreateProgram(
    _program: *mut RtcProgramPtr,
    _source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _header_texts: *const *const c_char,
    _header_names: *const *const c_char,
) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcCompileProgram(
    _program: RtcProgramPtr,
    _count: c_int,
    _options: *const *const c_char,
) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcGetCodeSize(_program: RtcProgramPtr, _size: *mut usize) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcGetCode(_program: RtcProgramPtr, _code: *mut c_char) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcGetProgramLogSize(_program: RtcProgramPtr, _size: *mut usize) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcGetProgramLog(_program: RtcProgramPtr, _log: *mut c_char) -> RtcResult {
    RtcResult(11)
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hiprtcDestroyProgram(_program: *mut RtcProgramPtr) -> RtcResult {
    RtcResult(11)
}
