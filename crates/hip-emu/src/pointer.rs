//! What the runtime says a pointer is.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use gpu_sys::hip::{
    DevicePtr, HipError, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, POINTER_ATTRIBUTE_BUFFER_ID, PointerAttribute,
    PointerAttributes,
};

use crate::call::{call, put};
use crate::function::Function;
use crate::ranges::{Allocation, Kind};

/// `hipInvalidDeviceId`: the device of memory that has none.
const NO_DEVICE: c_int = -2;

/// `HIP_POINTER_ATTRIBUTE_...`, but for the one that `gpu-sys` names.
const MEMORY_TYPE: PointerAttribute = 2;
const DEVICE_POINTER: PointerAttribute = 3;
const HOST_POINTER: PointerAttribute = 4;
const IS_MANAGED: PointerAttribute = 8;
const DEVICE_ORDINAL: PointerAttribute = 9;
const RANGE_START_ADDR: PointerAttribute = 11;
const RANGE_SIZE: PointerAttribute = 12;
const MAPPED: PointerAttribute = 13;

fn describe(allocation: &Arc<Allocation>, address: usize) -> PointerAttributes {
    let is_host = matches!(allocation.kind, Kind::Host { .. } | Kind::Registered | Kind::Managed { .. });
    PointerAttributes {
        memory_type: allocation.memory_type(),
        device: allocation.device as c_int,
        device_pointer: address as *mut c_void,
        host_pointer: if is_host { address as *mut c_void } else { core::ptr::null_mut() },
        is_managed: matches!(allocation.kind, Kind::Managed { .. }).into(),
        allocation_flags: allocation.flags,
    }
}

/// Describes a pointer, into the middle of an allocation too. Memory that the runtime does not know is
/// `hipMemoryTypeUnregistered` on device -2, and success (since ROCm 6.0: ROCm/hip issue 3057); so is a null pointer
/// since HIP 7.0 ("HIP API 7.0 changes"), and hipErrorInvalidValue before.
///
/// # Errors
/// hipErrorInvalidValue for null `attributes`.
///
/// # Safety
/// `attributes` is null or may be written to.
pub unsafe extern "C" fn hipPointerGetAttributes(
    attributes: *mut PointerAttributes,
    ptr: *const c_void,
) -> HipError {
    call(Function::hipPointerGetAttributes, |state| {
        state.current()?;
        if ptr.is_null() && !state.is_at_least(7, 0) {
            return Err(HipError::INVALID_VALUE);
        }
        let found = match state.find(ptr as usize) {
            Some(allocation) => describe(&allocation, ptr as usize),
            None => PointerAttributes { device: NO_DEVICE, ..PointerAttributes::ZERO },
        };
        // SAFETY: as this function demands.
        unsafe { put(attributes, found) }
    })
}

/// One attribute of a pointer. As in HIP, the buffer's id, the memory's type and the range's size are written as 32 bits
/// (a larger size loses its upper half), the truths as one byte.
///
/// # Errors
/// hipErrorInvalidValue for null, unknown memory or an unknown attribute; hipErrorNotSupported for attributes HIP knows and
/// the emulation does not.
///
/// # Safety
/// `data` is null or has room for the attribute.
pub unsafe extern "C" fn hipPointerGetAttribute(
    data: *mut c_void,
    attribute: PointerAttribute,
    ptr: DevicePtr,
) -> HipError {
    call(Function::hipPointerGetAttribute, |state| {
        state.current()?;
        if data.is_null() || ptr.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let found = state.find(ptr as usize).ok_or(HipError::INVALID_VALUE)?;
        let facts = describe(&found, ptr as usize);
        let is_host = !facts.host_pointer.is_null();
        match attribute {
            MEMORY_TYPE => {
                let memory_type = if is_host { MEMORY_TYPE_HOST } else { MEMORY_TYPE_DEVICE };
                // SAFETY: as this function demands.
                unsafe { put(data.cast(), memory_type) }
            }
            // SAFETY: as this function demands.
            DEVICE_POINTER => unsafe { put(data.cast(), facts.device_pointer) },
            // SAFETY: as this function demands.
            HOST_POINTER if is_host => unsafe { put(data.cast(), facts.host_pointer) },
            HOST_POINTER => Err(HipError::INVALID_VALUE),
            // SAFETY: as this function demands.
            POINTER_ATTRIBUTE_BUFFER_ID => unsafe { put(data.cast(), found.id) },
            // SAFETY: as this function demands.
            IS_MANAGED => unsafe { put(data.cast(), facts.is_managed as u8) },
            // SAFETY: as this function demands.
            DEVICE_ORDINAL => unsafe { put(data.cast(), facts.device) },
            // SAFETY: as this function demands.
            RANGE_START_ADDR => unsafe { put(data.cast(), found.base) },
            // SAFETY: as this function demands.
            RANGE_SIZE => unsafe { put(data.cast(), found.len as u32) },
            // SAFETY: as this function demands.
            MAPPED => unsafe { put(data.cast(), 1u8) },
            1..=17 => Err(HipError::NOT_SUPPORTED),
            _ => Err(HipError::INVALID_VALUE),
        }
    })
}

/// Start and size of the allocation that holds an address; pinned memory has one too.
///
/// # Errors
/// hipErrorInvalidValue for null results, hipErrorNotFound for memory that the runtime does not know.
///
/// # Safety
/// `base` and `size` are null or may be written to.
pub unsafe extern "C" fn hipMemGetAddressRange(
    base: *mut DevicePtr,
    size: *mut usize,
    ptr: DevicePtr,
) -> HipError {
    call(Function::hipMemGetAddressRange, |state| {
        state.current()?;
        if base.is_null() || size.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let found = state.find(ptr as usize).ok_or(HipError::NOT_FOUND)?;
        // SAFETY: as this function demands.
        unsafe { put(base, found.base as DevicePtr) }?;
        // SAFETY: as this function demands.
        unsafe { put(size, found.len) }
    })
}
