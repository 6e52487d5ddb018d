//! The functions of the `memset` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemset(_dst: *mut c_void, _value: c_int, _size: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemsetAsync(
    _dst: *mut c_void,
    _value: c_int,
    _size: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemsetD8(_dst: DevicePtr, _value: c_uchar, _count: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemsetD8Async(
    _dst: DevicePtr,
    _value: c_uchar,
    _count: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemsetD32(_dst: DevicePtr, _value: c_int, _count: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemsetD32Async(
    _dst: DevicePtr,
    _value: c_int,
    _count: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}
