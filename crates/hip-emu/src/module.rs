//! The functions of the `module` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipModuleLoadData(_module: *mut ModulePtr, _image: *const c_void) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipModuleUnload(_module: ModulePtr) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipModuleGetFunction(
    _function: *mut FunctionPtr,
    _module: ModulePtr,
    _name: *const c_char,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipModuleLaunchKernel(
    _function: FunctionPtr,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: StreamPtr,
    _params: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> HipError {
    HipError::NOT_SUPPORTED
}
