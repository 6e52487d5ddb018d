//! Memory that one process lends another, by CUDA's names. Only clients of the emulation call these, so they stand in no table.

use core::ffi::c_uint;

use gpu_sys::cuda::{CudaError, DevicePtr};

use super::calls::address;
use super::context::within;
use crate::ipc;
use crate::types::IpcMemHandle;

/// Names device memory for others: the whole allocation, whatever address in it is given.
///
/// # Errors
/// As [`hipIpcGetMemHandle`](ipc::hipIpcGetMemHandle); CUDA_ERROR_INVALID_CONTEXT with none current.
///
/// # Safety
/// `handle` is null or may be written to.
pub unsafe extern "C" fn cuIpcGetMemHandle(handle: *mut IpcMemHandle, ptr: DevicePtr) -> CudaError {
    // SAFETY: as this function demands.
    within("cuIpcGetMemHandle", || unsafe { ipc::hipIpcGetMemHandle(handle, address(ptr)) })
}

/// Gives the memory that a handle names an address here.
///
/// # Errors
/// As [`hipIpcOpenMemHandle`](ipc::hipIpcOpenMemHandle); CUDA_ERROR_INVALID_VALUE without the one flag there is, which CUDA
/// demands; CUDA_ERROR_INVALID_CONTEXT.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn cuIpcOpenMemHandle_v2(
    ptr: *mut DevicePtr,
    handle: IpcMemHandle,
    flags: c_uint,
) -> CudaError {
    within("cuIpcOpenMemHandle", || {
        if flags != ipc::IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
            return gpu_sys::hip::HipError::INVALID_VALUE;
        }
        // SAFETY: as this function demands.
        unsafe { ipc::hipIpcOpenMemHandle(ptr.cast(), handle, flags) }
    })
}

/// Takes such an address away again.
///
/// # Errors
/// As [`hipIpcCloseMemHandle`](ipc::hipIpcCloseMemHandle); CUDA_ERROR_INVALID_CONTEXT.
///
/// # Safety
/// Nobody uses it any more, but for work already queued.
pub unsafe extern "C" fn cuIpcCloseMemHandle(ptr: DevicePtr) -> CudaError {
    // SAFETY: as this function demands.
    within("cuIpcCloseMemHandle", || unsafe { ipc::hipIpcCloseMemHandle(address(ptr)) })
}
