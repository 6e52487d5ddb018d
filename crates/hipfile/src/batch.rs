//! Batches: many transfers handed over in one call and collected later. Which state an entry is in is kept by `slots`,
//! what carries it is decided by `route`; here they meet the threads and whoever waits.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::buffer::DevPtr;
use crate::driver::{Driver, FileId, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::notice;
use crate::op::Op;
use crate::queued::{Queued, Request, Source};
use crate::registry::Registry;
use crate::route::Way;
use crate::slots::{Refused, Slots};
use crate::sys;
use crate::ticket::{Complete, Ending, Ticket};
use crate::transfer;
use crate::transfer::Cache;

/// Most entries of one batch.
pub const MAX_BATCH: usize = 4096;

/// What one thread carries out of a batch before other batches have their turn.
const TURN: usize = 256;
/// When one thread has taken this much for its queue and more is waiting, another joins it.
const SHARE: usize = 64;
const SHARE_BYTES: usize = 4 << 20;
/// Entries up to this size keep a thread busy rather than waiting.
const SMALL: usize = 64 << 10;
/// How many threads serve one batch whose entries mostly wait for storage.
const WAITING_THREADS: usize = 16;
/// After this long without any event a waiting call says so on standard error.
const PATIENCE: Duration = Duration::from_secs(10);

/// One transfer of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The direction. `None`, for callers whose own notion of it may be out of range, is refused.
    pub op: Option<Op>,
    /// The file.
    pub file: FileId,
    /// The memory, registered or not.
    pub buffer: DevPtr,
    /// Where in the memory, counted from `buffer`; at least 0.
    pub buffer_offset: i64,
    /// Where in the file; at least 0.
    pub file_offset: i64,
    /// Bytes to move.
    pub len: usize,
    /// Comes back with the event; not looked at.
    pub cookie: u64,
}

/// How an entry ended.
#[derive(Clone, Debug)]
pub struct Event {
    /// The entry's own.
    pub cookie: u64,
    /// How it ended.
    pub status: EventStatus,
}

/// How an entry ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventStatus {
    /// So many bytes moved; fewer than asked for as [`Driver::read`] says.
    Complete(usize),
    /// Nothing moved.
    Failed(Error),
    /// It was canceled before it started.
    Canceled,
}

/// A batch for callers with raw addresses. Every method may be called from any thread at any time.
///
/// Entries are not ordered among each other. Every accepted entry gives exactly one event, once its bytes are in place and
/// its memory is no longer used. Dropping a batch is as [`RawBatch::destroy`].
#[derive(Debug)]
pub struct RawBatch {
    core: Arc<Core>,
    capacity: usize,
    forks: u32,
}

#[derive(Debug)]
struct Core {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    slots: Slots<Waiting, Event>,
    /// Threads that serve the batch, or will.
    serving: usize,
    /// The fewest events that a waiting call wants.
    wanted: usize,
    /// Events so far, to tell progress from none.
    events: u64,
}

#[derive(Debug)]
struct Waiting {
    queued: Queued,
    driver: Arc<Inner>,
}

impl RawBatch {
    /// A batch with room for `capacity` entries whose events were not collected: 1 to [`MAX_BATCH`].
    ///
    /// # Errors
    /// `InvalidValue` for another capacity.
    pub fn new(capacity: usize) -> Result<RawBatch> {
        if capacity == 0 || capacity > MAX_BATCH {
            let why = format!("a batch has room for 1 to {MAX_BATCH} entries, not {capacity}");
            return Err(Error::message(ErrorKind::InvalidValue, "set up batch", why));
        }
        let state = State { slots: Slots::new(capacity), serving: 0, wanted: usize::MAX, events: 0 };
        let core = Core { state: Mutex::new(state), changed: Condvar::new() };
        Ok(RawBatch { core: Arc::new(core), capacity, forks: sys::forks() })
    }

    /// The most entries whose events were not collected.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn check_process(&self, op: &'static str) -> Result<()> {
        if self.in_forked_child() {
            let why = "the batch was made before fork; make one in the child";
            return Err(Error::message(ErrorKind::DriverClosing, op, why));
        }
        Ok(())
    }

    /// Whether this process is a fork of the one that made the batch; it cannot be used here.
    pub fn in_forked_child(&self) -> bool {
        sys::forks() != self.forks
    }

    /// Hands entries over: all, or none if one is invalid or room is lacking. Does not wait for them. A driver that is
    /// closed meanwhile does not stop them: they keep their file and memory.
    ///
    /// # Errors
    /// For the first entry that has one: `HandleNotRegistered`; for the memory as [`Driver::register_buffer`]; then
    /// `InvalidValue` for an offset that is negative, a range outside the memory, no direction. `BatchFull` after that.
    ///
    /// # Safety
    /// The memory must be valid, and not accessed in a conflicting way, until the entry's event was collected or the batch
    /// is destroyed. The files' descriptors must stay open for as long.
    pub unsafe fn submit(&self, driver: &Driver, entries: &[Entry]) -> Result<()> {
        const OP: &str = "submit batch";
        self.check_process(OP)?;
        if driver.in_forked_child() {
            let why = "the driver was opened before fork; open one in the child";
            return Err(Error::message(ErrorKind::DriverClosing, OP, why));
        }
        let mut last = None;
        let requests: Vec<_> =
            entries.iter().map(|entry| request(&driver.inner, entry, &mut last)).collect::<Result<_>>()?;
        let told = Arc::clone(&self.core) as Arc<dyn Complete>;
        let accepted = requests.into_iter().zip(entries).map(|(request, entry)| {
            let queued = Queued::new(request, Ticket::new(Arc::clone(&told), entry.cookie));
            Waiting { queued, driver: Arc::clone(&driver.inner) }
        });
        let mut state = self.core.lock();
        match state.slots.submit(accepted) {
            Ok(()) => {}
            Err(Refused::Closed) => {
                return Err(Error::message(ErrorKind::InvalidValue, OP, "the batch is destroyed"));
            }
            Err(Refused::Full { free }) => {
                let count = entries.len();
                let why = format!("{count} entries for {free} free places of {}", self.capacity);
                return Err(Error::message(ErrorKind::BatchFull, OP, why));
            }
        }
        // Large entries wait for storage, each on a thread of its own; small ones share a thread until it has company.
        let large = entries.iter().filter(|entry| entry.len > SMALL).count().min(WAITING_THREADS);
        let invited = (0..large.max(1)).take_while(|_| state.invite(large.max(1))).count();
        drop(state);
        (0..invited).for_each(|_| self.core.join(&driver.inner));
        Ok(())
    }

    /// Collects up to `most` events, in the order in which the entries ended. Waits until there are `min`, or nothing is
    /// left in flight, or `timeout` is over (`None`: no limit), or the batch is destroyed.
    ///
    /// # Errors
    /// `InvalidValue` when `min` is more than `most` or than the batch has room for.
    pub fn poll(&self, min: usize, most: usize, timeout: Option<Duration>) -> Result<Vec<Event>> {
        const OP: &str = "poll batch";
        if min > most || min > self.capacity {
            let why = format!("{min} events of at most {most}, from a batch of {}", self.capacity);
            return Err(Error::message(ErrorKind::InvalidValue, OP, why));
        }
        self.check_process(OP)?;
        // A call without a limit works instead of sleeping: what it waits for is done sooner than a thread wakes up.
        while timeout.is_none() && help(&self.core, min) {}
        let mut state = self.core.wait(timeout, |state| {
            let enough = state.slots.finished() >= min || state.slots.in_flight() == 0;
            if !enough {
                state.wanted = state.wanted.min(min);
            }
            enough || state.slots.is_closed()
        });
        Ok(state.slots.collect(most))
    }

    /// Cancels the entries that have not started. The others go on.
    ///
    /// # Errors
    /// `DriverClosing` in the child of a fork.
    pub fn cancel(&self) -> Result<()> {
        self.check_process("cancel batch")?;
        let canceled = self.core.lock().slots.cancel();
        canceled.into_iter().for_each(|waiting| waiting.queued.end(Ending::Canceled));
        Ok(())
    }

    /// Cancels what has not started, waits for what has, drops the events. Calls that wait for events return, later ones
    /// are refused or find nothing. Does nothing in the child of a fork.
    pub fn destroy(&self) {
        if self.in_forked_child() {
            return;
        }
        let canceled = {
            let mut state = self.core.lock();
            self.core.changed.notify_all();
            state.slots.close()
        };
        canceled.into_iter().for_each(|waiting| waiting.queued.end(Ending::Canceled));
        drop(self.core.wait(None, |state| state.slots.in_flight() == 0));
    }
}

impl Drop for RawBatch {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Looks up and checks one entry.
fn request(
    driver: &Inner,
    entry: &Entry,
    last: &mut Option<Arc<crate::buffer::BufferRecord>>,
) -> Result<Request> {
    let op = entry.op.unwrap_or(Op::Read);
    let file = driver.hold_file(entry.file);
    let file = file.ok_or_else(|| Error::new(ErrorKind::HandleNotRegistered, op.name()))?;
    let buffer = driver.hold_buffer(entry.buffer, entry.len, entry.buffer_offset, op, last)?;
    let invalid = |why: String| Error::message(ErrorKind::InvalidValue, op.name(), why);
    if entry.buffer_offset < 0 || entry.file_offset < 0 {
        let (buffer, file) = (entry.buffer_offset, entry.file_offset);
        return Err(invalid(format!("buffer offset {buffer} or file offset {file} is negative")));
    }
    let (base, len) = (entry.buffer.0, entry.len);
    let checked = transfer::check(op, &file, &buffer, base, len, entry.file_offset, entry.buffer_offset)?;
    let (offset, moving, file_offset) = (checked.offset_in(&buffer), checked.len(), checked.file_offset);
    if len > moving && buffer.span(offset, len).is_none() {
        return Err(invalid(format!("size {len} passes the end of the buffer")));
    }
    if entry.op.is_none() {
        return Err(invalid("the operation is neither a read nor a write".to_owned()));
    }
    // The private descriptor is opened now: the caller's may be closed before the entry runs. If it cannot be had the
    // entry will say so.
    let _ = file.plain(op.name());
    Ok(Request { op, file, buffer, offset, len: moving, file_offset })
}

impl State {
    /// Starts the entry that has waited longest; none that is a write, if only reads are wanted.
    fn start(&mut self, reads_only: bool) -> Option<Waiting> {
        match self.slots.first() {
            Some(first) if reads_only && first.queued.is_write() => None,
            _ => self.slots.start(),
        }
    }

    /// Whether one more thread should serve the batch; it is counted already.
    fn invite(&mut self, most: usize) -> bool {
        let invited = self.slots.waiting() > 0 && self.serving < most;
        self.serving += usize::from(invited);
        invited
    }
}

impl Complete for Core {
    fn complete(&self, tag: u64, ending: Ending) {
        let status = match ending {
            Ending::Done(Ok(moved)) => EventStatus::Complete(moved),
            Ending::Done(Err(error)) => EventStatus::Failed(error),
            Ending::Canceled => EventStatus::Canceled,
        };
        let mut state = self.lock();
        state.slots.finish(Event { cookie: tag, status });
        state.events += 1;
        if state.slots.finished() >= state.wanted || state.slots.in_flight() == 0 {
            state.wanted = usize::MAX;
            drop(state);
            self.changed.notify_all();
        }
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` or until the time is over.
    fn wait(
        &self,
        timeout: Option<Duration>,
        mut done: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'_, State> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let began = Instant::now();
        let mut state = self.lock();
        let (mut events, mut said) = (state.events, false);
        while !done(&mut state) {
            let left = deadline.map_or(PATIENCE, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            let slice = left.min(PATIENCE);
            let (again, result) =
                self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner);
            state = again;
            if result.timed_out() && slice == PATIENCE {
                if state.events == events && !said {
                    said = true;
                    let seconds = began.elapsed().as_secs();
                    let (running, waiting) = (state.slots.running(), state.slots.waiting());
                    notice::line(format_args!(
                        "a batch has given no event for {seconds} s: {running} entries run, {waiting} wait"
                    ));
                }
                events = state.events;
            }
        }
        state
    }

    /// Sends a thread that [`State::invite`] has counted.
    fn join(self: &Arc<Core>, driver: &Arc<Inner>) {
        let (core, last) = (Arc::clone(self), Arc::clone(driver));
        driver.workers().push(Box::new(move || serve(Serving { core: &core, last }, None, TURN, false)));
    }

    fn invite(self: &Arc<Core>, driver: &Arc<Inner>, most: usize) {
        let invited = self.lock().invite(most);
        if invited {
            self.join(driver);
        }
    }
}

/// A thread's service to a batch. Ends the count also when the work panics, and sends another thread if there is more.
struct Serving<'a> {
    core: &'a Arc<Core>,
    /// The driver whose entry was carried out last.
    last: Arc<Inner>,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.serving -= 1;
        let invited = state.invite(1);
        drop(state);
        if invited {
            self.core.join(&self.last);
        }
    }
}

/// Carries out what a call waits for, on its own thread; whether there was anything. Only reads: a write may raise a signal
/// on the thread that does it, which the caller of this does not expect.
fn help(core: &Arc<Core>, wanted: usize) -> bool {
    let mut state = core.lock();
    let missing = wanted.saturating_sub(state.slots.finished());
    if missing == 0 {
        return false;
    }
    let Some(first) = state.start(true) else { return false };
    state.serving += 1;
    drop(state);
    let serving = Serving { core, last: Arc::clone(&first.driver) };
    serve(serving, Some(first), missing.min(TURN), true);
    true
}

/// Carries entries of a batch out until none waits, or until it has carried `left` of them.
fn serve(mut serving: Serving<'_>, mut first: Option<Waiting>, mut left: usize, reads_only: bool) {
    let core = serving.core;
    while left > 0 {
        let Some(Waiting { queued, driver }) = first.take().or_else(|| core.lock().start(reads_only)) else {
            return;
        };
        serving.last = driver;
        let driver = &serving.last;
        let way = queued.transfer().and_then(|transfer| driver.router().queue_for(&transfer));
        let Some(way) = way else {
            let most = if queued.len() > SMALL { WAITING_THREADS } else { driver.busy_threads() };
            core.invite(driver, most);
            left -= 1;
            carry(driver, queued);
            continue;
        };
        let (first, again) = (Some(queued), Vec::new());
        let mut turn =
            Turn { core, driver, way, first, odd: None, left, taken: 0, bytes: 0, again, reads_only };
        match driver.router().queue(way) {
            Some(queue) => queue.run(&mut turn),
            None => turn.again.extend(turn.first.take()),
        }
        let Turn { odd, again, left: rest, .. } = turn;
        left = rest;
        for queued in again {
            core.invite(driver, WAITING_THREADS);
            carry(driver, queued);
        }
        if let Some(Waiting { queued, driver }) = odd {
            core.invite(&driver, WAITING_THREADS);
            carry(&driver, queued);
        }
    }
}

/// Carries one entry out as a synchronous call would be.
fn carry(driver: &Inner, queued: Queued) {
    let result = match queued.transfer() {
        Some(transfer) => driver.carry(&transfer),
        None => Err(Error::new(ErrorKind::InternalError, "batch")),
    };
    queued.done(result);
}

/// What a thread takes out of a batch for an engine's queue: entries that go the same way.
struct Turn<'a> {
    core: &'a Arc<Core>,
    driver: &'a Arc<Inner>,
    way: Way,
    first: Option<Queued>,
    /// Started, and found to go another way.
    odd: Option<Waiting>,
    left: usize,
    taken: usize,
    bytes: usize,
    again: Vec<Queued>,
    reads_only: bool,
}

impl Source for Turn<'_> {
    fn next(&mut self) -> Option<(Queued, Cache)> {
        let queued = match self.first.take() {
            Some(first) => first,
            None if self.odd.is_some() || self.left == 0 => return None,
            None => {
                let waiting = self.core.lock().start(self.reads_only)?;
                let same = Arc::ptr_eq(&waiting.driver, self.driver)
                    && waiting
                        .queued
                        .transfer()
                        .is_some_and(|transfer| self.driver.router().queue_for(&transfer) == Some(self.way));
                if !same {
                    self.odd = Some(waiting);
                    return None;
                }
                waiting.queued
            }
        };
        self.left -= 1;
        self.taken += 1;
        self.bytes += queued.len();
        if self.taken.is_multiple_of(SHARE) || self.bytes >= SHARE_BYTES {
            self.bytes = 0;
            self.core.invite(self.driver, self.driver.busy_threads());
        }
        Some((queued, self.way.cache))
    }

    fn moved(&mut self, piece: Queued) {
        if let Some(transfer) = piece.transfer() {
            self.driver.queue_moved(self.way, &transfer);
        }
        let len = piece.len();
        piece.done(Ok(len));
    }

    fn again(&mut self, piece: Queued) {
        self.again.push(piece);
    }
}

/// Batches by number, for callers who know them by a handle. Numbers are never given out twice in a process; any number
/// may be asked about, without a lock.
pub struct Batches {
    registry: Registry<RawBatch>,
    forks: u32,
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

impl Default for Batches {
    fn default() -> Batches {
        Batches::new()
    }
}

impl Batches {
    /// None yet.
    pub fn new() -> Batches {
        Batches { registry: Registry::new(), forks: sys::forks() }
    }

    /// Whether this process is a fork of the one that made the list. Then batches can be looked up here, and nothing else.
    pub fn in_forked_child(&self) -> bool {
        sys::forks() != self.forks
    }

    /// Keeps a batch; its number, never 0.
    ///
    /// # Errors
    /// `InternalError` when there are 16 million, `DriverClosing` in the child of a fork.
    pub fn insert(&self, batch: RawBatch) -> Result<u64> {
        const OP: &str = "set up batch";
        if self.in_forked_child() {
            return Err(Error::message(ErrorKind::DriverClosing, OP, "the list was made before fork"));
        }
        let full = || Error::message(ErrorKind::InternalError, OP, "there are too many batches");
        self.registry.insert(Arc::new(batch)).ok_or_else(full)
    }

    /// The batch of this number.
    pub fn get(&self, number: u64) -> Option<Arc<RawBatch>> {
        Some(self.registry.get(number)?.to_arc())
    }

    /// Takes a batch out; none in the child of a fork.
    pub fn remove(&self, number: u64) -> Option<Arc<RawBatch>> {
        // The lock may be held by a thread that does not exist here.
        if self.in_forked_child() { None } else { self.registry.remove(number) }
    }
}
