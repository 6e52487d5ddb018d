//! The functions of the `amd_file` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipAmdFileRead(
    _handle: AmdFileHandle,
    _device_ptr: *mut c_void,
    _size: u64,
    _file_offset: i64,
    _size_copied: *mut u64,
    _status: *mut i32,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipAmdFileWrite(
    _handle: AmdFileHandle,
    _device_ptr: *mut c_void,
    _size: u64,
    _file_offset: i64,
    _size_copied: *mut u64,
    _status: *mut i32,
) -> HipError {
    HipError::NOT_SUPPORTED
}
