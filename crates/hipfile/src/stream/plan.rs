//! How a large read is cut, which part of it is to be read next, and what each of the stream's copies may copy: only what
//! belongs to the unbroken prefix. It reads nothing and knows no memory.

use std::ops::Range;

/// Least memory of a ring, in Blocks: below it, so little is read ahead that one Block does as well.
pub(super) const LEAST_BLOCKS: usize = 4;
/// Most bytes of a ring, for each thread that reads into it: about as much again is being copied meanwhile. More leaves the
/// processors' caches.
const RING: usize = 4 << 20;
/// As many pieces a transfer has, or more where they would not be a Block long, or less than a fourth of the ring.
const PIECES: usize = 32;
/// Parts of a piece, which several threads read at once.
const PARTS: usize = 4;

/// How many Blocks of `block` bytes a read of `most` bytes would have as a ring, which so many threads read into.
pub(super) fn ring_blocks(most: usize, block: usize, threads: usize) -> usize {
    if most / block < LEAST_BLOCKS { 0 } else { (most / 2).min(threads * RING) / block }
}

/// A read cut into pieces, one for each copy of the stream, and these into parts, one for each turn of a thread. All are
/// on a grid in the file; of the first and the last piece something may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Pieces that are in memory at once.
    pub(super) slots: usize,
    /// Blocks of each slot.
    pub(super) blocks: usize,
    /// Bytes of a part, a multiple of the file's alignment.
    part: usize,
    /// Parts of a piece.
    parts: usize,
    /// Copies that are queued.
    pub(super) pieces: usize,
}

impl Cut {
    /// A read of at most `most` bytes that begins up to `lead` bytes after a multiple of `align`, in a ring of so many Blocks.
    /// `None` where that is no gain.
    pub(super) fn new(most: usize, lead: usize, align: usize, ring: usize, block: usize) -> Option<Cut> {
        let blocks = (most / PIECES / block).max(1).next_power_of_two().min((ring / 4).max(1));
        let (mut slots, parts) = (ring / blocks, PARTS.min(blocks));
        let part = blocks * block / parts;
        let part = part - part % align;
        if slots < 2 || part == 0 {
            return None;
        }
        let pieces = (lead + most).div_ceil(part * parts);
        slots = slots.min(pieces);
        Some(Cut { slots, blocks, part, parts, pieces })
    }

    pub(super) fn piece(&self) -> usize {
        self.part * self.parts
    }

    /// How often a slot is used.
    pub(super) fn uses(&self, slot: usize) -> usize {
        (self.pieces - slot).div_ceil(self.slots)
    }

    /// Whether the stream is to say that it has copied all before this piece. It says so for half the ring at once, since
    /// it stands still meanwhile.
    pub(super) fn is_told_before(&self, piece: usize) -> bool {
        let half = (self.slots / 2).max(1);
        let told = piece - piece % half;
        // Nobody needs to know it of the last ones.
        piece > 0
            && told == piece
            && told < self.pieces
            && told - half < self.pieces.saturating_sub(self.slots)
    }
}

/// A part that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    index: usize,
    pub(super) slot: usize,
    /// Where in the slot its first aligned byte belongs, and how many bytes there are for it.
    pub(super) place: Range<usize>,
    /// Which bytes of the transfer it is.
    pub(super) range: Range<usize>,
}

impl Part {
    pub(super) fn is_first(&self) -> bool {
        self.index == 0
    }
}

/// A copy that may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) piece: usize,
    /// Where in the slot its bytes begin.
    pub(super) at: usize,
    /// Which bytes of the transfer they are.
    pub(super) range: Range<usize>,
}

/// How far a read has got.
#[derive(Debug)]
pub(super) struct Plan {
    cut: Cut,
    /// Bytes of the first piece before the transfer.
    lead: usize,
    /// Where the unbroken prefix ends, as far as is known.
    end: usize,
    /// The first part that was neither given out nor left out.
    next: usize,
    /// Parts that are being read.
    reading: Vec<usize>,
    /// Pieces that were copied.
    copied: usize,
    /// Of each slot the last piece that may be copied, and one more.
    ready: Vec<usize>,
}

impl Plan {
    pub(super) fn new(cut: Cut) -> Plan {
        Plan { cut, lead: 0, end: 0, next: 0, reading: Vec::new(), copied: 0, ready: vec![0; cut.slots] }
    }

    /// The transfer is known: so many bytes, the first `lead` after a multiple of the alignment. No more than were reckoned
    /// with.
    pub(super) fn bind(&mut self, lead: usize, len: usize) {
        debug_assert!(lead + len <= self.cut.pieces * self.cut.piece(), "as much as was reckoned with");
        (self.lead, self.end) = (lead, len);
    }

    /// Which bytes of the transfer a range of the grid has.
    fn on_grid(&self, from: usize, to: usize) -> Range<usize> {
        let clamp = |at: usize| at.clamp(self.lead, self.lead + self.end) - self.lead;
        clamp(from)..clamp(to)
    }

    fn part_range(&self, index: usize) -> Range<usize> {
        let from = index * self.cut.part;
        self.on_grid(from, from + self.cut.part)
    }

    /// Leaves out parts that have no bytes. Whether one is to be read now.
    pub(super) fn advance(&mut self, ready: &mut Vec<Ready>) -> bool {
        loop {
            let piece = self.next / self.cut.parts;
            if piece >= self.cut.pieces || piece >= self.copied + self.cut.slots {
                return false;
            }
            if !self.part_range(self.next).is_empty() {
                return true;
            }
            self.next += 1;
            self.look_at(piece, ready);
        }
    }

    /// The part to be read now, if [`Plan::advance`] has said that there is one.
    pub(super) fn take(&mut self) -> Part {
        let (index, range) = (self.next, self.part_range(self.next));
        self.next += 1;
        self.reading.push(index);
        let (piece, place) = (index / self.cut.parts, index % self.cut.parts * self.cut.part);
        Part { index, slot: piece % self.cut.slots, place: place..place + self.cut.part, range }
    }

    /// So many bytes of a part were read. When these are not all, and the prefix so far was longer, it ends there, which is the
    /// answer; then pieces behind it that are ready already are made ready again: the stream has not got there.
    pub(super) fn done(&mut self, part: &Part, moved: usize, ready: &mut Vec<Ready>) -> bool {
        self.reading.retain(|reading| *reading != part.index);
        let end = part.range.start + moved;
        let ends = moved < part.range.len() && end < self.end;
        if ends {
            self.end = end;
            self.take_back(ready);
        }
        self.look_at(part.index / self.cut.parts, ready);
        ends
    }

    /// Nothing more is to be read, nor copied but what is ready.
    pub(super) fn abandon(&mut self) {
        self.end = 0;
    }

    fn take_back(&self, ready: &mut Vec<Ready>) {
        let pieces: Vec<_> = self.ready.iter().filter_map(|ready| ready.checked_sub(1)).collect();
        for piece in pieces {
            if piece >= self.copied && self.lead + self.end < (piece + 1) * self.cut.piece() {
                ready.push(self.piece_ready(piece));
            }
        }
    }

    /// Where the prefix ends.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// The stream has copied all pieces before this one.
    pub(super) fn was_copied(&mut self, pieces: usize) {
        self.copied = pieces;
    }

    /// Whether all of the prefix was read.
    pub(super) fn is_read(&self) -> bool {
        let is_before = |index: usize| index * self.cut.part < self.lead + self.end;
        !is_before(self.next) && !self.reading.iter().any(|index| is_before(*index))
    }

    fn piece_ready(&self, piece: usize) -> Ready {
        let from = piece * self.cut.piece();
        let range = self.on_grid(from, from + self.cut.piece());
        let at = if range.is_empty() { 0 } else { self.lead + range.start - from };
        Ready { piece, at, range }
    }

    /// Makes a piece ready if nothing of it is to be read any more.
    fn look_at(&mut self, piece: usize, ready: &mut Vec<Ready>) {
        let parts = piece * self.cut.parts..(piece + 1) * self.cut.parts;
        let slot = piece % self.cut.slots;
        if self.next >= parts.end
            && self.ready[slot] <= piece
            && !self.reading.iter().any(|index| parts.contains(index))
        {
            self.ready[slot] = piece + 1;
            ready.push(self.piece_ready(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn large_reads_have_few_commands_and_small_ones_small_pieces() {
        let cut = |most| {
            let ring = ring_blocks(most, MIB, 8);
            Cut::new(most, 4095, 4096, ring, MIB).map(|cut| (cut.slots, cut.blocks, cut.parts, cut.pieces))
        };
        assert_eq!(cut(4 * MIB - 1), None);
        assert_eq!(cut(4 * MIB), Some((2, 1, 1, 5)));
        assert_eq!(cut(16 * MIB), Some((8, 1, 1, 17)));
        assert_eq!(cut(128 * MIB), Some((8, 4, 4, 33)));
        assert_eq!(cut(1024 * MIB), Some((4, 8, 4, 129)));
        assert_eq!(cut(0x7fff_f000), Some((4, 8, 4, 256)));
        assert_eq!(Cut::new(64 * MIB, 0, 4096, 1, MIB), None, "no ring");
        assert_eq!(Cut::new(64 * MIB, 0, 2 * MIB, 8, MIB), None, "coarser than a part");
    }

    #[test]
    fn the_stream_says_often_enough_what_it_has_copied() {
        for (slots, pieces) in [(2, 2), (2, 9), (3, 10), (4, 129), (8, 33), (8, 8), (5, 6)] {
            let cut = Cut { slots, blocks: 1, part: 4096, parts: 1, pieces };
            let (mut copied, mut times) = (0, 0);
            for piece in 0..pieces {
                if cut.is_told_before(piece) {
                    (copied, times) = (piece, times + 1);
                }
                assert!(piece < copied + slots, "piece {piece} of {pieces} in {slots} slots");
            }
            assert!(
                times <= pieces / (slots / 2) && (pieces > slots || times == 0),
                "{slots} {pieces}: {times}"
            );
            assert_eq!((0..slots).map(|slot| cut.uses(slot)).sum::<usize>(), pieces);
        }
    }

    /// Reads in every order that a seed stands for, with parts that come out short; copies as the stream would, as soon as
    /// it may. What was copied must be the prefix, once, and nothing behind it.
    fn run(seed: u64, cut: Cut, lead: usize, len: usize) {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % below.max(1)
        };
        let mut plan = Plan::new(cut);
        plan.bind(lead, len);
        // What is known of each piece, as the words of its slot would have it.
        let mut words: Vec<Option<Range<usize>>> = vec![None; cut.pieces];
        let mut memory = vec![0_u8; len];
        let (mut reading, mut here, mut short) = (Vec::<Part>::new(), 0, len);
        while here < cut.pieces {
            let mut ready = Vec::new();
            let more = plan.advance(&mut ready);
            if more && (reading.is_empty() || random(3) > 0) {
                let part = plan.take();
                assert!(part.slot < cut.slots && part.place.end <= cut.piece() && part.range.end <= len);
                assert!(reading.iter().all(|other| (other.slot, &other.place) != (part.slot, &part.place)));
                reading.push(part);
            } else if !reading.is_empty() && random(2) > 0 {
                let part = reading.swap_remove(random(reading.len()));
                let fails = !seed.is_multiple_of(3) && random(cut.pieces * cut.parts) == 0;
                let moved = if fails { random(part.range.len()) } else { part.range.len() };
                if fails {
                    short = short.min(part.range.start + moved);
                }
                plan.done(&part, moved, &mut ready);
            }
            for ready in ready {
                assert!(ready.piece >= here, "what was copied stays as it is");
                assert!(ready.piece < plan.copied + cut.slots, "its slot is free");
                assert!(ready.range.is_empty() || ready.at + ready.range.len() <= cut.piece());
                words[ready.piece] = Some(ready.range);
            }
            while let Some(Some(range)) = words.get(here) {
                memory[range.clone()].iter_mut().for_each(|times| *times += 1);
                here += 1;
                if cut.is_told_before(here) {
                    plan.was_copied(here);
                }
                if random(2) == 0 {
                    break;
                }
            }
        }
        assert!(plan.is_read() && reading.is_empty() && !plan.advance(&mut Vec::new()));
        assert_eq!(plan.end(), short);
        assert!(memory[..short].iter().all(|times| *times == 1), "seed {seed}: the prefix is there");
        assert!(memory[short..].iter().all(|times| *times == 0), "seed {seed}: nothing behind it is touched");
    }

    #[test]
    fn any_order_of_reads_copies_the_prefix_and_nothing_else() {
        for seed in 0..3000 {
            let (slots, parts) = (2 + seed as usize % 4, 1 + seed as usize / 4 % 3);
            let lead = [0, 1, 7][seed as usize % 3];
            let len = [0, 1, 90, 160, 233][seed as usize / 3 % 5];
            let part = 8;
            let pieces = (7_usize + 240).div_ceil(part * parts);
            run(seed, Cut { slots: slots.min(pieces), blocks: 1, part, parts, pieces }, lead, len);
        }
    }

    #[test]
    fn what_is_abandoned_copies_nothing_more() {
        let mut plan = Plan::new(Cut { slots: 2, blocks: 1, part: 8, parts: 1, pieces: 4 });
        plan.bind(0, 32);
        let mut ready = Vec::new();
        assert!(plan.advance(&mut ready));
        let (first, second) = (plan.take(), plan.take());
        plan.done(&first, 8, &mut ready);
        plan.abandon();
        plan.done(&second, 8, &mut ready);
        let ranges: Vec<_> = ready.iter().map(|ready| (ready.piece, ready.range.clone())).collect();
        assert_eq!(ranges, [(0, 0..8), (1, 0..0)]);
        ready.clear();
        plan.was_copied(2);
        assert!(!plan.advance(&mut ready) && ready.iter().all(|ready| ready.range.is_empty()));
        assert_eq!(ready.len(), 2);
    }
}
