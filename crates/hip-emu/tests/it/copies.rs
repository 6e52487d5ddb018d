//! Copies: every kind, the order they take, when the host waits, and many at once.

use core::ffi::c_void;

use gpu_sys::hip::{
    MEMCPY_DEFAULT, MEMCPY_DEVICE_TO_DEVICE, MEMCPY_DEVICE_TO_HOST, MEMCPY_HOST_TO_DEVICE,
    MEMCPY_HOST_TO_HOST, STREAM_DEFAULT, STREAM_LEGACY, STREAM_NON_BLOCKING, STREAM_PER_THREAD,
};

use crate::support::*;

/// The longest a copy under the lock is, and more.
const SIZES: [usize; 3] = [100, 65_536, 300_000];

#[test]
fn every_kind_moves_the_bytes() {
    let api = hip();
    for size in SIZES {
        let pattern: Vec<u8> = (0..size).map(|at| (at % 253) as u8).collect();
        let (a, b) = (malloc(api, size), malloc(api, size));
        let staging = pinned(api, size);
        let mut plain = vec![0u8; size];
        staging.copy_from_slice(&pattern);
        for (first, second, third) in [
            (MEMCPY_HOST_TO_DEVICE, MEMCPY_DEVICE_TO_DEVICE, MEMCPY_DEVICE_TO_HOST),
            (MEMCPY_DEFAULT, MEMCPY_DEFAULT, MEMCPY_DEFAULT),
        ] {
            ok!((api.hipMemset)(a, 0, size));
            ok!((api.hipMemset)(b, 0, size));
            plain.fill(0);
            ok!((api.hipMemcpy)(a, staging.as_ptr().cast(), size, first));
            ok!((api.hipMemcpy)(b, a, size, second));
            ok!((api.hipMemcpy)(plain.as_mut_ptr().cast(), b, size, third));
            assert!(plain == pattern);
        }
        let mut host = vec![0u8; size];
        ok!((api.hipMemcpy)(host.as_mut_ptr().cast(), plain.as_ptr().cast(), size, MEMCPY_HOST_TO_HOST));
        assert!(host == pattern);
        ok!(hip_emu::copy::hipMemcpyHtoD(b, staging.as_ptr().cast(), size));
        ok!(hip_emu::copy::hipMemcpyDtoD(a, b, size));
        ok!(hip_emu::copy::hipMemcpyDtoH(host.as_mut_ptr().cast(), a, size));
        assert!(host == pattern);
        free(api, a);
        free(api, b);
    }
}

#[test]
fn a_direction_that_contradicts_the_pointers_is_refused() {
    let api = hip();
    let device = malloc(api, 64);
    let (mut from, mut to) = ([0u8; 64], [0u8; 64]);
    let from: *mut c_void = from.as_mut_ptr().cast();
    let to: *mut c_void = to.as_mut_ptr().cast();
    for (dst, src, kind) in [
        (to, from, MEMCPY_HOST_TO_DEVICE),
        (to, from, MEMCPY_DEVICE_TO_HOST),
        (to, from, MEMCPY_DEVICE_TO_DEVICE),
        (device, from, MEMCPY_HOST_TO_HOST),
        (device, from, MEMCPY_DEVICE_TO_HOST),
        (device, from, MEMCPY_DEVICE_TO_DEVICE),
        (to, device, MEMCPY_HOST_TO_HOST),
        (to, device, MEMCPY_HOST_TO_DEVICE),
        (device, core::ptr::null_mut(), MEMCPY_DEFAULT),
        (core::ptr::null_mut(), device, MEMCPY_DEFAULT),
    ] {
        gives!(INVALID_VALUE, (api.hipMemcpy)(dst, src, 64, kind));
        gives!(INVALID_VALUE, (api.hipMemcpyAsync)(dst, src, 64, kind, NULL));
        ok!((api.hipMemcpy)(dst, src, 0, kind));
    }
    gives!(INVALID_MEMCPY_DIRECTION, (api.hipMemcpy)(device, from, 64, 5));
    // Pinned and managed memory is the device's as well as the host's.
    let both: *mut c_void = pinned(api, 64).as_mut_ptr().cast();
    for kind in [MEMCPY_HOST_TO_DEVICE, MEMCPY_DEVICE_TO_HOST, MEMCPY_DEVICE_TO_DEVICE, MEMCPY_HOST_TO_HOST] {
        ok!((api.hipMemcpy)(both, both.wrapping_byte_add(32), 32, kind));
    }
    free(api, device);
}

#[test]
fn between_devices() {
    let api = on(0);
    let here = malloc(api, 5000);
    on(1);
    let there = malloc(api, 5000);
    on(2);
    write(api, here, &[9; 5000]);
    ok!((api.hipMemcpy)(there, here, 5000, MEMCPY_DEVICE_TO_DEVICE));
    assert_eq!(read(api, there, 5000), [9; 5000]);
    ok!((api.hipMemset)(here, 0, 5000));
    ok!(hip_emu::copy::hipMemcpyPeer(here, 0, there, 1, 5000));
    assert_eq!(read(api, here, 5000), [9; 5000]);
    gives!(INVALID_DEVICE, hip_emu::copy::hipMemcpyPeer(here, 99, there, 1, 5000));
    free(api, here);
    free(api, there);
}

#[test]
fn queued_copies_see_what_earlier_ones_left() {
    let api = own();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let word = word(api);
    let (a, b) = (malloc(api, 1000), malloc(api, 1000));
    let (source, target) = (pinned(api, 1000), pinned(api, 1000));
    source.fill(5);
    hold(api, stream, word);
    copy_async(api, a, source.as_ptr().cast(), 1000, stream);
    copy_async(api, b, a, 1000, stream);
    ok!(hip_emu::memset::hipMemsetD32Async(a, 0x0101_0101, 250, stream));
    copy_async(api, target.as_mut_ptr().cast(), b, 1000, stream);
    assert_held(api, stream);
    assert!(target.iter().all(|byte| *byte == 0));
    // The source is read when the stream gets there.
    source.fill(6);
    release(word);
    ok!((api.hipStreamSynchronize)(stream));
    assert!(target.iter().all(|byte| *byte == 6));
    assert_eq!(read(api, a, 1000), [1; 1000]);
    free(api, a);
    free(api, b);
}

#[test]
fn pageable_memory_makes_the_host_wait_pinned_does_not() {
    let api = own();
    let device = malloc(api, 1000);
    let staging = pinned(api, 1000).as_mut_ptr().addr();
    let device_at = device.addr();
    for to_device in [true, false] {
        let word = word(api);
        let stream = stream(api, STREAM_NON_BLOCKING);
        hold(api, stream, word);
        let copy = |host: usize, stream| {
            let host = core::ptr::with_exposed_provenance_mut(host);
            let device = core::ptr::with_exposed_provenance_mut(device_at);
            let (dst, src) = if to_device { (device, host) } else { (host, device) };
            ok!((api.hipMemcpyAsync)(dst, src, 1000, MEMCPY_DEFAULT, stream));
        };
        assert_returns(|| copy(staging, stream));
        let handle = stream.addr();
        assert_waits(api, word, || {
            let mut plain = vec![0u8; 1000];
            copy(plain.as_mut_ptr().expose_provenance(), core::ptr::with_exposed_provenance_mut(handle));
        });
        ok!((api.hipStreamDestroy)(stream));
    }
    free(api, device);
}

#[test]
fn a_blocking_copy_waits_for_blocking_streams_only() {
    let api = own();
    let device = malloc(api, 100).addr();
    let copy = || {
        let device = core::ptr::with_exposed_provenance_mut(device);
        write(api, device, &[1; 100]);
    };
    // On a fresh device these have the second and the third queue, the default stream the first.
    let (blocking, free_running) = (stream(api, STREAM_DEFAULT), stream(api, STREAM_NON_BLOCKING));
    let word_of_free = word(api);
    let word_of_blocking = word(api);
    hold(api, free_running, word_of_free);
    assert_returns(copy);
    assert!(!is_done(api, free_running));
    hold(api, blocking, word_of_blocking);
    assert_waits(api, word_of_blocking, copy);
    release(word_of_free);
}

#[test]
fn a_blocking_stream_waits_for_the_default_stream() {
    let api = own();
    let device = malloc(api, 100);
    let source = pinned(api, 100);
    let word = word(api);
    let (blocking, free_running) = (stream(api, STREAM_DEFAULT), stream(api, STREAM_NON_BLOCKING));
    for null in [NULL, core::ptr::without_provenance_mut(STREAM_LEGACY)] {
        word.store(0, std::sync::atomic::Ordering::Release);
        hold(api, null, word);
        copy_async(api, device, source.as_ptr().cast(), 100, blocking);
        copy_async(api, device, source.as_ptr().cast(), 100, free_running);
        ok!((api.hipStreamSynchronize)(free_running));
        assert_held(api, blocking);
        assert_held(api, null);
        release(word);
        ok!((api.hipStreamSynchronize)(blocking));
    }
    free(api, device);
}

#[test]
fn the_per_thread_stream_is_each_thread_s_own() {
    let api = own();
    let device = current(api) as usize;
    let per_thread = || core::ptr::without_provenance_mut(STREAM_PER_THREAD);
    let word = word(api);
    hold(api, per_thread(), word);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on(device);
            assert!(is_done(api, per_thread()), "another thread's stream has no work");
        });
    });
    assert_held(api, per_thread());
    release(word);
    ok!((api.hipStreamSynchronize)(per_thread()));
}

#[test]
fn a_copy_within_a_device_does_not_make_the_host_wait() {
    let api = own();
    let (a, b) = (malloc(api, 1000), malloc(api, 1000));
    let word = word(api);
    let held = stream(api, STREAM_DEFAULT);
    write(api, a, &[4; 1000]);
    hold(api, held, word);
    assert_returns(|| ok!((api.hipMemcpy)(b, a, 1000, MEMCPY_DEVICE_TO_DEVICE)));
    assert_returns(|| ok!((api.hipMemset)(a, 0, 1000)));
    release(word);
    assert_eq!(read(api, b, 1000), [4; 1000]);
    assert_eq!(read(api, a, 1000), [0; 1000]);
    free(api, a);
    free(api, b);
}

#[test]
fn copies_of_many_threads_do_not_mix() {
    let api = hip();
    let device = current(api) as usize;
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            scope.spawn(move || {
                on(device);
                for size in [64, 4096, 100_000] {
                    let at = malloc(api, size);
                    for round in 0..50u8 {
                        let value = (thread * 31).wrapping_add(round);
                        write(api, at, &vec![value; size]);
                        assert!(read(api, at, size).iter().all(|byte| *byte == value));
                    }
                    free(api, at);
                }
            });
        }
    });
}

#[test]
fn memsets_write_bytes_and_words() {
    let api = hip();
    let at = malloc(api, 64);
    ok!((api.hipMemset)(at, 0x1FF, 64));
    assert_eq!(read(api, at, 64), [0xFF; 64]);
    ok!(hip_emu::memset::hipMemsetD8(at, 7, 3));
    ok!(hip_emu::memset::hipMemsetD32(at.wrapping_byte_add(5), 0x0403_0201, 2));
    assert_eq!(read(api, at, 14), [7, 7, 7, 255, 255, 1, 2, 3, 4, 1, 2, 3, 4, 255]);
    gives!(INVALID_VALUE, hip_emu::memset::hipMemsetD32(at, 0, 17));
    gives!(INVALID_VALUE, hip_emu::memset::hipMemsetD32(at, 0, usize::MAX / 2));
    gives!(INVALID_VALUE, (api.hipMemset)(core::ptr::null_mut(), 0, 1));
    let mut local = [0u8; 8];
    gives!(INVALID_VALUE, (api.hipMemset)(local.as_mut_ptr().cast(), 0, 8));
    free(api, at);
}
