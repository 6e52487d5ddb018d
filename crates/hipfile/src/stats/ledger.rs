//! The process's statistics, where they are written: shards of counters on one page. Nothing here allocates, locks or sums;
//! that is the reader's business.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::layout::{self, *};
use super::region::Region;
use super::slot::{add, slot};
use crate::op::Op;
use crate::reason::Reason;
use crate::sys;

/// The page, and how much of it is written.
#[derive(Debug)]
pub(crate) struct Ledger {
    page: Region,
}

pub(crate) type Row = [AtomicU64; ROW_WORDS];

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now() -> u64 {
    sys::clock(libc::CLOCK_MONOTONIC)
}

/// As [`now`], up to some milliseconds too early, and cheap.
fn about_now() -> u64 {
    sys::clock(libc::CLOCK_MONOTONIC_COARSE)
}

impl Ledger {
    /// An empty page, for engines named in order of their index.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(engines: &[&str]) -> Result<Ledger, Errno> {
        let page = Region::new("HIPFSTAT", PAGE_WORDS)?;
        let ledger = Ledger { page };
        let tables = [
            (head::VERSION, VERSION),
            (head::BYTES, PAGE_WORDS as u64 * 8),
            (head::HEADER, HEADER_WORDS as u64),
            (head::PID, u64::from(std::process::id())),
            (head::STARTED, now()),
            (head::SHARDS, SHARDS as u64),
            (head::SHARD_WORDS, SHARD_WORDS as u64),
            (head::ROWS, ROWS as u64),
            (head::ROW_WORDS, ROW_WORDS as u64),
            (head::EVENTS, EVENTS as u64),
            (head::ENGINES, MAX_ENGINES as u64),
            (head::REASONS, MAX_REASONS as u64),
            (head::CLASSES, CLASSES as u64),
            (head::LATENCIES, LATENCIES as u64),
            (head::SAMPLED, 1),
            (head::SMALL, SMALL as u64),
        ];
        tables.into_iter().for_each(|(at, value)| ledger.set(at, value));
        let reasons = Reason::ALL.iter().map(|reason| reason.word());
        let named = engines.iter().copied().enumerate();
        for (at, name) in named.chain((MAX_ENGINES..).zip(reasons)) {
            for (n, word) in name_words(name).into_iter().enumerate() {
                ledger.set(head::NAMES + at * NAME_WORDS + n, word);
            }
        }
        // Last: who sees it finds the rest.
        ledger.page.words()[head::MAGIC].store(MAGIC, Ordering::Release);
        Ok(ledger)
    }

    pub(crate) fn page(&self) -> &Region {
        &self.page
    }

    fn set(&self, at: usize, value: u64) {
        self.page.words()[at].store(value, Ordering::Relaxed);
    }

    /// How much is counted from now on, as a driver is set that writes here.
    pub(crate) fn set_level(&self, level: u64, one_in: u64) {
        self.set(head::LEVEL, level);
        self.set(head::SAMPLED, one_in);
    }

    pub(crate) fn set_emulated(&self, emulated: bool) {
        self.set(head::EMULATED, 1 + u64::from(emulated));
    }

    /// A GPU that serves.
    pub(crate) fn set_gpu(&self, ordinal: usize, uuid: [u8; 16]) {
        if ordinal < GPUS {
            let at = head::NAMES + (MAX_ENGINES + MAX_REASONS) * NAME_WORDS + ordinal * UUID_WORDS;
            for (n, half) in uuid.chunks_exact(8).enumerate() {
                self.set(at + n, half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
            }
        }
    }

    /// The bytes of the batch that was submitted last.
    pub(crate) fn set_last_batch(&self, bytes: [u64; 2]) {
        bytes.into_iter().enumerate().for_each(|(n, bytes)| self.set(head::LAST_BATCH + n, bytes));
    }

    /// The calling thread's shard.
    pub(crate) fn sheet(&self) -> Sheet<'_> {
        let (at, own) = slot();
        let words = self.page.words();
        let used = &words[head::USED_SHARDS];
        if used.load(Ordering::Relaxed) & 1 << at == 0 {
            used.fetch_or(1 << at, Ordering::Relaxed);
        }
        let start = HEADER_WORDS + at * SHARD_WORDS;
        Sheet { words: &words[start..start + SHARD_WORDS], rows: &words[head::USED_ROWS], own }
    }

    /// Counts something that is no transfer.
    pub(crate) fn count(&self, event: Event, n: u64) {
        let sheet = self.sheet();
        add(&sheet.words[event as usize], n, sheet.own);
    }

    /// The row for memory of a GPU, or for memory of none.
    pub(crate) fn row_of(gpu: Option<u32>) -> usize {
        gpu.map_or(GPUS, |ordinal| (ordinal as usize).min(GPUS))
    }

    /// Counts a registration of memory, or its end.
    pub(crate) fn memory(&self, gpu: Option<u32>, begun: bool, bytes: u64) {
        let sheet = self.sheet();
        let row = sheet.row(Ledger::row_of(gpu));
        let (times, sum) = if begun { (0, 3) } else { (2, 4) };
        for (n, by) in [(times, 1), (sum, bytes)] {
            add(&row[2 * SIDE_WORDS + n], by, sheet.own);
        }
    }
}

/// A thread's shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sheet<'a> {
    words: &'a [AtomicU64],
    rows: &'a AtomicU64,
    own: bool,
}

impl<'a> Sheet<'a> {
    fn row(&self, at: usize) -> &'a Row {
        if self.rows.load(Ordering::Relaxed) & 1 << at == 0 {
            self.rows.fetch_or(1 << at, Ordering::Relaxed);
        }
        let start = EVENTS + at.min(ROWS - 1) * ROW_WORDS;
        match self.words[start..].first_chunk() {
            Some(row) => row,
            None => unreachable!("a shard has all rows"),
        }
    }

    /// The pen for transfers in one direction of memory in one row.
    pub(crate) fn pen(&self, op: Op, row: usize) -> Pen<'a> {
        Pen { row: self.row(row), from: op as usize * SIDE_WORDS, own: self.own }
    }
}

/// One direction of one row of a thread's shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen<'a> {
    row: &'a Row,
    from: usize,
    own: bool,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Bytes asked for.
    pub(crate) len: usize,
    pub(crate) direct: usize,
    pub(crate) staged: usize,
    /// Whether it failed, and then whether direct.
    pub(crate) failed: Option<bool>,
    pub(crate) unaligned: bool,
    /// When it began, if that was taken.
    pub(crate) began: Option<u64>,
    /// How long it took, where that is not the time since it began.
    pub(crate) took: Option<u64>,
}

const SIDE: Shape = Shape::OURS;

impl Pen<'_> {
    fn add(&self, at: usize, n: u64) {
        add(&self.row[self.from + at], n, self.own);
    }

    pub(crate) fn moved(&self, engine: usize, bytes: u64, first: bool) {
        let at = engine % MAX_ENGINES * ENGINE_WORDS;
        if first {
            self.add(at, 1);
        }
        self.add(at + 1, bytes);
    }

    pub(crate) fn failed(&self, engine: usize) {
        self.add(engine % MAX_ENGINES * ENGINE_WORDS + 2, 1);
    }

    pub(crate) fn staged(&self, reason: Reason, bytes: u64, first: bool) {
        let at = SIDE.reasons_at() + reason as usize % MAX_REASONS * REASON_WORDS;
        if first {
            self.add(at, 1);
        }
        self.add(at + 1, bytes);
    }

    /// The end of a transfer: the only place where it is counted as one.
    pub(crate) fn ended(&self, ended: &Ended) {
        let class = layout::class_of(ended.len);
        let cell = |way: usize| SIDE.classes_at() + (way * CLASSES + class) * CLASS_WORDS;
        let tail = SIDE.tail_at();
        let end = if ended.began.is_some() { now() } else { about_now() };
        self.mark(tail + 2, tail + 3, ended.began.unwrap_or(end), end);
        if let Some(direct) = ended.failed {
            return self.add(cell(usize::from(!direct)) + 4, 1);
        }
        let way = usize::from(ended.direct == 0);
        let at = cell(way);
        self.add(at, 1);
        self.add(at + 1, if way == 0 { ended.direct } else { ended.staged } as u64);
        if way == 0 && ended.staged > 0 {
            self.add(cell(1) + 1, ended.staged as u64);
        }
        if ended.unaligned {
            self.add(tail + way, 1);
        }
        if let Some(began) = ended.began {
            let took = ended.took.unwrap_or(end.saturating_sub(began));
            self.add(at + 2, 1);
            self.add(at + 3, took);
            let large = usize::from(ended.len >= SMALL);
            self.add(SIDE.latencies_at() + large * LATENCIES + layout::latency_class(took), 1);
        }
    }

    /// Keeps the first and the last time.
    fn mark(&self, first: usize, last: usize, began: u64, end: u64) {
        let (first, last) = (&self.row[self.from + first], &self.row[self.from + last]);
        if first.load(Ordering::Relaxed) == 0 {
            // Of several that are first the one that the word takes is as good as another.
            let _ = first.compare_exchange(0, began, Ordering::Relaxed, Ordering::Relaxed);
        }
        if last.load(Ordering::Relaxed) < end {
            if self.own {
                last.store(end, Ordering::Relaxed);
            } else {
                last.fetch_max(end, Ordering::Relaxed);
            }
        }
    }
}
