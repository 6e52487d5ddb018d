//! Virtual memory: reserved addresses, memory mapped there piece by piece, and what is refused.

use core::ffi::c_void;
use core::ptr::null_mut;

use gpu_sys::hip::{AllocationPtr, HipApi, MEMCPY_DEFAULT};
use hip_emu::types::*;
use hip_emu::virtual_memory::*;

use crate::support::*;

const PIECE: usize = GRANULARITY;

fn here(api: &HipApi) -> MemLocation {
    let mut id = -1;
    ok!((api.hipGetDevice)(&raw mut id));
    MemLocation { kind: MEM_LOCATION_DEVICE, id }
}

fn wish(api: &HipApi) -> MemAllocationProp {
    MemAllocationProp {
        kind: MEM_ALLOCATION_PINNED,
        handle_types: MEM_HANDLE_NONE,
        location: here(api),
        win32_handle_meta_data: null_mut(),
        flags: MemAllocationFlags { compression_type: 0, gpu_direct_rdma_capable: 0, usage: 0 },
    }
}

fn create(api: &HipApi) -> AllocationPtr {
    let (mut handle, prop) = (null_mut(), wish(api));
    ok!(hipMemCreate(&raw mut handle, PIECE, &raw const prop, 0));
    handle
}

fn reserve(len: usize) -> *mut c_void {
    let mut at = null_mut();
    ok!(hipMemAddressReserve(&raw mut at, len, 0, null_mut(), 0));
    at
}

fn open(api: &HipApi, at: *mut c_void, len: usize) {
    let desc = MemAccessDesc { location: here(api), flags: MEM_ACCESS_READ_WRITE };
    ok!(hipMemSetAccess(at, len, &raw const desc, 1));
}

/// Three pieces, side by side, that may be used.
fn three(api: &HipApi) -> *mut c_void {
    let at = reserve(3 * PIECE);
    for n in 0..3 {
        let handle = create(api);
        ok!(hipMemMap(at.wrapping_byte_add(n * PIECE), PIECE, 0, handle, 0));
        ok!(hipMemRelease(handle));
    }
    open(api, at, 3 * PIECE);
    at
}

#[test]
fn memory_is_there_where_it_is_mapped() {
    let api = hip();
    let at = three(api);
    let bytes: Vec<u8> = (0..1000).map(|n| n as u8).collect();
    for n in 0..3 {
        write(api, at.wrapping_byte_add(n * PIECE), &bytes);
        assert_eq!(read(api, at.wrapping_byte_add(n * PIECE), 1000), bytes);
        let (mut base, mut len) = (null_mut(), 0);
        let inside = at.wrapping_byte_add(n * PIECE + 77);
        ok!((api.hipMemGetAddressRange)(&raw mut base, &raw mut len, inside));
        assert_eq!((base, len), (at.wrapping_byte_add(n * PIECE), PIECE), "one piece is told of");
    }
    let border = at.wrapping_byte_add(PIECE - 10);
    let mut host = [0_u8; 20];
    let to = host.as_mut_ptr().cast();
    gives!(INVALID_VALUE, (api.hipMemcpy)(to, border, 20, MEMCPY_DEFAULT));
    gives!(INVALID_VALUE, (api.hipFree)(at));
    gives!(INVALID_VALUE, hipMemAddressFree(at, 3 * PIECE));
    ok!(hipMemUnmap(at, 3 * PIECE));
    gives!(INVALID_VALUE, (api.hipMemcpy)(to, at, 20, MEMCPY_DEFAULT));
    ok!(hipMemAddressFree(at, 3 * PIECE));
}

#[test]
fn memory_stays_the_same_at_another_address() {
    let api = hip();
    let (at, handle) = (reserve(2 * PIECE), create(api));
    let other = at.wrapping_byte_add(PIECE);
    ok!(hipMemMap(at, PIECE, 0, handle, 0));
    open(api, at, PIECE);
    write(api, at, b"moved");
    ok!(hipMemUnmap(at, PIECE));
    ok!(hipMemMap(other, PIECE, 0, handle, 0));
    open(api, other, PIECE);
    assert_eq!(read(api, other, 5), b"moved");
    let mut again = null_mut();
    ok!(hipMemRetainAllocationHandle(&raw mut again, other.wrapping_byte_add(5)));
    assert_eq!(again, handle);
    ok!(hipMemRelease(handle));
    ok!(hipMemRelease(handle));
    gives!(INVALID_VALUE, hipMemRelease(handle));
    assert_eq!(read(api, other, 5), b"moved", "what is mapped stays");
    ok!(hipMemUnmap(other, PIECE));
    ok!(hipMemAddressFree(at, 2 * PIECE));
}

#[test]
fn the_rules_are_kept() {
    let api = hip();
    let (at, handle) = (reserve(2 * PIECE), create(api));
    let plain = malloc(api, 100);
    let mut out = null_mut();
    gives!(INVALID_VALUE, hipMemRetainAllocationHandle(&raw mut out, plain));
    free(api, plain);
    let prop = wish(api);
    gives!(INVALID_VALUE, hipMemCreate(&raw mut out, PIECE + 4096, &raw const prop, 0));
    gives!(INVALID_VALUE, hipMemCreate(&raw mut out, 0, &raw const prop, 0));
    gives!(INVALID_VALUE, hipMemCreate(&raw mut out, PIECE, &raw const prop, 1));
    let elsewhere = MemAllocationProp { location: MemLocation { id: 1000, ..prop.location }, ..prop };
    gives!(INVALID_VALUE, hipMemCreate(&raw mut out, PIECE, &raw const elsewhere, 0));
    let much = (MEMORY / PIECE + 1) * PIECE;
    gives!(OUT_OF_MEMORY, hipMemCreate(&raw mut out, much, &raw const prop, 0));
    let mut unit = 0;
    ok!(hipMemGetAllocationGranularity(&raw mut unit, &raw const prop, MEM_GRANULARITY_MINIMUM));
    assert_eq!(unit, PIECE);
    gives!(INVALID_VALUE, hipMemMap(at, 2 * PIECE, 0, handle, 0));
    gives!(INVALID_VALUE, hipMemMap(at, PIECE, PIECE, handle, 0));
    gives!(INVALID_VALUE, hipMemMap(at.wrapping_byte_add(2 * PIECE), PIECE, 0, handle, 0));
    gives!(INVALID_VALUE, hipMemMap(at.wrapping_byte_add(4096), PIECE, 0, handle, 0));
    ok!(hipMemMap(at, PIECE, 0, handle, 0));
    gives!(INVALID_VALUE, hipMemMap(at, PIECE, 0, handle, 0));
    let mut host = [0_u8; 8];
    // Nobody was given access yet.
    gives!(INVALID_VALUE, (api.hipMemcpy)(host.as_mut_ptr().cast(), at, 8, MEMCPY_DEFAULT));
    gives!(INVALID_VALUE, hipMemUnmap(at, 2 * PIECE));
    gives!(INVALID_VALUE, hipMemUnmap(at.wrapping_byte_add(4096), PIECE));
    ok!(hipMemUnmap(at, PIECE));
    ok!(hipMemRelease(handle));
    gives!(INVALID_VALUE, hipMemMap(at, PIECE, 0, handle, 0));
    gives!(INVALID_VALUE, hipMemAddressFree(at, PIECE));
    ok!(hipMemAddressFree(at, 2 * PIECE));
}
