//! Device memory: allocation, its errors, reuse of addresses, and that the CPU cannot touch it.

use std::sync::atomic::Ordering;

use gpu_sys::hip::{
    HipApi, MEMCPY_DEVICE_TO_HOST, POINTER_ATTRIBUTE_BUFFER_ID, STREAM_DEFAULT, STREAM_NON_BLOCKING,
};

use crate::support::*;

fn buffer_id(api: &HipApi, at: *mut core::ffi::c_void) -> u32 {
    let mut id = 0u32;
    ok!((api.hipPointerGetAttribute)((&raw mut id).cast(), POINTER_ATTRIBUTE_BUFFER_ID, at));
    id
}

#[test]
fn what_is_written_is_read_back() {
    let api = hip();
    for len in [1, 511, 4096, 4097, 3 << 20] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 % 251) as u8).collect();
        let at = malloc(api, len);
        write(api, at, &bytes);
        assert!(read(api, at, len) == bytes, "{len} bytes");
        free(api, at);
    }
}

#[test]
fn nothing_is_a_null_pointer_and_null_is_freed() {
    let api = hip();
    let mut at = core::ptr::without_provenance_mut(8);
    ok!((api.hipMalloc)(&raw mut at, 0));
    assert!(at.is_null());
    free(api, at);
    gives!(INVALID_VALUE, (api.hipMalloc)(core::ptr::null_mut(), 8));
}

#[test]
fn more_than_there_is_is_refused() {
    let api = hip();
    let mut at = core::ptr::null_mut();
    gives!(OUT_OF_MEMORY, (api.hipMalloc)(&raw mut at, MEMORY + 1));
    gives!(OUT_OF_MEMORY, (api.hipMalloc)(&raw mut at, usize::MAX));
    let (mut free_bytes, mut total) = (0, 0);
    let before = malloc(api, 1 << 20);
    ok!(hip_emu::memory::hipMemGetInfo(&raw mut free_bytes, &raw mut total));
    assert_eq!(total, MEMORY);
    assert!(free_bytes <= MEMORY - (1 << 20));
    free(api, before);
}

#[test]
fn only_the_start_of_a_live_allocation_is_freed() {
    let api = hip();
    let at = malloc(api, 4096);
    gives!(INVALID_VALUE, (api.hipFree)(at.wrapping_byte_add(16)));
    free(api, at);
    gives!(INVALID_VALUE, (api.hipFree)(at));
    let mut local = 0u64;
    gives!(INVALID_VALUE, (api.hipFree)((&raw mut local).cast()));
}

#[test]
fn a_freed_address_is_used_again_by_another_buffer() {
    // Others' allocations would come between.
    let api = own();
    for size in [4096, 5 << 20] {
        let first = malloc(api, size);
        let first_id = buffer_id(api, first);
        free(api, first);
        let second = malloc(api, size);
        assert_eq!(first, second);
        assert_ne!(first_id, buffer_id(api, second));
        assert_eq!(buffer_id(api, second), buffer_id(api, second.wrapping_byte_add(100)));
        free(api, second);
    }
}

#[test]
fn alignment_follows_size() {
    let api = hip();
    let small = malloc(api, 10);
    let large = malloc(api, 2 << 20);
    assert!(small.addr().is_multiple_of(4096));
    assert!(large.addr().is_multiple_of(2 << 20));
    free(api, small);
    free(api, large);
}

#[test]
fn fresh_memory_is_not_zero() {
    let api = hip();
    let at = malloc(api, 10_000);
    assert!(read(api, at, 10_000).iter().all(|byte| *byte != 0));
    free(api, at);
}

#[test]
fn a_range_that_leaves_its_allocation_is_refused() {
    let api = hip();
    let (first, second) = (malloc(api, 5000), malloc(api, 5000));
    let mut bytes = vec![0u8; 20_000];
    for (at, len) in [(first, 5001), (first.wrapping_byte_add(4999), 2), (first, 20_000), (second, 5001)] {
        gives!(INVALID_VALUE, (api.hipMemcpy)(bytes.as_mut_ptr().cast(), at, len, MEMCPY_DEVICE_TO_HOST));
        gives!(INVALID_VALUE, (api.hipMemset)(at, 0, len));
    }
    for outside in [first.wrapping_byte_add(5000), first.wrapping_byte_sub(1)] {
        gives!(INVALID_VALUE, (api.hipMemcpy)(bytes.as_mut_ptr().cast(), outside, 1, MEMCPY_DEVICE_TO_HOST));
    }
    free(api, first);
    gives!(INVALID_VALUE, (api.hipMemcpy)(bytes.as_mut_ptr().cast(), first, 1, MEMCPY_DEVICE_TO_HOST));
    free(api, second);
}

#[test]
fn the_cpu_cannot_touch_device_memory() {
    let api = hip();
    let at = malloc(api, 4096);
    for is_write in [false, true] {
        // SAFETY: the child only touches the one address and leaves, without locks or allocation.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let byte = at.cast::<u8>();
            if is_write {
                // SAFETY: none: this is the access that must not be possible. It ends the child.
                unsafe { byte.write_volatile(1) };
            } else {
                // SAFETY: none: this is the access that must not be possible. It ends the child.
                unsafe { byte.read_volatile() };
            }
            // SAFETY: ends the child at once; reached only if the access was possible.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: the child is this test's own.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status:#x}");
    }
    free(api, at);
}

#[test]
fn allocating_and_freeing_wait_for_held_streams() {
    let api = own();
    let device = malloc(api, 4096);
    let host = {
        let mut at = core::ptr::null_mut();
        ok!((api.hipHostMalloc)(&raw mut at, 4096, 0));
        at.addr()
    };
    let mut registered = vec![0u8; 8192];
    let registered = registered.as_mut_ptr().addr();
    let device = device.addr();
    let calls: [&(dyn Fn() + Sync); 6] = [
        &|| _ = malloc(api, 100),
        &|| _ = pinned(api, 100),
        &|| ok!((api.hipHostRegister)(core::ptr::with_exposed_provenance_mut(registered), 8192, 0)),
        &|| ok!((api.hipHostUnregister)(core::ptr::with_exposed_provenance_mut(registered))),
        &|| ok!((api.hipHostFree)(core::ptr::with_exposed_provenance_mut(host))),
        &|| ok!((api.hipFree)(core::ptr::with_exposed_provenance_mut(device))),
    ];
    let flags = [STREAM_DEFAULT, STREAM_NON_BLOCKING];
    let words: Vec<_> = calls.iter().map(|_| word(api)).collect();
    for ((call, word), flags) in calls.iter().zip(words).zip(flags.iter().cycle()) {
        let held = stream(api, *flags);
        hold(api, held, word);
        assert_waits(api, word, call);
        ok!((api.hipStreamDestroy)(held));
    }
}

#[test]
fn freeing_in_stream_order_does_not_wait() {
    let api = own();
    let word = word(api);
    let stream = stream(api, STREAM_NON_BLOCKING);
    let mut at = core::ptr::null_mut();
    hold(api, stream, word);
    ok!(hip_emu::memory::hipMallocAsync(&raw mut at, 4096, stream));
    ok!((api.hipMemset)(at, 1, 16));
    ok!(hip_emu::memory::hipFreeAsync(at, stream));
    assert!(buffer_id(api, at) != 0, "not freed before the stream gets there");
    release(word);
    ok!((api.hipStreamSynchronize)(stream));
    gives!(INVALID_VALUE, (api.hipFree)(at));
}

#[test]
fn managed_and_signal_memory_are_reached_from_both_sides() {
    let api = hip();
    let (mut managed, mut signal) = (core::ptr::null_mut(), core::ptr::null_mut());
    let (malloc_managed, malloc_flags) = (api.hipMallocManaged.unwrap(), api.hipExtMallocWithFlags.unwrap());
    ok!(malloc_managed(&raw mut managed, 100, 1));
    ok!((api.hipMemset)(managed, 7, 100));
    // SAFETY: managed memory of 100 bytes, this test's own.
    assert_eq!(unsafe { managed.cast::<[u8; 100]>().read() }[99], 7);
    ok!(malloc_flags(&raw mut signal, 8, gpu_sys::hip::MALLOC_SIGNAL_MEMORY));
    // SAFETY: signal memory is eight aligned bytes, this test's own.
    let signal_word = unsafe { std::sync::atomic::AtomicU64::from_ptr(signal.cast()) };
    signal_word.store(5, Ordering::Relaxed);
    assert_eq!(read(api, signal, 8), 5u64.to_ne_bytes());
    gives!(INVALID_VALUE, malloc_flags(&raw mut signal, 16, gpu_sys::hip::MALLOC_SIGNAL_MEMORY));
    gives!(INVALID_VALUE, malloc_flags(&raw mut signal, 8, 77));
    gives!(INVALID_VALUE, malloc_managed(&raw mut managed, 100, 0));
    free(api, managed);
    let mut device = core::ptr::null_mut();
    ok!(malloc_flags(&raw mut device, 8, 0));
    free(api, device);
}
