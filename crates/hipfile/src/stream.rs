//! Transfers in the order of a GPU stream. At submit everything is queued on the caller's stream; when the stream gets there
//! it is held while a thread of ours moves bytes between the file and pinned memory, and copies them itself. Nothing that
//! holds a stream waits for the GPU, takes a pooled Block, allocates or loads. The design: docs/design/0001-stream-gate.md.

use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::buffer::{BufferRecord, DevPtr, Place};
use crate::device::{LateWords, StreamPtr, Streams};
use crate::driver::{Driver, FileId, Inner, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::lane::{Lane, Seat};
use crate::op::Op;
use crate::route::{Pause, Stage, Walk};
use crate::stats::{self, Event, Split};
use crate::transfer;
use crate::usage::Hold;

/// What an operation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Bytes to move.
    pub len: usize,
    /// Where in the file.
    pub file_offset: i64,
    /// Where in the buffer.
    pub buffer_offset: i64,
}

/// The caller's side of a stream operation: its late-bound parameters and its result.
pub trait Caller: Send {
    /// The parameters as they are now. Called at submit, and once more when the stream gets there unless they are fixed.
    fn bind(&mut self) -> Ask;

    /// Whether [`Caller::bind`] will always give the same.
    fn is_fixed(&self) -> bool;

    /// The operation is accepted; its result may come at any time from now on.
    fn accepted(&mut self);

    /// The result. Called in the order of the stream, after everything else of the operation; no function of the GPU
    /// runtime may be called from it. Not called for an operation that was refused.
    fn done(self: Box<Self>, result: Result<usize>);
}

/// An operation on its way.
struct Operation {
    inner: Arc<Inner>,
    op: Op,
    base: usize,
    /// The size at submit; more than this is refused at run time.
    most: usize,
    /// What Block positions and file offsets agree by.
    quantum: u64,
    lane: Arc<Lane>,
    seat: Seat,
    state: Mutex<State>,
    /// Told when a thread has opened a gate, for where there is none that holds the stream.
    opened: Condvar,
}

struct State {
    /// What it uses; let go of before the result is told, for who sees that may deregister both.
    uses: Option<Uses>,
    caller: Option<Box<dyn Caller>>,
    first: Ask,
    bound: bool,
    walk: Walk,
    /// How it went so far, and how long our threads were at it, in nanoseconds.
    split: Split,
    took: u64,
    /// The part of the transfer that is in the Block.
    range: Range<usize>,
    /// An appended write, as far as it has come.
    collected: Vec<u8>,
    result: Option<Result<usize>>,
    /// Whether a thread was given the operation and has not opened the gate yet.
    handed_over: bool,
    /// Whether somebody waits for that thread.
    awaited: bool,
}

struct Uses {
    file: Hold<FileRecord>,
    buffer: Hold<BufferRecord>,
}

/// What a host function is given.
struct Call {
    operation: Arc<Operation>,
    ticket: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Makes ready what operations on a stream need, so that none of it has to be made while a stream is held.
    ///
    /// # Errors
    /// Why no runtime serves, `HipDriverError` for what is no stream.
    pub fn prepare_stream(&self, stream: StreamPtr) -> Result<()> {
        const OP: &str = "register stream";
        self.check_process(OP, ErrorKind::DriverClosing)?;
        let devices = self.inner.devices();
        let device = devices.first()?;
        if devices.serving().len() > 1 {
            // Only an operation's memory will tell whose stream it is, and no runtime bears another's handles.
            return Ok(());
        }
        let Some(streams) = device.streams() else {
            return Err(Error::message(
                ErrorKind::AsyncNotSupported,
                OP,
                "the GPU runtime has no stream operations",
            ));
        };
        let gpu = streams.gpu_of(stream)?;
        // Without memory for it now there may be some later; the first operation will say.
        let _ = self.inner.lanes().reserve(device, streams, gpu);
        Ok(())
    }

    /// Queues a transfer on a stream. Checks happen now, I/O when the stream gets there; what it came to goes to
    /// [`Caller::done`].
    ///
    /// # Errors
    /// Nothing is queued, in this order: `HandleNotRegistered`; for the memory as [`Driver::register_buffer`];
    /// `HipDriverError` for the stream; `AsyncNotSupported` while it is captured, or without what it takes; `InvalidValue`
    /// for offsets and sizes, or memory of another GPU than the stream's; `HipDriverError` when no staging memory for
    /// streams is left, or from the runtime while queueing.
    ///
    /// # Safety
    /// The memory must be valid, and used in the stream's order only, until [`Caller::done`] is called. The stream is one
    /// of the runtime's.
    pub unsafe fn enqueue(
        &self,
        op: Op,
        file: FileId,
        ptr: DevPtr,
        stream: StreamPtr,
        caller: Box<dyn Caller>,
    ) -> Result<()> {
        self.check_process(op.name(), ErrorKind::DriverClosing)?;
        let result = self.queue(op, file, ptr, stream, caller);
        self.inner.meters().ended(result.is_ok(), Event::StreamAccepted, Event::StreamRefused);
        result
    }

    /// As [`Driver::enqueue`] demands it, whose only part this is.
    fn queue(
        &self,
        op: Op,
        file: FileId,
        ptr: DevPtr,
        stream: StreamPtr,
        mut caller: Box<dyn Caller>,
    ) -> Result<()> {
        let inner = &self.inner;
        let file = inner.hold_file(file).ok_or_else(|| unknown(op.name(), file))?;
        let mut first = caller.bind();
        let buffer = inner.hold_buffer(ptr, first.len, first.buffer_offset, op, &mut None)?;
        let (device, buffer_gpu) = match buffer.place() {
            Place::Device { device, ordinal } => (Arc::clone(device), Some(*ordinal)),
            Place::Host => (Arc::clone(inner.devices().first()?), None),
        };
        let unsupported = |why: &'static str| Error::message(ErrorKind::AsyncNotSupported, op.name(), why);
        let streams =
            device.streams().ok_or_else(|| unsupported("the GPU runtime has no stream operations"))?;
        let gpu = streams.gpu_of(stream)?;
        if streams.is_capturing(stream)? {
            return Err(unsupported("the stream is being captured, and file I/O cannot be"));
        }
        checked(op, &file, &buffer, ptr.0, first)?;
        if buffer_gpu.is_some_and(|other| other != gpu) {
            let why = format!("the memory is of another GPU than the stream, which is of GPU {gpu}");
            return Err(Error::message(ErrorKind::InvalidValue, op.name(), why));
        }
        first.len = first.len.min(transfer::MAX_TRANSFER);
        caller.accepted();
        if first.len == 0 {
            return Ok(());
        }
        let lane = inner.lanes().lane(&device, streams, stream, gpu)?;
        let align = file.direct_align().map_or(4096, |a| u64::from(a.offset.max(a.read_offset)).max(4096));
        let fixed = caller.is_fixed();
        let direct = inner.router().may_go_direct(&file, buffer.place());
        // One order of submission for both the tickets and the stream.
        let _order = lock(&lane.order);
        let seat = lane.enter()?;
        let lead = if fixed { first.file_offset as u64 % align } else { align - 1 } as usize;
        let copies = match buffer_gpu {
            Some(_) => {
                // Whole units only, as the stage has it.
                let room = seat.block.len - seat.block.len % align as usize;
                (lead + first.len).div_ceil(room).max(1) + usize::from(direct)
            }
            None => 0,
        };
        let (base, most) = (ptr.0, first.len);
        let operation = Arc::new(Operation {
            inner: Arc::clone(inner),
            op,
            base,
            most,
            quantum: align,
            lane: Arc::clone(&lane),
            seat,
            state: Mutex::new(State {
                uses: Some(Uses { file, buffer }),
                caller: Some(caller),
                first,
                bound: fixed,
                walk: Walk::default(),
                split: Split::default(),
                took: 0,
                range: 0..0,
                collected: Vec::new(),
                result: None,
                handed_over: false,
                awaited: false,
            }),
            opened: Condvar::new(),
        });
        let queue = Queueing { streams, gpu, stream, operation: &operation };
        queue.all(copies, direct).inspect_err(|_| queue.give_up())
    }
}

/// A request as the synchronous call checks it; every refusal is an invalid value.
fn checked<'a>(
    op: Op,
    file: &'a FileRecord,
    buffer: &'a BufferRecord,
    base: usize,
    ask: Ask,
) -> Result<transfer::Transfer<'a>> {
    let Ask { len, file_offset, buffer_offset } = ask;
    let transfer = transfer::check(op, file, buffer, base, len, file_offset, buffer_offset)
        .map_err(|error| error.into_kind(ErrorKind::InvalidValue))?;
    Ok(transfer::Transfer { held: true, ..transfer })
}

/// The commands of one operation, given to the stream one after the other.
struct Queueing<'a> {
    streams: &'a dyn Streams,
    gpu: u32,
    stream: StreamPtr,
    operation: &'a Arc<Operation>,
}

impl Queueing<'_> {
    fn all(&self, copies: usize, direct: bool) -> Result<()> {
        match self.operation.op {
            Op::Read => {
                for piece in 0..copies {
                    self.gate(piece == 0 && self.has_come())?;
                    self.copy()?;
                }
                if copies == 0 {
                    self.gate(false)?;
                }
            }
            Op::Write => {
                // What is to be copied must be known before the copy. Where no direct engine can have a part in it, that
                // takes no thread.
                if direct || copies == 0 {
                    self.gate(false)?;
                } else {
                    self.call(plan, 0)?;
                }
                for _ in 0..copies {
                    self.copy()?;
                    self.gate(false)?;
                }
            }
        }
        self.call(done, 0)
    }

    fn call(&self, function: crate::device::HostFn, ticket: u64) -> Result<()> {
        let call = Box::into_raw(Box::new(Call { operation: Arc::clone(self.operation), ticket }));
        // SAFETY: the functions below take the box back, once.
        let queued = unsafe { self.streams.call(self.gpu, self.stream, function, call.cast()) };
        if queued.is_err() {
            // SAFETY: the stream did not take it.
            drop(unsafe { Box::from_raw(call) });
        }
        queued
    }

    /// Holds the stream until a thread has done its part. Of a stream that is `here` no function need say so.
    fn gate(&self, here: bool) -> Result<()> {
        let operation = self.operation;
        let ticket = operation.lane.next_ticket();
        if operation.lane.parks() {
            return self.call(park, ticket);
        }
        if here {
            start(Call { operation: Arc::clone(operation), ticket });
        } else {
            self.call(hand_over, ticket)?;
        }
        self.streams.wait(self.gpu, self.stream, operation.seat.word, ticket)
    }

    /// Whether the stream is here already. Then no function of the stream's need say so, which costs more than most reads,
    /// and nothing of other streams that share its hardware queue has to pass first.
    fn has_come(&self) -> bool {
        let lane = &self.operation.lane;
        !lane.parks() && lane.is_alone() && self.streams.is_idle(self.stream)
    }

    fn copy(&self) -> Result<()> {
        let operation = self.operation;
        let (kernel, late) = (operation.lane.kernel, operation.seat.late_device);
        let most = operation.most.min(operation.seat.block.len);
        // SAFETY: the words are set before each copy to a piece of the buffer, which is held, and of the seat's Block;
        // both stay until `done`, which comes after all copies.
        unsafe { self.streams.copy(self.gpu, self.stream, kernel, late, most) }
    }

    /// Something could not be queued: what is queued must do nothing, and the caller's variables are not touched again.
    fn give_up(&self) {
        let mut state = lock(&self.operation.state);
        state.caller = None;
        state.result = Some(Ok(0));
        drop(state);
        if self.call(done, 0).is_err() {
            // A copy may be queued that nothing comes after: its memory is never used again.
            std::mem::forget(Arc::clone(self.operation));
        }
    }
}

impl Operation {
    /// Goes on with the transfer: until it is finished, or until the stream has to copy.
    fn advance(&self) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.say(0, 0, 0);
        if state.result.is_some() {
            return;
        }
        if !state.bound {
            state.bound = true;
            if let Some(caller) = &mut state.caller {
                state.first = caller.bind();
            }
            if state.first.len > self.most && state.first.len.min(transfer::MAX_TRANSFER) > self.most {
                let why = format!("size {} is larger than the {} at submit", state.first.len, self.most);
                state.result = Some(Err(Error::message(ErrorKind::InvalidValue, self.op.name(), why)));
                return;
            }
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.carry(state)));
        if ran.is_err() {
            let why = "a defect of the library ended the transfer";
            state.result = Some(Err(Error::message(ErrorKind::InternalError, self.op.name(), why)));
        }
    }

    fn carry(&self, state: &mut State) {
        let Some(Uses { file, buffer }) = &state.uses else { return };
        let transfer = match checked(self.op, file, buffer, self.base, state.first) {
            Ok(transfer) => transfer,
            Err(error) => return state.result = Some(Err(error)),
        };
        if self.op == Op::Read {
            state.range = 0..0;
        }
        // SAFETY: the Block is this lane's, whose operations take turns; the copy from or to it is over or not yet begun.
        let bytes = unsafe { self.seat.bytes() };
        let mut stage = Stage::new(bytes, self.quantum, state.range.clone(), &mut state.collected);
        let began = stats::now();
        let paused = self.inner.carry_held(&transfer, &mut state.walk, &mut stage, &mut state.split);
        state.took += stats::now().saturating_sub(began);
        state.range = stage.range();
        let finished = matches!(paused, Pause::Finished(_));
        if let Pause::Finished(result) = paused {
            self.count(&transfer, &result, state.split, state.took);
            state.result = Some(result);
        }
        if state.range.is_empty() || (finished && self.op == Op::Write) {
            return;
        }
        let at = stage.position(&transfer, state.range.start);
        let (memory, block) = (transfer.span.start() + state.range.start, self.seat.block.device + at);
        match self.op {
            Op::Read => self.say(memory, block, state.range.len()),
            Op::Write => self.say(block, memory, state.range.len()),
        }
    }

    fn count(&self, transfer: &transfer::Transfer<'_>, result: &Result<usize>, split: Split, took: u64) {
        self.inner.held_ended(transfer, result, split, took);
        let meters = self.inner.meters();
        meters.ended(result.is_ok(), Event::StreamDone, Event::StreamFailed);
        let bytes = if self.op == Op::Read { Event::StreamReadBytes } else { Event::StreamWriteBytes };
        meters.count(bytes, *result.as_ref().unwrap_or(&0) as u64);
    }

    /// Tells the next copy what to do.
    fn say(&self, to: usize, from: usize, len: usize) {
        let words: &LateWords = self.seat.late();
        for (word, value) in words.iter().zip([to, from, len]) {
            word.store(value as u64, Ordering::Release);
        }
    }

    fn open(&self, ticket: u64) {
        // Under the lock: who finds the operation in no thread's hands must find the word as it stays.
        let mut state = lock(&self.state);
        self.lane.open(self.seat.word(), ticket);
        state.handed_over = false;
        if state.awaited {
            self.opened.notify_all();
        }
    }

    /// Whether a thread is wanted; it counts as given then.
    fn wants_thread(&self) -> bool {
        let mut state = lock(&self.state);
        state.handed_over = state.result.is_none();
        state.handed_over
    }
}

fn start(call: Call) {
    let Call { operation, ticket } = call;
    // Nothing to be done takes no thread; the words are as the last gate left them, so they are said again.
    if !operation.wants_thread() {
        operation.say(0, 0, 0);
        return operation.open(ticket);
    }
    let inner = Arc::clone(&operation.inner);
    inner.lanes().push(Box::new(move || {
        operation.advance();
        operation.open(ticket);
    }));
}

/// # Safety
/// `data` is a box of a [`Call`], given once.
unsafe extern "C" fn hand_over(data: *mut c_void) {
    // SAFETY: as this function demands.
    start(unsafe { *Box::from_raw(data.cast::<Call>()) });
}

/// # Safety
/// As [`hand_over`].
unsafe extern "C" fn park(data: *mut c_void) {
    // SAFETY: as this function demands.
    let call = unsafe { *Box::from_raw(data.cast::<Call>()) };
    let (operation, ticket) = (Arc::clone(&call.operation), call.ticket);
    start(call);
    operation.lane.await_open(operation.seat.word(), ticket);
}

/// # Safety
/// As [`hand_over`].
unsafe extern "C" fn plan(data: *mut c_void) {
    // SAFETY: as this function demands.
    unsafe { Box::from_raw(data.cast::<Call>()) }.operation.advance();
}

/// # Safety
/// As [`hand_over`].
unsafe extern "C" fn done(data: *mut c_void) {
    // SAFETY: as this function demands.
    let Call { operation, .. } = unsafe { *Box::from_raw(data.cast::<Call>()) };
    let mut state = lock(&operation.state);
    // The gate of this thread could not be queued: nothing else keeps the next operation off the Block and the word.
    while state.handed_over {
        state.awaited = true;
        state = operation.opened.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let (caller, result) = (state.caller.take(), state.result.take());
    let (uses, moved) = (state.uses.take(), state.walk.done());
    drop(state);
    drop(uses);
    // The seat first: who sees the result may submit again.
    operation.lane.leave();
    if let Some(caller) = caller {
        let result = result.unwrap_or(Ok(moved));
        // A panic must not reach the runtime's thread.
        let _ = catch_unwind(AssertUnwindSafe(|| caller.done(result)));
    }
}
