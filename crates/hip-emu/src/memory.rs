//! Allocating and freeing what devices use. As on real hardware, both wait for work already queued on the device, held
//! streams included: whoever allocates in work that a held stream depends on waits for ever.

use core::ffi::{c_uint, c_void};
use std::sync::Arc;

use gpu_sys::hip::{HipError, MALLOC_SIGNAL_MEMORY, StreamPtr};

use crate::call::{call, put};
use crate::capture;
use crate::function::Function;
use crate::host;
use crate::op::Op;
use crate::ranges::{Allocation, Kind};
use crate::state::{Device, State};
use crate::stream;
use crate::sys::{self, PAGE};

/// `hipDeviceMallocFinegrained`, `hipDeviceMallocUncached`, `hipDeviceMallocContiguous`: device memory all the same here.
const DEVICE_MALLOC_KINDS: [c_uint; 4] = [0, 1, 3, 4];
/// `hipMemAttachGlobal` and `hipMemAttachHost`.
const ATTACH_KINDS: [c_uint; 2] = [1, 2];

/// Device memory, entered into the map.
fn allocate(
    state: &'static State,
    device: &'static Device,
    size: usize,
    flags: u32,
    stream_ordered: bool,
) -> Result<usize, HipError> {
    let base = device.arena.allocate(size).ok_or(HipError::OUT_OF_MEMORY)?;
    let reach = device.arena.reach(base);
    let id = state.next_buffer();
    let allocation = Allocation::new(id, Kind::Device, device.ordinal, base, size, reach);
    state.know(allocation.made_with(flags, stream_ordered));
    Ok(base)
}

/// Memory that the CPU reaches, entered into the map: between two pages that nobody does.
pub(crate) fn allocate_host(
    state: &'static State,
    device: &'static Device,
    size: usize,
    flags: u32,
    managed: bool,
) -> Result<usize, HipError> {
    let rounded = size.checked_next_multiple_of(PAGE).ok_or(HipError::OUT_OF_MEMORY)?;
    let align = if size >= sys::HUGE { sys::HUGE } else { PAGE };
    let mapping_len = rounded.checked_add(align + PAGE).ok_or(HipError::OUT_OF_MEMORY)?;
    let mapping = sys::map(mapping_len, align, libc::PROT_NONE).ok_or(HipError::OUT_OF_MEMORY)?;
    let base = mapping + align;
    if !sys::open_up(base, rounded) {
        sys::unmap(mapping, mapping_len);
        return Err(HipError::OUT_OF_MEMORY);
    }
    sys::advise(base, rounded, libc::MADV_HUGEPAGE);
    sys::populate(base, rounded);
    let kind =
        if managed { Kind::Managed { mapping, mapping_len } } else { Kind::Host { mapping, mapping_len } };
    let id = state.next_buffer();
    state.know(Allocation::new(id, kind, device.ordinal, base, size, base).made_with(flags, false));
    Ok(base)
}

/// Frees what begins at `ptr`, once nothing queued can touch it.
pub(crate) fn free(state: &'static State, ptr: *mut c_void) -> Result<(), HipError> {
    if ptr.is_null() {
        return Ok(());
    }
    let allocation = state
        .find(ptr as usize)
        .filter(|found| {
            found.base == ptr as usize
                && found.kind != Kind::Registered
                && found.physical.is_none()
                && found.imported.is_none()
        })
        .ok_or(HipError::INVALID_VALUE)?;
    match allocation.kind {
        Kind::Device if allocation.stream_ordered && state.is_at_least(7, 0) => {}
        Kind::Device => state.devices[allocation.device].drain(),
        _ => state.drain_all(),
    }
    if state.give_back(&allocation) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
}

/// Allocates memory of the current device; 0 bytes are a null pointer.
///
/// # Errors
/// hipErrorInvalidValue for a null `ptr`, hipErrorOutOfMemory when it does not fit.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipMalloc(ptr: *mut *mut c_void, size: usize) -> HipError {
    call(Function::hipMalloc, |state| {
        capture::refuse_unsafe(state)?;
        // SAFETY: as this function demands.
        unsafe { device_call(state, ptr, size, 0) }
    })
}

unsafe fn device_call(
    state: &'static State,
    ptr: *mut *mut c_void,
    size: usize,
    flags: u32,
) -> Result<(), HipError> {
    let device = state.current()?;
    if ptr.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    let base = if size == 0 {
        0
    } else {
        device.drain();
        allocate(state, device, size, flags, false)?
    };
    // SAFETY: the caller of the C function vouches for `ptr`.
    unsafe { put(ptr, base as *mut c_void) }
}

/// Frees what an allocating function gave, after all work of its device.
///
/// # Errors
/// hipErrorInvalidValue for anything else, pointers into the middle included.
///
/// # Safety
/// Nobody uses the memory any more, but for work already queued.
pub unsafe extern "C" fn hipFree(ptr: *mut c_void) -> HipError {
    call(Function::hipFree, |state| {
        capture::refuse_unsafe(state)?;
        free(state, ptr)
    })
}

/// Allocates device memory for work of a stream. It is there at once, and waits for nothing.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipMallocAsync(ptr: *mut *mut c_void, size: usize, stream: StreamPtr) -> HipError {
    call(Function::hipMallocAsync, |state| {
        if ptr.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        stream::with(state, stream, |stream| {
            capture::refuse(state, stream)?;
            let device = &state.devices[stream.device];
            let base = if size == 0 { 0 } else { allocate(state, device, size, 0, true)? };
            // SAFETY: as this function demands.
            unsafe { put(ptr, base as *mut c_void) }
        })
    })
}

/// Frees device memory once a stream has got there.
///
/// # Safety
/// Nobody uses the memory any more, but for work already queued on the stream.
pub unsafe extern "C" fn hipFreeAsync(ptr: *mut c_void, stream: StreamPtr) -> HipError {
    call(Function::hipFreeAsync, |state| {
        let allocation: Arc<Allocation> = state
            .find(ptr as usize)
            .filter(|found| {
                found.base == ptr as usize && found.kind == Kind::Device && found.physical.is_none()
            })
            .ok_or(HipError::INVALID_VALUE)?;
        stream::with(state, stream, |stream| {
            capture::refuse(state, stream)?;
            if stream.is_clear(state) {
                return if state.give_back(&allocation) { Ok(()) } else { Err(HipError::INVALID_VALUE) };
            }
            stream::submit(state, stream, Op::Free(allocation), Vec::new()).map(drop)
        })
    })
}

/// Allocates memory that the CPU and every device reach.
///
/// # Errors
/// hipErrorInvalidValue for null, 0 bytes or flags that are not one of the two kinds of attachment.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipMallocManaged(ptr: *mut *mut c_void, size: usize, flags: c_uint) -> HipError {
    call(Function::hipMallocManaged, |state| {
        capture::refuse_unsafe(state)?;
        let device = state.current()?;
        if ptr.is_null() || size == 0 || !ATTACH_KINDS.contains(&flags) {
            return Err(HipError::INVALID_VALUE);
        }
        device.drain();
        let base = allocate_host(state, device, size, flags, true)?;
        // SAFETY: as this function demands.
        unsafe { put(ptr, base as *mut c_void) }
    })
}

/// Allocates memory of a kind: device memory, or eight bytes of signal memory that the CPU reaches too.
///
/// # Errors
/// hipErrorInvalidValue for null, for unknown flags, and for signal memory of another size.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipExtMallocWithFlags(
    ptr: *mut *mut c_void,
    size: usize,
    flags: c_uint,
) -> HipError {
    call(Function::hipExtMallocWithFlags, |state| {
        capture::refuse_unsafe(state)?;
        if flags == MALLOC_SIGNAL_MEMORY {
            if size != 8 {
                return Err(HipError::INVALID_VALUE);
            }
            // SAFETY: as this function demands.
            return unsafe { host::allocate_call(state, ptr, size, flags) };
        }
        if !DEVICE_MALLOC_KINDS.contains(&flags) {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        unsafe { device_call(state, ptr, size, flags) }
    })
}

/// Free and total memory of the current device, in bytes.
///
/// # Safety
/// Each pointer is null or may be written to.
pub unsafe extern "C" fn hipMemGetInfo(free: *mut usize, total: *mut usize) -> HipError {
    call(Function::hipMemGetInfo, |state| {
        let room = state.current()?.arena.room();
        for (to, value) in [(free, room.0), (total, room.1)] {
            if !to.is_null() {
                // SAFETY: as this function demands.
                unsafe { put(to, value) }?;
            }
        }
        Ok(())
    })
}
