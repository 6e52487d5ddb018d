//! Statistics as they are read: the sums over a page's shards, and what follows from them. It reads pages of any process and
//! believes none of their sizes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::figures::total;
use super::layout::{self, *};
use super::{EngineStats, ReasonStats, Stats};
use crate::op::Op;
use crate::reason::Reason;

/// What one process has done since it first opened a driver. Each number is exact by itself and never decreases from one
/// snapshot to the next; those of transfers that end while it is taken may be in it in part.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The process, as it knows itself.
    pub pid: u32,
    /// How much it counts, 1 to 3; 0 when nothing is counted.
    pub level: u64,
    /// Whether the GPU is the emulated one; `None` before one was used, and where the process does not tell.
    pub emulated: Option<bool>,
    /// CLOCK_MONOTONIC in nanoseconds when counting began; 0 where the process does not tell.
    pub started: u64,
    /// The same clock when this was taken.
    pub taken: u64,
    /// Of so many transfers below 64 KiB the time of one is taken.
    pub sampled: u64,
    /// Memory that was accessed, by GPU; those that had nothing to do are left out. The last may stand for host memory and
    /// for GPUs beyond the sixteenth.
    pub gpus: Vec<GpuStats>,
    /// Registrations of files.
    pub files: Registrations,
    /// Registrations of memory.
    pub buffers: Registrations,
    /// Reads and writes that were refused before anything moved.
    pub refused: [u64; 2],
    /// Batches.
    pub batches: BatchStats,
    /// Operations on streams.
    pub streams: StreamStats,
    /// Nanoseconds that went into what is done once: finding and loading GPU runtimes, and making ready what streams need. The
    /// first registration of memory or of a stream spends them, or else the first transfer.
    pub set_up_nanoseconds: u64,
    /// What AMD's page says of refusals of the direct path, for a process that has no other page.
    pub told_rejections: Option<u64>,
}

/// How often something went well, and how often it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Well.
    pub ok: u64,
    /// Not.
    pub failed: u64,
}

/// Registrations and their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    /// Begun.
    pub begun: Calls,
    /// Ended by a call.
    pub ended: Calls,
}

/// What was done with memory of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct GpuStats {
    /// The GPU's number; `None` for host memory and GPUs beyond the sixteenth.
    pub ordinal: Option<u32>,
    /// Sixteen bytes that name it; zeroes if it is not known.
    pub uuid: [u8; 16],
    /// From files to its memory.
    pub read: Side,
    /// From its memory to files.
    pub write: Side,
    /// Registrations of its memory: begun and ended.
    pub memory: [u64; 2],
    /// Bytes of them: begun and ended.
    pub memory_bytes: [u64; 2],
}

/// Transfers in one direction.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Side {
    /// By engine; engines that did nothing are left out. A transfer that two engines carried counts for both.
    pub engines: Vec<Named>,
    /// Why bytes were staged, by the reason's word.
    pub reasons: Vec<Named>,
    /// Transfers that went direct, at least in part, by size: below 4 KiB, then one class for each power of two.
    pub direct: Vec<SizeClass>,
    /// Those that were staged wholly, and the bytes that were staged of others.
    pub staged: Vec<SizeClass>,
    /// Transfers not aligned for direct access: of the direct ones, of the staged ones.
    pub unaligned: [u64; 2],
    /// When the first began, by CLOCK_MONOTONIC in nanoseconds; 0 if there was none or it is not told.
    pub first: u64,
    /// When the last ended.
    pub last: u64,
    /// How many took how long: those below 64 KiB whose time was taken, and the others.
    pub(crate) latencies: [Vec<u64>; 2],
}

/// A row of counters under a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// The engine's name or the reason's word.
    pub name: String,
    /// Transfers, wholly or in part.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// Attempts that failed; engines only.
    pub errors: u64,
}

/// Transfers of about one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeClass {
    /// Transfers that ended well.
    pub operations: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Of them, those whose time was taken.
    pub timed: u64,
    /// The time of these, in nanoseconds.
    pub nanoseconds: u64,
    /// Transfers that failed.
    pub errors: u64,
}

/// What was done with batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchStats {
    /// Batches set up.
    pub set_up: Calls,
    /// Submissions.
    pub submitted: Calls,
    /// Time of the accepted ones in nanoseconds.
    pub submit_nanoseconds: u64,
    /// Calls that cancel.
    pub canceled: Calls,
    /// Batches destroyed.
    pub destroyed: u64,
    /// Submissions that both read and write.
    pub mixed: u64,
    /// Entries accepted, and refused.
    pub entries: Calls,
    /// Entries that ran.
    pub done: Calls,
    /// Entries that were canceled before they ran.
    pub entries_canceled: u64,
    /// Entries that waited too long.
    pub entries_timed_out: u64,
    /// Entries that went direct at least in part.
    pub direct: u64,
    /// Entries that io_uring staged.
    pub uring: u64,
    /// Entries that were staged, by whatever engine.
    pub staged: u64,
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Bytes of the submission that was accepted last.
    pub last_bytes: [u64; 2],
    /// Entries whose time from submission to end was taken, and that time in nanoseconds.
    pub timed: [u64; 2],
}

/// What was done in the order of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Operations accepted, and refused.
    pub submitted: Calls,
    /// Operations that ran.
    pub done: Calls,
    /// Bytes read and written.
    pub bytes: [u64; 2],
}

/// Why a page is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the page of statistics is malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Where on a checked page things are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    header: usize,
    shards: usize,
    shard_words: usize,
    rows: usize,
    row_words: usize,
    events: usize,
    side_words: usize,
    side: Shape,
}

/// Most words of a page that is believed: 1 GiB.
pub(crate) const MOST_WORDS: usize = 1 << 27;

impl Map {
    /// Checks a page's header against how long the page is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn of(words: &[AtomicU64]) -> Result<Map, Malformed> {
        let wrong = |what: String| Err(Malformed(what));
        if words.len() < HEADER_WORDS {
            return wrong(format!("{} words are no header", words.len()));
        }
        let at = |at: usize| words[at].load(Ordering::Acquire);
        if at(head::MAGIC) != MAGIC {
            return wrong(format!("the magic is {:#x}", at(head::MAGIC)));
        }
        if at(head::VERSION) != VERSION {
            return wrong(format!("version {}, and {VERSION} is known here", at(head::VERSION)));
        }
        if at(head::BYTES) != words.len() as u64 * 8 {
            return wrong(format!("it says {} bytes and has {}", at(head::BYTES), words.len() * 8));
        }
        let number = |place: usize, name: &str, least: u64, most: u64| match at(place) {
            n if (least..=most).contains(&n) => Ok(n as usize),
            n => Err(Malformed(format!("{name} is {n}, not {least} to {most}"))),
        };
        let map = Map {
            header: number(head::HEADER, "the header's length", HEADER_WORDS as u64, 1 << 16)?,
            shards: number(head::SHARDS, "the number of shards", 1, 64)?,
            shard_words: number(head::SHARD_WORDS, "the length of a shard", 1, MOST_WORDS as u64)?,
            rows: number(head::ROWS, "the number of rows", 2, 64)?,
            row_words: number(head::ROW_WORDS, "the length of a row", 1, MOST_WORDS as u64)?,
            events: number(head::EVENTS, "the number of events", Event::Count as u64, 4096)?,
            side_words: number(head::SIDE_WORDS, "the length of a direction", 1, MOST_WORDS as u64)?,
            side: Shape {
                engines: number(head::ENGINES, "the number of engines", 1, 64)?,
                reasons: number(head::REASONS, "the number of reasons", 1, 256)?,
                classes: number(head::CLASSES, "the number of sizes", 1, 64)?,
                latencies: number(
                    head::LATENCIES,
                    "the number of times",
                    LATENCIES as u64,
                    LATENCIES as u64,
                )?,
            },
        };
        let names = head::NAMES + (map.side.engines + map.side.reasons) * NAME_WORDS + map.rows * UUID_WORDS;
        let rows = map.rows.checked_mul(map.row_words).and_then(|n| n.checked_add(map.events));
        let all = map.shards.checked_mul(map.shard_words).and_then(|n| n.checked_add(map.header));
        let fits = names <= map.header
            && map.side.words() <= map.side_words
            && map.side.row_words(map.side_words) <= map.row_words
            && rows.is_some_and(|rows| rows <= map.shard_words)
            && all == Some(words.len());
        if fits { Ok(map) } else { wrong("its parts do not fit into each other".into()) }
    }
}

/// Sums of one process's page.
struct Reader<'a> {
    words: &'a [AtomicU64],
    map: Map,
    /// The beginnings of the shards in use.
    shards: Vec<usize>,
}

impl Reader<'_> {
    fn at(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn sum(&self, offset: usize) -> u64 {
        self.shards.iter().fold(0, |sum: u64, shard| sum.wrapping_add(self.at(shard + offset)))
    }

    fn event(&self, event: Event) -> u64 {
        self.sum(event as usize)
    }

    fn calls(&self, ok: Event, failed: Event) -> Calls {
        Calls { ok: self.event(ok), failed: self.event(failed) }
    }

    fn name(&self, at: usize) -> String {
        let start = head::NAMES + at * NAME_WORDS;
        layout::name_of(&std::array::from_fn::<_, NAME_WORDS, _>(|n| self.at(start + n)))
    }

    /// One direction; its times are elsewhere in the row.
    fn side(&self, from: usize, times: usize) -> Side {
        let shape = self.map.side;
        let named = |first: usize, count: usize, at: usize, words: usize| {
            let rows = (0..count).map(|n| {
                let at = from + at + n * words;
                let errors = if words == ENGINE_WORDS { self.sum(at + 2) } else { 0 };
                (n, self.sum(at), self.sum(at + 1), errors)
            });
            let rows =
                rows.filter(|(_, operations, bytes, errors)| (*operations, *bytes, *errors) != (0, 0, 0));
            rows.map(|(n, operations, bytes, errors)| Named {
                name: self.name(first + n),
                operations,
                bytes,
                errors,
            })
            .collect()
        };
        let classes = |way: usize| {
            (0..shape.classes)
                .map(|class| {
                    let at = from + shape.classes_at() + (way * shape.classes + class) * CLASS_WORDS;
                    let [operations, bytes, timed, nanoseconds, errors] =
                        std::array::from_fn(|n| self.sum(at + n));
                    SizeClass { operations, bytes, timed, nanoseconds, errors }
                })
                .collect()
        };
        let latencies = |size: usize| {
            let at = times + size * shape.latencies;
            (0..shape.latencies).map(|n| self.sum(at + n)).collect()
        };
        let each = |at: usize| self.shards.iter().map(move |shard| self.at(shard + from + at));
        Side {
            engines: named(0, shape.engines, shape.engines_at(), ENGINE_WORDS),
            reasons: named(shape.engines, shape.reasons, shape.reasons_at(), REASON_WORDS),
            direct: classes(0),
            staged: classes(1),
            unaligned: [self.sum(from), self.sum(from + 1)],
            first: each(2).filter(|first| *first > 0).min().unwrap_or(0),
            last: each(3).max().unwrap_or(0),
            latencies: [latencies(0), latencies(1)],
        }
    }

    fn gpu(&self, row: usize) -> GpuStats {
        let from = self.map.events + row * self.map.row_words;
        let (side, latencies) = (self.map.side_words, self.map.side.latencies);
        let times = from + 2 * side;
        let memory = times + 4 * latencies;
        let uuid =
            head::NAMES + (self.map.side.engines + self.map.side.reasons) * NAME_WORDS + row * UUID_WORDS;
        let mut bytes = [0; 16];
        for (n, half) in bytes.chunks_exact_mut(8).enumerate() {
            half.copy_from_slice(&self.at(uuid + n).to_le_bytes());
        }
        GpuStats {
            ordinal: (row + 1 < self.map.rows).then_some(row as u32),
            uuid: bytes,
            read: self.side(from, times),
            write: self.side(from + side, times + 2 * latencies),
            memory: [self.sum(memory), self.sum(memory + 2)],
            memory_bytes: [self.sum(memory + 3), self.sum(memory + 4)],
        }
    }
}

impl Snapshot {
    /// Sums a page up.
    ///
    /// # Errors
    /// The page is malformed.
    pub(crate) fn of(words: &[AtomicU64], taken: u64) -> Result<Snapshot, Malformed> {
        let map = Map::of(words)?;
        let used = words[head::USED_SHARDS].load(Ordering::Relaxed);
        let shards = (0..map.shards).filter(|n| used & 1 << n != 0);
        let shards = shards.map(|n| map.header + n * map.shard_words).collect();
        let reader = Reader { words, map, shards };
        let rows = reader.at(head::USED_ROWS);
        Ok(Snapshot {
            pid: reader.at(head::PID) as u32,
            level: reader.at(head::LEVEL),
            emulated: match reader.at(head::EMULATED) {
                0 => None,
                known => Some(known == 2),
            },
            started: reader.at(head::STARTED),
            taken,
            sampled: reader.at(head::SAMPLED).max(1),
            gpus: (0..map.rows).filter(|row| rows & 1 << row != 0).map(|row| reader.gpu(row)).collect(),
            files: Registrations {
                begun: reader.calls(Event::FileOk, Event::FileErr),
                ended: reader.calls(Event::FileEndOk, Event::FileEndErr),
            },
            buffers: Registrations {
                begun: reader.calls(Event::BufferOk, Event::BufferErr),
                ended: reader.calls(Event::BufferEndOk, Event::BufferEndErr),
            },
            refused: [reader.event(Event::ReadRefused), reader.event(Event::WriteRefused)],
            batches: BatchStats {
                set_up: reader.calls(Event::BatchSetUpOk, Event::BatchSetUpErr),
                submitted: reader.calls(Event::BatchSubmitOk, Event::BatchSubmitErr),
                submit_nanoseconds: reader.event(Event::BatchSubmitNs),
                canceled: reader.calls(Event::BatchCancelOk, Event::BatchCancelErr),
                destroyed: reader.event(Event::BatchDestroyOk),
                mixed: reader.event(Event::BatchMixed),
                entries: reader.calls(Event::EntryAccepted, Event::EntryRefused),
                done: reader.calls(Event::EntryDone, Event::EntryFailed),
                entries_canceled: reader.event(Event::EntryCanceled),
                entries_timed_out: reader.event(Event::EntryTimedOut),
                direct: reader.event(Event::EntryDirect),
                uring: reader.event(Event::EntryUring),
                staged: reader.event(Event::EntryStaged),
                bytes: [reader.event(Event::EntryReadBytes), reader.event(Event::EntryWriteBytes)],
                last_bytes: [reader.at(head::LAST_BATCH), reader.at(head::LAST_BATCH + 1)],
                timed: [reader.event(Event::EntryTimed), reader.event(Event::EntryNs)],
            },
            streams: StreamStats {
                submitted: reader.calls(Event::StreamAccepted, Event::StreamRefused),
                done: reader.calls(Event::StreamDone, Event::StreamFailed),
                bytes: [reader.event(Event::StreamReadBytes), reader.event(Event::StreamWriteBytes)],
            },
            set_up_nanoseconds: reader.event(Event::SetUpNs),
            told_rejections: None,
        })
    }

    /// All GPUs and host memory together.
    pub fn total(&self, op: Op) -> Side {
        let mut total = Side::default();
        for gpu in &self.gpus {
            total.add(gpu.side(op));
        }
        total
    }

    /// How often a direct engine did not carry a transfer wholly: the sum over all reasons.
    pub fn rejections(&self) -> u64 {
        let of = |op| total(self.total(op).reasons.iter().map(|reason| reason.operations));
        self.told_rejections.unwrap_or_else(|| of(Op::Read).wrapping_add(of(Op::Write)))
    }

    /// What has been done so far as [`Driver::stats`](crate::Driver::stats) tells it.
    pub(crate) fn stats(&self, engines: &[&'static str]) -> Stats {
        let (read, write) = (self.total(Op::Read), self.total(Op::Write));
        let engine = |named: &Named| {
            let engine = engines.iter().find(|name| **name == named.name)?;
            let Named { operations, bytes, errors, .. } = *named;
            Some(EngineStats { engine, operations, bytes, errors })
                .filter(|e| (e.operations, e.errors) != (0, 0))
        };
        let reason = |named: &Named| {
            let reason = *Reason::ALL.iter().find(|reason| reason.word() == named.name)?;
            Some(ReasonStats { reason, operations: named.operations, bytes: named.bytes })
        };
        Stats {
            read: read.engines.iter().filter_map(engine).collect(),
            write: write.engines.iter().filter_map(engine).collect(),
            read_staged: read.reasons.iter().filter_map(reason).collect(),
            write_staged: write.reasons.iter().filter_map(reason).collect(),
        }
    }
}
