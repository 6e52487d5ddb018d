//! Host memory for staging: a bounded pool of page-aligned Blocks. It knows no GPU; pinning comes in as a closure.

#[path = "block/janitor.rs"]
mod janitor;
#[path = "block/left.rs"]
mod left;
#[path = "block/memory.rs"]
mod memory;
#[path = "block/slab.rs"]
mod slab;

use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use self::janitor::Bell;
use self::memory::{map, populate};
pub(crate) use self::slab::Pin;
use self::slab::Slab;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, STUCK, Weak, wait_for};
use crate::sys;

/// Memory is taken from the system in slabs of about this size.
const SLAB: usize = 4 << 20;
const MAX_SLABS: usize = 1024;

/// The pool. Blocks are taken and returned without a lock while there are enough; otherwise takers wait in turn.
pub(crate) struct BlockPool {
    block_len: usize,
    per_slab: usize,
    /// The limit. Blocks are numbered through all slabs; those from here on are out of use.
    max_blocks: AtomicUsize,
    slabs: Box<[OnceLock<Slab>]>,
    /// Blocks that never come back, for which others may be mapped.
    lost: AtomicUsize,
    waiting: AtomicUsize,
    /// Whether those who have Blocks do not give them back.
    stuck: AtomicBool,
    /// Whether a slab other than the first was used since the janitor looked.
    used: AtomicBool,
    /// How long the pool may be idle before it gives memory back; `None` for ever.
    idle: Option<Duration>,
    bell: Arc<Bell>,
    slow: Mutex<Slow>,
    returned: Condvar,
    this: Weak<BlockPool>,
    /// As `sys::forks` said when the pool was made.
    forks: u32,
}

#[derive(Default)]
struct Slow {
    /// Takers in order of arrival.
    queue: VecDeque<u64>,
    next_ticket: u64,
    /// Slabs mapped so far.
    slabs: usize,
    /// Those of them that have no memory now.
    cold: Vec<usize>,
    /// Slabs that are being mapped or made warm, by takers that have let go of the lock.
    growing: usize,
    /// Of these, slabs that are not in the list yet.
    coming: usize,
    pins: Vec<Arc<Pin>>,
    janitor: bool,
}

impl Slow {
    /// Whether there is nothing to give back.
    fn is_small(&self) -> bool {
        self.slabs - self.cold.len() < 2
    }
}

/// One Block, or adjacent ones, owned until dropped.
pub(crate) struct Block<'a> {
    pool: &'a BlockPool,
    slab: usize,
    index: u32,
    count: usize,
    start: NonNull<u8>,
}

// SAFETY: a Block is exclusive plain memory; any thread may use and return it.
unsafe impl Send for Block<'_> {}

impl fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPool")
            .field("block_len", &self.block_len)
            .field("max_blocks", &self.max_blocks)
            .finish_non_exhaustive()
    }
}

impl BlockPool {
    /// A pool of Blocks of `block_len` bytes (a multiple of 4096), at most `pool_len` bytes of them and at least one.
    /// Takes no memory yet. After `idle` without need it keeps one slab only.
    pub(crate) fn new(block_len: usize, pool_len: usize, idle: Option<Duration>) -> Arc<BlockPool> {
        let max_blocks = (pool_len / block_len).max(1);
        let per_slab = (SLAB / block_len).clamp(1, 64).min(max_blocks);
        Arc::new_cyclic(|this| BlockPool {
            block_len,
            per_slab,
            max_blocks: AtomicUsize::new(max_blocks),
            slabs: (0..MAX_SLABS).map(|_| OnceLock::new()).collect(),
            lost: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            stuck: AtomicBool::new(false),
            used: AtomicBool::new(false),
            idle,
            bell: Arc::default(),
            slow: Mutex::new(Slow::default()),
            returned: Condvar::new(),
            this: Weak::clone(this),
            forks: sys::forks(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slow> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of one Block.
    pub(crate) fn block_len(&self) -> usize {
        self.block_len
    }

    /// Pins what is mapped and whatever will be mapped later.
    pub(crate) fn pin_with(&self, pin: Pin) {
        let mut slow = self.lock();
        let pin = Arc::new(pin);
        for (at, slab) in self.slabs.iter().enumerate() {
            if let Some(slab) = slab.get()
                && !slow.cold.contains(&at)
            {
                slab.pin(std::slice::from_ref(&pin));
            }
        }
        slow.pins.push(pin);
    }

    /// Maps the first Blocks now, so that no transfer pays for it.
    pub(crate) fn warm(&self, node: Option<u32>) {
        let slow = self.lock();
        if slow.slabs == 0 && slow.growing == 0 {
            // A system without memory for it now may have it later; the first transfer will say.
            let _ = self.grow(slow, node);
        }
    }

    /// Takes one Block; waits in turn when all are in use. The caller must hold no other Block.
    ///
    /// # Errors
    /// The errno of mmap, when not even one Block can be had from the system; ENOMEM when none has come back for [`STUCK`]: who
    /// has them is at storage that hangs.
    pub(crate) fn take(&self, node: Option<u32>) -> Result<Block<'_>, i32> {
        // A taker in the queue goes first.
        if self.waiting.load(Ordering::SeqCst) == 0
            && let Some(block) = self.try_take(node)
        {
            return Ok(block);
        }
        self.take_in_turn(node)
    }

    /// One Block, if one is free at once; of the memory node asked for if there is one. For a transfer that has one
    /// already.
    pub(crate) fn try_take(&self, node: Option<u32>) -> Option<Block<'_>> {
        self.try_take_adjacent(node, 1)
    }

    /// As [`Self::try_take`], and the pool grows for it if it may and nobody waits. For a large transfer that is not held.
    pub(crate) fn try_take_more(&self, node: Option<u32>) -> Option<Block<'_>> {
        self.try_take_wide(node, 1)
    }

    /// How many adjacent Blocks make up `len` bytes, or as many of these as there can be; at least one.
    pub(crate) fn adjacent(&self, len: usize) -> usize {
        (len / self.block_len).clamp(1, self.per_slab)
    }

    /// As [`Self::try_take_more`] for `count` Blocks (of [`Self::adjacent`]) that are one range of memory.
    pub(crate) fn try_take_wide(&self, node: Option<u32>, count: usize) -> Option<Block<'_>> {
        if let Some(block) = self.try_take_adjacent(node, count) {
            return Some(block);
        }
        let slow = self.lock();
        if slow.growing > 0 || !slow.queue.is_empty() || !self.may_grow(&slow) {
            return None;
        }
        let (slow, grown) = self.grow(slow, node);
        drop(slow);
        grown.ok()?;
        self.try_take_adjacent(node, count)
    }

    fn try_take_adjacent(&self, node: Option<u32>, count: usize) -> Option<Block<'_>> {
        if node.is_some()
            && let Some(block) = self.try_take_from(count, |slab| slab.node == node)
        {
            return Some(block);
        }
        self.try_take_from(count, |_| true)
    }

    fn try_take_from(&self, count: usize, suits: impl Fn(&Slab) -> bool) -> Option<Block<'_>> {
        for (at, slab) in self.slabs.iter().enumerate() {
            let slab = slab.get()?;
            if !suits(slab) {
                continue;
            }
            let mut free = slab.free.load(Ordering::Relaxed);
            loop {
                // Where a run of so many free Blocks begins.
                let runs = (1..count).fold(free, |runs, further| runs & (free >> further));
                if runs == 0 {
                    break;
                }
                let index = runs.trailing_zeros();
                let taken = mask(index, count);
                match slab.free.compare_exchange_weak(
                    free,
                    free & !taken,
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        if at > 0 && !self.used.load(Ordering::Relaxed) {
                            self.used.store(true, Ordering::Relaxed);
                        }
                        // SAFETY: a bit is set only for Blocks inside the slab, so the result is inside too.
                        let start = unsafe { slab.start.add(index as usize * self.block_len) };
                        return Some(Block { pool: self, slab: at, index, count, start });
                    }
                    Err(now) => free = now,
                }
            }
        }
        None
    }

    #[cold]
    fn take_in_turn(&self, node: Option<u32>) -> Result<Block<'_>, i32> {
        let mut slow = self.lock();
        let ticket = slow.next_ticket;
        slow.next_ticket += 1;
        slow.queue.push_back(ticket);
        // Counted before the bits are looked at, so that a Block returned meanwhile is either seen or announced.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let result = loop {
            // While others map memory, nobody waits behind them for a Block that is free already.
            if (slow.queue.front() == Some(&ticket) || slow.growing > 0)
                && let Some(block) = self.try_take(node)
            {
                break Ok(block);
            }
            // As many may grow the pool at once as there are takers: first use by many threads is not slow.
            if slow.growing < slow.queue.len() && self.may_grow(&slow) {
                let (again, grown) = self.grow(slow, node);
                slow = again;
                match grown {
                    Ok(()) => continue,
                    // With Blocks in use one will come back; without any there is nothing to wait for.
                    Err(errno) if slow.slabs == 0 && slow.growing == 0 => break Err(errno),
                    Err(_) => {}
                }
            }
            if self.stuck.load(Ordering::SeqCst) {
                break Err(libc::ENOMEM);
            }
            let (again, over) = wait_for(&self.returned, slow, STUCK);
            slow = again;
            if over && slow.growing == 0 {
                self.stuck.store(true, Ordering::SeqCst);
            }
        };
        slow.queue.retain(|t| *t != ticket);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        drop(slow);
        // The next in turn may find a Block too.
        self.returned.notify_all();
        result
    }

    /// The first slabs, which have Blocks within the limit.
    fn slabs_in_use(&self) -> usize {
        self.max_blocks.load(Ordering::SeqCst).div_ceil(self.per_slab).min(MAX_SLABS)
    }

    fn may_grow(&self, slow: &Slow) -> bool {
        let slabs = self.slabs_in_use();
        // The last slab may be short, so it must not overtake another.
        let next = slow.slabs + slow.coming;
        slow.cold.iter().any(|at| *at < slabs) || (next < slabs && (slow.coming == 0 || next + 1 < slabs))
    }

    /// The Blocks of a slab that are within the limit, one bit each.
    fn within(&self, slab: usize) -> u64 {
        match self.max_blocks.load(Ordering::SeqCst).saturating_sub(slab * self.per_slab) {
            64.. => u64::MAX,
            n => (1 << n) - 1,
        }
    }

    /// Takes free Blocks beyond the limit out of use, and puts those back that are within it again. Under the lock.
    fn fit(&self, at: usize, slab: &Slab) {
        let within = self.within(at);
        let beyond = slab.free.fetch_and(within, Ordering::SeqCst) & !within;
        let retired = slab.retired.load(Ordering::Relaxed) | beyond;
        slab.retired.store(retired & !within, Ordering::Relaxed);
        slab.free.fetch_or(retired & within, Ordering::SeqCst);
    }

    /// Sets how many bytes of Blocks there may be, at least one Block. Those in use go when they come back; memory is given
    /// back by slabs.
    pub(crate) fn limit(&self, pool_len: usize) {
        let slow = self.lock();
        let most = (pool_len / self.block_len).max(1) + self.in_place_of_lost();
        self.max_blocks.store(most, Ordering::SeqCst);
        for (at, slab) in self.slabs.iter().enumerate() {
            let Some(slab) = slab.get() else { break };
            self.fit(at, slab);
        }
        drop(slow);
        self.trim(self.slabs_in_use());
        self.returned.notify_all();
    }

    /// Most bytes of Blocks.
    pub(crate) fn most(&self) -> usize {
        (self.max_blocks.load(Ordering::Relaxed) - self.in_place_of_lost()) * self.block_len
    }

    /// By how many Blocks the limit is raised for those that were lost: by whole slabs, since what is mapped cannot grow.
    fn in_place_of_lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed).next_multiple_of(self.per_slab)
    }

    /// Blocks come back of which some are beyond the limit.
    #[cold]
    fn retire(&self, at: usize, slab: &Slab, bits: u64) {
        let slow = self.lock();
        slab.retired.fetch_or(bits, Ordering::Relaxed);
        self.fit(at, slab);
        drop(slow);
        if at >= self.slabs_in_use() {
            self.trim(at);
        }
    }

    /// Gives memory to one more slab: a cold one, or one never mapped. The lock is let go of meanwhile.
    fn grow<'p>(
        &'p self,
        mut slow: MutexGuard<'p, Slow>,
        node: Option<u32>,
    ) -> (MutexGuard<'p, Slow>, Result<(), i32>) {
        slow.growing += 1;
        let pins = slow.pins.clone();
        let result;
        let slabs = self.slabs_in_use();
        if let Some(last) = slow.cold.iter().rposition(|at| *at < slabs) {
            let at = slow.cold.remove(last);
            drop(slow);
            if let Some(slab) = self.slabs[at].get() {
                populate(slab.start, slab.len);
                slab.pin(&pins);
            }
            slow = self.lock();
            if let Some(slab) = self.slabs[at].get() {
                // With whatever came meanwhile.
                slab.pin(&slow.pins);
                slab.free.store(slab.all(), Ordering::SeqCst);
                self.fit(at, slab);
            }
            result = Ok(());
        } else {
            slow.coming += 1;
            let before = (slow.slabs + slow.coming - 1) * self.per_slab;
            let within = self.max_blocks.load(Ordering::SeqCst).saturating_sub(before);
            let blocks = within.clamp(1, self.per_slab);
            drop(slow);
            let made = self.memory(blocks, node).map(|(start, blocks, pinned)| {
                let len = blocks * self.block_len;
                populate(start, len);
                let (pinned, free, retired) = (Mutex::new(pinned), AtomicU64::new(0), AtomicU64::new(0));
                let slab = Slab { start, len, blocks, node, pinned, free, retired };
                slab.pin(&pins);
                slab
            });
            slow = self.lock();
            slow.coming -= 1;
            result = made.map(|slab| {
                // With whatever came meanwhile.
                slab.pin(&slow.pins);
                slab.free.store(slab.all(), Ordering::SeqCst);
                self.fit(slow.slabs, &slab);
                if self.slabs[slow.slabs].set(slab).is_err() {
                    unreachable!("slabs are set in order, under the lock");
                }
                slow.slabs += 1;
            });
        }
        slow.growing -= 1;
        self.start_janitor(&mut slow);
        self.returned.notify_all();
        (slow, result)
    }

    /// Memory for so many Blocks, or for fewer if the system has no more; how many, and the runtimes that have pinned it.
    fn memory(&self, most: usize, node: Option<u32>) -> Result<(NonNull<u8>, usize, Vec<&'static str>), i32> {
        if let Some((start, pinned)) = left::take(most * self.block_len) {
            return Ok((start, most, pinned));
        }
        let mut blocks = most;
        loop {
            match map(blocks * self.block_len, node) {
                Ok(start) => return Ok((start, blocks, Vec::new())),
                Err(errno) if blocks == 1 => return Err(errno),
                Err(_) => blocks /= 2,
            }
        }
    }

    fn start_janitor(&self, slow: &mut Slow) {
        let (Some(idle), false) = (self.idle, slow.janitor) else { return };
        if !slow.is_small() {
            slow.janitor = janitor::start(Weak::clone(&self.this), Arc::clone(&self.bell), idle);
        }
    }

    /// Gives the memory of unused slabs back to the system, all but the first `keep`. Bytes given back.
    pub(crate) fn trim(&self, keep: usize) -> usize {
        let mut slow = self.lock();
        let mut given = 0;
        for at in keep..slow.slabs {
            let Some(slab) = self.slabs[at].get() else { continue };
            let retired = slab.retired.load(Ordering::Relaxed);
            let all = slab.all() & !retired;
            if retired == 0 && slow.cold.contains(&at) {
                continue;
            }
            // Taken whole, so that no Block of it is in use.
            if slab.free.compare_exchange(all, 0, Ordering::SeqCst, Ordering::Relaxed).is_err() {
                continue;
            }
            if !slab.unpin(&slow.pins) {
                slab.free.store(all, Ordering::SeqCst);
                continue;
            }
            // SAFETY: the slab is the pool's own mapping and nobody has a Block of it; its content means nothing.
            unsafe { libc::madvise(slab.start.as_ptr().cast(), slab.len, libc::MADV_DONTNEED) };
            slab.retired.store(0, Ordering::Relaxed);
            slow.cold.push(at);
            given += slab.len;
        }
        given
    }

    /// Bytes that have memory now.
    pub(crate) fn resident(&self) -> usize {
        let slow = self.lock();
        let warm = self.slabs.iter().enumerate().filter(|(at, _)| !slow.cold.contains(at));
        warm.filter_map(|(_, slab)| slab.get()).map(|slab| slab.len).sum()
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        // A fork does not inherit the memory. Whatever is at its place there is not ours.
        if sys::forks() != self.forks {
            return;
        }
        if self.lock().janitor {
            self.bell.ring();
        }
        for slab in self.slabs.iter_mut().filter_map(OnceLock::take) {
            let back = slab.free.load(Ordering::Relaxed) | slab.retired.load(Ordering::Relaxed);
            if self.lost.load(Ordering::Relaxed) > 0 && back != slab.all() {
                // The kernel may still write into a Block that was lost.
                continue;
            }
            let pinned = slab.pinned.into_inner().unwrap_or_else(PoisonError::into_inner);
            if pinned.is_empty() {
                // SAFETY: the pool owns the range and every Block is back, since Blocks borrow the pool.
                unsafe { libc::munmap(slab.start.as_ptr().cast(), slab.len) };
            } else {
                left::leave(slab.start, slab.len, pinned);
            }
        }
    }
}

/// The bits of `count` Blocks from `index` on.
fn mask(index: u32, count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { ((1 << count) - 1) << index }
}

impl Block<'_> {
    /// Gives it up for ever, since somebody may write to it at any time. Who waits for a Block gets another.
    #[cold]
    pub(crate) fn lose(self) {
        let (pool, count) = (self.pool, self.count);
        std::mem::forget(self);
        let slow = pool.lock();
        let before = pool.in_place_of_lost();
        pool.lost.fetch_add(count, Ordering::Relaxed);
        pool.max_blocks.fetch_add(pool.in_place_of_lost() - before, Ordering::SeqCst);
        drop(slow);
        pool.returned.notify_all();
    }

    fn len(&self) -> usize {
        self.count * self.pool.block_len
    }

    /// The Block's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the Block owns these bytes, all initialised, until it is dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    /// The Block's bytes, to be filled.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the Block owns these bytes, all initialised, until it is dropped, and is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len()) }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        if let Some(slab) = self.pool.slabs[self.slab].get() {
            let bits = mask(self.index, self.count);
            if self.pool.within(self.slab) & bits != bits {
                self.pool.retire(self.slab, slab, bits);
            } else {
                slab.free.fetch_or(bits, Ordering::SeqCst);
                if self.pool.within(self.slab) & bits != bits {
                    // The limit fell in this moment.
                    let _slow = self.pool.lock();
                    self.pool.fit(self.slab, slab);
                }
            }
        }
        if self.pool.stuck.load(Ordering::Relaxed) {
            self.pool.stuck.store(false, Ordering::SeqCst);
        }
        if self.pool.waiting.load(Ordering::SeqCst) != 0 {
            // The lock orders this after a taker's last look, so that its wait sees the notification.
            drop(self.pool.slow.lock().unwrap_or_else(PoisonError::into_inner));
            self.pool.returned.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "block/tests.rs"]
mod tests;
