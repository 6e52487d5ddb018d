//! The functions of the `copy` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpy(
    _dst: *mut c_void,
    _src: *const c_void,
    _size: usize,
    _kind: MemcpyKind,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyAsync(
    _dst: *mut c_void,
    _src: *const c_void,
    _size: usize,
    _kind: MemcpyKind,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyWithStream(
    _dst: *mut c_void,
    _src: *const c_void,
    _size: usize,
    _kind: MemcpyKind,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyHtoD(_dst: DevicePtr, _src: *const c_void, _size: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyDtoH(_dst: *mut c_void, _src: DevicePtr, _size: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyDtoD(_dst: DevicePtr, _src: DevicePtr, _size: usize) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyHtoDAsync(
    _dst: DevicePtr,
    _src: *const c_void,
    _size: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyDtoHAsync(
    _dst: *mut c_void,
    _src: DevicePtr,
    _size: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyDtoDAsync(
    _dst: DevicePtr,
    _src: DevicePtr,
    _size: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyPeer(
    _dst: *mut c_void,
    _dst_device: c_int,
    _src: *const c_void,
    _src_device: c_int,
    _size: usize,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemcpyPeerAsync(
    _dst: *mut c_void,
    _dst_device: c_int,
    _src: *const c_void,
    _src_device: c_int,
    _size: usize,
    _stream: StreamPtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}
