//! The functions of the `pointer` group.

use core::ffi::*;

use gpu_sys::hip::*;

use crate::types::*;

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipPointerGetAttributes(
    _attributes: *mut PointerAttributes,
    _ptr: *const c_void,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipPointerGetAttribute(
    _data: *mut c_void,
    _attribute: PointerAttribute,
    _ptr: DevicePtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}

/// HIP's function of that name.
///
/// # Safety
/// As HIP states it.
pub unsafe extern "C" fn hipMemGetAddressRange(
    _base: *mut DevicePtr,
    _size: *mut usize,
    _ptr: DevicePtr,
) -> HipError {
    HipError::NOT_SUPPORTED
}
