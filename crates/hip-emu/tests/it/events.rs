//! Events: recording, waiting, timing.

use gpu_sys::hip::{EVENT_DISABLE_TIMING, STREAM_NON_BLOCKING};

use crate::support::*;

#[test]
fn an_event_is_reached_with_the_work_before_it() {
    let api = own();
    let (stream, mark, word) = (stream(api, STREAM_NON_BLOCKING), event(api), word(api));
    ok!((api.hipEventQuery)(mark));
    ok!((api.hipEventSynchronize)(mark));
    ok!((api.hipEventRecord)(mark, stream));
    ok!((api.hipEventQuery)(mark));
    hold(api, stream, word);
    ok!((api.hipEventQuery)(mark));
    ok!((api.hipEventRecord)(mark, stream));
    gives!(NOT_READY, (api.hipEventQuery)(mark));
    let handle = mark.addr();
    assert_waits(api, word, || {
        ok!((api.hipEventSynchronize)(core::ptr::without_provenance_mut(handle)));
    });
    ok!((api.hipEventQuery)(mark));
    ok!((api.hipEventDestroy)(mark));
    gives!(CONTEXT_IS_DESTROYED, (api.hipEventDestroy)(mark));
    gives!(INVALID_HANDLE, (api.hipEventQuery)(mark));
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    let api = own();
    let (first, second) = (stream(api, STREAM_NON_BLOCKING), stream(api, STREAM_NON_BLOCKING));
    let (mark, word) = (event(api), word(api));
    let device = malloc(api, 8);
    let (source, target) = (pinned(api, 8), pinned(api, 8));
    source.fill(3);
    ok!((api.hipMemset)(device, 0, 8));
    hold(api, first, word);
    copy_async(api, device, source.as_ptr().cast(), 8, first);
    ok!((api.hipEventRecord)(mark, first));
    ok!((api.hipStreamWaitEvent)(second, mark, 0));
    copy_async(api, target.as_mut_ptr().cast(), device, 8, second);
    assert_held(api, second);
    release(word);
    ok!((api.hipStreamSynchronize)(second));
    assert_eq!(target, [3; 8]);
    // Reached or never recorded: nothing to wait for.
    ok!((api.hipStreamWaitEvent)(first, mark, 0));
    ok!((api.hipStreamWaitEvent)(first, event(api), 0));
    assert!(is_done(api, first));
    gives!(INVALID_VALUE, (api.hipStreamWaitEvent)(first, mark, 7));
    gives!(INVALID_HANDLE, (api.hipStreamWaitEvent)(first, core::ptr::null_mut(), 0));
    free(api, device);
}

#[test]
fn elapsed_time() {
    let api = own();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let (start, stop, word) = (event(api), event(api), word(api));
    let elapsed = |start, stop| {
        let mut milliseconds = -1.0;
        // SAFETY: the handles and the variable are this test's own.
        let result = unsafe { hip_emu::event::hipEventElapsedTime(&raw mut milliseconds, start, stop) };
        result.ok().map(|()| milliseconds)
    };
    assert!(elapsed(start, stop).is_err(), "not recorded");
    ok!((api.hipEventRecord)(start, stream));
    hold(api, stream, word);
    ok!((api.hipEventRecord)(stop, stream));
    assert_eq!(elapsed(start, stop), Err(gpu_sys::hip::HipError::NOT_READY));
    std::thread::sleep(std::time::Duration::from_millis(20));
    release(word);
    ok!((api.hipEventSynchronize)(stop));
    assert!(elapsed(start, stop).unwrap() >= 20.0);
    assert_eq!(elapsed(start, start), Ok(0.0));
    let mut untimed = core::ptr::null_mut();
    ok!((api.hipEventCreateWithFlags)(&raw mut untimed, EVENT_DISABLE_TIMING));
    ok!((api.hipEventRecord)(untimed, stream));
    assert_eq!(elapsed(start, untimed), Err(gpu_sys::hip::HipError::INVALID_HANDLE));
}

#[test]
fn flags_and_devices_are_checked() {
    let api = on(0);
    let mut made = core::ptr::null_mut();
    for flags in [8, 4, 0x6000_0000] {
        gives!(INVALID_VALUE, (api.hipEventCreateWithFlags)(&raw mut made, flags));
    }
    for flags in [0, 1, 2, 6, 0x4000_0000] {
        ok!((api.hipEventCreateWithFlags)(&raw mut made, flags));
    }
    let here = stream(api, 0);
    on(1);
    gives!(INVALID_HANDLE, (api.hipEventRecord)(event(api), here));
}
