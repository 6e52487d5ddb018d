//! The functions of the `host` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostMalloc(_ptr: *mut *mut c_void, _size: usize, _flags: c_uint) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostAlloc(_ptr: *mut *mut c_void, _size: usize, _flags: c_uint) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMallocHost(_ptr: *mut *mut c_void, _size: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostFree(_ptr: *mut c_void) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipFreeHost(_ptr: *mut c_void) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostRegister(_ptr: *mut c_void, _size: usize, _flags: c_uint) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostUnregister(_ptr: *mut c_void) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostGetDevicePointer(
    _device: *mut *mut c_void,
    _host: *mut c_void,
    _flags: c_uint,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipHostGetFlags(_flags: *mut c_uint, _host: *mut c_void) -> HipError {
    HipError::NOT_SUPPORTED
}
