//! Streams, events, host functions and stream memory operations: order, and that the caller does not wait.

use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use cubecl_hip_sys::*;
use gpu_sys::hip::HipError;

use super::{DeviceMemory, hip, in_client, ok, pattern};

fn stream() -> hipStream_t {
    let mut stream = core::ptr::null_mut();
    ok!(hipStreamCreateWithFlags(&raw mut stream, hipStreamNonBlocking));
    stream
}

/// Pinned memory, so that copies are asynchronous.
fn pinned(len: usize) -> &'static mut [u8] {
    let mut at = core::ptr::null_mut();
    ok!(hipHostMalloc(&raw mut at, len, hipHostMallocDefault));
    // SAFETY: the runtime gave `len` bytes that the CPU reaches, and nobody frees them.
    unsafe { core::slice::from_raw_parts_mut(at.cast(), len) }
}

/// A host function that waits until the test lets it go on: it holds its stream.
struct Gate {
    open: Option<mpsc::Sender<()>>,
}

impl Gate {
    fn on(stream: hipStream_t) -> Self {
        unsafe extern "C" fn wait(data: *mut c_void) {
            // SAFETY: `data` is the receiver that Gate::on leaked for this one call.
            let open = unsafe { Box::from_raw(data.cast::<mpsc::Receiver<()>>()) };
            let _ = open.recv();
        }
        let (open, gate) = mpsc::channel::<()>();
        ok!(hipLaunchHostFunc(stream, Some(wait), Box::into_raw(Box::new(gate)).cast()));
        Gate { open: Some(open) }
    }

    fn open(&mut self) {
        self.open = None;
    }
}

#[test]
fn a_stream_runs_in_order_and_the_caller_goes_on() {
    in_client("client::streams::a_stream_runs_in_order_and_the_caller_goes_on", &[], || {
        let stream = stream();
        let len = 1 << 20;
        let (from, to) = (pinned(len), pinned(len));
        from.copy_from_slice(&pattern(len, 1));
        to.fill(0);
        let memory = DeviceMemory::new(len);

        let mut gate = Gate::on(stream);
        ok!(hipMemcpyAsync(
            memory.at,
            from.as_ptr().cast(),
            len,
            hipMemcpyKind_hipMemcpyHostToDevice,
            stream
        ));
        ok!(hipMemsetAsync(memory.plus(100), 0x55, 50, stream));
        ok!(hipMemcpyAsync(
            to.as_mut_ptr().cast(),
            memory.at,
            len,
            hipMemcpyKind_hipMemcpyDeviceToHost,
            stream
        ));
        assert_eq!(HipError(hip!(hipStreamQuery(stream))), HipError::NOT_READY);
        assert_eq!(to[0], 0);
        // What the copy reads is read when the stream gets there.
        from[7] = 0x77;
        gate.open();
        ok!(hipStreamSynchronize(stream));
        ok!(hipStreamQuery(stream));
        let mut expected = pattern(len, 1);
        expected[7] = 0x77;
        expected[100..150].fill(0x55);
        assert!(*to == *expected);
        ok!(hipStreamDestroy(stream));
    });
}

#[test]
fn host_functions_run_in_order_on_another_thread() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn next(data: *mut c_void) {
        // SAFETY: `data` leads to a pair that lives until the stream was waited for, and only this call uses it.
        let seen = unsafe { &mut *data.cast::<(u64, bool)>() };
        seen.0 = COUNT.fetch_add(1, Ordering::SeqCst);
        seen.1 = std::thread::current().id() == *MAIN.get().unwrap();
    }
    static MAIN: std::sync::OnceLock<std::thread::ThreadId> = std::sync::OnceLock::new();

    in_client("client::streams::host_functions_run_in_order_on_another_thread", &[], || {
        MAIN.set(std::thread::current().id()).unwrap();
        let stream = stream();
        let mut gate = Gate::on(stream);
        let mut seen = vec![(u64::MAX, true); 100];
        for entry in &mut seen {
            ok!(hipLaunchHostFunc(stream, Some(next), (&raw mut *entry).cast()));
        }
        assert_eq!(COUNT.load(Ordering::SeqCst), 0);
        gate.open();
        ok!(hipStreamSynchronize(stream));
        for (order, (number, on_main)) in seen.into_iter().enumerate() {
            assert_eq!((number, on_main), (order as u64, false));
        }
        ok!(hipStreamDestroy(stream));
    });
}

#[test]
fn events_order_streams_and_measure_time() {
    in_client("client::streams::events_order_streams_and_measure_time", &[], || {
        let (a, b) = (stream(), stream());
        let (mut start, mut end, mut untimed) =
            (core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut());
        ok!(hipEventCreate(&raw mut start));
        ok!(hipEventCreateWithFlags(&raw mut end, hipEventDefault));
        ok!(hipEventCreateWithFlags(&raw mut untimed, hipEventDisableTiming));
        ok!(hipEventQuery(start));

        let memory = DeviceMemory::new(4096);
        let to = pinned(4096);
        ok!(hipEventRecord(start, a));
        let mut gate = Gate::on(a);
        ok!(hipMemsetAsync(memory.at, 0x42, 4096, a));
        ok!(hipEventRecord(end, a));
        ok!(hipStreamWaitEvent(b, end, 0));
        ok!(hipMemcpyAsync(to.as_mut_ptr().cast(), memory.at, 4096, hipMemcpyKind_hipMemcpyDeviceToHost, b));
        ok!(hipEventRecord(untimed, b));
        assert_eq!(HipError(hip!(hipEventQuery(end))), HipError::NOT_READY);
        assert_eq!(HipError(hip!(hipEventQuery(untimed))), HipError::NOT_READY);
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
        ok!(hipEventSynchronize(untimed));
        ok!(hipEventQuery(end));
        assert!(to.iter().all(|byte| *byte == 0x42));

        let mut milliseconds = 0.0;
        ok!(hipEventElapsedTime(&raw mut milliseconds, start, end));
        assert!((15.0..60_000.0).contains(&milliseconds), "{milliseconds}");
        let code = hip!(hipEventElapsedTime(&raw mut milliseconds, start, untimed));
        assert_eq!(HipError(code), HipError::INVALID_HANDLE);
        for event in [start, end, untimed] {
            ok!(hipEventDestroy(event));
        }
        ok!(hipStreamDestroy(a));
        ok!(hipStreamDestroy(b));
    });
}

#[test]
fn streams_wait_for_and_write_words_of_memory() {
    in_client("client::streams::streams_wait_for_and_write_words_of_memory", &[], || {
        let stream = stream();
        let mut at = core::ptr::null_mut();
        ok!(hipExtMallocWithFlags(&raw mut at, 8, hipMallocSignalMemory));
        // SAFETY: signal memory is eight aligned bytes that the CPU reaches; it is freed below, after its last use.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        word.store(0, Ordering::SeqCst);
        ok!(hipStreamWaitValue64(stream, at, 3, hipStreamWaitValueGte, u64::MAX));
        ok!(hipStreamWriteValue64(stream, at, 1 << 40, 0));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(HipError(hip!(hipStreamQuery(stream))), HipError::NOT_READY);
        word.store(2, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(HipError(hip!(hipStreamQuery(stream))), HipError::NOT_READY);
        word.store(4, Ordering::SeqCst);
        ok!(hipStreamSynchronize(stream));
        assert_eq!(word.load(Ordering::SeqCst), 1 << 40);

        // The mask takes the upper half away.
        ok!(hipStreamWaitValue64(stream, at, 0, hipStreamWaitValueEq, u64::from(u32::MAX)));
        ok!(hipStreamWriteValue32(stream, at, 6, 0));
        ok!(hipStreamWaitValue32(stream, at, 4, hipStreamWaitValueAnd, u32::MAX));
        ok!(hipStreamSynchronize(stream));
        assert_eq!(word.load(Ordering::SeqCst), (1 << 40) | 6);
        ok!(hipFree(at));
        ok!(hipStreamDestroy(stream));
    });
}

#[test]
fn streams_are_what_they_were_made() {
    in_client("client::streams::streams_are_what_they_were_made", &[("HIP_EMU_DEVICES", "2")], || {
        ok!(hipSetDevice(1));
        let made = stream();
        ok!(hipSetDevice(0));
        let (mut device, mut flags) = (9, 9);
        ok!(hipStreamGetDevice(made, &raw mut device));
        ok!(hipStreamGetFlags(made, &raw mut flags));
        assert_eq!((device, flags), (1, hipStreamNonBlocking));
        let mut status = 9;
        ok!(hipStreamIsCapturing(made, &raw mut status));
        assert_eq!(status, hipStreamCaptureStatus_hipStreamCaptureStatusNone);

        ok!(hipStreamBeginCapture(made, hipStreamCaptureMode_hipStreamCaptureModeRelaxed));
        ok!(hipStreamIsCapturing(made, &raw mut status));
        assert_eq!(status, hipStreamCaptureStatus_hipStreamCaptureStatusActive);
        let mut graph = core::ptr::null_mut();
        ok!(hipStreamEndCapture(made, &raw mut graph));
        assert!(!graph.is_null());
        ok!(hipGraphDestroy(graph));
        ok!(hipStreamDestroy(made));
        assert_ne!(HipError(hip!(hipStreamSynchronize(made))), HipError::SUCCESS);
    });
}

#[test]
fn a_host_function_that_calls_hip_ends_the_process() {
    unsafe extern "C" fn calls(_data: *mut c_void) {
        let mut device = 0;
        let _ = hip!(hipGetDevice(&raw mut device));
    }
    let test = "client::streams::a_host_function_that_calls_hip_ends_the_process";
    let ended = std::panic::catch_unwind(|| {
        in_client(test, &[], || {
            let stream = stream();
            ok!(hipLaunchHostFunc(stream, Some(calls), core::ptr::null_mut()));
            ok!(hipStreamSynchronize(stream));
        });
    });
    let message = ended.expect_err("the client lived");
    let message = message.downcast_ref::<String>().expect("a text");
    assert!(message.contains("hipGetDevice") && message.contains("host function"), "{message}");
}
