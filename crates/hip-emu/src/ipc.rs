//! Memory that one process lends another. Emulated memory cannot leave its process, so here a program lends it to itself,
//! which HIP refuses; all else is as there: another address of the same memory, with an identity of its own.

use core::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;

use gpu_sys::hip::HipError;

use crate::call::{call, put};
use crate::function::Function;
use crate::ranges::{Allocation, Kind};
use crate::types::IpcMemHandle;
use crate::virtual_memory::{GRANULARITY, reserved_for};

/// `hipIpcMemLazyEnablePeerAccess`.
pub const IPC_MEM_LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

const MARK: u64 = 0x6970_632d_656d_7521;

fn handle_of(base: usize, id: u32) -> IpcMemHandle {
    let mut reserved = [0; 64];
    let words = [MARK, base as u64, u64::from(id)];
    for (place, byte) in reserved.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())) {
        *place = byte as c_char;
    }
    IpcMemHandle { reserved }
}

/// Names device memory for others. As in HIP it names the whole allocation, whatever address in it is given.
///
/// # Errors
/// hipErrorInvalidValue for null and for anything but memory of [`hipMalloc`](crate::memory::hipMalloc).
///
/// # Safety
/// `handle` is null or may be written to.
pub unsafe extern "C" fn hipIpcGetMemHandle(handle: *mut IpcMemHandle, ptr: *mut c_void) -> HipError {
    call(Function::hipIpcGetMemHandle, |state| {
        let found = state.find(ptr as usize).ok_or(HipError::INVALID_VALUE)?;
        let lendable = found.kind == Kind::Device && found.physical.is_none() && found.imported.is_none();
        if !lendable || found.stream_ordered {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        unsafe { put(handle, handle_of(found.base, found.id)) }
    })
}

/// Gives the memory that a handle names an address here.
///
/// # Errors
/// hipErrorInvalidValue for null, an unknown flag, and a handle of nothing (any more); hipErrorOutOfMemory.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipIpcOpenMemHandle(
    ptr: *mut *mut c_void,
    handle: IpcMemHandle,
    flags: c_uint,
) -> HipError {
    call(Function::hipIpcOpenMemHandle, |state| {
        if ptr.is_null() || flags & !IPC_MEM_LAZY_ENABLE_PEER_ACCESS != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(&handle.reserved[at * 8..]).for_each(|(to, from)| *to = *from as u8);
            u64::from_ne_bytes(bytes)
        };
        let named = usize::try_from(word(1)).ok().filter(|_| word(0) == MARK);
        let original = named.and_then(|base| state.find(base));
        let original =
            original.filter(|found| u64::from(found.id) == word(2)).ok_or(HipError::INVALID_VALUE)?;
        let at =
            state.reserved.take(reserved_for(original.len), GRANULARITY).ok_or(HipError::OUT_OF_MEMORY)?;
        let (id, device, len) = (state.next_buffer(), original.device, original.len);
        let reach = original.reach;
        state
            .know(Allocation::new(id, Kind::Device, device, at, len, reach).import_of(Arc::clone(&original)));
        // SAFETY: as this function demands.
        unsafe { put(ptr, at as *mut c_void) }
    })
}

/// Takes such an address away again, after all work of all devices.
///
/// # Errors
/// hipErrorInvalidValue for anything but an address of [`hipIpcOpenMemHandle`].
///
/// # Safety
/// Nobody uses it any more, but for work already queued.
pub unsafe extern "C" fn hipIpcCloseMemHandle(ptr: *mut c_void) -> HipError {
    call(Function::hipIpcCloseMemHandle, |state| {
        let found = state.find(ptr as usize);
        let found = found.filter(|found| found.base == ptr as usize && found.imported.is_some());
        let found = found.ok_or(HipError::INVALID_VALUE)?;
        state.drain_all();
        if state.give_back(&found) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    })
}
