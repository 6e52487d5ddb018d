//! The functions of the `capture` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamBeginCapture(_stream: StreamPtr, _mode: StreamCaptureMode) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamEndCapture(_stream: StreamPtr, _graph: *mut GraphPtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipStreamIsCapturing(
    _stream: StreamPtr,
    _status: *mut StreamCaptureStatus,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipGraphDestroy(_graph: GraphPtr) -> HipError {
    HipError::NOT_SUPPORTED
}
