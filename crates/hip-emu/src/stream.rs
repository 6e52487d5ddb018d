//! The functions of the `stream` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamCreate(_stream: *mut StreamPtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamCreateWithFlags(_stream: *mut StreamPtr, _flags: c_uint) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamCreateWithPriority(
    _stream: *mut StreamPtr,
    _flags: c_uint,
    _priority: c_int,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamDestroy(_stream: StreamPtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamSynchronize(_stream: StreamPtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamQuery(_stream: StreamPtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamWaitEvent(
    _stream: StreamPtr,
    _event: EventPtr,
    _flags: c_uint,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamGetFlags(_stream: StreamPtr, _flags: *mut c_uint) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamGetPriority(_stream: StreamPtr, _priority: *mut c_int) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamGetDevice(_stream: StreamPtr, _device: *mut DeviceOrdinal) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipLaunchHostFunc(
    _stream: StreamPtr,
    _function: HostFn,
    _user_data: *mut c_void,
) -> HipError {
    HipError::NOT_SUPPORTED
}
