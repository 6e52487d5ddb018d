//! Waiting for and writing words in stream order.

use std::sync::atomic::Ordering;

use gpu_sys::hip::{
    STREAM_NON_BLOCKING, STREAM_WAIT_VALUE_AND, STREAM_WAIT_VALUE_EQ, STREAM_WAIT_VALUE_GTE,
    STREAM_WAIT_VALUE_NOR,
};

use crate::support::*;

#[test]
fn each_comparison_holds_until_it_is_true() {
    let api = own();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let wait = api.hipStreamWaitValue64.unwrap();
    for (how, value, mask, held_by, released_by) in [
        (STREAM_WAIT_VALUE_GTE, 10, u64::MAX, 9, 11),
        (STREAM_WAIT_VALUE_GTE, 10, 0xFF, 0x109, 0x10A),
        (STREAM_WAIT_VALUE_EQ, 10, u64::MAX, 11, 10),
        (STREAM_WAIT_VALUE_EQ, 10, 0xF, 0x1B, 0x1A),
        (STREAM_WAIT_VALUE_AND, 0b110, u64::MAX, 0b1001, 0b100),
        (STREAM_WAIT_VALUE_NOR, !0b1, u64::MAX, 0b1, 0b0),
    ] {
        let word = word(api);
        word.store(held_by, Ordering::Release);
        ok!(wait(stream, word.as_ptr().cast(), value, how, mask));
        assert_held(api, stream);
        word.store(released_by, Ordering::Release);
        ok!((api.hipStreamSynchronize)(stream));
        // And on a clear stream a wait that holds already is no work at all.
        ok!(wait(stream, word.as_ptr().cast(), value, how, mask));
        assert!(is_done(api, stream));
    }
}

#[test]
fn a_stream_writes_what_another_waits_for() {
    let api = own();
    let (first, second) = (stream(api, STREAM_NON_BLOCKING), stream(api, STREAM_NON_BLOCKING));
    let (gate, flag) = (word(api), word(api));
    let write = api.hipStreamWriteValue64.unwrap();
    hold(api, second, flag);
    hold(api, first, gate);
    ok!(write(first, flag.as_ptr().cast(), u64::MAX, 0));
    assert_held(api, second);
    assert_eq!(flag.load(Ordering::Acquire), 0);
    release(gate);
    ok!((api.hipStreamSynchronize)(second));
    assert_eq!(flag.load(Ordering::Acquire), u64::MAX);
}

/// One queue's thread looks for all that wait. It goes on when its own word is there, and the others' must not be forgotten.
#[test]
fn streams_of_every_queue_wait_and_go_on_in_any_order() {
    let api = own();
    for orders in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let streams: Vec<_> = (0..4).map(|_| stream(api, STREAM_NON_BLOCKING)).collect();
        let words: Vec<_> = (0..4).map(|_| word(api)).collect();
        streams.iter().zip(&words).for_each(|(stream, word)| hold(api, *stream, word));
        streams.iter().for_each(|stream| assert_held(api, *stream));
        for (n, released) in orders.into_iter().enumerate() {
            release(words[released]);
            ok!((api.hipStreamSynchronize)(streams[released]));
            orders[n + 1..].iter().for_each(|other| assert!(!is_done(api, streams[*other])));
        }
        streams.into_iter().for_each(|stream| ok!((api.hipStreamDestroy)(stream)));
    }
}

#[test]
fn words_of_32_bits() {
    let api = own();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let word = word(api);
    word.store(0xFFFF_FFFF_0000_0000, Ordering::Release);
    let at = word.as_ptr().cast();
    ok!(hip_emu::wait_value::hipStreamWaitValue32(stream, at, 5, STREAM_WAIT_VALUE_GTE, u32::MAX));
    assert_held(api, stream);
    ok!(hip_emu::wait_value::hipStreamWriteValue32(self::stream(api, STREAM_NON_BLOCKING), at, 5, 0));
    ok!((api.hipStreamSynchronize)(stream));
    assert_eq!(word.load(Ordering::Acquire), 0xFFFF_FFFF_0000_0005);
}

#[test]
fn words_in_device_memory() {
    let api = own();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let at = malloc(api, 16);
    ok!((api.hipMemset)(at, 0, 16));
    ok!(api.hipStreamWaitValue64.unwrap()(stream, at, 1, STREAM_WAIT_VALUE_EQ, u64::MAX));
    assert_held(api, stream);
    write(api, at, &1u64.to_ne_bytes());
    ok!((api.hipStreamSynchronize)(stream));
    free(api, at);
}

#[test]
fn other_words_are_refused() {
    let api = hip();
    let wait = api.hipStreamWaitValue64.unwrap();
    let at = word(api).as_ptr();
    let mut plain = 0u64;
    gives!(INVALID_VALUE, wait(NULL, (&raw mut plain).cast(), 0, 0, 0));
    gives!(INVALID_VALUE, wait(NULL, core::ptr::null_mut(), 0, 0, 0));
    gives!(INVALID_VALUE, wait(NULL, at.wrapping_byte_add(4).cast(), 0, 0, 0));
    gives!(INVALID_VALUE, wait(NULL, at.cast(), 0, 4, 0));
    gives!(INVALID_VALUE, api.hipStreamWriteValue64.unwrap()(NULL, (&raw mut plain).cast(), 0, 0));
}
