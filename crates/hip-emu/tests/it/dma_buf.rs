//! Device memory exported to other drivers: whole pages only, and a file that says where the bytes are.

use core::ffi::c_int;
use core::ptr::null_mut;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;

use gpu_sys::hip::MEMCPY_DEFAULT;
use hip_emu::dma_buf::*;

use crate::support::*;

#[test]
fn whole_pages_are_exported() {
    let api = hip_emu::api();
    let mut memory = null_mut();
    ok!((api.hipMalloc)(&raw mut memory, 10_000));
    let mut fd: c_int = -1;
    let to = (&raw mut fd).cast();
    gives!(
        INVALID_VALUE,
        hipMemGetHandleForAddressRange(to, memory.wrapping_byte_add(512), 4096, DMA_BUF_FD, 0)
    );
    gives!(INVALID_VALUE, hipMemGetHandleForAddressRange(to, memory, 10_000, DMA_BUF_FD, 0));
    gives!(INVALID_VALUE, hipMemGetHandleForAddressRange(to, memory, 16_384, DMA_BUF_FD, 0));
    gives!(NOT_SUPPORTED, hipMemGetHandleForAddressRange(to, memory, 4096, 7, 0));
    gives!(INVALID_VALUE, hipMemGetHandleForAddressRange(null_mut(), memory, 4096, DMA_BUF_FD, 0));
    ok!(hipMemGetHandleForAddressRange(to, memory.wrapping_byte_add(4096), 8192, DMA_BUF_FD, 0));
    // SAFETY: the descriptor is new and this test's own.
    let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
    std::io::Seek::rewind(&mut file).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    let mut numbers = text.trim().strip_prefix(MARK).unwrap().split_whitespace();
    let mut number = || usize::from_str_radix(numbers.next().unwrap(), 16).unwrap();
    let (at, len) = (number(), number());
    assert_eq!(len, 8192);
    let from = [9_u8; 10_000];
    ok!((api.hipMemcpy)(memory, from.as_ptr().cast(), 10_000, MEMCPY_DEFAULT));
    // SAFETY: the bytes of the allocation, which is still there, from its second page on.
    let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, 10_000 - 4096) };
    assert!(bytes.iter().all(|byte| *byte == 9));
    ok!((api.hipFree)(memory));
}
