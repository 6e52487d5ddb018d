//! Which shard of the counters a thread writes to. A number per thread, given back when the thread ends; it counts nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::SHARDS;
use crate::usage::thread_stripe;

/// Shards that one thread has for itself while it lives: it gets by without locked additions.
const OWN: usize = 48;
/// Shards that all other threads share.
const SHARED: usize = SHARDS - OWN;

/// The own shards that no thread has, one bit each.
static FREE: AtomicU64 = AtomicU64::new((1 << OWN) - 1);

/// Nothing taken yet.
const NONE: usize = usize::MAX;

struct Mine {
    slot: Cell<usize>,
    turns: Cell<u32>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        if self.slot.get() < OWN {
            // Pairs with the acquisition below: who has the shard next continues from what was written.
            FREE.fetch_or(1 << self.slot.get(), Ordering::Release);
        }
    }
}

thread_local!(static MINE: Mine = const { Mine { slot: Cell::new(NONE), turns: Cell::new(0) } });

/// A thread on its way to its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    pub(super) at: usize,
    /// Whether no other thread writes there.
    pub(super) own: bool,
    /// How many there were before, of this thread.
    pub(super) turn: u32,
}

/// This thread's next visit, for a transfer that begins.
#[inline]
pub(crate) fn visit() -> Visit {
    go(1)
}

/// A visit between those: it takes no turn, or some turns would never be a transfer's.
#[inline]
pub(crate) fn pass() -> Visit {
    go(0)
}

#[inline]
fn go(turns: u32) -> Visit {
    // A thread that is ending has no thread-local storage any more.
    let known = MINE.try_with(|mine| {
        if mine.slot.get() == NONE {
            mine.slot.set(take());
        }
        (mine.slot.get(), mine.turns.replace(mine.turns.get().wrapping_add(turns)))
    });
    let (at, turn) = known.unwrap_or_else(|_| (shared(), 0));
    Visit { at, own: at < OWN, turn }
}

#[cold]
fn take() -> usize {
    let mut free = FREE.load(Ordering::Relaxed);
    while free != 0 {
        let rest = free & (free - 1);
        match FREE.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return free.trailing_zeros() as usize,
            Err(now) => free = now,
        }
    }
    shared()
}

fn shared() -> usize {
    OWN + thread_stripe() % SHARED
}

/// Adds to a counter; without a locked instruction where this thread is the only one that writes to it.
#[inline]
pub(super) fn add(counter: &AtomicU64, n: u64, own: bool) {
    if own {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    } else {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_gives_its_shard_to_the_next() {
        for _ in 0..4 * OWN {
            assert!(std::thread::spawn(visit).join().unwrap().own);
        }
    }
}
