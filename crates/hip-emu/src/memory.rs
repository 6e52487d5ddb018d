//! The functions of the `memory` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMalloc(_ptr: *mut *mut c_void, _size: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipFree(_ptr: *mut c_void) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMallocAsync(
    _ptr: *mut *mut c_void,
    _size: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipFreeAsync(_ptr: *mut c_void, _stream: StreamPtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMallocManaged(_ptr: *mut *mut c_void, _size: usize, _flags: c_uint) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipExtMallocWithFlags(
    _ptr: *mut *mut c_void,
    _size: usize,
    _flags: c_uint,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemGetInfo(_free: *mut usize, _total: *mut usize) -> HipError {
    HipError::NOT_SUPPORTED
}
