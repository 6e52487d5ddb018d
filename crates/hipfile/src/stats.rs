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
use slot::{Visit, add, pass, visit};
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

    fn shard(&self, visit: Visit) -> &Shard {
        self.shards[visit.at].get_or_init(Box::default)
    }

    /// A part of a transfer that moved `bytes`; the first one of an engine counts as its operation.
    fn moved(&self, visit: Visit, op: Op, engine: usize, bytes: usize, first: bool) {
        let cell = &self.shard(visit).cells[op as usize][engine % MAX_ENGINES];
        add(&cell.operations, first.into(), visit.own);
        add(&cell.bytes, bytes as u64, visit.own);
    }

    /// A part of a transfer that was staged for a reason.
    fn staged(&self, visit: Visit, op: Op, reason: Reason, bytes: usize, first: bool) {
        let tally = &self.shard(visit).staged[op as usize][reason as usize];
        add(&tally.operations, first.into(), visit.own);
        add(&tally.bytes, bytes as u64, visit.own);
    }

    /// One attempt that failed.
    fn failed(&self, visit: Visit, op: Op, engine: usize) {
        add(&self.shard(visit).cells[op as usize][engine % MAX_ENGINES].errors, 1, visit.own);
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

/// Where one transfer is counted: in its file's counters, and in the process's if it has any.
struct Books<'a> {
    file: &'a Counters,
    op: Op,
    visit: Visit,
    pen: Option<Pen<'a>>,
    began: Option<u64>,
}

impl Books<'_> {
    /// A part of it that moved, and why it was staged if it was; the first of an engine counts as its operation.
    #[inline]
    fn moved(&self, engine: usize, bytes: usize, first: bool, staged: Option<Reason>) {
        self.file.moved(self.visit, self.op, engine, bytes, first);
        if let Some(pen) = &self.pen {
            pen.moved(engine, bytes as u64, first);
        }
        let Some(reason) = staged else { return };
        self.file.staged(self.visit, self.op, reason, bytes, first);
        if let Some(pen) = &self.pen {
            pen.staged(reason, bytes as u64, first);
        }
    }

    /// Its end, with what went direct and what was staged. `took` where that is not the time since it began.
    #[inline]
    fn ended(
        &self,
        len: usize,
        [direct, staged]: [usize; 2],
        failed: Option<bool>,
        unaligned: impl FnOnce() -> bool,
        took: Option<u64>,
    ) {
        if let Some(pen) = &self.pen {
            let (began, marked) = (self.began, self.visit.turn.is_multiple_of(MARKED));
            pen.ended(&Ended { len, direct, staged, failed, unaligned: unaligned(), began, marked, took });
        }
    }
}

/// What one transfer is counted in while it is carried out, and how it goes.
pub(crate) struct Meter<'a> {
    books: Books<'a>,
    direct: Mutable<usize>,
    staged: Mutable<usize>,
    failed: Mutable<Option<bool>>,
    engines: Mutable<u8>,
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

impl Split {
    /// Adds how a part of the transfer went.
    pub(crate) fn add(&mut self, part: Split) {
        self.direct += part.direct;
        self.staged += part.staged;
        self.failed = part.failed.or(self.failed);
        self.engines |= part.engines;
        self.timed |= part.timed;
    }
}

/// Of so many transfers whose time is not taken the end of one is kept.
const MARKED: u32 = 4;

impl Meter<'_> {
    /// Goes on with a transfer that has paused.
    pub(crate) fn resume(self, split: Split) -> Self {
        self.direct.set(split.direct);
        self.staged.set(split.staged);
        self.failed.set(split.failed);
        self.engines.set(split.engines);
        self
    }

    /// Leaves the rest of the transfer to another thread, which may have another shard.
    pub(crate) fn pause(&self) -> Split {
        if let Some(pen) = &self.books.pen {
            pen.show();
        }
        self.split()
    }

    pub(crate) fn split(&self) -> Split {
        Split {
            direct: self.direct.get(),
            staged: self.staged.get(),
            failed: self.failed.get(),
            engines: self.engines.get(),
            timed: self.books.began.is_some(),
        }
    }

    /// A part of it that moved, and why it was staged if it was; the first of an engine counts as its operation.
    pub(crate) fn moved(&self, engine: usize, bytes: usize, first: bool, staged: Option<Reason>) {
        self.engines.set(self.engines.get() | 1 << (engine % MAX_ENGINES));
        let sum = if staged.is_some() { &self.staged } else { &self.direct };
        sum.set(sum.get() + bytes);
        self.books.moved(engine, bytes, first, staged);
    }

    /// One attempt that failed.
    pub(crate) fn failed(&self, engine: usize, direct: bool) {
        self.failed.set(Some(direct));
        let books = &self.books;
        books.file.failed(books.visit, books.op, engine);
        if let Some(pen) = &books.pen {
            pen.failed(engine);
        }
    }

    /// Its end. `took` where that is not the time since it began.
    #[inline]
    pub(crate) fn end(&self, len: usize, ok: bool, unaligned: impl FnOnce() -> bool, took: Option<u64>) {
        let failed = (!ok).then_some(self.failed.get().unwrap_or(false));
        self.books.ended(len, [self.direct.get(), self.staged.get()], failed, unaligned, took);
    }
}

/// The shard that a transfer is counted in, and when it began if its time is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    visit: Visit,
    began: Option<u64>,
}

impl Start {
    /// Of one that began then, or whose time is not taken. It takes no turn.
    pub(crate) fn of(began: Option<u64>) -> Start {
        Start { visit: pass(), began }
    }

    /// Whether something may be done beside it that is done now and then: a sixteenth of a thread's.
    #[inline]
    pub(crate) fn is_sixteenth(self) -> bool {
        self.visit.turn & 15 == 0
    }

    pub(crate) fn is_timed(self) -> bool {
        self.began.is_some()
    }
}

/// How a driver counts: on which page, and how many times it takes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meters {
    ledger: Option<Arc<Ledger>>,
    /// One less than of how many small transfers the time of one is taken: these are powers of two, and no division is needed.
    mask: u32,
}

impl Meters {
    /// As a level of 0 to 3 wants it.
    pub(crate) fn new(ledger: Option<Arc<Ledger>>, level: usize) -> Meters {
        let one_in: u32 = match level {
            0 => return Meters::default(),
            1 => 16,
            2 => 4,
            _ => 1,
        };
        if let Some(ledger) = &ledger {
            ledger.set_level(level as u64, u64::from(one_in));
        }
        Meters { ledger, mask: one_in - 1 }
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

    /// A transfer of this size begins.
    #[inline]
    pub(crate) fn start(&self, len: usize) -> Start {
        let visit = visit();
        let timed = self.ledger.is_some() && (len >= layout::SMALL || visit.turn & self.mask == 0);
        Start { visit, began: timed.then(now) }
    }

    /// The time now, if that of a transfer of this size is to be taken.
    pub(crate) fn begin(&self, len: usize) -> Option<u64> {
        self.start(len).began
    }

    /// Counts a transfer that one engine has staged wholly, as a [`Meter`] would.
    #[inline]
    pub(crate) fn staged_whole(
        &self,
        start: Start,
        file: &Counters,
        transfer: (Op, Option<u32>, usize),
        (engine, reason, bytes): (usize, Reason, usize),
        unaligned: impl FnOnce() -> bool,
    ) {
        let (op, gpu, len) = transfer;
        let books = self.books(file, op, gpu, start);
        books.moved(engine, bytes, true, Some(reason));
        books.ended(len, [0, bytes], None, unaligned, None);
    }

    #[inline]
    fn books<'a>(&'a self, file: &'a Counters, op: Op, gpu: Option<u32>, start: Start) -> Books<'a> {
        let Start { visit, began } = start;
        let pen = self.ledger.as_ref().map(|ledger| ledger.sheet(visit).pen(op, Ledger::row_of(gpu)));
        Books { file, op, visit, pen, began }
    }

    /// What a transfer is counted in.
    #[inline]
    pub(crate) fn meter<'a>(
        &'a self,
        file: &'a Counters,
        op: Op,
        gpu: Option<u32>,
        start: Start,
    ) -> Meter<'a> {
        Meter {
            books: self.books(file, op, gpu, start),
            direct: Mutable::default(),
            staged: Mutable::default(),
            failed: Mutable::default(),
            engines: Mutable::default(),
        }
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
                        counters.moved(visit(), Op::Read, thread % 2, 3, true);
                        counters.staged(visit(), Op::Read, Reason::Alignment, 2, true);
                    }
                    counters.failed(visit(), Op::Write, 1);
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
