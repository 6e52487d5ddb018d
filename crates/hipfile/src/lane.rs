//! What operations of one stream share while any of them is queued: a pinned Block, the words of its copies, and the word
//! that holds it; large ones a ring of more of that. They come from a reserve that nobody else uses, so that nobody can keep
//! them from a stream.

mod reserve;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use self::reserve::Reserve;
use crate::aside::Aside;
use crate::device::{Device, LateWords, Pinned, StreamPtr, Streams};
use crate::error::{Error, Result};
use crate::usage::thread_stripe;
use crate::watch::{Look, Watch};
use crate::workers::{Job, Workers};

/// Threads that do the file I/O of held streams; most of them wait for storage most of the time.
const THREADS: usize = 16;
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many copies a seat has words for: so that one half of its Block can be filled while the other is copied.
const CELLS: usize = 2;
/// What parts of a Block are aligned to in memory.
const PAGE: usize = 4096;

/// The words of one copy, by their addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Words {
    late_host: usize,
    late_device: usize,
    /// The one that holds the stream.
    word: usize,
}

/// Where copies tell how far their stream has got: a number that only grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    host: usize,
    device: usize,
}

impl Told {
    fn new(at: Pinned) -> Told {
        Told { host: at.host, device: at.device }
    }

    /// The last number told.
    pub(crate) fn get(self) -> u64 {
        word_at(self.host).load(Ordering::Acquire)
    }
}

/// A Block, a part of one, or several adjacent ones, and the words that go with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) block: Pinned,
    words: Words,
}

impl Seat {
    /// The Block's bytes.
    ///
    /// # Safety
    /// Nobody else uses them meanwhile.
    pub(crate) unsafe fn bytes<'b>(&self) -> &'b mut [u8] {
        // SAFETY: as this function demands.
        unsafe { self.part(0..self.block.len) }
    }

    /// Some of the Block's bytes.
    ///
    /// # Safety
    /// Nobody else uses them meanwhile.
    pub(crate) unsafe fn part<'b>(&self, range: Range<usize>) -> &'b mut [u8] {
        assert!(range.start <= range.end && range.end <= self.block.len, "a part of a Block");
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(self.block.host + range.start);
        // SAFETY: a Block of a reserve is never given back and was zeroed at first; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Tells the next copy what to do.
    pub(crate) fn say(&self, to: usize, from: usize, len: usize) {
        self.set([to as u64, from as u64, len as u64, 0, 0]);
    }

    /// The same, and what number it has to tell when it begins.
    pub(crate) fn say_and_tell(&self, to: usize, from: usize, len: usize, told: Told, number: u64) {
        self.set([to as u64, from as u64, len as u64, told.device as u64, number]);
    }

    /// What the next copy copies.
    fn set(&self, words: [u64; 5]) {
        set_late(self.words.late_host, words);
    }

    /// The same for the GPU.
    pub(crate) fn late_device(&self) -> usize {
        self.words.late_device
    }

    pub(crate) fn word(&self) -> &'static AtomicU64 {
        word_at(self.words.word)
    }

    /// The address of the word that holds the stream.
    pub(crate) fn word_address(&self) -> usize {
        self.words.word
    }
}

/// Sets the words of a copy.
fn set_late(at: usize, words: [u64; 5]) {
    let late: *const LateWords = std::ptr::with_exposed_provenance(at);
    // SAFETY: control memory of a reserve is never given back, is aligned, and is accessed as atomics only.
    let late: &'static LateWords = unsafe { &*late };
    for (word, value) in late.iter().zip(words) {
        word.store(value, Ordering::Release);
    }
}

/// A copy of nothing, which tells when a stream has passed what it was given before. For streams that take no function to
/// tell it. Dropped, its line is lost, as it must be while the copy is to come.
#[derive(Debug)]
pub(crate) struct Mark {
    line: Pinned,
}

impl Mark {
    /// Where in its line it is told, behind the words of the copy.
    const TOLD: usize = 48;

    fn told(&self) -> &'static AtomicU64 {
        word_at(self.line.host + Mark::TOLD)
    }

    /// The words of its copy, for the GPU.
    pub(crate) fn late_device(&self) -> usize {
        self.line.device
    }

    pub(crate) fn is_passed(&self) -> bool {
        self.told().load(Ordering::Acquire) != 0
    }
}

/// Eight bytes that streams wait for, or that parked functions look at.
fn word_at(address: usize) -> &'static AtomicU64 {
    let word: *mut u64 = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: words of a reserve are never given back, are aligned, and are accessed as atomics only.
    unsafe { AtomicU64::from_ptr(word) }
}

/// Lets go of what an operation used, but for its seat.
type End = Box<dyn FnOnce(&Lane) + Send>;

/// A stream with operations queued, or lately without.
pub(crate) struct Lane {
    reserve: Arc<Reserve>,
    pub(crate) kernel: usize,
    /// Held while an operation's commands are queued.
    pub(crate) order: Mutex<()>,
    state: Mutex<LaneState>,
    /// The last gate opened, for parked functions.
    opened: Mutex<()>,
    opens: Condvar,
}

#[derive(Default)]
struct LaneState {
    /// Operations queued and not done.
    pending: usize,
    /// All that ever were.
    entered: u64,
    /// What ends those of which nothing of the stream's tells that it has passed them, by their numbers.
    refused: Vec<(u64, End)>,
    /// Its seat.
    own: Option<Ring>,
    /// The last number that a copy was given to tell.
    told: u64,
    /// More of them. Asked for once, whether there are any or none.
    ring: Option<Ring>,
    asked: bool,
}

/// Adjacent seats, for operations that fill some while others are copied.
#[derive(Debug)]
struct Ring {
    seats: Range<usize>,
    /// The last ticket given out for each word.
    tickets: Vec<[u64; CELLS]>,
}

impl Ring {
    fn new(reserve: &Reserve, seats: Range<usize>) -> Ring {
        let words = |index| {
            std::array::from_fn(|cell| reserve.place(index, cell, 0, 0).word().load(Ordering::Acquire))
        };
        Ring { tickets: seats.clone().map(words).collect(), seats }
    }
}

/// A place for pieces that are filled ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) seat: Seat,
    /// The last ticket before those of the operation that it is for.
    pub(crate) before: u64,
}

/// What an operation that fills ahead uses of its lane.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) all: Vec<Slot>,
    pub(crate) told: Told,
    /// The last number before those that its copies tell.
    pub(crate) before: u64,
}

impl Lane {
    /// Begins an operation. The first one takes a seat. Its number is larger than those of the operations before it.
    pub(crate) fn enter(&self) -> Result<(Seat, u64)> {
        let (mut state, reserve) = (lock(&self.state), &self.reserve);
        let index = match &state.own {
            Some(own) => own.seats.start,
            None => {
                let index = reserve.take()?;
                state.own = Some(Ring::new(reserve, index..index + 1));
                state.told = reserve.told(index).get();
                index
            }
        };
        state.pending += 1;
        state.entered += 1;
        Ok((reserve.seat(index), state.entered))
    }

    /// Keeps an operation that nothing of the stream's ends until the stream is known to have passed it.
    pub(crate) fn end_when_passed(&self, number: u64, end: End) {
        lock(&self.state).refused.push((number, end));
    }

    /// Whether there are any of those.
    pub(crate) fn has_refused(&self) -> bool {
        !lock(&self.state).refused.is_empty()
    }

    /// The stream has passed operations up to that number: ends those that wait for it.
    pub(crate) fn passed(&self, number: u64) {
        let ends: Vec<_> = lock(&self.state).refused.extract_if(.., |(of, _)| *of <= number).collect();
        for (_, end) in ends {
            end(self);
            self.leave();
        }
    }

    /// Ends an operation. The last one leaves the seat to other streams.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.pending -= 1;
        if state.pending == 0
            && let Some(own) = state.own.take()
        {
            let reserve = &self.reserve;
            reserve.leave(own.seats.start);
            state.asked = false;
            if let Some(ring) = state.ring.take() {
                reserve.leave_ring(ring.seats);
            }
        }
    }

    /// A mark to be queued, if there is one left.
    pub(crate) fn mark(&self) -> Option<Mark> {
        let mark = Mark { line: self.reserve.take_mark()? };
        mark.told().store(0, Ordering::Release);
        let told = (mark.line.device + Mark::TOLD) as u64;
        set_late(mark.line.host, [0, 0, 0, told, 1]);
        Some(mark)
    }

    /// Gives a mark back that was passed, or not queued.
    pub(crate) fn leave_mark(&self, mark: Mark) {
        self.reserve.leave_mark(mark.line);
    }

    pub(crate) fn block_len(&self) -> usize {
        self.reserve.block_len()
    }

    /// How far apart two slots of one Block lie.
    pub(crate) fn half_block(&self) -> usize {
        let half = self.block_len() / CELLS;
        half - half % PAGE
    }

    /// How many adjacent seats there are for operations that fill ahead, of a stream that one has entered. The first who asks
    /// determines it: at most `most`, or one, its own, where the reserve can spare no two.
    pub(crate) fn ring(&self, most: usize) -> usize {
        let mut state = lock(&self.state);
        if !state.asked {
            let reserve = &self.reserve;
            state.asked = true;
            state.ring = reserve.take_ring(most).map(|seats| Ring::new(reserve, seats));
        }
        state.ring.as_ref().map_or(1, |ring| ring.seats.len())
    }

    /// Takes slots for an operation of `pieces` pieces, each `step` bytes behind the one before: whole seats, or halves of
    /// one. It makes `uses` of each slot. Operations take turns: when the stream is there, all copies of the ones before are
    /// done.
    pub(crate) fn slots(
        &self,
        count: usize,
        step: usize,
        pieces: usize,
        uses: impl Fn(usize) -> usize,
    ) -> Option<Slots> {
        let (mut state, reserve) = (lock(&self.state), &self.reserve);
        let LaneState { own, ring, told, .. } = &mut *state;
        let own = own.as_mut()?;
        let at = reserve.told(own.seats.start);
        let before = *told;
        *told += pieces as u64;
        let ring = ring.as_mut().unwrap_or(own);
        let block = reserve.block_len();
        let slot = |index: usize| {
            let (seat, cell) =
                if step < block { (index / CELLS, index % CELLS) } else { (index * (step / block), 0) };
            let ticket = &mut ring.tickets[seat][cell];
            let before = *ticket;
            *ticket += uses(index) as u64;
            Slot { seat: reserve.place(ring.seats.start + seat, cell, cell * step, step), before }
        };
        Some(Slots { all: (0..count).map(slot).collect(), told: at, before })
    }

    /// The next ticket for the word of its seat.
    pub(crate) fn next_ticket(&self) -> u64 {
        let mut state = lock(&self.state);
        // An operation has entered.
        state.own.as_mut().map_or(0, |own| {
            own.tickets[0][0] += 1;
            own.tickets[0][0]
        })
    }

    /// Whether streams are held by functions that do not return.
    pub(crate) fn parks(&self) -> bool {
        self.reserve.parks()
    }

    pub(crate) fn open(&self, word: &AtomicU64, ticket: u64) {
        if !self.parks() {
            return word.store(ticket, Ordering::Release);
        }
        let opened = lock(&self.opened);
        word.store(ticket, Ordering::Release);
        drop(opened);
        self.opens.notify_all();
    }

    pub(crate) fn await_open(&self, word: &AtomicU64, ticket: u64) {
        let mut opened = lock(&self.opened);
        while word.load(Ordering::Acquire) < ticket {
            opened = self.opens.wait(opened).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the operation that has entered last is the only one.
    pub(crate) fn is_alone(&self) -> bool {
        lock(&self.state).pending == 1
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).pending == 0
    }
}

/// Which stream: the runtime, the handle, and what else tells apart streams that share a handle.
type Key = (&'static str, usize, usize);

/// The lanes of a driver.
pub(crate) struct Lanes {
    block_len: usize,
    threads_ahead: usize,
    count: AtomicUsize,
    reserves: Mutex<Vec<(&'static str, Arc<Reserve>)>>,
    /// Held while a reserve is made.
    making: Mutex<()>,
    lanes: Mutex<HashMap<Key, Arc<Lane>>>,
    workers: Workers,
    aside: Aside,
    watch: Watch,
}

impl Lanes {
    /// Reserves of `len` bytes in Blocks of `block_len`, at least one; so many threads at most fill for one operation. Takes
    /// no memory yet.
    pub(crate) fn new(block_len: usize, len: usize, threads_ahead: usize) -> Lanes {
        Lanes {
            block_len,
            threads_ahead: threads_ahead.clamp(1, THREADS),
            count: AtomicUsize::new((len / block_len).max(1)),
            reserves: Mutex::default(),
            making: Mutex::new(()),
            lanes: Mutex::default(),
            workers: Workers::new("hipfile-stream", THREADS),
            aside: Aside::new("hipfile-reads"),
            watch: Watch::new("hipfile-copied"),
        }
    }

    /// Sets how many bytes of Blocks a reserve has, at least one Block, unless there is one already. How many it has.
    pub(crate) fn limit(&self, len: usize) -> usize {
        let reserves = lock(&self.reserves);
        if reserves.is_empty() {
            self.count.store((len / self.block_len).max(1), Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed) * self.block_len
    }

    /// Makes ready what streams of a GPU need.
    pub(crate) fn reserve(&self, device: &Arc<dyn Device>, streams: &dyn Streams, gpu: u32) -> Result<()> {
        self.ready(device.as_ref(), streams, gpu).map(drop)
    }

    fn ready(&self, device: &dyn Device, streams: &dyn Streams, gpu: u32) -> Result<(Arc<Reserve>, usize)> {
        let known = || {
            let reserves = lock(&self.reserves);
            reserves.iter().find(|(name, _)| *name == device.name()).map(|(_, known)| Arc::clone(known))
        };
        let make = || {
            // Many threads may come first at the same time; one makes the memory for all.
            let _making = lock(&self.making);
            if let Some(known) = known() {
                return Ok(known);
            }
            let count = self.count.load(Ordering::Relaxed);
            let made = Reserve::make(device, streams, gpu, self.block_len, count)?;
            lock(&self.reserves).push((device.name(), Arc::clone(&made)));
            Ok::<_, Error>(made)
        };
        let reserve = known().map_or_else(make, Ok)?;
        let kernel = reserve.kernel(streams, gpu)?;
        Ok((reserve, kernel))
    }

    /// The lane of a stream.
    pub(crate) fn lane(
        &self,
        device: &Arc<dyn Device>,
        streams: &dyn Streams,
        stream: StreamPtr,
        gpu: u32,
    ) -> Result<Arc<Lane>> {
        // Default streams are one for each GPU, and one of the kinds is one for each thread too.
        let thread = if streams.is_per_thread(stream) { thread_stripe() + 1 } else { 0 };
        let handle = if streams.is_legacy(stream) { 0 } else { stream.0 };
        let key = (device.name(), handle, thread << 8 | gpu as usize);
        if let Some(lane) = lock(&self.lanes).get(&key) {
            return Ok(Arc::clone(lane));
        }
        let (reserve, kernel) = self.ready(device.as_ref(), streams, gpu)?;
        let mut lanes = lock(&self.lanes);
        if lanes.len() >= 256 {
            // Of streams that are gone.
            lanes.retain(|_, lane| !lane.is_idle() || Arc::strong_count(lane) > 1);
        }
        let fresh = || {
            Arc::new(Lane {
                reserve,
                kernel,
                order: Mutex::new(()),
                state: Mutex::default(),
                opened: Mutex::new(()),
                opens: Condvar::new(),
            })
        };
        Ok(Arc::clone(lanes.entry(key).or_insert_with(fresh)))
    }

    /// Most threads that fill for one operation.
    pub(crate) fn threads_ahead(&self) -> usize {
        self.threads_ahead
    }

    /// Whether work waits for a thread.
    pub(crate) fn is_behind(&self) -> bool {
        self.workers.is_behind()
    }

    /// Whether there is somebody who looks how far streams have got.
    pub(crate) fn can_watch(&self) -> bool {
        self.watch.start()
    }

    /// Has somebody look until that is done.
    pub(crate) fn watch(&self, look: Look) {
        self.watch.add(look);
    }

    /// For reads that no thread waits for.
    pub(crate) fn aside(&self) -> &Aside {
        &self.aside
    }

    /// Gives work to a thread.
    pub(crate) fn push(&self, job: Job) {
        self.workers.push(job);
    }
}
