//! Stream capture: what it takes, what it refuses, how it ends.

use core::ffi::c_void;

use gpu_sys::hip::{
    HipApi, MEMCPY_DEFAULT, STREAM_CAPTURE_MODE_RELAXED, STREAM_CAPTURE_STATUS_ACTIVE,
    STREAM_CAPTURE_STATUS_INVALIDATED, STREAM_CAPTURE_STATUS_NONE, STREAM_NON_BLOCKING, StreamPtr,
};
use hip_emu::capture::{hipGraphDestroy, hipStreamBeginCapture, hipStreamEndCapture};
use hip_emu::types::GraphPtr;

use crate::support::*;

fn status(api: &HipApi, stream: StreamPtr) -> u32 {
    let mut status = 99;
    ok!(api.hipStreamIsCapturing.unwrap()(stream, &raw mut status));
    status
}

fn end(stream: StreamPtr) -> GraphPtr {
    let mut graph = core::ptr::null_mut();
    ok!(hipStreamEndCapture(stream, &raw mut graph));
    assert!(!graph.is_null());
    graph
}

/// All captures are seen by every thread's calls, so the rules are tested in a process that does nothing else.
#[test]
fn capture() {
    child_passes("capture::child_that_captures", &[]);
    child_passes("capture::child_that_breaks_captures", &[]);
    child_passes("capture::child_with_threads", &[]);
}

#[test]
#[ignore = "captures concern the whole process: run by capture"]
fn child_that_captures() {
    unsafe extern "C" fn never(_: *mut c_void) {
        std::process::abort();
    }
    let api = hip_emu::api();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let (device, mark, plain_mark) = (malloc(api, 8), event(api), event(api));
    let source = pinned(api, 8);
    ok!((api.hipMemset)(device, 1, 8));
    assert_eq!(status(api, stream), STREAM_CAPTURE_STATUS_NONE);
    ok!(hipStreamBeginCapture(stream, 0));
    assert_eq!(status(api, stream), STREAM_CAPTURE_STATUS_ACTIVE);
    assert_eq!(status(api, NULL), STREAM_CAPTURE_STATUS_NONE);
    gives!(ILLEGAL_STATE, hipStreamBeginCapture(stream, 0));
    copy_async(api, device, source.as_ptr().cast(), 8, stream);
    ok!(hip_emu::memset::hipMemsetAsync(device, 2, 8, stream));
    ok!((api.hipLaunchHostFunc)(stream, Some(never), core::ptr::null_mut()));
    ok!((api.hipEventRecord)(mark, stream));
    gives!(STREAM_CAPTURE_ISOLATION, (api.hipStreamWaitEvent)(stream, plain_mark, 0));
    let graph = end(stream);
    assert_eq!(status(api, stream), STREAM_CAPTURE_STATUS_NONE);
    // Nothing of it ran.
    ok!((api.hipDeviceSynchronize)());
    assert_eq!(read(api, device, 8), [1; 8]);
    gives!(CAPTURED_EVENT, (api.hipEventQuery)(mark));
    ok!(hipGraphDestroy(graph));
    gives!(INVALID_VALUE, hipGraphDestroy(graph));
    let mut none = core::ptr::null_mut();
    gives!(ILLEGAL_STATE, hipStreamEndCapture(stream, &raw mut none));
    gives!(STREAM_CAPTURE_UNSUPPORTED, hipStreamBeginCapture(NULL, 0));
    gives!(INVALID_VALUE, hipStreamBeginCapture(stream, 3));
    // After a capture the stream works as before.
    copy_async(api, device, source.as_ptr().cast(), 8, stream);
    ok!((api.hipStreamSynchronize)(stream));
    assert_eq!(read(api, device, 8), [0; 8]);
}

#[test]
#[ignore = "captures concern the whole process: run by capture"]
fn child_that_breaks_captures() {
    let api = hip_emu::api();
    let (capturing, other) = (stream(api, 0), stream(api, STREAM_NON_BLOCKING));
    let device = malloc(api, 8);
    let mark = event(api);
    let source = pinned(api, 8);
    let word = word(api);
    let from: *const c_void = source.as_ptr().cast();
    let mut at = core::ptr::null_mut();
    let wait = api.hipStreamWaitValue64.unwrap();

    // What is unsafe in a capture that is not relaxed, or in any; every time it voids the capture.
    let unsupported: [&dyn Fn(*mut *mut c_void) -> gpu_sys::hip::HipError; 9] = [
        // SAFETY: all arguments of these are valid.
        &|at| unsafe { (api.hipMalloc)(at, 8) },
        // SAFETY: as above.
        &|at| unsafe { (api.hipHostMalloc)(at, 8, 0) },
        // SAFETY: as above.
        &|_| unsafe { (api.hipFree)(device) },
        // SAFETY: as above.
        &|_| unsafe { (api.hipDeviceSynchronize)() },
        // SAFETY: as above.
        &|_| unsafe { (api.hipEventQuery)(mark) },
        // SAFETY: as above.
        &|_| unsafe { (api.hipStreamSynchronize)(capturing) },
        // SAFETY: as above.
        &|_| unsafe { (api.hipStreamQuery)(capturing) },
        // SAFETY: as above.
        &|_| unsafe { (api.hipStreamSynchronize)(other) },
        // SAFETY: as above.
        &|_| unsafe { wait(capturing, word.as_ptr().cast(), 0, 0, 0) },
    ];
    for (number, call) in unsupported.iter().enumerate() {
        ok!(hipStreamBeginCapture(capturing, 0));
        assert_eq!(call(&raw mut at), gpu_sys::hip::HipError::STREAM_CAPTURE_UNSUPPORTED, "call {number}");
        assert_eq!(status(api, capturing), STREAM_CAPTURE_STATUS_INVALIDATED);
        gives!(STREAM_CAPTURE_INVALIDATED, (api.hipMemcpyAsync)(device, from, 8, MEMCPY_DEFAULT, capturing));
        let mut graph: GraphPtr = core::ptr::without_provenance_mut(8);
        gives!(STREAM_CAPTURE_INVALIDATED, hipStreamEndCapture(capturing, &raw mut graph));
        assert!(graph.is_null());
        assert_eq!(status(api, capturing), STREAM_CAPTURE_STATUS_NONE);
    }

    // The default stream is part of what a blocking stream does.
    ok!(hipStreamBeginCapture(capturing, STREAM_CAPTURE_MODE_RELAXED));
    let mut asked = 0;
    gives!(STREAM_CAPTURE_IMPLICIT, api.hipStreamIsCapturing.unwrap()(NULL, &raw mut asked));
    gives!(STREAM_CAPTURE_IMPLICIT, (api.hipMemcpyAsync)(device, from, 8, MEMCPY_DEFAULT, NULL));
    // Relaxed capture lets the unsafe calls pass,
    ok!((api.hipMalloc)(&raw mut at, 8));
    ok!((api.hipFree)(at));
    ok!((api.hipStreamSynchronize)(other));
    assert_eq!(status(api, capturing), STREAM_CAPTURE_STATUS_ACTIVE);
    // but no blocking copy.
    gives!(STREAM_CAPTURE_IMPLICIT, (api.hipMemcpy)(device, from, 8, MEMCPY_DEFAULT));
    assert_eq!(status(api, capturing), STREAM_CAPTURE_STATUS_INVALIDATED);
    ok!((api.hipStreamDestroy)(capturing));
    ok!((api.hipMemcpy)(device, from, 8, MEMCPY_DEFAULT));
}

#[test]
#[ignore = "captures concern the whole process: run by capture"]
fn child_with_threads() {
    let api = hip_emu::api();
    let stream = stream(api, STREAM_NON_BLOCKING);
    let handle = stream.addr();
    let elsewhere =
        |f: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(f).join().expect("no panic"));
    let malloc_gives = |code: gpu_sys::hip::HipError| {
        let mut at = core::ptr::null_mut();
        // SAFETY: the variable is valid.
        assert_eq!(unsafe { (api.hipMalloc)(&raw mut at, 8) }, code);
    };
    // Thread-local: other threads may allocate, and may not end it.
    ok!(hipStreamBeginCapture(stream, 1));
    elsewhere(&|| {
        malloc_gives(gpu_sys::hip::HipError::SUCCESS);
        let mut graph = core::ptr::null_mut();
        gives!(
            STREAM_CAPTURE_WRONG_THREAD,
            hipStreamEndCapture(core::ptr::without_provenance_mut(handle), &raw mut graph)
        );
    });
    assert_eq!(status(api, stream), STREAM_CAPTURE_STATUS_ACTIVE);
    end(stream);
    // Global: they may not, unless they look away.
    let exchange = api.hipThreadExchangeStreamCaptureMode.unwrap();
    ok!(hipStreamBeginCapture(stream, 0));
    elsewhere(&|| {
        for look_away in [1, STREAM_CAPTURE_MODE_RELAXED] {
            let mut mode = look_away;
            ok!(exchange(&raw mut mode));
            assert_eq!(mode, 0);
            malloc_gives(gpu_sys::hip::HipError::SUCCESS);
            ok!(exchange(&raw mut mode));
            assert_eq!(mode, look_away);
        }
        let mut unknown = 3;
        gives!(INVALID_VALUE, exchange(&raw mut unknown));
        gives!(INVALID_VALUE, exchange(core::ptr::null_mut()));
    });
    // Their own thread looks away only when relaxed, and no mode helps a blocking copy.
    let mut mode = STREAM_CAPTURE_MODE_RELAXED;
    ok!(exchange(&raw mut mode));
    malloc_gives(gpu_sys::hip::HipError::SUCCESS);
    assert_eq!(status(api, stream), STREAM_CAPTURE_STATUS_ACTIVE);
    let (device, source) = (malloc(api, 8), pinned(api, 8));
    gives!(STREAM_CAPTURE_IMPLICIT, (api.hipMemcpy)(device, source.as_ptr().cast(), 8, MEMCPY_DEFAULT));
    ok!(exchange(&raw mut mode));
    let mut graph = core::ptr::null_mut();
    gives!(STREAM_CAPTURE_INVALIDATED, hipStreamEndCapture(stream, &raw mut graph));
    ok!(hipStreamBeginCapture(stream, 0));
    elsewhere(&|| malloc_gives(gpu_sys::hip::HipError::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(status(api, stream), STREAM_CAPTURE_STATUS_INVALIDATED);
}
