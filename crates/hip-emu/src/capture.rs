//! Stream capture: work submitted to a capturing stream goes into a graph instead of running. Enough of it for a client to
//! meet capture's rules and errors; graphs can be destroyed, not launched.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gpu_sys::hip::{
    HipError, STREAM_CAPTURE_MODE_GLOBAL, STREAM_CAPTURE_MODE_RELAXED, STREAM_CAPTURE_STATUS_ACTIVE,
    STREAM_CAPTURE_STATUS_INVALIDATED, STREAM_CAPTURE_STATUS_NONE, STREAM_LEGACY, StreamCaptureMode,
    StreamCaptureStatus, StreamPtr,
};

use crate::call::{call, put};
use crate::function::Function;
use crate::lock::lock;
use crate::op::Op;
use crate::state::State;
use crate::stream::{self, Stream};
use crate::thread;
use crate::types::GraphPtr;

/// A capture in progress on one stream.
#[derive(Debug)]
pub(crate) struct Capture {
    mode: StreamCaptureMode,
    /// The thread that began it, by [`thread::index`].
    thread: usize,
    ops: Vec<Op>,
    is_invalidated: bool,
}

/// What a capture ended in.
#[derive(Debug)]
pub(crate) struct Graph {
    /// Kept, not run.
    _ops: Vec<Op>,
}

/// All captures in progress.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// How many: what every call looks at when there is none.
    count: AtomicUsize,
    streams: Mutex<Vec<Arc<Stream>>>,
}

impl Captures {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn add(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.push(Arc::clone(stream));
        self.count.store(streams.len(), Ordering::Release);
    }

    fn remove(&self, stream: &Arc<Stream>) {
        let mut streams = lock(&self.streams);
        streams.retain(|other| !Arc::ptr_eq(other, stream));
        self.count.store(streams.len(), Ordering::Release);
    }

    /// Invalidates the captures that are meant, and says whether there was one.
    fn invalidate(&self, is_meant: impl Fn(&Capture) -> bool) -> bool {
        let mut any = false;
        for stream in lock(&self.streams).iter() {
            if let Some(capture) = lock(&stream.capture).as_mut().filter(|capture| is_meant(capture)) {
                capture.is_invalidated = true;
                any = true;
            }
        }
        any
    }

    /// Whether a stream that the legacy default stream of this device waits for is capturing.
    fn touches_null(&self, device: usize) -> bool {
        lock(&self.streams).iter().any(|stream| stream.device == device && stream.is_blocking())
    }
}

/// Refuses calls that capture makes unsafe, such as allocation: while this thread has a capture that is not relaxed, or any
/// thread a global one. Those captures are void then. A thread may have chosen to look at fewer of them, see
/// [`hipThreadExchangeStreamCaptureMode`].
pub(crate) fn refuse_unsafe(state: &State) -> Result<(), HipError> {
    if state.captures.is_empty() {
        return Ok(());
    }
    let (here, mode) = (thread::index(), thread::with(|thread| thread.capture_mode.get()));
    if mode == STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let hit = state.captures.invalidate(|capture| {
        let is_mine = capture.mode != STREAM_CAPTURE_MODE_RELAXED && capture.thread == here;
        is_mine || (mode == STREAM_CAPTURE_MODE_GLOBAL && capture.mode == STREAM_CAPTURE_MODE_GLOBAL)
    });
    if hit { Err(HipError::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// Refuses work on the legacy default stream of a device while a stream ordered with it is captured, and voids all captures:
/// the rule of CUDA's blocking copies.
pub(crate) fn refuse_implicit(state: &State, device: usize) -> Result<(), HipError> {
    if state.captures.is_empty() || !state.captures.touches_null(device) {
        return Ok(());
    }
    state.captures.invalidate(|_| true);
    Err(HipError::STREAM_CAPTURE_IMPLICIT)
}

/// Refuses the blocking copies and memsets while anything is captured, in any mode, and voids all captures.
pub(crate) fn refuse_blocking(state: &State) -> Result<(), HipError> {
    refuse_while_any(state, HipError::STREAM_CAPTURE_IMPLICIT)
}

/// Refuses to wait for a device while anything is captured, in any mode, and voids all captures.
pub(crate) fn refuse_device_wait(state: &State) -> Result<(), HipError> {
    refuse_while_any(state, HipError::STREAM_CAPTURE_UNSUPPORTED)
}

fn refuse_while_any(state: &State, error: HipError) -> Result<(), HipError> {
    if !state.captures.is_empty() && state.captures.invalidate(|_| true) { Err(error) } else { Ok(()) }
}

/// Refuses to wait for or query a stream that is capturing (whose capture is void then), and other streams where
/// [`refuse_unsafe`] would. The legacy default stream may be waited for.
pub(crate) fn refuse_stream_wait(state: &State, stream: &Stream) -> Result<(), HipError> {
    if state.captures.is_empty() || stream.is_null() {
        return Ok(());
    }
    if let Some(capture) = lock(&stream.capture).as_mut() {
        capture.is_invalidated = true;
        return Err(HipError::STREAM_CAPTURE_UNSUPPORTED);
    }
    refuse_unsafe(state)
}

/// Takes work into the stream's capture, if it has one; the work is not to be run then.
///
/// # Errors
/// hipErrorStreamCaptureInvalidated when the capture is void. hipErrorStreamCaptureImplicit when the stream is the legacy
/// default stream and a stream ordered against it captures (the rule of CUDA; HIP lets some such calls pass).
pub(crate) fn take(state: &State, stream: &Stream, op: impl FnOnce() -> Op) -> Result<bool, HipError> {
    if state.captures.is_empty() {
        return Ok(false);
    }
    if stream.is_null() {
        let is_implicit = state.captures.touches_null(stream.device);
        return if is_implicit { Err(HipError::STREAM_CAPTURE_IMPLICIT) } else { Ok(false) };
    }
    if !stream.is_captured.load(Ordering::Acquire) {
        return Ok(false);
    }
    match lock(&stream.capture).as_mut() {
        None => Ok(false),
        Some(capture) if capture.is_invalidated => Err(HipError::STREAM_CAPTURE_INVALIDATED),
        Some(capture) => {
            capture.ops.push(op());
            Ok(true)
        }
    }
}

/// Refuses work that no graph can hold.
///
/// # Errors
/// hipErrorStreamCaptureUnsupported when the stream captures (whose capture is void then); else as [`take`].
pub(crate) fn refuse(state: &State, stream: &Stream) -> Result<(), HipError> {
    if !take(state, stream, || Op::Nothing)? {
        return Ok(());
    }
    if let Some(capture) = lock(&stream.capture).as_mut() {
        capture.is_invalidated = true;
    }
    Err(HipError::STREAM_CAPTURE_UNSUPPORTED)
}

/// Ends the capture of a stream that is being destroyed.
pub(crate) fn abandon(state: &State, stream: &Arc<Stream>) {
    drop(end(state, stream));
}

fn end(state: &State, stream: &Arc<Stream>) -> Option<Capture> {
    let capture = lock(&stream.capture).take();
    stream.is_captured.store(false, Ordering::Release);
    state.captures.remove(stream);
    capture
}

/// Begins to capture a stream's work.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipStreamBeginCapture(stream: StreamPtr, mode: StreamCaptureMode) -> HipError {
    call(Function::hipStreamBeginCapture, |state| {
        if mode > STREAM_CAPTURE_MODE_RELAXED {
            return Err(HipError::INVALID_VALUE);
        }
        stream::with(state, stream, |stream| {
            if stream.is_null() {
                return Err(HipError::STREAM_CAPTURE_UNSUPPORTED);
            }
            let mut capture = lock(&stream.capture);
            if capture.is_some() {
                return Err(HipError::ILLEGAL_STATE);
            }
            *capture =
                Some(Capture { mode, thread: thread::index(), ops: Vec::new(), is_invalidated: false });
            stream.is_captured.store(true, Ordering::Release);
            drop(capture);
            state.captures.add(stream);
            Ok(())
        })
    })
}

/// Ends a capture; `*graph` is the graph, or null when the capture was void.
///
/// # Safety
/// `graph` is null or may be written to.
pub unsafe extern "C" fn hipStreamEndCapture(stream: StreamPtr, graph: *mut GraphPtr) -> HipError {
    call(Function::hipStreamEndCapture, |state| {
        if graph.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        stream::with(state, stream, |stream| {
            match lock(&stream.capture).as_ref() {
                None => return Err(HipError::ILLEGAL_STATE),
                Some(capture) => {
                    if capture.mode != STREAM_CAPTURE_MODE_RELAXED && capture.thread != thread::index() {
                        return Err(HipError::STREAM_CAPTURE_WRONG_THREAD);
                    }
                }
            }
            let ended = end(state, stream).ok_or(HipError::ILLEGAL_STATE)?;
            let (handle, outcome) = if ended.is_invalidated {
                (0, Err(HipError::STREAM_CAPTURE_INVALIDATED))
            } else {
                (state.graphs.insert(Arc::new(Graph { _ops: ended.ops })), Ok(()))
            };
            // SAFETY: as this function demands.
            unsafe { put(graph, handle as GraphPtr) }.and(outcome)
        })
    })
}

/// Whether a stream is capturing. Asked of the legacy default stream while a stream ordered against it captures:
/// hipErrorStreamCaptureImplicit.
///
/// # Safety
/// `status` is null or may be written to.
pub unsafe extern "C" fn hipStreamIsCapturing(
    stream: StreamPtr,
    status: *mut StreamCaptureStatus,
) -> HipError {
    call(Function::hipStreamIsCapturing, |state| {
        let found = if matches!(stream as usize, 0 | STREAM_LEGACY) {
            let device = state.current()?;
            if status.is_null() {
                return Err(HipError::INVALID_VALUE);
            }
            if !state.captures.is_empty() && state.captures.touches_null(device.ordinal) {
                return Err(HipError::STREAM_CAPTURE_IMPLICIT);
            }
            STREAM_CAPTURE_STATUS_NONE
        } else {
            stream::with(state, stream, |stream| {
                Ok(match lock(&stream.capture).as_ref() {
                    None => STREAM_CAPTURE_STATUS_NONE,
                    Some(capture) if capture.is_invalidated => STREAM_CAPTURE_STATUS_INVALIDATED,
                    Some(_) => STREAM_CAPTURE_STATUS_ACTIVE,
                })
            })?
        };
        // SAFETY: as this function demands.
        unsafe { put(status, found) }
    })
}

/// Sets which captures this thread's unsafe calls look at, and gives back what it was: global (as at first) for its own
/// and the global ones of all threads, thread-local for its own, relaxed for none.
///
/// # Safety
/// `mode` is null or may be read and written.
pub unsafe extern "C" fn hipThreadExchangeStreamCaptureMode(mode: *mut StreamCaptureMode) -> HipError {
    call(Function::hipThreadExchangeStreamCaptureMode, |_| {
        if mode.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        let wanted = unsafe { mode.read() };
        if wanted > STREAM_CAPTURE_MODE_RELAXED {
            return Err(HipError::INVALID_VALUE);
        }
        let before = thread::with(|thread| thread.capture_mode.replace(wanted));
        // SAFETY: as this function demands.
        unsafe { put(mode, before) }
    })
}

/// Destroys a graph.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipGraphDestroy(graph: GraphPtr) -> HipError {
    call(Function::hipGraphDestroy, |state| {
        state.graphs.remove(graph as usize).map(drop).ok_or(HipError::INVALID_VALUE)
    })
}
