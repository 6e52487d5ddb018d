//! Counters of what moved. Each file has its own, by engine, direction and reason; the process's are in `ledger`. Counting
//! only: what is done with the sums is the readers' business.

mod amd;
mod figures;
mod layout;
mod ledger;
mod region;
mod slot;
mod snapshot;

use std::cell::Cell as Mutable;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;

use crate::op::Op;
use crate::reason::Reason;
pub(crate) use amd::{AMD_WORDS, read_amd, write_amd};
pub(crate) use layout::{Event, MAX_ENGINES};
pub(crate) use ledger::{Ended, Ledger, Pen, now};
pub(crate) use region::Region;
use slot::{add, slot};
pub(crate) use snapshot::MOST_WORDS;
pub use snapshot::{
    BatchStats, Calls, GpuStats, Malformed, Named, Registrations, Side, SizeClass, Snapshot, StreamStats,
};

/// The largest transfer, for the classes of sizes.
#[cfg(test)]
pub(crate) const MAX_SIZE: usize = 0x7fff_f000;

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
    shards: [OnceLock<Box<CachePadded<Shard>>>; layout::SHARDS],
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
        Counters { shards: [const { OnceLock::new() }; layout::SHARDS] }
    }

    /// This thread's shard, and whether no other thread writes to it.
    fn shard(&self) -> (&Shard, bool) {
        let (at, own) = slot();
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

/// What one transfer is counted in while it is carried out: its file's counters, and the process's if it has any.
pub(crate) struct Meter<'a> {
    file: &'a Counters,
    op: Op,
    pen: Option<Pen<'a>>,
    began: Option<u64>,
    split: Mutable<Split>,
}

/// How a transfer went so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Split {
    pub(crate) direct: usize,
    pub(crate) staged: usize,
    /// Whether its last attempt failed, and then whether that was a direct one.
    pub(crate) failed: Option<bool>,
    /// The engines that moved something, one bit each.
    pub(crate) engines: u8,
    /// Whether its time is taken.
    pub(crate) timed: bool,
}

impl<'a> Meter<'a> {
    /// Goes on with a transfer that has paused.
    pub(crate) fn resume(self, split: Split) -> Meter<'a> {
        self.split.set(split);
        self
    }

    pub(crate) fn split(&self) -> Split {
        self.split.get()
    }

    fn note(&self, engine: usize, bytes: usize, direct: bool) {
        let mut split = self.split.get();
        split.engines |= 1 << (engine % MAX_ENGINES);
        *(if direct { &mut split.direct } else { &mut split.staged }) += bytes;
        self.split.set(split);
    }

    /// A part of it that moved, and why it was staged if it was; the first of an engine counts as its operation.
    pub(crate) fn moved(&self, engine: usize, bytes: usize, first: bool, staged: Option<Reason>) {
        self.note(engine, bytes, staged.is_none());
        self.file.moved(self.op, engine, bytes, first);
        if let Some(pen) = &self.pen {
            pen.moved(engine, bytes as u64, first);
        }
        if let Some(reason) = staged {
            self.file.staged(self.op, reason, bytes, first);
            if let Some(pen) = &self.pen {
                pen.staged(reason, bytes as u64, first);
            }
        }
    }

    /// All of it, staged by one engine.
    pub(crate) fn staged_whole(&self, engine: usize, reason: Reason, bytes: usize) {
        self.note(engine, bytes, false);
        self.file.staged_whole(self.op, engine, reason, bytes);
        if let Some(pen) = &self.pen {
            pen.moved(engine, bytes as u64, true);
            pen.staged(reason, bytes as u64, true);
        }
    }

    /// One attempt that failed.
    pub(crate) fn failed(&self, engine: usize, direct: bool) {
        self.split.set(Split { failed: Some(direct), ..self.split.get() });
        self.file.failed(self.op, engine);
        if let Some(pen) = &self.pen {
            pen.failed(engine);
        }
    }

    /// Its end. `took` where that is not the time since it began.
    pub(crate) fn end(&self, len: usize, ok: bool, unaligned: bool, took: Option<u64>) {
        if let Some(pen) = &self.pen {
            let Split { direct, staged, failed, .. } = self.split.get();
            let failed = (!ok).then_some(failed.unwrap_or(false));
            pen.ended(&Ended { len, direct, staged, failed, unaligned, began: self.began, took });
        }
    }
}

/// How a driver counts: on which page, and of how many small transfers the time of one is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meters {
    ledger: Option<Arc<Ledger>>,
    one_in: u32,
}

impl Meters {
    /// As a level of 0 to 3 wants it.
    pub(crate) fn new(ledger: Option<Arc<Ledger>>, level: usize) -> Meters {
        let one_in = match level {
            0 => return Meters::default(),
            1 => 16,
            2 => 4,
            _ => 1,
        };
        if let Some(ledger) = &ledger {
            ledger.set_level(level as u64, u64::from(one_in));
        }
        Meters { ledger, one_in }
    }

    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
    }

    /// Counts something that is no transfer.
    pub(crate) fn count(&self, event: Event, n: u64) {
        if let Some(ledger) = &self.ledger {
            ledger.count(event, n);
        }
    }

    /// Counts how something ended.
    pub(crate) fn ended(&self, ok: bool, well: Event, badly: Event) {
        self.count(if ok { well } else { badly }, 1);
    }

    /// The time now, if that of a transfer of this size is to be taken.
    pub(crate) fn begin(&self, len: usize) -> Option<u64> {
        thread_local!(static TURN: Mutable<u32> = const { Mutable::new(0) });
        self.ledger.as_ref()?;
        if len < layout::SMALL && self.one_in > 1 {
            let turn = TURN.try_with(|turn| turn.replace(turn.get().wrapping_add(1))).unwrap_or(0);
            if !turn.is_multiple_of(self.one_in) {
                return None;
            }
        }
        Some(now())
    }

    /// What a transfer is counted in that has begun.
    pub(crate) fn meter<'a>(
        &'a self,
        file: &'a Counters,
        op: Op,
        gpu: Option<u32>,
        began: Option<u64>,
    ) -> Meter<'a> {
        let pen = self.ledger.as_ref().map(|ledger| ledger.sheet().pen(op, Ledger::row_of(gpu)));
        let split = Split { timed: began.is_some(), ..Split::default() };
        Meter { file, op, pen, began, split: Mutable::new(split) }
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
