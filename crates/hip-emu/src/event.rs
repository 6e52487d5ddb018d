//! Events: marks in a stream's work that can be waited for, asked and timed.

use core::ffi::c_uint;
use std::sync::{Arc, Mutex, OnceLock};

use gpu_sys::hip::{EVENT_DISABLE_TIMING, EventPtr, HipError, StreamPtr};

use crate::call::{call, put};
use crate::capture;
use crate::function::Function;
use crate::lock::lock;
use crate::op::Op;
use crate::queue::Ticket;
use crate::state::State;
use crate::stream;
use crate::sys;
use crate::types::{
    EVENT_BLOCKING_SYNC, EVENT_DISABLE_SYSTEM_FENCE, EVENT_INTERPROCESS, EVENT_RELEASE_TO_DEVICE,
    EVENT_RELEASE_TO_SYSTEM,
};

/// One event.
#[derive(Debug)]
pub(crate) struct Event {
    flags: c_uint,
    device: usize,
    record: Mutex<Record>,
}

/// The last recording of an event; each recording replaces the one before.
#[derive(Debug)]
enum Record {
    /// Never recorded.
    None,
    /// Recorded into a graph, not into a stream's work.
    Captured,
    /// Recorded; where (None: its stream was clear), and when it was reached.
    Made { at: Option<Ticket>, time: Arc<OnceLock<u64>> },
}

impl Event {
    /// Whether the last recording went into a graph.
    pub(crate) fn is_captured(&self) -> bool {
        matches!(*lock(&self.record), Record::Captured)
    }

    /// The point that the event's work is done at, if it is not.
    ///
    /// # Errors
    /// hipErrorCapturedEvent when the last recording went into a graph.
    pub(crate) fn pending(&self) -> Result<Option<Ticket>, HipError> {
        match &*lock(&self.record) {
            Record::None => Ok(None),
            Record::Captured => Err(HipError::CAPTURED_EVENT),
            Record::Made { at, .. } => Ok(at.filter(|ticket| !ticket.is_reached())),
        }
    }

    /// When the event was reached.
    fn time(&self) -> Result<u64, HipError> {
        if self.flags & EVENT_DISABLE_TIMING != 0 {
            return Err(HipError::INVALID_HANDLE);
        }
        match &*lock(&self.record) {
            Record::None => Err(HipError::INVALID_HANDLE),
            Record::Captured => Err(HipError::CAPTURED_EVENT),
            Record::Made { time, .. } => time.get().copied().ok_or(HipError::NOT_READY),
        }
    }
}

/// The event of a handle.
pub(crate) fn of(state: &State, event: EventPtr) -> Result<Arc<Event>, HipError> {
    state.events.get(event as usize).ok_or(HipError::INVALID_HANDLE)
}

unsafe fn create_call(state: &'static State, event: *mut EventPtr, flags: c_uint) -> Result<(), HipError> {
    const RELEASE: c_uint = EVENT_RELEASE_TO_DEVICE | EVENT_RELEASE_TO_SYSTEM | EVENT_DISABLE_SYSTEM_FENCE;
    const KNOWN: c_uint = EVENT_BLOCKING_SYNC | EVENT_DISABLE_TIMING | EVENT_INTERPROCESS | RELEASE;
    let shares_timed = flags & EVENT_INTERPROCESS != 0 && flags & EVENT_DISABLE_TIMING == 0;
    if event.is_null() || flags & !KNOWN != 0 || (flags & RELEASE).count_ones() > 1 || shares_timed {
        return Err(HipError::INVALID_VALUE);
    }
    let device = state.current()?.ordinal;
    let handle = state.events.insert(Arc::new(Event { flags, device, record: Mutex::new(Record::None) }));
    // SAFETY: the caller of the C function vouches for `event`.
    unsafe { put(event, handle as EventPtr) }
}

/// Creates an event of the current device that can be timed.
///
/// # Safety
/// `event` is null or may be written to.
pub unsafe extern "C" fn hipEventCreate(event: *mut EventPtr) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipEventCreate, |state| unsafe { create_call(state, event, 0) })
}

/// Creates an event of the current device.
///
/// # Safety
/// `event` is null or may be written to.
pub unsafe extern "C" fn hipEventCreateWithFlags(event: *mut EventPtr, flags: c_uint) -> HipError {
    // SAFETY: as this function demands.
    call(Function::hipEventCreateWithFlags, |state| unsafe { create_call(state, event, flags) })
}

/// Records an event after the work that a stream has now. The stream must be of the event's device.
///
/// # Safety
/// None beyond C's: the handles are checked.
pub unsafe extern "C" fn hipEventRecord(event: EventPtr, stream: StreamPtr) -> HipError {
    call(Function::hipEventRecord, |state| {
        let event = of(state, event)?;
        stream::with(state, stream, |stream| {
            if capture::take(state, stream, || Op::Nothing)? {
                *lock(&event.record) = Record::Captured;
                return Ok(());
            }
            if stream.device != event.device {
                return Err(HipError::INVALID_HANDLE);
            }
            let time = Arc::new(OnceLock::new());
            let at = if stream.is_clear(state) {
                let _ = time.set(sys::now());
                None
            } else {
                Some(stream::submit(state, stream, Op::Mark(Arc::clone(&time)), Vec::new())?)
            };
            *lock(&event.record) = Record::Made { at, time };
            Ok(())
        })
    })
}

/// Success when the event is reached or was never recorded, else hipErrorNotReady.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipEventQuery(event: EventPtr) -> HipError {
    call(Function::hipEventQuery, |state| {
        let event = of(state, event)?;
        capture::refuse_unsafe(state)?;
        if event.pending()?.is_some() { Err(HipError::NOT_READY) } else { Ok(()) }
    })
}

/// Waits until the event is reached.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipEventSynchronize(event: EventPtr) -> HipError {
    call(Function::hipEventSynchronize, |state| {
        let event = of(state, event)?;
        capture::refuse_unsafe(state)?;
        if let Some(ticket) = event.pending()? {
            ticket.wait();
        }
        Ok(())
    })
}

/// Milliseconds between two events of one device, both reached.
///
/// # Safety
/// `milliseconds` is null or may be written to.
pub unsafe extern "C" fn hipEventElapsedTime(
    milliseconds: *mut f32,
    start: EventPtr,
    stop: EventPtr,
) -> HipError {
    call(Function::hipEventElapsedTime, |state| {
        if milliseconds.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let (start, stop) = (of(state, start)?, of(state, stop)?);
        if start.device != stop.device {
            return Err(HipError::INVALID_HANDLE);
        }
        let (from, to) = (start.time()?, stop.time()?);
        let elapsed = (to as f64 - from as f64) / 1e6;
        // SAFETY: as this function demands.
        unsafe { put(milliseconds, elapsed as f32) }
    })
}

/// Ends an event's handle. Work that waits for it goes on waiting.
///
/// # Safety
/// None beyond C's: the handle is checked.
pub unsafe extern "C" fn hipEventDestroy(event: EventPtr) -> HipError {
    call(Function::hipEventDestroy, |state| {
        if event.is_null() {
            return Err(HipError::INVALID_HANDLE);
        }
        state.events.remove(event as usize).map(drop).ok_or(HipError::CONTEXT_IS_DESTROYED)
    })
}
