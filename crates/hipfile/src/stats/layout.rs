//! How the page of statistics is laid out, for who writes it and for who reads it: words of 64 bits in the machine's byte
//! order. It counts nothing. The words are described in docs/statistics.md, which follows this file.

/// `hipfstat`, as eight bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"hipfstat");
/// Grows when words change their meaning; more engines, reasons or GPUs are no such change.
pub(crate) const VERSION: u64 = 1;

/// Words of the header.
pub(crate) mod head {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    /// Bytes of the whole page.
    pub(crate) const BYTES: usize = 2;
    /// Words of the header, the tables of names included.
    pub(crate) const HEADER: usize = 3;
    pub(crate) const PID: usize = 4;
    /// CLOCK_MONOTONIC in nanoseconds when the page was made.
    pub(crate) const STARTED: usize = 5;
    pub(crate) const LEVEL: usize = 6;
    /// 0 not known yet, 1 a real GPU serves, 2 the emulated one.
    pub(crate) const EMULATED: usize = 7;
    pub(crate) const SHARDS: usize = 8;
    pub(crate) const SHARD_WORDS: usize = 9;
    /// Rows of a shard: one per GPU and a last one for everything else.
    pub(crate) const ROWS: usize = 10;
    pub(crate) const ROW_WORDS: usize = 11;
    pub(crate) const EVENTS: usize = 12;
    pub(crate) const ENGINES: usize = 13;
    pub(crate) const REASONS: usize = 14;
    pub(crate) const CLASSES: usize = 15;
    pub(crate) const LATENCIES: usize = 16;
    /// Of so many transfers below `SMALL` bytes the time of one is taken.
    pub(crate) const SAMPLED: usize = 17;
    pub(crate) const SMALL: usize = 18;
    /// Shards in use, one bit each; the others are not to be touched.
    pub(crate) const USED_SHARDS: usize = 19;
    /// Rows in use, one bit each.
    pub(crate) const USED_ROWS: usize = 20;
    /// Bytes of the batch that was submitted last: read, written.
    pub(crate) const LAST_BATCH: usize = 21;
    /// Words of one direction of a row, without the times.
    pub(crate) const SIDE_WORDS: usize = 23;
    /// Where the engines' names begin.
    pub(crate) const NAMES: usize = 32;
}

/// Bytes of a name, padded with zeroes.
pub(crate) const NAME_WORDS: usize = 4;
/// Words of a GPU's identity.
pub(crate) const UUID_WORDS: usize = 2;

pub(crate) const SHARDS: usize = 64;
pub(crate) const MAX_ENGINES: usize = 8;
pub(crate) const MAX_REASONS: usize = 48;
/// GPUs with a row of their own.
pub(crate) const GPUS: usize = 16;
pub(crate) const ROWS: usize = GPUS + 1;
/// Classes of sizes: below 4 KiB, then one for each power of two. The largest transfer is in the last.
pub(crate) const CLASSES: usize = 20;
pub(crate) const LATENCIES: usize = 240;
/// Below this the time of transfers is taken now and then.
pub(crate) const SMALL: usize = 64 << 10;

/// Words of an engine: operations, bytes, errors.
pub(crate) const ENGINE_WORDS: usize = 3;
/// Words of a reason: operations, bytes.
pub(crate) const REASON_WORDS: usize = 2;
/// Words of a class of sizes: operations, bytes, operations whose time was taken, their time in nanoseconds, errors, and three
/// for later, so that a class is one cache line.
pub(crate) const CLASS_WORDS: usize = 8;
/// Words at the beginning of a side: unaligned operations direct and staged, first and last time, and four for later.
pub(crate) const LEAD_WORDS: usize = 8;
/// Words at the end of a row, about registered memory: done, failed, ended, bytes begun, bytes ended, and three for later.
pub(crate) const MEMORY_WORDS: usize = 8;

/// How many of each there are in one direction of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) engines: usize,
    pub(crate) reasons: usize,
    pub(crate) classes: usize,
    pub(crate) latencies: usize,
}

impl Shape {
    pub(crate) const OURS: Shape =
        Shape { engines: MAX_ENGINES, reasons: MAX_REASONS, classes: CLASSES, latencies: LATENCIES };

    pub(crate) const fn engines_at(self) -> usize {
        LEAD_WORDS
    }

    pub(crate) const fn reasons_at(self) -> usize {
        self.engines_at() + self.engines * ENGINE_WORDS
    }

    /// The classes of direct transfers; those of staged ones follow. They begin at a cache line.
    pub(crate) const fn classes_at(self) -> usize {
        (self.reasons_at() + self.reasons * REASON_WORDS).next_multiple_of(8)
    }

    pub(crate) const fn words(self) -> usize {
        self.classes_at() + 2 * self.classes * CLASS_WORDS
    }

    /// Words of a row whose sides have so many: both sides, then the times of reads and of writes, each of transfers below
    /// [`SMALL`] and of the others, then what is about memory.
    pub(crate) const fn row_words(self, side_words: usize) -> usize {
        2 * side_words + 4 * self.latencies + MEMORY_WORDS
    }
}

/// What a transfer touches lies on one page: page tables are looked up for each page anew after a system call.
pub(crate) const SIDE_WORDS: usize = 512;
pub(crate) const TIMES_AT: usize = 2 * SIDE_WORDS;
pub(crate) const MEMORY_AT: usize = TIMES_AT + 4 * LATENCIES;
pub(crate) const ROW_WORDS: usize = Shape::OURS.row_words(SIDE_WORDS).next_multiple_of(512);

const _: () = assert!(Shape::OURS.words() <= SIDE_WORDS);

/// What is counted beside transfers; the place in this list is the place in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Event {
    FileOk,
    FileErr,
    FileEndOk,
    FileEndErr,
    BufferOk,
    BufferErr,
    BufferEndOk,
    BufferEndErr,
    /// Requests that were refused before anything moved.
    ReadRefused,
    WriteRefused,
    BatchSetUpOk,
    BatchSetUpErr,
    BatchSubmitOk,
    BatchSubmitErr,
    BatchCancelOk,
    BatchCancelErr,
    BatchDestroyOk,
    /// Submissions that both read and write.
    BatchMixed,
    EntryAccepted,
    EntryRefused,
    EntryDone,
    EntryFailed,
    EntryCanceled,
    EntryTimedOut,
    /// Of the entries that ran: those that went direct, wholly or in part, and those an engine of the list staged.
    EntryDirect,
    EntryUring,
    EntryStaged,
    EntryReadBytes,
    EntryWriteBytes,
    BatchSubmitNs,
    /// Entries whose time from submission to end was taken, and that time.
    EntryTimed,
    EntryNs,
    StreamAccepted,
    StreamRefused,
    StreamDone,
    StreamFailed,
    StreamReadBytes,
    StreamWriteBytes,
    /// Time that finding and loading runtimes took, and making ready what streams need.
    SetUpNs,
    Count,
}

/// Words for events; more than there are. The rows after them begin at pages.
pub(crate) const EVENTS: usize = 512;
pub(crate) const SHARD_WORDS: usize = EVENTS + ROWS * ROW_WORDS;
pub(crate) const HEADER_WORDS: usize = 512;
pub(crate) const PAGE_WORDS: usize = HEADER_WORDS + SHARDS * SHARD_WORDS;

const _: () = assert!(Event::Count as usize <= EVENTS);
const _: () =
    assert!(head::NAMES + (MAX_ENGINES + MAX_REASONS) * NAME_WORDS + ROWS * UUID_WORDS <= HEADER_WORDS);

/// The class of a size.
pub(crate) fn class_of(bytes: usize) -> usize {
    let pages = bytes >> 12;
    ((usize::BITS - pages.leading_zeros()) as usize).min(CLASSES - 1)
}

/// Classes within one power of two.
const FINE: u32 = 3;
/// Times are told apart by so many nanoseconds at least.
const UNIT: u32 = 6;

/// The class of a time. Eight classes for each power of two: within a class times differ by an eighth at most.
pub(crate) fn latency_class(nanoseconds: u64) -> usize {
    let value = nanoseconds >> UNIT;
    let power = 63_u32.saturating_sub(value.leading_zeros());
    if power < FINE {
        return value as usize;
    }
    let shift = power - FINE;
    let class = ((shift as usize + 1) << FINE) + ((value >> shift) as usize - (1 << FINE));
    class.min(LATENCIES - 1)
}

/// The middle of a class, in nanoseconds.
pub(crate) fn latency_of(class: usize) -> f64 {
    let unit = f64::from(1 << UNIT);
    if class < 1 << FINE {
        return (class as f64 + 0.5) * unit;
    }
    let shift = (class >> FINE) - 1;
    let low = ((class & ((1 << FINE) - 1)) + (1 << FINE)) as f64;
    (low + 0.5) * (shift as f64).exp2() * unit
}

/// A name as words; what does not fit is cut off.
pub(crate) fn name_words(name: &str) -> [u64; NAME_WORDS] {
    let mut bytes = [0; NAME_WORDS * 8];
    let len = name.len().min(bytes.len());
    bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
    std::array::from_fn(|n| u64::from_le_bytes(std::array::from_fn(|i| bytes[n * 8 + i])))
}

/// The name in such words, as far as it is printable.
pub(crate) fn name_of(words: &[u64]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.take_while(|b| *b != 0).map(|b| if b.is_ascii_graphic() { char::from(b) } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fall_into_the_classes_of_their_power_of_two() {
        for (bytes, class) in [
            (0, 0),
            (4095, 0),
            (4096, 1),
            (8191, 1),
            (8192, 2),
            (64 << 10, 5),
            (1 << 20, 9),
            (crate::stats::MAX_SIZE, 19),
            (usize::MAX, 19),
        ] {
            assert_eq!(class_of(bytes), class, "{bytes}");
        }
    }

    #[test]
    fn times_are_told_within_a_sixteenth() {
        let mut last = 0;
        for power in 10..38 {
            for value in
                [1_u64 << power, (1_u64 << power) | (1_u64 << power >> 1), (1_u64 << (power + 1)) - 1]
            {
                let class = latency_class(value);
                assert!(class >= last && class < LATENCIES, "{value}");
                last = class;
                let off = (latency_of(class) / value as f64 - 1.0).abs();
                assert!(off < 0.07, "{value}: {}", latency_of(class));
            }
        }
        assert_eq!(latency_class(u64::MAX), LATENCIES - 1);
        assert_eq!(latency_class(0), 0);
    }

    #[test]
    fn names_come_back() {
        assert_eq!(name_of(&name_words("block-stack(lvm-extents)")), "block-stack(lvm-extents)");
        assert_eq!(name_of(&[u64::from_le_bytes(*b"a\x1b[31mzz")]), "a?[31mzz");
    }

    #[test]
    fn every_engine_and_reason_has_room() {
        assert!(crate::reason::Reason::ALL.len() <= MAX_REASONS);
        assert!(crate::reason::Reason::ALL.iter().all(|reason| reason.word().len() <= NAME_WORDS * 8));
    }
}
