//! Transfers in the order of a GPU stream. At submit everything is queued on the caller's stream; when the stream gets there
//! it is held while a thread of ours moves bytes between the file and pinned memory, and copies them itself. Nothing that
//! holds a stream waits for the GPU, takes a pooled Block, allocates or loads. The design: docs/design/0001-stream-gate.md.

mod ahead;
mod plan;
mod queueing;
mod reads;
mod refused;

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use self::ahead::Ahead;
use self::plan::Plan;
use self::queueing::Queueing;
use crate::buffer::{BufferRecord, DevPtr, Place};
use crate::device::StreamPtr;
use crate::driver::{Driver, FileId, Inner, ends, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileRecord;
use crate::lane::{Lane, Seat};
use crate::op::Op;
use crate::queued::Ends;
use crate::route::{Pause, Stage, Walk};
use crate::stats::{self, Event, Split};
use crate::transfer;
use crate::workers::Came;

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
    /// Its place among those of its stream.
    number: u64,
    seat: Seat,
    /// Where a large read is filled ahead.
    ahead: Option<Ahead>,
    /// Whether it is likely to be a read that the kernel may do by itself.
    aside: bool,
    state: Mutex<State>,
    /// Told when no thread has to do with it any more, for where no gate holds the stream until then.
    left: Condvar,
}

struct State {
    /// What it uses; let go of before the result is told, for who sees that may deregister both.
    uses: Option<Arc<Ends>>,
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
    /// How far a read that is filled ahead has got.
    plan: Option<Plan>,
    /// Why its unbroken prefix ends where it does.
    broken: Option<Error>,
    /// Threads that were given the operation and have not left it yet: one, or those that fill ahead.
    threads: usize,
    /// Whether somebody waits for them.
    awaited: bool,
    /// Whether one of them waits a moment for the stream to have copied more, and whether somebody looks for that from time to
    /// time.
    lingers: bool,
    watched: bool,
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
        let began = stats::now();
        let _ = self.inner.lanes().reserve(device, streams, gpu);
        self.inner.meters().count(Event::SetUpNs, stats::now().saturating_sub(began));
        Ok(())
    }

    /// Queues a transfer on a stream. Checks happen now, I/O when the stream gets there; what it came to goes to
    /// [`Caller::done`]. The first one on a GPU makes ready what all need, unless [`Driver::prepare_stream`] has: for that GPU
    /// runtimes may wait until no stream is held.
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
            Place::Device { device, ordinal, .. } => (Arc::clone(device), Some(*ordinal)),
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
        if lane.has_refused() && streams.is_drained(stream) {
            lane.passed(u64::MAX);
        }
        let (seat, number) = lane.enter()?;
        let lead = if fixed { first.file_offset as u64 % align } else { align - 1 } as usize;
        // What the kernel reaches, an APU's memory too, is read and written in place.
        let staged = !buffer.place().is_reached();
        let copies = match staged {
            true => {
                // Whole units only, as the stage has it.
                let room = seat.block.len - seat.block.len % align as usize;
                (lead + first.len).div_ceil(room).max(1) + usize::from(direct)
            }
            false => 0,
        };
        let (base, most) = (ptr.0, first.len);
        // What is queued is for this way; and a stream's function, which plans a write, may call nothing of the runtime.
        let walk = if direct { Walk::default() } else { Walk::staged() };
        let ahead = (op == Op::Read && staged && !direct)
            .then(|| Ahead::new(&lane, most, lead, align as usize, inner.lanes()))
            .flatten();
        let (ahead, plan) = ahead.unzip();
        let uses = Arc::new(ends(inner, op, file, buffer));
        let aside = op == Op::Read && staged && !direct && ahead.is_none() && copies == 1;
        let aside = aside && reads::may_be_aside(inner, &uses, most);
        let operation = Arc::new(Operation {
            inner: Arc::clone(inner),
            op,
            base,
            most,
            quantum: align,
            lane: Arc::clone(&lane),
            number,
            seat,
            ahead,
            aside,
            state: Mutex::new(State {
                uses: Some(uses),
                caller: Some(caller),
                first,
                bound: fixed,
                walk,
                split: Split::default(),
                took: 0,
                range: 0..0,
                collected: Vec::new(),
                result: None,
                plan,
                broken: None,
                threads: 0,
                awaited: false,
                lingers: false,
                watched: false,
            }),
            left: Condvar::new(),
        });
        let queue = Queueing { streams, gpu, stream, operation: &operation, given: Cell::new(0) };
        let mut queued = 0;
        queue.all(copies, direct, &mut queued).inspect_err(|_| queue.give_up(queued))
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

impl Operation {
    /// Goes on with the transfer: until it is finished, or until the stream has to copy.
    fn advance(&self) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        self.seat.say(0, 0, 0);
        if state.result.is_some() {
            return;
        }
        if let Err(error) = self.bind(state) {
            state.result = Some(Err(error));
            return;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.carry(state)));
        if ran.is_err() {
            state.result = Some(Err(self.defect()));
        }
    }

    fn goes_on_staged(&self) {
        lock(&self.state).walk.goes_on_staged();
    }

    fn defect(&self) -> Error {
        let why = "a defect of the library ended the transfer";
        Error::message(ErrorKind::InternalError, self.op.name(), why)
    }

    /// Takes the parameters as they are now, unless that was done.
    fn bind(&self, state: &mut State) -> Result<()> {
        if state.bound {
            return Ok(());
        }
        state.bound = true;
        if let Some(caller) = &mut state.caller {
            state.first = caller.bind();
        }
        if state.first.len > self.most && state.first.len.min(transfer::MAX_TRANSFER) > self.most {
            let why = format!("size {} is larger than the {} at submit", state.first.len, self.most);
            return Err(Error::message(ErrorKind::InvalidValue, self.op.name(), why));
        }
        Ok(())
    }

    fn carry(&self, state: &mut State) {
        let Some(Ends { file, buffer, .. }) = state.uses.as_deref() else { return };
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
            Op::Read => self.seat.say(memory, block, state.range.len()),
            Op::Write => self.seat.say(block, memory, state.range.len()),
        }
    }

    fn count(&self, transfer: &transfer::Transfer<'_>, result: &Result<usize>, split: Split, took: u64) {
        self.inner.held_ended(transfer, result, split, took);
        self.count_operation(result);
    }

    fn count_operation(&self, result: &Result<usize>) {
        let meters = self.inner.meters();
        meters.ended(result.is_ok(), Event::StreamDone, Event::StreamFailed);
        let bytes = if self.op == Op::Read { Event::StreamReadBytes } else { Event::StreamWriteBytes };
        meters.count(bytes, *result.as_ref().unwrap_or(&0) as u64);
    }

    fn open(&self, ticket: u64) {
        // Under the lock: who finds the operation in no thread's hands must find the word as it stays.
        let mut state = lock(&self.state);
        self.lane.open(self.seat.word(), ticket);
        self.leave(&mut state);
    }

    /// A thread is done with the operation.
    fn leave(&self, state: &mut State) {
        state.threads -= 1;
        if state.threads == 0 && state.awaited {
            self.left.notify_all();
        }
    }

    /// Waits until no thread has to do with it. Each waits for a read or a write.
    fn await_threads(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        while state.threads > 0 {
            state.awaited = true;
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Whether a thread is wanted; it counts as given then.
    fn wants_thread(&self) -> bool {
        let mut state = lock(&self.state);
        let wanted = state.result.is_none();
        state.threads += usize::from(wanted);
        wanted
    }
}

fn start(call: Call) {
    let Call { operation, ticket } = call;
    // Nothing to be done takes no thread; the words are as the last gate left them, so they are said again.
    if !operation.wants_thread() {
        operation.seat.say(0, 0, 0);
        return operation.lane.open(operation.seat.word(), ticket);
    }
    let call = Call { operation, ticket };
    match call.operation.aside {
        true => reads::start(call),
        false => by_thread(call),
    }
}

/// Gives to a thread what counts as given to one.
fn by_thread(call: Call) {
    let Call { operation, ticket } = call;
    let inner = Arc::clone(&operation.inner);
    let here = std::thread::current().id();
    inner.lanes().push(Box::new(move || {
        if std::thread::current().id() == here {
            // There is no thread to be had. This one may be the stream's, where nothing of the runtime may be called.
            operation.goes_on_staged();
        }
        operation.advance();
        operation.open(ticket);
        Came::ForWork
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
unsafe extern "C" fn plan_write(data: *mut c_void) {
    // SAFETY: as this function demands.
    unsafe { Box::from_raw(data.cast::<Call>()) }.operation.advance();
}

/// # Safety
/// As [`hand_over`].
unsafe extern "C" fn done(data: *mut c_void) {
    // SAFETY: as this function demands.
    let Call { operation, .. } = unsafe { *Box::from_raw(data.cast::<Call>()) };
    // Where the gate of a thread could not be queued, nothing else keeps the next operation off its Block and the word.
    let mut state = operation.await_threads();
    let (caller, result) = (state.caller.take(), state.result.take());
    let (uses, moved) = (state.uses.take(), state.walk.done());
    drop(state);
    drop(uses);
    // The seat first: who sees the result may submit again.
    operation.lane.passed(operation.number);
    operation.lane.leave();
    if let Some(caller) = caller {
        let result = result.unwrap_or(Ok(moved));
        // A panic must not reach the runtime's thread.
        let _ = catch_unwind(AssertUnwindSafe(|| caller.done(result)));
    }
}
