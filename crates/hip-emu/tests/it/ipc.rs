//! Memory that is lent: another address of the same bytes, with an identity of its own.

use core::ptr::null_mut;

use gpu_sys::hip::{MEMCPY_DEFAULT, POINTER_ATTRIBUTE_BUFFER_ID};
use hip_emu::ipc::*;
use hip_emu::types::IpcMemHandle;

use crate::support::*;

#[test]
fn lent_memory_is_the_same_bytes_at_another_address() {
    let api = hip_emu::api();
    let (mut memory, mut lent, mut again) = (null_mut(), null_mut(), null_mut());
    ok!((api.hipMalloc)(&raw mut memory, 10_000));
    let mut handle = IpcMemHandle { reserved: [0; 64] };
    ok!(hipIpcGetMemHandle(&raw mut handle, memory.wrapping_byte_add(5000)));
    ok!(hipIpcOpenMemHandle(&raw mut lent, handle, IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ok!(hipIpcOpenMemHandle(&raw mut again, handle, 0));
    assert!(lent != memory && again != lent);
    let (mut base, mut len) = (null_mut(), 0);
    ok!((api.hipMemGetAddressRange)(&raw mut base, &raw mut len, lent.wrapping_byte_add(77)));
    assert_eq!((base, len), (lent, 10_000));
    let id_of = |at| {
        let mut id = 0_u32;
        ok!((api.hipPointerGetAttribute)((&raw mut id).cast(), POINTER_ATTRIBUTE_BUFFER_ID, at));
        id
    };
    assert!(id_of(lent) != id_of(memory) && id_of(again) != id_of(lent));
    let (from, mut to) = ([7_u8; 10_000], [0_u8; 10_000]);
    ok!((api.hipMemcpy)(memory, from.as_ptr().cast(), 10_000, MEMCPY_DEFAULT));
    ok!((api.hipMemcpy)(to.as_mut_ptr().cast(), lent, 10_000, MEMCPY_DEFAULT));
    assert_eq!(from, to);
    // What is lent is not freed, but closed, once.
    gives!(INVALID_VALUE, (api.hipFree)(lent));
    ok!(hipIpcCloseMemHandle(lent));
    gives!(INVALID_VALUE, hipIpcCloseMemHandle(lent));
    gives!(INVALID_VALUE, (api.hipMemcpy)(to.as_mut_ptr().cast(), lent, 1, MEMCPY_DEFAULT));
    ok!(hipIpcCloseMemHandle(again));
    gives!(INVALID_VALUE, hipIpcCloseMemHandle(memory));
    ok!((api.hipFree)(memory));
    gives!(INVALID_VALUE, hipIpcOpenMemHandle(&raw mut lent, handle, 0));
}

#[test]
fn only_device_memory_is_lent() {
    let api = hip_emu::api();
    let (mut pinned, mut handle) = (null_mut(), IpcMemHandle { reserved: [0; 64] });
    ok!((api.hipHostMalloc)(&raw mut pinned, 4096, 0));
    gives!(INVALID_VALUE, hipIpcGetMemHandle(&raw mut handle, pinned));
    gives!(INVALID_VALUE, hipIpcGetMemHandle(&raw mut handle, null_mut()));
    let mut at = null_mut();
    gives!(INVALID_VALUE, hipIpcOpenMemHandle(&raw mut at, handle, 0));
    ok!((api.hipHostFree)(pinned));
}
