//! Batches: many transfers handed over in one call and collected later. Which state an entry is in is kept by `desk`, what
//! carries it is decided by `route`; here they meet what entries are and the threads.

mod numbered;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::buffer::{BufferRecord, DevPtr};
use crate::config::Config;
use crate::desk::{Desk, Event, Offer, Oldest, Serving, Side, Stall, Work};
use crate::driver::{Driver, FileId, Inner, ends, serves, unknown};
use crate::engine;
use crate::error::{Error, ErrorKind, Result};
use crate::notice;
use crate::op::Op;
use crate::queued::{Ends, Kind, Queued, Request, Source};
use crate::route::Way;
use crate::slots::Refused;
use crate::stats::{self, Event as Counted, Split};
use crate::sys;
use crate::ticket::{self, Ending, Ticket};
use crate::transfer::{self, Cache};
use crate::workers::Came;

pub use self::numbered::Batches;

/// Most entries of one batch.
pub const MAX_BATCH: usize = 4096;

/// What one thread carries out of a batch before other batches have their turn.
const TURN: usize = 256;
/// When one thread has taken this much for its queue and more is waiting, another joins it.
const SHARE: usize = 64;
const SHARE_BYTES: usize = 4 << 20;
/// How many entries a thread starts at once for its queue.
const AT_ONCE: usize = 8;
/// Entries up to this size keep a thread busy rather than waiting.
const SMALL: usize = 64 << 10;
/// How many threads serve one batch whose entries mostly wait for storage.
const WAITING_THREADS: usize = 16;
/// What large entries of one batch should have under way together. Enough to keep storage and copy engine busy at the same
/// time; more only makes requests wait for each other.
const UNDER_WAY: usize = 4 << 20;

/// How many threads should carry large entries of this size.
fn threads_for(len: usize) -> usize {
    (UNDER_WAY / len).clamp(4, WAITING_THREADS)
}

/// How many threads should carry small entries: those of near storage keep a processor busy, the others mostly wait.
fn threads_for_small(driver: &Inner, side: Side) -> usize {
    match side {
        Side::Near => driver.busy_threads(),
        Side::Far => WAITING_THREADS,
    }
}

/// How many threads are to begin with entries of near storage, or the others. Large ones wait for storage, each on a thread of
/// its own; small ones share a thread until it has company.
fn threads(requests: &[Request], local: bool) -> usize {
    let large = requests.iter().filter(|request| request.ends.local == local && request.len > SMALL);
    let most = large.clone().map(|request| threads_for(request.len)).max().unwrap_or(1);
    large.count().clamp(1, most)
}

/// One transfer of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The direction. An error, for callers whose own notion of it may be out of range, is refused.
    pub op: Result<Op, NoOp>,
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

/// What a caller gave instead of a direction: what it is called, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoOp {
    /// What the value is called.
    pub name: &'static str,
    /// The value.
    pub value: i64,
}

/// A batch for callers with raw addresses. Every method may be called from any thread at any time.
///
/// Entries are not ordered among each other. Every accepted entry gives exactly one event, once its bytes are in place and
/// its memory is no longer used. Dropping a batch is as [`RawBatch::destroy`].
#[derive(Debug)]
pub struct RawBatch {
    desk: Arc<Desk<Queued>>,
    forks: u32,
}

/// What can be told of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    op: Op,
    /// The caller's descriptor.
    fd: RawFd,
    /// The descriptor that the entry keeps open.
    reach: RawFd,
    file_offset: u64,
    len: usize,
}

impl RawBatch {
    /// A batch with room for `capacity` entries whose events were not collected: 1 to [`MAX_BATCH`].
    ///
    /// # Errors
    /// `InvalidValue` for another capacity, `InternalError` when there is no memory for so many.
    pub fn new(capacity: usize) -> Result<RawBatch> {
        const OP: &str = "set up batch";
        if capacity == 0 || capacity > MAX_BATCH {
            let why = format!("a batch has room for 1 to {MAX_BATCH} entries, not {capacity}");
            return Err(Error::message(ErrorKind::InvalidValue, OP, why));
        }
        let desk = Desk::new(capacity, Config::default().wait_notice).map_err(|_| no_memory(OP))?;
        Ok(RawBatch { desk: Arc::new(desk), forks: sys::forks() })
    }

    /// The most entries whose events were not collected.
    pub fn capacity(&self) -> usize {
        self.desk.capacity()
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
    /// For the first entry that has one, named by its number from 0: `HandleNotRegistered`; for the memory as
    /// [`Driver::register_buffer`]; then `InvalidValue` for an offset that is negative, a range outside the memory, no
    /// direction. After that `BatchFull`, or `InternalError` when there is no memory for the list.
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
        let since = stats::now();
        let result = self.hand_in(driver, entries, since);
        let [read, write] = [Op::Read, Op::Write].map(|op| {
            let mine = entries.iter().filter(move |entry| entry.op.unwrap_or(Op::Read) == op);
            mine.fold((0, 0), |(n, bytes): (u64, u64), entry| (n + 1, bytes.wrapping_add(entry.len as u64)))
        });
        driver.inner.count_submission([read.0, write.0], [read.1, write.1], result.is_ok(), since);
        result
    }

    /// As [`RawBatch::submit`] demands it, whose only part this is.
    fn hand_in(&self, driver: &Driver, entries: &[Entry], since: u64) -> Result<()> {
        const OP: &str = "submit batch";
        let mut last = Last::default();
        let mut requests = Vec::new();
        requests.try_reserve_exact(entries.len()).map_err(|_| no_memory(OP))?;
        for (at, entry) in entries.iter().enumerate() {
            let checked = request(&driver.inner, entry, &mut last);
            requests.push(checked.map_err(|error| error.of_entry(at))?);
        }
        drop(last);
        let threads = [true, false].map(|local| threads(&requests, local));
        let offers = requests.into_iter().zip(entries).map(|(request, entry)| Offer {
            cookie: entry.cookie,
            note: note(&request),
            piece: request,
        });
        let make = |request, ticket| Queued::new(request, ticket, since);
        let patience = driver.config().wait_notice;
        self.desk.limit_waiting(driver.config().batch_timeout);
        let poll_max = driver.inner.limits().poll_max();
        self.desk.set_polling(poll_max > 0 && entries.iter().all(|entry| entry.len <= poll_max));
        self.desk.submit(&driver.inner, offers, make, threads, patience).map_err(|refused| match refused {
            Refused::Closed => Error::message(ErrorKind::InvalidValue, OP, "the batch is destroyed"),
            Refused::Full { free } => {
                let (count, capacity) = (entries.len(), self.capacity());
                let why = format!("{count} entries for {free} free places of {capacity}");
                Error::message(ErrorKind::BatchFull, OP, why)
            }
            Refused::NoMemory => no_memory(OP),
        })
    }

    /// Collects up to `most` events, in the order in which the entries ended. Waits until there are `min`, or nothing is
    /// left in flight, or `timeout` is over (`None`: no limit), or the batch is destroyed.
    ///
    /// # Errors
    /// `InvalidValue` when `min` is more than `most` or than the batch has room for; `InternalError` when there is no memory
    /// for the list (the events stay).
    pub fn poll(&self, min: usize, most: usize, timeout: Option<Duration>) -> Result<Vec<Event>> {
        const OP: &str = "poll batch";
        let capacity = self.capacity();
        if min > most || min > capacity {
            let why = format!("{min} events of at most {most}, from a batch of {capacity}");
            return Err(Error::message(ErrorKind::InvalidValue, OP, why));
        }
        self.check_process(OP)?;
        // A call without a limit works instead of sleeping: what it waits for is done sooner than a thread wakes up.
        if timeout.is_none() {
            while help(&self.desk, min) {}
            self.desk.linger(min);
        }
        self.desk.collect(min, most, timeout).map_err(|_| no_memory(OP))
    }

    /// Cancels the entries that have not started. The others go on.
    ///
    /// # Errors
    /// `DriverClosing` in the child of a fork.
    pub fn cancel(&self) -> Result<()> {
        self.check_process("cancel batch")?;
        self.desk.cancel();
        Ok(())
    }

    /// Cancels what has not started, waits for what has, drops the events. Calls that wait for events return, later ones
    /// are refused or find nothing. Does nothing in the child of a fork.
    pub fn destroy(&self) {
        if !self.in_forked_child() {
            self.desk.close();
        }
    }
}

impl Drop for RawBatch {
    fn drop(&mut self) {
        self.destroy();
    }
}

fn no_memory(op: &'static str) -> Error {
    Error::message(ErrorKind::InternalError, op, "there is not enough memory")
}

/// What was found for the entry before.
#[derive(Default)]
struct Last {
    ends: Option<(FileId, Arc<Ends>)>,
    /// Memory that is not registered.
    record: Option<Arc<BufferRecord>>,
}

impl Last {
    /// What that entry works on, if this one works on the same.
    fn same(&self, entry: &Entry) -> Option<Arc<Ends>> {
        let (file, ends) = self.ends.as_ref()?;
        let same = *file == entry.file && serves(&ends.buffer, entry.buffer, entry.len, entry.buffer_offset);
        same.then(|| Arc::clone(ends))
    }
}

/// Looks up and checks one entry.
fn request(driver: &Arc<Inner>, entry: &Entry, last: &mut Last) -> Result<Request> {
    let op = entry.op.unwrap_or(Op::Read);
    let ends = match last.same(entry) {
        Some(ends) => ends,
        None => {
            let file = driver.hold_file(entry.file).ok_or_else(|| unknown(op.name(), entry.file))?;
            let (ptr, offset) = (entry.buffer, entry.buffer_offset);
            let buffer = driver.hold_buffer(ptr, entry.len, offset, op, &mut last.record)?;
            let ends = Arc::new(ends(driver, op, file, buffer));
            last.ends = Some((entry.file, Arc::clone(&ends)));
            ends
        }
    };
    let Ends { file, buffer, .. } = &*ends;
    let invalid = |why: String| Error::message(ErrorKind::InvalidValue, op.name(), why);
    if entry.buffer_offset < 0 || entry.file_offset < 0 {
        let (buffer, file) = (entry.buffer_offset, entry.file_offset);
        return Err(invalid(format!("buffer offset {buffer} or file offset {file} is negative")));
    }
    let (base, len) = (entry.buffer.0, entry.len);
    let checked = transfer::check(op, file, buffer, base, len, entry.file_offset, entry.buffer_offset)?;
    let (offset, moving, file_offset) = (checked.offset_in(buffer), checked.len(), checked.file_offset);
    if len > moving && buffer.span(offset, len).is_none() {
        return Err(invalid(format!("size {len} passes the end of the buffer")));
    }
    if let Err(NoOp { name, value }) = entry.op {
        return Err(invalid(format!("{name} is {value}, which names neither a read nor a write")));
    }
    // The private descriptor is opened now: the caller's may be closed before the entry runs. If it cannot be had the
    // entry will say so.
    if file.user(op).is_none() {
        let _ = file.plain(op.name());
    }
    Ok(Request { op, ends, offset, len: moving, file_offset })
}

fn note(request: &Request) -> Note {
    let Request { op, ends, file_offset, len, .. } = request;
    let file = &ends.file;
    let reach = match file.user(*op) {
        Some(_) => file.fd(),
        None => file.plain(op.name()).map_or(file.fd(), |plain| plain.fd.as_raw_fd()),
    };
    Note { op: *op, fd: file.fd(), reach, file_offset: *file_offset, len: *len }
}

/// The driver that an entry was handed to.
fn driver_of(queued: &Queued) -> Arc<Inner> {
    let Ok(driver) = Arc::clone(queued.driver()).downcast() else {
        unreachable!("`request` has put it there")
    };
    driver
}

fn is_of(queued: &Queued, driver: &Arc<Inner>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(queued.driver()), Arc::as_ptr(driver))
}

impl Work for Queued {
    type Home = Arc<Inner>;
    type Note = Note;

    fn is_for_threads(&self) -> bool {
        // A write may raise a signal on the thread that does it, which a caller of something else does not expect.
        self.op() == Op::Write
    }

    fn side(&self) -> Side {
        if self.is_local() { Side::Near } else { Side::Far }
    }

    fn tag(&self) -> u64 {
        Queued::tag(self)
    }

    fn home(&self) -> Arc<Inner> {
        driver_of(self)
    }

    fn end(self, ending: Ending) {
        let timed_out = matches!(ending, Ending::TimedOut);
        let event = if timed_out { Counted::EntryTimedOut } else { Counted::EntryCanceled };
        driver_of(&self).meters().count(event, 1);
        self.tell(ending);
    }

    fn send(home: &Arc<Inner>, desk: &Arc<Desk<Queued>>, side: Side) {
        let (desk, last) = (Arc::clone(desk), Arc::clone(home));
        home.workers(side).push(Box::new(move || {
            match serve(Serving { desk: &desk, side, last }, None, TURN, false) {
                0 => Came::ForNothing,
                _ => Came::ForWork,
            }
        }));
    }

    fn stalled(stall: &Stall<Note>) {
        let Stall { waited, running, waiting, oldest } = stall;
        let seconds = waited.as_secs_f64();
        let mut text =
            format!("a batch has given no event for {seconds:.1} s: {running} entries run, {waiting} wait");
        if let Some(Oldest { note: Note { op, fd, reach, file_offset, len }, age, engine }) = oldest {
            let path = std::fs::read_link(format!("/proc/self/fd/{reach}"));
            let path = path.map_or_else(|_| "a file".to_owned(), |path| path.display().to_string());
            let engine = engine.and_then(|at| engine::NAMES.get(usize::from(at))).unwrap_or(&"none yet");
            let (op, age) = (op.name(), age.as_secs_f64());
            text += &format!(
                "; the oldest is a {op} of {len} bytes at offset {file_offset} of {path} (fd {fd}), engine {engine}, \
                 {age:.1} s old"
            );
        }
        notice::line(format_args!("{text}"));
    }
}

/// Carries out what a call waits for, on its own thread; whether there was anything.
fn help(desk: &Arc<Desk<Queued>>, wanted: usize) -> bool {
    let Some((first, missing)) = desk.help(wanted) else { return false };
    let serving = Serving { desk, side: first.side(), last: driver_of(&first) };
    serve(serving, Some(first), missing.min(TURN), true);
    true
}

/// Carries entries of one side of a batch out until none waits, or until it has carried `most` of them. How many.
fn serve(mut serving: Serving<'_, Queued>, mut first: Option<Queued>, most: usize, by_caller: bool) -> usize {
    let (desk, side, mut left) = (serving.desk, serving.side, most);
    let mut ahead = VecDeque::new();
    while left > 0 {
        let next = first.take().or_else(|| ahead.pop_front());
        let next = next.or_else(|| desk.start(side, by_caller));
        let Some(queued) = next else { break };
        if !is_of(&queued, &serving.last) {
            serving.last = driver_of(&queued);
        }
        let driver = &serving.last;
        let queue_for = |transfer| driver.router().queue_for(&transfer);
        let way = queued.transfer().filter(|_| !queued.plain).and_then(queue_for);
        // Room for all that may come back, had while nothing is in hand that others wait for.
        let mut again = Vec::new();
        let Some(way) = way.filter(|_| again.try_reserve(left).is_ok()) else {
            let most = match queued.len() {
                large if large > SMALL => threads_for(large),
                _ => threads_for_small(driver, side),
            };
            desk.invite(driver, side, most);
            left -= 1;
            carry(driver, queued);
            continue;
        };
        let first = Some(queued);
        let mut turn = Turn {
            desk,
            driver,
            way,
            first,
            ahead: &mut ahead,
            odd: None,
            side,
            left,
            taken: 0,
            bytes: 0,
            again,
            kind: None,
            done: Vec::new(),
            by_caller,
        };
        match driver.router().queue(way) {
            Some(queue) => queue.run(&mut turn),
            None => turn.again.extend(turn.first.take()),
        }
        turn.landed();
        let Turn { odd, again, left: rest, .. } = turn;
        left = rest;
        // What was not for the queue may take its time: one is carried here, and the others are anybody's again.
        let mut others: VecDeque<_> = again.into();
        others.iter_mut().for_each(|queued| queued.plain = true);
        others.extend(odd);
        let next = others.pop_front();
        if let Some(queued) = next {
            others.append(&mut ahead);
            desk.put_back(&mut others);
            ahead = others;
            let driver = driver_of(&queued);
            desk.invite(&driver, side, WAITING_THREADS);
            carry(&driver, queued);
        }
    }
    most - left
}

/// Carries one entry out as a synchronous call would be.
fn carry(driver: &Inner, queued: Queued) {
    let (result, split) = match queued.transfer() {
        Some(transfer) => driver.carry_split(&transfer),
        None => (Err(Error::new(ErrorKind::InternalError, "batch")), Split::default()),
    };
    driver.count_entry(queued.op(), &result, split, queued.since);
    queued.done(result);
}

/// What a thread takes out of a batch for an engine's queue: entries that go the same way.
struct Turn<'a> {
    desk: &'a Arc<Desk<Queued>>,
    driver: &'a Arc<Inner>,
    way: Way,
    first: Option<Queued>,
    /// Started, to be looked at next.
    ahead: &'a mut VecDeque<Queued>,
    /// Started, and found to go another way.
    odd: Option<Queued>,
    side: Side,
    left: usize,
    taken: usize,
    bytes: usize,
    again: Vec<Queued>,
    /// What was found out to go this way last.
    kind: Option<Kind>,
    /// Moved, and nobody was told yet.
    done: Vec<(Ticket, usize)>,
    by_caller: bool,
}

impl Turn<'_> {
    /// Whether an entry goes the same way. Of one that is like the one before in all that ways depend on it is known; what
    /// is in the page cache is found out by reading.
    fn goes_along(&mut self, queued: &Queued) -> bool {
        let kind = queued.kind();
        if self.way.cache != Cache::Around && self.kind == Some(kind) {
            return true;
        }
        let way = queued.transfer().and_then(|transfer| self.driver.router().queue_for(&transfer));
        let same = way == Some(self.way);
        self.kind = (same && queued.is_fine()).then_some(kind);
        same
    }

    /// Entries are started several at once: each time others are kept from it.
    fn start(&mut self) -> Option<Queued> {
        if self.ahead.is_empty() && self.ahead.try_reserve(AT_ONCE).is_ok() {
            self.desk.start_some(self.side, self.by_caller, AT_ONCE.min(self.left), self.ahead);
        }
        let queued = self.ahead.pop_front()?;
        queued.reached(self.way.engine());
        Some(queued)
    }
}

impl Source for Turn<'_> {
    fn next(&mut self) -> Option<(Queued, Cache)> {
        let queued = match self.first.take() {
            Some(first) => {
                first.reached(self.way.engine());
                first
            }
            None if self.odd.is_some() || self.left == 0 => return None,
            None => {
                let queued = self.start()?;
                if !(is_of(&queued, self.driver) && self.goes_along(&queued)) {
                    self.odd = Some(queued);
                    return None;
                }
                queued
            }
        };
        let mut queued = queued;
        queued.began = queued.transfer().and_then(|transfer| self.driver.queue_begins(&transfer));
        self.left -= 1;
        self.taken += 1;
        self.bytes += queued.len();
        if self.taken.is_multiple_of(SHARE) || self.bytes >= SHARE_BYTES {
            self.bytes = 0;
            self.desk.invite(self.driver, self.side, self.driver.busy_threads());
        }
        Some((queued, self.way.cache))
    }

    fn moved(&mut self, piece: Queued) {
        if let Some(transfer) = piece.transfer() {
            self.driver.queue_moved(self.way, &transfer, piece.began);
        }
        let len = piece.len();
        let (engines, timed) = (1 << self.way.engine(), piece.began.is_some());
        let split = Split { staged: len, engines, timed, ..Split::default() };
        self.driver.count_entry(piece.op(), &Ok(len), split, piece.since);
        if self.done.try_reserve(1).is_ok() {
            self.done.push(piece.let_go());
        } else {
            piece.done(Ok(len));
        }
    }

    fn landed(&mut self) {
        ticket::complete_all(&mut self.done);
        // Its file may be gone now, and another in its place.
        self.kind = None;
    }

    fn waits(&mut self, last: Option<Queued>) {
        if last.is_some() {
            self.left += 1;
        }
        // Either was the first of these.
        for queued in [self.odd.take(), last].into_iter().flatten() {
            self.ahead.push_front(queued);
        }
        self.desk.put_back(self.ahead);
        self.desk.invite(self.driver, self.side, threads_for_small(self.driver, self.side));
    }

    fn again(&mut self, piece: Queued) {
        self.again.push(piece);
    }
}
