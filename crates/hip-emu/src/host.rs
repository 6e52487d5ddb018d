//! Pinned host memory: allocated here, or the caller's own, registered.

use core::ffi::{c_uint, c_void};

use gpu_sys::hip::HipError;

use crate::call::{call, put};
use crate::capture;
use crate::function::Function;
use crate::memory;
use crate::ranges::{Allocation, Kind};
use crate::state::State;
use crate::sys;

/// hipHostMallocPortable, Mapped, WriteCombined, the two kinds of coherence, NUMA policy, uncached.
const HOST_MALLOC_KNOWN: c_uint = 0x7 | 0x4000_0000 | 0x8000_0000 | 0x2000_0000 | 0x1000_0000;
/// `hipHostMallocCoherent` and `hipHostMallocNonCoherent`, which exclude each other.
const HOST_MALLOC_COHERENCE: c_uint = 0x4000_0000 | 0x8000_0000;
/// hipHostRegisterPortable, Mapped, IoMemory, ReadOnly, coarse grained, uncached.
const HOST_REGISTER_KNOWN: c_uint = 0xF | 0x8000_0000;

/// # Safety
/// `ptr` is null or may be written to.
pub(crate) unsafe fn allocate_call(
    state: &'static State,
    ptr: *mut *mut c_void,
    size: usize,
    flags: c_uint,
) -> Result<(), HipError> {
    let device = state.current()?;
    if ptr.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let base = if size == 0 {
        0
    } else {
        device.drain();
        memory::allocate_host(state, device, size, flags, false)?
    };
    // SAFETY: as this function demands.
    unsafe { put(ptr, base as *mut c_void) }
}

unsafe fn host_malloc(
    state: &'static State,
    ptr: *mut *mut c_void,
    size: usize,
    flags: c_uint,
) -> Result<(), HipError> {
    capture::refuse_unsafe(state)?;
    if flags & !HOST_MALLOC_KNOWN != 0 || flags & HOST_MALLOC_COHERENCE == HOST_MALLOC_COHERENCE {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: as this function's callers demand.
    unsafe { allocate_call(state, ptr, size, flags) }
}

/// Allocates pinned memory, after the current device's queued work; 0 bytes are a null pointer.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipHostMalloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipHostMalloc, |state| unsafe { host_malloc(state, ptr, size, flags) })
}

/// [`hipHostMalloc`] by its newer name.
///
/// # Safety
/// As [`hipHostMalloc`].
pub unsafe extern "C" fn hipHostAlloc(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipHostAlloc, |state| unsafe { host_malloc(state, ptr, size, flags) })
}

/// [`hipHostMalloc`] without flags, by its old name.
///
/// # Safety
/// As [`hipHostMalloc`].
pub unsafe extern "C" fn hipMallocHost(ptr: *mut *mut c_void, size: usize) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipMallocHost, |state| unsafe { host_malloc(state, ptr, size, 0) })
}

fn host_free(state: &'static State, ptr: *mut c_void) -> Result<(), HipError> {
    capture::refuse_unsafe(state)?;
    if state.find(ptr as usize).is_some_and(|found| found.kind == Kind::Device) {
        return Err(HipError::INVALID_VALUE);
    }
    memory::free(state, ptr)
}

/// Frees pinned memory, after all work of all devices.
///
/// # Errors
/// hipErrorInvalidValue for what is not the start of an allocation of pinned memory.
///
/// # Safety
/// Nobody uses the memory any more, but for work already queued.
pub unsafe extern "C" fn hipHostFree(ptr: *mut c_void) -> HipError {
    call(Function::hipHostFree, |state| host_free(state, ptr))
}

/// [`hipHostFree`] by its old name.
///
/// # Safety
/// As [`hipHostFree`].
pub unsafe extern "C" fn hipFreeHost(ptr: *mut c_void) -> HipError {
    call(Function::hipFreeHost, |state| host_free(state, ptr))
}

/// Pins memory of the caller, after the current device's queued work.
///
/// # Errors
/// hipErrorInvalidValue for null, 0 bytes, unknown flags, or memory that is not there;
/// hipErrorHostMemoryAlreadyRegistered when any of it is known to the runtime already.
///
/// # Safety
/// The memory stays where it is until it is unregistered.
pub unsafe extern "C" fn hipHostRegister(ptr: *mut c_void, size: usize, flags: c_uint) -> HipError {
    call(Function::hipHostRegister, |state| {
        capture::refuse_unsafe(state)?;
        let device = state.current()?;
        let base = ptr as usize;
        if ptr.is_null() || size == 0 || flags & !HOST_REGISTER_KNOWN != 0 || base.checked_add(size).is_none()
        {
            return Err(HipError::INVALID_VALUE);
        }
        device.drain();
        if state.span.contains(&base) || !sys::is_mapped(base, size) {
            return Err(HipError::INVALID_VALUE);
        }
        let id = state.next_buffer();
        let mut ranges = state.ranges.write();
        if ranges.overlaps(base, size) {
            return Err(HipError::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let registered = Allocation::new(id, Kind::Registered, device.ordinal, base, size, base);
        ranges.insert(registered.made_with(flags, false).into());
        Ok(())
    })
}

/// Unpins memory, after all work of all devices.
///
/// # Errors
/// hipErrorHostMemoryNotRegistered for what is not the start of a registration.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipHostUnregister(ptr: *mut c_void) -> HipError {
    call(Function::hipHostUnregister, |state| {
        capture::refuse_unsafe(state)?;
        if ptr.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let registered = state
            .ranges
            .read()
            .find_base(ptr as usize)
            .filter(|found| found.kind == Kind::Registered)
            .cloned()
            .ok_or(HipError::HOST_MEMORY_NOT_REGISTERED)?;
        state.drain_all();
        if state.give_back(&registered) { Ok(()) } else { Err(HipError::HOST_MEMORY_NOT_REGISTERED) }
    })
}

/// The address by which devices reach pinned memory: here, and with AMD's unified addressing, the same one.
///
/// # Errors
/// hipErrorInvalidValue for null, for flags, and for memory that is not pinned or managed.
///
/// # Safety
/// `device` is null or may be written to.
pub unsafe extern "C" fn hipHostGetDevicePointer(
    device: *mut *mut c_void,
    host: *mut c_void,
    flags: c_uint,
) -> HipError {
    call(Function::hipHostGetDevicePointer, |state| {
        state.current()?;
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        state
            .find(host as usize)
            .filter(|found| found.kind != Kind::Device)
            .ok_or(HipError::INVALID_VALUE)?;
        // SAFETY: as this function demands.
        unsafe { put(device, host) }
    })
}

/// The flags that pinned memory was allocated or registered with.
///
/// # Safety
/// `flags` is null or may be written to.
pub unsafe extern "C" fn hipHostGetFlags(flags: *mut c_uint, host: *mut c_void) -> HipError {
    call(Function::hipHostGetFlags, |state| {
        let found = state
            .find(host as usize)
            .filter(|found| found.kind != Kind::Device)
            .ok_or(HipError::INVALID_VALUE)?;
        // SAFETY: as this function demands.
        unsafe { put(flags, found.flags) }
    })
}
