//! The functions of the `errors` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipGetErrorName(_error: HipError) -> *const c_char {
    core::ptr::null()
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipGetErrorString(_error: HipError) -> *const c_char {
    core::ptr::null()
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipDrvGetErrorName(_error: HipError, _text: *mut *const c_char) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipDrvGetErrorString(_error: HipError, _text: *mut *const c_char) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipGetLastError() -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipPeekAtLastError() -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipExtGetLastError() -> HipError {
    HipError::NOT_SUPPORTED
}
