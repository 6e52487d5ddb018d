//! What the tests share: one emulated machine with many devices, so that a test that holds a device's queues has one to
//! itself; safe wrappers around the calls that nearly every test makes.

use core::ffi::c_void;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use gpu_sys::hip::{
    EventPtr, HipApi, HipError, MEMCPY_DEFAULT, MEMCPY_DEVICE_TO_HOST, MEMCPY_HOST_TO_DEVICE,
    STREAM_WAIT_VALUE_GTE, StreamPtr,
};
use hip_emu::Options;

pub(crate) const NULL: StreamPtr = core::ptr::null_mut();
const DEVICES: usize = 32;
/// The first so many are shared, the others go to one test each.
pub(crate) const SHARED: usize = 6;
/// Each device's memory in these tests.
pub(crate) const MEMORY: usize = 64 << 20;

/// Asserts that a call to the runtime succeeds.
macro_rules! ok {
    ($call:expr) => {{
        // SAFETY: the arguments are the test's own variables and memory, valid for the call.
        let result = unsafe { $call };
        assert_eq!(result, gpu_sys::hip::HipError::SUCCESS, "{}", stringify!($call));
    }};
}
/// Asserts that a call to the runtime gives this code.
macro_rules! gives {
    ($code:ident, $call:expr) => {{
        // SAFETY: the arguments are the test's own variables and memory, valid for the call or refused by it.
        let result = unsafe { $call };
        assert_eq!(result, gpu_sys::hip::HipError::$code, "{}", stringify!($call));
    }};
}
pub(crate) use {gives, ok};

/// The table of the shared machine, with a device current that no other test uses, fresh: for tests that hold streams. On
/// a shared device two of those could each wait for what is behind the other's held stream.
pub(crate) fn own() -> &'static HipApi {
    static NEXT: AtomicUsize = AtomicUsize::new(SHARED);
    let device = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(device < DEVICES, "more tests want a device of their own than there are");
    on(device)
}

/// The table of the shared machine, with a device current that other tests use too.
pub(crate) fn hip() -> &'static HipApi {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let device = NEXT.fetch_add(1, Ordering::Relaxed) % SHARED;
    on(device)
}

/// The table of the shared machine, with this device current.
pub(crate) fn on(device: usize) -> &'static HipApi {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        let options =
            Options { devices: DEVICES, memory: MEMORY, any_file_system: true, ..Options::default() };
        hip_emu::init(options).expect("nothing in this process used the emulation before");
    });
    let api = hip_emu::api();
    ok!((api.hipSetDevice)(device as i32));
    api
}

/// The current device of this thread.
pub(crate) fn current(api: &HipApi) -> i32 {
    let mut device = -1;
    ok!((api.hipGetDevice)(&raw mut device));
    device
}

pub(crate) fn malloc(api: &HipApi, size: usize) -> *mut c_void {
    let mut at = core::ptr::null_mut();
    ok!((api.hipMalloc)(&raw mut at, size));
    at
}

pub(crate) fn free(api: &HipApi, at: *mut c_void) {
    ok!((api.hipFree)(at));
}

/// Pinned memory, as bytes that live until the process ends.
pub(crate) fn pinned(api: &HipApi, size: usize) -> &'static mut [u8] {
    let mut at = core::ptr::null_mut();
    ok!((api.hipHostMalloc)(&raw mut at, size, 0));
    // SAFETY: the allocation is that large, new, and never freed.
    unsafe { core::slice::from_raw_parts_mut(at.cast(), size) }
}

/// A word of pinned memory that lives until the process ends.
pub(crate) fn word(api: &HipApi) -> &'static AtomicU64 {
    let at = pinned(api, 8).as_mut_ptr().cast::<u64>();
    // SAFETY: the allocation is eight bytes, aligned, zero, never freed and used as an atomic only.
    unsafe { AtomicU64::from_ptr(at) }
}

pub(crate) fn write(api: &HipApi, to: *mut c_void, bytes: &[u8]) {
    ok!((api.hipMemcpy)(to, bytes.as_ptr().cast(), bytes.len(), MEMCPY_HOST_TO_DEVICE));
}

pub(crate) fn read(api: &HipApi, from: *const c_void, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    ok!((api.hipMemcpy)(bytes.as_mut_ptr().cast(), from, len, MEMCPY_DEVICE_TO_HOST));
    bytes
}

/// A queued copy that does not make the host wait: both ends are known to the runtime.
pub(crate) fn copy_async(api: &HipApi, to: *mut c_void, from: *const c_void, len: usize, stream: StreamPtr) {
    ok!((api.hipMemcpyAsync)(to, from, len, MEMCPY_DEFAULT, stream));
}

pub(crate) fn stream(api: &HipApi, flags: u32) -> StreamPtr {
    let mut stream = NULL;
    ok!((api.hipStreamCreateWithFlags)(&raw mut stream, flags));
    stream
}

pub(crate) fn event(api: &HipApi) -> EventPtr {
    let mut event = core::ptr::null_mut();
    ok!((api.hipEventCreateWithFlags)(&raw mut event, 0));
    event
}

/// Holds a stream until the word is at least 1.
pub(crate) fn hold(api: &HipApi, stream: StreamPtr, until: &AtomicU64) {
    let wait = api.hipStreamWaitValue64.expect("not hidden");
    ok!(wait(stream, until.as_ptr().cast(), 1, STREAM_WAIT_VALUE_GTE, u64::MAX));
}

pub(crate) fn release(word: &AtomicU64) {
    word.store(1, Ordering::Release);
}

/// Whether the stream's work is done.
pub(crate) fn is_done(api: &HipApi, stream: StreamPtr) -> bool {
    // SAFETY: the handle is the test's own.
    match unsafe { (api.hipStreamQuery)(stream) } {
        HipError::SUCCESS => true,
        HipError::NOT_READY => false,
        other => panic!("hipStreamQuery: {other:?}"),
    }
}

/// Asserts that work is still held after a while long enough for it to have run.
pub(crate) fn assert_held(api: &HipApi, stream: StreamPtr) {
    std::thread::sleep(Duration::from_millis(30));
    assert!(!is_done(api, stream), "the stream was expected to be held");
}

/// Runs `f` on another thread, with the same device current, and asserts that it does not return until `release` is
/// called, and does then.
pub(crate) fn assert_waits(api: &'static HipApi, until: &AtomicU64, f: impl FnOnce() + Send) {
    let device = current(api);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            ok!((api.hipSetDevice)(device));
            f();
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished(), "the call was expected to wait");
        release(until);
        waiting.join().expect("the waiting call");
    });
}

/// Runs `f` and asserts that it returns although something is held.
pub(crate) fn assert_returns<R>(f: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = f();
    assert!(start.elapsed() < Duration::from_secs(10));
    result
}

/// Faults are of the whole process: tests that inject some take turns.
pub(crate) fn faults() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an ignored test of this binary in a process of its own, with these variables.
pub(crate) fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .output()
        .expect("starts")
}

/// Asserts that such a test ran and passed.
pub(crate) fn child_passes(test: &str, variables: &[(&str, &str)]) {
    let output = child(test, variables);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
