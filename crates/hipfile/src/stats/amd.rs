//! The page that AMD's `ais-stats` reads, layout version 1: the same sums in AMD's places. Only here and in the report is known
//! what AMD calls them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{self, CLASSES, GPUS};
use super::snapshot::{GpuStats, Malformed, Side, SizeClass, Snapshot};
use crate::op::Op;

/// Words of the page.
pub(crate) const AMD_WORDS: usize = 5 + GPUS * 2 * BLOCK;
const BLOCK: usize = 131;
/// Classes of sizes there: the last holds all from 64 MiB on.
const SIZES: usize = 16;
const VERSION: u64 = 1;

const _: () = assert!(AMD_WORDS * 8 == 33_576);

/// Where the numbers of one GPU and one way (0 direct, 1 staged) begin.
fn block(gpu: usize, way: usize) -> usize {
    5 + (gpu * 2 + way) * BLOCK
}

/// Writes the page anew. Each word grows, or stays; one call at a time.
pub(crate) fn write_amd(words: &[AtomicU64], snapshot: &Snapshot) {
    let put = |at: usize, value: u64| {
        if let Some(word) = words.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    };
    put(1, snapshot.level);
    put(2, snapshot.files.begun.ok);
    put(3, snapshot.buffers.begun.ok);
    put(4, snapshot.rejections());
    for gpu in &snapshot.gpus {
        // Memory of no GPU has no place there.
        let Some(ordinal) = gpu.ordinal.map(|n| n as usize).filter(|n| *n < GPUS) else { continue };
        for way in 0..2 {
            let at = block(ordinal, way);
            put(at, 1);
            for op in [Op::Read, Op::Write] {
                let side = gpu.side(op);
                let classes = if way == 0 { &side.direct } else { &side.staged };
                let mut sums = [SizeClass::default(); SIZES];
                for (class, counted) in classes.iter().enumerate() {
                    let sum = &mut sums[class.min(SIZES - 1)];
                    sum.operations += counted.operations;
                    sum.bytes += counted.bytes;
                    sum.nanoseconds += counted.all_nanoseconds() as u64;
                    sum.errors += counted.errors;
                }
                for (class, sum) in sums.iter().enumerate() {
                    let place = |kind: usize| at + 1 + (kind * 2 + op as usize) * SIZES + class;
                    put(place(0), sum.bytes);
                    put(place(1), sum.operations);
                    // Partly an estimate: it must not go back for all that.
                    words
                        .get(place(2))
                        .inspect(|w| _ = w.fetch_max(sum.nanoseconds / 1000, Ordering::Relaxed));
                    put(place(3), sum.errors);
                }
                put(at + 1 + 8 * SIZES + op as usize, side.unaligned[way]);
            }
        }
    }
    if let Some(version) = words.first() {
        version.store(VERSION, Ordering::Release);
    }
}

/// Reads such a page, of whatever library.
///
/// # Errors
/// It is another version, or too short.
pub(crate) fn read_amd(words: &[AtomicU64], pid: u32, taken: u64) -> Result<Snapshot, Malformed> {
    let at = |at: usize| words[at].load(Ordering::Relaxed);
    if words.len() < AMD_WORDS {
        return Err(Malformed(format!("{} bytes are too few for AMD's layout", words.len() * 8)));
    }
    if at(0) != VERSION {
        return Err(Malformed(format!("version {} of AMD's layout, and {VERSION} is known here", at(0))));
    }
    if at(1) > 3 {
        return Err(Malformed(format!("level {} in AMD's layout", at(1))));
    }
    let side = |gpu: usize, op: Op| {
        let classes = |way: usize| {
            let mut classes = vec![SizeClass::default(); CLASSES];
            for (class, counted) in classes.iter_mut().enumerate().take(SIZES) {
                let place = |kind: usize| at(block(gpu, way) + 1 + (kind * 2 + op as usize) * SIZES + class);
                let (operations, time) = (place(1), place(2));
                *counted = SizeClass {
                    operations,
                    bytes: place(0),
                    timed: operations,
                    nanoseconds: time.saturating_mul(1000),
                    errors: place(3),
                };
            }
            classes
        };
        let unaligned = |way: usize| at(block(gpu, way) + 1 + 8 * SIZES + op as usize);
        Side {
            direct: classes(0),
            staged: classes(1),
            unaligned: [unaligned(0), unaligned(1)],
            ..Side::default()
        }
    };
    let used = (0..GPUS).filter(|gpu| (0..2).any(|way| at(block(*gpu, way)) != 0));
    let mut snapshot =
        Snapshot { pid, level: at(1), taken, told_rejections: Some(at(4)), ..Snapshot::default() };
    snapshot.files.begun.ok = at(2);
    snapshot.buffers.begun.ok = at(3);
    snapshot.gpus = used
        .map(|gpu| GpuStats {
            ordinal: Some(gpu as u32),
            read: side(gpu, Op::Read),
            write: side(gpu, Op::Write),
            ..GpuStats::default()
        })
        .collect();
    Ok(snapshot)
}

const _: () = assert!(layout::CLASSES > SIZES);

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Vec<AtomicU64> {
        (0..AMD_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn places_are_amds() {
        let mut side = Side {
            direct: vec![SizeClass::default(); CLASSES],
            staged: vec![SizeClass::default(); CLASSES],
            unaligned: [0, 6],
            ..Side::default()
        };
        side.direct[1] = SizeClass { operations: 4, bytes: 5 << 12, timed: 2, nanoseconds: 7000, errors: 1 };
        side.staged[18] = SizeClass { operations: 1, bytes: 1 << 30, timed: 1, nanoseconds: 9000, errors: 0 };
        let mut snapshot = Snapshot { level: 2, ..Snapshot::default() };
        snapshot.files.begun.ok = 11;
        snapshot.buffers.begun.ok = 12;
        snapshot.gpus = vec![
            GpuStats { ordinal: Some(3), write: side.clone(), ..GpuStats::default() },
            GpuStats::default(),
        ];
        let words = page();
        write_amd(&words, &snapshot);
        let bytes = |at: usize| words[at / 8].load(Ordering::Relaxed);
        assert_eq!([bytes(0), bytes(8), bytes(16), bytes(24), bytes(32)], [1, 2, 11, 12, 0]);
        let direct = 40 + (3 * 2) * 1048;
        let (write, class) = (16 * 8, 8);
        assert_eq!(bytes(direct), 1);
        assert_eq!(bytes(direct + 8 + write + class), 5 << 12);
        assert_eq!(bytes(direct + 264 + write + class), 4);
        assert_eq!(bytes(direct + 520 + write + class), 14);
        assert_eq!(bytes(direct + 776 + write + class), 1);
        let staged = direct + 1048;
        assert_eq!((bytes(staged + 264 + write + 15 * 8), bytes(staged + 1032 + 8)), (1, 6));
        let back = read_amd(&words, 9, 0).unwrap();
        assert_eq!((back.pid, back.gpus.len(), back.gpus[0].ordinal), (9, 1, Some(3)));
        assert_eq!(back.total(Op::Write).operations(), 5);
        assert_eq!(back.total(Op::Write).bytes(), side.bytes());
    }

    #[test]
    fn behaviour_159_a_malformed_page_of_amds_is_refused() {
        assert!(read_amd(&page()[..100], 1, 0).is_err());
        let words = page();
        for version in [0, 2, u64::MAX] {
            words[0].store(version, Ordering::Relaxed);
            assert!(read_amd(&words, 1, 0).is_err());
        }
        words[0].store(1, Ordering::Relaxed);
        words[1].store(4, Ordering::Relaxed);
        assert!(read_amd(&words, 1, 0).is_err());
        words[1].store(3, Ordering::Relaxed);
        words.iter().skip(2).for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        // Sizes are not taken from it, so nonsense is only nonsense.
        let snapshot = read_amd(&words, 1, 0).unwrap();
        let _ = (snapshot.gpus.len(), snapshot.rejections());
    }
}
