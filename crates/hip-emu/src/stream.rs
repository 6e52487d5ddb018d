//! Streams: what they are, how they order work against each other, and HIP's functions about them. Queues do the work.

use core::cell::RefCell;
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use gpu_sys::hip::{
    DeviceOrdinal, EventPtr, HipError, HostFn, STREAM_DEFAULT, STREAM_LEGACY, STREAM_NON_BLOCKING,
    STREAM_PER_THREAD, StreamPtr,
};

use crate::call::{call, put};
use crate::capture::{self, Capture};
use crate::event;
use crate::function::Function;
use crate::lock::lock;
use crate::op::{HostCall, Op};
use crate::queue::{Queue, Ticket};
use crate::state::{Device, State};

/// Lowest and highest priority. They are kept and reported, and order nothing here.
pub(crate) const PRIORITIES: (c_int, c_int) = (1, -1);

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: usize,
    queue: usize,
    /// The legacy default stream of its device.
    is_null: bool,
    flags: c_uint,
    priority: c_int,
    /// Work submitted and not done.
    pending: AtomicUsize,
    /// The queue's number of the last work submitted.
    last: AtomicU64,
    /// Whether `capture` is anything: looked at by every submission.
    pub(crate) is_captured: AtomicBool,
    pub(crate) capture: Mutex<Option<Capture>>,
}

impl Stream {
    fn new(device: usize, queue: usize, is_null: bool, flags: c_uint, priority: c_int) -> Stream {
        Stream {
            device,
            queue,
            is_null,
            flags,
            priority,
            pending: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            is_captured: AtomicBool::new(false),
            capture: Mutex::default(),
        }
    }

    /// The legacy default stream of a device.
    pub(crate) fn null(device: usize) -> Stream {
        Stream::new(device, 0, true, STREAM_DEFAULT, 0)
    }

    /// Whether it is ordered against the legacy default stream (or is it).
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & STREAM_NON_BLOCKING == 0
    }

    /// Whether it is the legacy default stream.
    pub(crate) fn is_null(&self) -> bool {
        self.is_null
    }

    /// Whether all its work is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    pub(crate) fn queue(&self, state: &'static State) -> &'static Queue {
        &state.devices[self.device].queues[self.queue]
    }

    /// Whether work would begin at once if it were submitted now: then it may as well run on the caller's thread.
    pub(crate) fn is_clear(&self, state: &'static State) -> bool {
        let device = &state.devices[self.device];
        self.queue(state).is_idle()
            && if self.is_null {
                device.blocking_pending.load(Ordering::Acquire) == 0
            } else {
                !self.is_blocking() || device.null.is_idle()
            }
    }

    /// Its last work, if any of it is not done.
    fn tail(&self, state: &'static State) -> Option<Ticket> {
        let sequence = self.last.load(Ordering::Acquire);
        (!self.is_idle()).then(|| Ticket { queue: self.queue(state), sequence })
    }

    /// Called by the queue, under its lock, as work of this stream enters.
    pub(crate) fn began(&self, state: &State, sequence: u64) {
        self.last.store(sequence, Ordering::Release);
        self.pending.fetch_add(1, Ordering::AcqRel);
        if self.is_blocking() {
            state.devices[self.device].blocking_pending.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Called by the queue when work of this stream is done.
    pub(crate) fn ended(&self, state: &State) {
        self.pending.fetch_sub(1, Ordering::AcqRel);
        if self.is_blocking() {
            state.devices[self.device].blocking_pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Submits work to a stream, after what the rules of default streams put before it and after the points given.
///
/// # Errors
/// hipErrorOperatingSystem when the queue has no thread.
pub(crate) fn submit(
    state: &'static State,
    stream: &Arc<Stream>,
    op: Op,
    mut after: Vec<Ticket>,
) -> Result<Ticket, HipError> {
    let device = &state.devices[stream.device];
    if stream.is_null {
        after.extend(device.blocking_streams().iter().filter_map(|other| other.tail(state)));
    } else if stream.is_blocking() {
        after.extend(device.null.tail(state));
    }
    let queue = stream.queue(state);
    // What is before it in its own queue comes first anyway.
    after.retain(|ticket| !core::ptr::eq(ticket.queue, queue) && !ticket.is_reached());
    queue.submit(state, stream, op, after)
}

thread_local! {
    /// This thread's own default streams, one for each device it used one of.
    static PER_THREAD: RefCell<Vec<Arc<Stream>>> = const { RefCell::new(Vec::new()) };
}

fn per_thread(device: &'static Device) -> Arc<Stream> {
    PER_THREAD.with_borrow_mut(|streams| {
        if let Some(stream) = streams.iter().find(|stream| stream.device == device.ordinal) {
            return Arc::clone(stream);
        }
        let stream = create(device, STREAM_DEFAULT, 0);
        streams.push(Arc::clone(&stream));
        stream
    })
}

fn create(device: &'static Device, flags: c_uint, priority: c_int) -> Arc<Stream> {
    let stream = Arc::new(Stream::new(device.ordinal, device.assign_queue(), false, flags, priority));
    if stream.is_blocking() {
        lock(&device.blocking).push(Arc::downgrade(&stream));
    }
    stream
}

/// Does something with the stream of a handle: a created one, or one of the default streams of the current device.
///
/// # Errors
/// hipErrorContextIsDestroyed when the handle names none (real HIP 7 crashes there), and those of `f`.
pub(crate) fn with<R>(
    state: &'static State,
    handle: StreamPtr,
    f: impl FnOnce(&Arc<Stream>) -> Result<R, HipError>,
) -> Result<R, HipError> {
    match handle as usize {
        0 | STREAM_LEGACY => f(&state.current()?.null),
        STREAM_PER_THREAD => f(&per_thread(state.current()?)),
        handle => f(&state.streams.get(handle).ok_or(HipError::CONTEXT_IS_DESTROYED)?),
    }
}

unsafe fn create_call(
    state: &'static State,
    stream: *mut StreamPtr,
    flags: c_uint,
    priority: c_int,
) -> Result<(), HipError> {
    if stream.is_null() || !matches!(flags, STREAM_DEFAULT | STREAM_NON_BLOCKING) {
        return Err(HipError::INVALID_VALUE);
    }
    let device = state.current()?;
    if state.options.stream_create_waits {
        device.drain();
    }
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    let handle = state.streams.insert(create(device, flags, priority));
    // SAFETY: the caller of the C function vouches for `stream`.
    unsafe { put(stream, handle as StreamPtr) }
}

/// Creates a stream of the current device, ordered against its legacy default stream.
///
/// # Safety
/// `stream` is null or may be written to.
pub unsafe extern "C" fn hipStreamCreate(stream: *mut StreamPtr) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipStreamCreate, |state| unsafe { create_call(state, stream, STREAM_DEFAULT, 0) })
}

/// Creates a stream of the current device. Flags: 0 or hipStreamNonBlocking.
///
/// # Safety
/// `stream` is null or may be written to.
pub unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut StreamPtr, flags: c_uint) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipStreamCreateWithFlags, |state| unsafe { create_call(state, stream, flags, 0) })
}

/// As [`hipStreamCreateWithFlags`]; the priority is clamped, kept and reported.
///
/// # Safety
/// `stream` is null or may be written to.
pub unsafe extern "C" fn hipStreamCreateWithPriority(
    stream: *mut StreamPtr,
    flags: c_uint,
    priority: c_int,
) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipStreamCreateWithPriority, |state| unsafe {
        create_call(state, stream, flags, priority)
    })
}

/// Ends a stream's handle at once; work still queued on it is done all the same.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipStreamDestroy(stream: StreamPtr) -> HipError {
    call(Function::hipStreamDestroy, |state| {
        if matches!(stream as usize, 0 | STREAM_LEGACY | STREAM_PER_THREAD) {
            return Err(HipError::INVALID_HANDLE);
        }
        let stream = state.streams.remove(stream as usize).ok_or(HipError::CONTEXT_IS_DESTROYED)?;
        capture::abandon(state, &stream);
        Ok(())
    })
}

/// Waits for a stream's work; for the null handle, for that of all streams ordered against it too.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipStreamSynchronize(stream: StreamPtr) -> HipError {
    call(Function::hipStreamSynchronize, |state| {
        with(state, stream, |found| {
            capture::refuse_stream_wait(state, found)?;
            let mut tickets: Vec<_> = found.tail(state).into_iter().collect();
            if stream.is_null() {
                let others = state.devices[found.device].blocking_streams();
                tickets.extend(others.iter().filter_map(|other| other.tail(state)));
            }
            for ticket in tickets {
                ticket.wait();
            }
            Ok(())
        })
    })
}

/// Success when a stream's work is done, else hipErrorNotReady.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipStreamQuery(stream: StreamPtr) -> HipError {
    call(Function::hipStreamQuery, |state| {
        with(state, stream, |found| {
            capture::refuse_stream_wait(state, found)?;
            let others_idle = !stream.is_null()
                || state.devices[found.device].blocking_pending.load(Ordering::Acquire) == 0;
            if found.is_idle() && others_idle { Ok(()) } else { Err(HipError::NOT_READY) }
        })
    })
}

/// Makes later work of a stream wait for the work that an event was recorded after.
///
/// # Safety
/// None beyond C's: the handles are checked.
pub unsafe extern "C" fn hipStreamWaitEvent(stream: StreamPtr, event: EventPtr, flags: c_uint) -> HipError {
    call(Function::hipStreamWaitEvent, |state| {
        if flags != 0 {
            return Err(HipError::INVALID_VALUE);
        }
        let event = event::of(state, event)?;
        with(state, stream, |stream| {
            if capture::take(state, stream, || Op::Nothing)? {
                // Waiting for outside work would tie the graph to it.
                return if event.is_captured() { Ok(()) } else { Err(HipError::STREAM_CAPTURE_ISOLATION) };
            }
            match event.pending()? {
                None => Ok(()),
                Some(ticket) => submit(state, stream, Op::Nothing, vec![ticket]).map(drop),
            }
        })
    })
}

/// A stream's flags. The default streams of HIP have none to ask for: hipErrorInvalidValue, as there.
///
/// # Safety
/// `flags` is null or may be written to.
pub unsafe extern "C" fn hipStreamGetFlags(stream: StreamPtr, flags: *mut c_uint) -> HipError {
    call(Function::hipStreamGetFlags, |state| {
        if matches!(stream as usize, 0 | STREAM_LEGACY) {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        with(state, stream, |stream| unsafe { put(flags, stream.flags) })
    })
}

/// A stream's priority.
///
/// # Safety
/// `priority` is null or may be written to.
pub unsafe extern "C" fn hipStreamGetPriority(stream: StreamPtr, priority: *mut c_int) -> HipError {
    call(Function::hipStreamGetPriority, |state| {
        // SAFETY: as this function demands.
        with(state, stream, |stream| unsafe { put(priority, stream.priority) })
    })
}

/// The ordinal of a stream's device; for the default streams, of the current device.
///
/// # Safety
/// `device` is null or may be written to.
pub unsafe extern "C" fn hipStreamGetDevice(stream: StreamPtr, device: *mut DeviceOrdinal) -> HipError {
    call(Function::hipStreamGetDevice, |state| {
        // SAFETY: as this function demands.
        with(state, stream, |stream| unsafe { put(device, stream.device as DeviceOrdinal) })
    })
}

/// Runs a function of the host in stream order, on a thread of the queue. Calling HIP from inside it ends the process.
///
/// # Safety
/// The function may be called with `user_data` on another thread, once, at any time until the stream's work is done.
pub unsafe extern "C" fn hipLaunchHostFunc(
    stream: StreamPtr,
    function: HostFn,
    user_data: *mut c_void,
) -> HipError {
    call(Function::hipLaunchHostFunc, |state| {
        let function = function.ok_or(HipError::INVALID_VALUE)?;
        let host_call = HostCall { function, user_data: user_data as usize };
        with(state, stream, |stream| {
            if capture::take(state, stream, || Op::Host(host_call))? {
                return Ok(());
            }
            // Never on this thread, even when the stream is clear: it may hold what the function is going to lock.
            submit(state, stream, Op::Host(host_call), Vec::new()).map(drop)
        })
    })
}
