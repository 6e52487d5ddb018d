//! What operations of one stream share while any of them is queued: a pinned Block, the words of its copies, and the word
//! that holds it. They come from a reserve that nobody else uses, so that nobody can keep them from a stream.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::device::{Device, LateWords, Pinned, StreamPtr, Streams};
use crate::error::{Error, ErrorKind, Result};
use crate::sys;
use crate::usage::thread_stripe;
use crate::workers::{Job, Workers};

/// Threads that do the file I/O of held streams; most of them wait for storage most of the time.
const THREADS: usize = 16;
/// Bytes of a seat beside its Block: three words for copies, one to park at.
const CONTROL: usize = 64;
/// `hipErrorOutOfMemory`, what a caller is told when the reserve is used up. The same number in CUDA.
const OUT_OF_MEMORY: u32 = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A Block and the words that go with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    pub(crate) block: Pinned,
    late_host: usize,
    pub(crate) late_device: usize,
    /// Address of the word that holds the stream.
    pub(crate) word: usize,
}

impl Seat {
    /// The Block's bytes.
    ///
    /// # Safety
    /// Nobody else uses them meanwhile.
    pub(crate) unsafe fn bytes<'b>(&self) -> &'b mut [u8] {
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(self.block.host);
        // SAFETY: a Block of a reserve is never given back and was zeroed at first; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, self.block.len) }
    }

    /// What the next copy copies.
    pub(crate) fn late(&self) -> &'static LateWords {
        let words: *const LateWords = std::ptr::with_exposed_provenance(self.late_host);
        // SAFETY: control memory of a reserve is never given back, is aligned, and is accessed as atomics only.
        unsafe { &*words }
    }

    pub(crate) fn word(&self) -> &'static AtomicU64 {
        word_at(self.word)
    }
}

/// Eight bytes that streams wait for, or that parked functions look at.
fn word_at(address: usize) -> &'static AtomicU64 {
    let word: *mut u64 = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: words of a reserve are never given back, are aligned, and are accessed as atomics only.
    unsafe { AtomicU64::from_ptr(word) }
}

/// All seats of a runtime, and what else must not be made while a stream is held.
#[derive(Debug)]
pub(crate) struct Reserve {
    runtime: &'static str,
    emulated: bool,
    block_len: usize,
    count: usize,
    parks: bool,
    free: Mutex<Vec<Seat>>,
    /// The copy kernel of each GPU.
    kernels: Mutex<HashMap<u32, usize>>,
    forks: u32,
}

/// Reserves of drivers that are gone: pinned memory cannot be given back where a driver ends, so the next driver takes it.
static KEPT: Mutex<Vec<Reserve>> = Mutex::new(Vec::new());

impl Reserve {
    fn make(
        device: &dyn Device,
        streams: &dyn Streams,
        gpu: u32,
        block_len: usize,
        count: usize,
    ) -> Result<Reserve> {
        let parks = !streams.can_wait(gpu);
        let fits = |kept: &Reserve| {
            (kept.runtime, kept.emulated, kept.block_len, kept.count, kept.parks, kept.forks)
                == (device.name(), device.is_emulated(), block_len, count, parks, sys::forks())
        };
        if let Ok(mut kept) = KEPT.try_lock()
            && let Some(at) = kept.iter().position(fits)
        {
            return Ok(kept.swap_remove(at));
        }
        let memory = streams.alloc_pinned(gpu, count * (block_len + CONTROL))?;
        let mut free = Vec::with_capacity(count);
        for index in 0..count {
            let (block, control) = (index * block_len, count * block_len + index * CONTROL);
            let late_host = memory.host + control;
            free.push(Seat {
                block: Pinned { host: memory.host + block, device: memory.device + block, len: block_len },
                late_host,
                late_device: memory.device + control,
                word: if parks { late_host + 32 } else { streams.alloc_word(gpu)? },
            });
        }
        Ok(Reserve {
            runtime: device.name(),
            emulated: device.is_emulated(),
            block_len,
            count,
            parks,
            free: Mutex::new(free),
            kernels: Mutex::default(),
            forks: sys::forks(),
        })
    }

    fn kernel(&self, streams: &dyn Streams, gpu: u32) -> Result<usize> {
        if let Some(kernel) = lock(&self.kernels).get(&gpu) {
            return Ok(*kernel);
        }
        // Outside the lock: loading may wait for the GPU. Loaded twice does no harm.
        let kernel = streams.load_copy(gpu)?;
        lock(&self.kernels).insert(gpu, kernel);
        Ok(kernel)
    }
}

/// Keeps what cannot be given back.
#[derive(Debug)]
struct Kept(Option<Reserve>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(reserve) = self.0.take()
            && reserve.forks == sys::forks()
            && let Ok(mut kept) = KEPT.try_lock()
        {
            kept.push(reserve);
        }
    }
}

impl Kept {
    fn get(&self) -> &Reserve {
        match &self.0 {
            Some(reserve) => reserve,
            None => unreachable!("it is taken out by drop only"),
        }
    }
}

/// A stream with operations queued, or lately without.
#[derive(Debug)]
pub(crate) struct Lane {
    reserve: Arc<Kept>,
    pub(crate) kernel: usize,
    /// Held while an operation's commands are queued.
    pub(crate) order: Mutex<()>,
    state: Mutex<LaneState>,
    /// The last gate opened, for parked functions.
    opened: Mutex<()>,
    opens: Condvar,
}

#[derive(Debug, Default)]
struct LaneState {
    /// Operations queued and not done.
    pending: usize,
    seat: Option<Seat>,
    ticket: u64,
}

impl Lane {
    /// Begins an operation. The first one takes a seat.
    pub(crate) fn enter(&self) -> Result<Seat> {
        let mut state = lock(&self.state);
        let seat = match state.seat {
            Some(seat) => seat,
            None => {
                let reserve = self.reserve.get();
                let seat = lock(&reserve.free).pop().ok_or_else(|| {
                    let (kind, op) = (ErrorKind::HipDriverError, "take staging memory of streams");
                    Error::device(kind, op, OUT_OF_MEMORY, "all of it is in use by other streams")
                })?;
                state.ticket = seat.word().load(Ordering::Acquire);
                *state.seat.insert(seat)
            }
        };
        state.pending += 1;
        Ok(seat)
    }

    /// Ends an operation. The last one leaves the seat to other streams.
    pub(crate) fn leave(&self) {
        let mut state = lock(&self.state);
        state.pending -= 1;
        if state.pending == 0
            && let Some(seat) = state.seat.take()
        {
            lock(&self.reserve.get().free).push(seat);
        }
    }

    pub(crate) fn next_ticket(&self) -> u64 {
        let mut state = lock(&self.state);
        state.ticket += 1;
        state.ticket
    }

    /// Whether streams are held by functions that do not return.
    pub(crate) fn parks(&self) -> bool {
        self.reserve.get().parks
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
    count: AtomicUsize,
    reserves: Mutex<Vec<(&'static str, Arc<Kept>)>>,
    /// Held while a reserve is made.
    making: Mutex<()>,
    lanes: Mutex<HashMap<Key, Arc<Lane>>>,
    workers: Workers,
}

impl Lanes {
    /// Reserves of `len` bytes in Blocks of `block_len`, at least one. Takes no memory yet.
    pub(crate) fn new(block_len: usize, len: usize) -> Lanes {
        Lanes {
            block_len,
            count: AtomicUsize::new((len / block_len).max(1)),
            reserves: Mutex::default(),
            making: Mutex::new(()),
            lanes: Mutex::default(),
            workers: Workers::new("hipfile-stream", THREADS),
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

    fn ready(&self, device: &dyn Device, streams: &dyn Streams, gpu: u32) -> Result<(Arc<Kept>, usize)> {
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
            let made = Arc::new(Kept(Some(Reserve::make(device, streams, gpu, self.block_len, count)?)));
            lock(&self.reserves).push((device.name(), Arc::clone(&made)));
            Ok::<_, Error>(made)
        };
        let reserve = known().map_or_else(make, Ok)?;
        let kernel = reserve.get().kernel(streams, gpu)?;
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

    /// Gives work to a thread.
    pub(crate) fn push(&self, job: Job) {
        self.workers.push(job);
    }
}
