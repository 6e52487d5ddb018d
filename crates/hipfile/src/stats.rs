//! Counters of what moved, by engine and direction. Counting only; rates, histograms and reports are made elsewhere.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::op::Op;
use crate::reason::Reason;
use crate::usage::thread_stripe;

/// Most engines there can be; a test holds the list of engines below it.
pub(crate) const MAX_ENGINES: usize = 8;
/// Shards that one thread has for itself: the first threads of the process, which get by without locked additions.
const OWN: usize = 48;
/// Shards that all later threads share.
const SHARED: usize = 16;
const STRIPES: usize = OWN + SHARED;

#[derive(Debug, Default)]
struct Cell {
    operations: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

#[derive(Debug, Default)]
struct Tally {
    operations: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    cells: [[Cell; MAX_ENGINES]; 2],
    staged: [[Tally; Reason::ALL.len()]; 2],
}

impl Default for Shard {
    fn default() -> Shard {
        Shard {
            cells: Default::default(),
            staged: std::array::from_fn(|_| std::array::from_fn(|_| Tally::default())),
        }
    }
}

/// Counters striped over threads, so that counting never shares a cache line for long.
#[derive(Debug)]
pub(crate) struct Counters {
    shards: [OnceLock<Box<CachePadded<Shard>>>; STRIPES],
}

/// What one engine did in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// The engine's name.
    pub engine: &'static str,
    /// Transfers it carried, wholly or in part.
    pub operations: u64,
    /// Bytes it moved.
    pub bytes: u64,
    /// Attempts that failed.
    pub errors: u64,
}

/// What was staged through host memory for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReasonStats {
    /// Why it did not go direct.
    pub reason: Reason,
    /// Transfers that were staged for it, wholly or in part.
    pub operations: u64,
    /// Bytes that were staged for it.
    pub bytes: u64,
}

/// What has been done so far, by direction and engine; engines that did nothing are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// From files to memory.
    pub read: Vec<EngineStats>,
    /// From memory to files.
    pub write: Vec<EngineStats>,
    /// Why reads were staged; reasons that never applied are left out. The bytes sum up to those of the staging
    /// engines.
    pub read_staged: Vec<ReasonStats>,
    /// Why writes were staged.
    pub write_staged: Vec<ReasonStats>,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters { shards: [const { OnceLock::new() }; STRIPES] }
    }

    /// This thread's shard, and whether no other thread writes to it.
    fn shard(&self) -> (&Shard, bool) {
        let thread = thread_stripe();
        let own = thread < OWN;
        let at = if own { thread } else { OWN + thread % SHARED };
        (self.shards[at].get_or_init(Box::default), own)
    }

    /// A part of a transfer that moved `bytes`; the first one of an engine counts as its operation.
    pub(crate) fn moved(&self, op: Op, engine: usize, bytes: usize, first: bool) {
        let (shard, own) = self.shard();
        let cell = &shard.cells[op as usize][engine % MAX_ENGINES];
        add(&cell.operations, first.into(), own);
        add(&cell.bytes, bytes as u64, own);
    }

    /// A part of a transfer that was staged for a reason.
    pub(crate) fn staged(&self, op: Op, reason: Reason, bytes: usize, first: bool) {
        let (shard, own) = self.shard();
        let tally = &shard.staged[op as usize][reason as usize];
        add(&tally.operations, first.into(), own);
        add(&tally.bytes, bytes as u64, own);
    }

    /// A transfer that was staged whole, by one engine.
    pub(crate) fn staged_whole(&self, op: Op, engine: usize, reason: Reason, bytes: usize) {
        let (shard, own) = self.shard();
        let (cell, tally) =
            (&shard.cells[op as usize][engine % MAX_ENGINES], &shard.staged[op as usize][reason as usize]);
        for (counter, n) in [
            (&cell.operations, 1),
            (&cell.bytes, bytes as u64),
            (&tally.operations, 1),
            (&tally.bytes, bytes as u64),
        ] {
            add(counter, n, own);
        }
    }

    /// One attempt that failed.
    pub(crate) fn failed(&self, op: Op, engine: usize) {
        let (shard, own) = self.shard();
        add(&shard.cells[op as usize][engine % MAX_ENGINES].errors, 1, own);
    }

    /// The sums, for engines named in order of their index.
    pub(crate) fn sum(&self, engines: &[&'static str]) -> Stats {
        let side = |op: Op| {
            engines
                .iter()
                .enumerate()
                .map(|(index, engine)| {
                    let mut total = EngineStats { engine, operations: 0, bytes: 0, errors: 0 };
                    for shard in self.shards.iter().filter_map(OnceLock::get) {
                        let cell = &shard.cells[op as usize][index];
                        total.operations += cell.operations.load(Ordering::Relaxed);
                        total.bytes += cell.bytes.load(Ordering::Relaxed);
                        total.errors += cell.errors.load(Ordering::Relaxed);
                    }
                    total
                })
                .filter(|total| (total.operations, total.errors) != (0, 0))
                .collect()
        };
        let staged = |op: Op| {
            Reason::ALL
                .iter()
                .map(|reason| {
                    let mut total = ReasonStats { reason: *reason, operations: 0, bytes: 0 };
                    for shard in self.shards.iter().filter_map(OnceLock::get) {
                        let tally = &shard.staged[op as usize][*reason as usize];
                        total.operations += tally.operations.load(Ordering::Relaxed);
                        total.bytes += tally.bytes.load(Ordering::Relaxed);
                    }
                    total
                })
                .filter(|total| (total.operations, total.bytes) != (0, 0))
                .collect()
        };
        Stats {
            read: side(Op::Read),
            write: side(Op::Write),
            read_staged: staged(Op::Read),
            write_staged: staged(Op::Write),
        }
    }
}

/// Adds to a counter; without a locked instruction where this thread is the only one that writes to it.
fn add(counter: &AtomicU64, n: u64, own: bool) {
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
    fn sums_are_exact_over_threads() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for thread in 0..80 {
                let counters = &counters;
                scope.spawn(move || {
                    for _ in 0..100 {
                        counters.moved(Op::Read, thread % 2, 3, true);
                        counters.staged(Op::Read, Reason::Alignment, 2, true);
                    }
                    counters.failed(Op::Write, 1);
                });
            }
        });
        let stats = counters.sum(&["a", "b"]);
        assert_eq!(
            stats.read.iter().map(|e| (e.operations, e.bytes)).collect::<Vec<_>>(),
            [(4000, 12_000); 2]
        );
        let alignment = ReasonStats { reason: Reason::Alignment, operations: 8000, bytes: 16_000 };
        assert_eq!((stats.read_staged.as_slice(), stats.write_staged.len()), (&[alignment][..], 0));
        assert_eq!(stats.write, [EngineStats { engine: "b", operations: 0, bytes: 0, errors: 80 }]);
    }
}
