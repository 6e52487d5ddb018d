//! The process's statistics, where they are written: shards of counters on one page. Nothing here allocates, locks or sums;
//! that is the reader's business.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::layout::{self, *};
use super::region::Region;
use super::slot::{Visit, add, pass};
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
            (head::SIDE_WORDS, SIDE_WORDS as u64),
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
    #[inline]
    pub(crate) fn sheet(&self, visit: Visit) -> Sheet<'_> {
        let Visit { at, own, .. } = visit;
        let words = self.page.words();
        let start = HEADER_WORDS + at * SHARD_WORDS;
        Sheet { header: &words[..HEADER_WORDS], words: &words[start..start + SHARD_WORDS], at, own }
    }

    /// Counts something that is no transfer.
    pub(crate) fn count(&self, event: Event, n: u64) {
        let sheet = self.sheet(pass());
        sheet.use_shard();
        add(&sheet.words[event as usize], n, sheet.own);
    }

    /// The row for memory of a GPU, or for memory of none.
    pub(crate) fn row_of(gpu: Option<u32>) -> usize {
        gpu.map_or(GPUS, |ordinal| (ordinal as usize).min(GPUS))
    }

    /// Counts a registration of memory, or its end.
    pub(crate) fn memory(&self, gpu: Option<u32>, begun: bool, bytes: u64) {
        let (sheet, at) = (self.sheet(pass()), Ledger::row_of(gpu));
        sheet.use_row(at);
        let (times, sum) = if begun { (0, 3) } else { (2, 4) };
        for (n, by) in [(times, 1), (sum, bytes)] {
            add(&sheet.row(at)[MEMORY_AT + n], by, sheet.own);
        }
    }
}

/// A thread's shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sheet<'a> {
    header: &'a [AtomicU64],
    words: &'a [AtomicU64],
    at: usize,
    own: bool,
}

impl<'a> Sheet<'a> {
    /// Tells readers to look at this shard.
    fn use_shard(&self) {
        let used = &self.header[head::USED_SHARDS];
        if used.load(Ordering::Relaxed) & 1 << self.at == 0 {
            used.fetch_or(1 << self.at, Ordering::Relaxed);
        }
    }

    /// Tells readers to look at this row of it.
    fn use_row(&self, row: usize) {
        self.use_shard();
        let used = &self.header[head::USED_ROWS];
        if used.load(Ordering::Relaxed) & 1 << row == 0 {
            used.fetch_or(1 << row, Ordering::Relaxed);
        }
    }

    #[inline]
    fn row(&self, at: usize) -> &'a Row {
        let start = EVENTS + at.min(ROWS - 1) * ROW_WORDS;
        match self.words[start..].first_chunk() {
            Some(row) => row,
            None => unreachable!("a shard has all rows"),
        }
    }

    /// The pen for transfers in one direction of memory in one row.
    #[inline]
    pub(crate) fn pen(self, op: Op, row: usize) -> Pen<'a> {
        Pen { row: self.row(row), from: op as usize * SIDE_WORDS, at: row, sheet: self }
    }
}

/// One direction of one row of a thread's shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pen<'a> {
    row: &'a Row,
    from: usize,
    at: usize,
    sheet: Sheet<'a>,
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
    /// Whether its end is kept also if it was not.
    pub(crate) marked: bool,
    /// How long it took, where that is not the time since it began.
    pub(crate) took: Option<u64>,
}

const SIDE: Shape = Shape::OURS;

impl Pen<'_> {
    #[inline]
    fn add(&self, at: usize, n: u64) {
        add(&self.row[self.from + at], n, self.sheet.own);
    }

    #[inline]
    pub(crate) fn moved(&self, engine: usize, bytes: u64, first: bool) {
        let at = SIDE.engines_at() + engine % MAX_ENGINES * ENGINE_WORDS;
        if first {
            self.add(at, 1);
        }
        self.add(at + 1, bytes);
    }

    pub(crate) fn failed(&self, engine: usize) {
        self.add(SIDE.engines_at() + engine % MAX_ENGINES * ENGINE_WORDS + 2, 1);
    }

    #[inline]
    pub(crate) fn staged(&self, reason: Reason, bytes: u64, first: bool) {
        let at = SIDE.reasons_at() + reason as usize % MAX_REASONS * REASON_WORDS;
        if first {
            self.add(at, 1);
        }
        self.add(at + 1, bytes);
    }

    /// Tells readers to look here.
    pub(crate) fn show(&self) {
        self.sheet.use_row(self.at);
    }

    /// The end of a transfer: the only place where it is counted as one.
    pub(crate) fn ended(&self, ended: &Ended) {
        let class = layout::class_of(ended.len);
        let cell = |way: usize| SIDE.classes_at() + (way * CLASSES + class) * CLASS_WORDS;
        let way = match ended.failed {
            Some(direct) => usize::from(!direct),
            None => usize::from(ended.direct == 0),
        };
        let at = cell(way);
        // The clock is looked at now and then: a look takes as long as all of the rest.
        let mut end = 0;
        if ended.began.is_some() || ended.marked || self.row[self.from + at].load(Ordering::Relaxed) == 0 {
            end = if ended.began.is_some() { now() } else { about_now() };
            self.mark(ended.began.unwrap_or(end), end);
        }
        if ended.failed.is_some() {
            return self.add(at + 4, 1);
        }
        self.add(at, 1);
        self.add(at + 1, if way == 0 { ended.direct } else { ended.staged } as u64);
        if way == 0 && ended.staged > 0 {
            self.add(cell(1) + 1, ended.staged as u64);
        }
        if ended.unaligned {
            self.add(way, 1);
        }
        if let Some(began) = ended.began {
            let took = ended.took.unwrap_or(end.saturating_sub(began));
            self.add(at + 2, 1);
            self.add(at + 3, took);
            let large = usize::from(ended.len >= SMALL);
            let times = TIMES_AT + (usize::from(self.from > 0) * 2 + large) * LATENCIES;
            add(&self.row[times + layout::latency_class(took)], 1, self.sheet.own);
        }
    }

    /// Keeps the first and the last time.
    fn mark(&self, began: u64, end: u64) {
        let (first, last) = (&self.row[self.from + 2], &self.row[self.from + 3]);
        if first.load(Ordering::Relaxed) == 0 {
            self.sheet.use_row(self.at);
            // Of several that are first the one that the word takes is as good as another.
            let _ = first.compare_exchange(0, began, Ordering::Relaxed, Ordering::Relaxed);
        }
        if last.load(Ordering::Relaxed) < end {
            if self.sheet.own {
                last.store(end, Ordering::Relaxed);
            } else {
                last.fetch_max(end, Ordering::Relaxed);
            }
        }
    }
}
