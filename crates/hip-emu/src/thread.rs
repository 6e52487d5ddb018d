//! What the runtime keeps for each thread of the process: current device, last errors, whether a host function runs.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

use gpu_sys::hip::{HipError, STREAM_CAPTURE_MODE_GLOBAL, StreamCaptureMode};

/// The per-thread values. All are plain cells without a destructor, so that reading one costs one load.
pub(crate) struct PerThread {
    /// The current device's ordinal.
    pub(crate) device: Cell<usize>,
    /// What `hipGetLastError` answers.
    pub(crate) last_error: Cell<HipError>,
    /// What `hipExtGetLastError` answers: the last result, success included.
    pub(crate) last_result: Cell<HipError>,
    /// Set while this thread runs a host function of a stream.
    pub(crate) in_host_function: Cell<bool>,
    /// Which captures this thread's unsafe calls look at.
    pub(crate) capture_mode: Cell<StreamCaptureMode>,
    /// This thread's number, see [`index`].
    index: Cell<usize>,
}

thread_local! {
    static PER_THREAD: PerThread = const {
        PerThread {
            device: Cell::new(0),
            last_error: Cell::new(HipError::SUCCESS),
            last_result: Cell::new(HipError::SUCCESS),
            in_host_function: Cell::new(false),
            capture_mode: Cell::new(STREAM_CAPTURE_MODE_GLOBAL),
            index: Cell::new(usize::MAX),
        }
    };
}

/// Reads or writes this thread's values.
pub(crate) fn with<R>(f: impl FnOnce(&PerThread) -> R) -> R {
    PER_THREAD.with(f)
}

/// A small number that is this thread's own for its life: which shard it counts in, and who began a capture.
pub(crate) fn index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    with(|thread| {
        if thread.index.get() == usize::MAX {
            thread.index.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        thread.index.get()
    })
}
