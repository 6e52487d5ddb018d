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
/// Most parts of a piece, which several threads read at once; they are no smaller than a fourth of a Block.
const PARTS: usize = 4;

/// How many Blocks of `block` bytes a read of `most` bytes would have as a ring, which so many threads read into; 0 where it
/// is not filled ahead.
pub(super) fn ring_blocks(most: usize, block: usize, threads: usize) -> usize {
    if most / block < LEAST_BLOCKS { 0 } else { (most / 2).min(threads * RING) / block }
}

/// A read cut into pieces, one for each copy of the stream, and these into parts, one for each turn of a thread. All are
/// on a grid in the file; of the first and the last piece something may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Pieces that are in memory at once.
    pub(super) slots: usize,
    /// Bytes from one slot to the next: whole Blocks, or half of one.
    pub(super) step: usize,
    /// Bytes of a part, a multiple of the file's alignment.
    part: usize,
    /// Parts of a piece.
    parts: usize,
    /// Copies that are queued.
    pub(super) pieces: usize,
}

/// The memory that pieces are to lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Adjacent Blocks.
    pub(super) ring: usize,
    /// Bytes of a Block, and of half of one.
    pub(super) block: usize,
    pub(super) half: usize,
}

impl Cut {
    /// A read of at most `most` bytes that begins up to `lead` bytes after a multiple of `align`, for so many threads. `None`
    /// where the alignment is too coarse.
    pub(super) fn new(most: usize, lead: usize, align: usize, room: Room, threads: usize) -> Option<Cut> {
        let Room { ring, block, half } = room;
        let (step, slots) = if ring < LEAST_BLOCKS {
            (half, 2 * ring)
        } else {
            let blocks = (most / PIECES / block).max(1).next_power_of_two().min(ring / 4);
            (blocks * block, ring / blocks)
        };
        // Two for each thread, so that there is always one to read.
        let parts = (2 * threads / slots).min(step / (block / 4).max(1)).clamp(1, PARTS);
        let part = step / parts;
        let part = part - part % align;
        if part == 0 {
            return None;
        }
        let pieces = (lead + most).div_ceil(part * parts);
        Some(Cut { slots: slots.min(pieces), step, part, parts, pieces })
    }

    pub(super) fn piece(&self) -> usize {
        self.part * self.parts
    }

    /// How often a slot is used.
    pub(super) fn uses(&self, slot: usize) -> usize {
        (self.pieces - slot).div_ceil(self.slots)
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

    /// Nothing more is to be read, nor copied but what is ready; and no more than so many copies were queued.
    pub(super) fn abandon(&mut self, queued: usize) {
        (self.end, self.cut.pieces) = (0, self.cut.pieces.min(queued));
    }

    /// Whether there are pieces that wait for the stream to have copied earlier ones.
    pub(super) fn is_waiting(&self) -> bool {
        self.next / self.cut.parts < self.cut.pieces
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

    /// Pieces that the stream is known to have copied.
    pub(super) fn copied(&self) -> usize {
        self.copied
    }

    /// The stream has copied so many pieces.
    pub(super) fn was_copied(&mut self, pieces: usize) {
        self.copied = self.copied.max(pieces.min(self.cut.pieces));
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
        let cut = |most, ring| {
            let room = Room { ring, block: MIB, half: MIB / 2 };
            let cut = Cut::new(most, 4095, 4096, room, 8)?;
            Some((cut.slots, 2 * cut.step / MIB, cut.parts, cut.pieces))
        };
        assert_eq!([4 * MIB - 1, 4 * MIB, 1 << 30].map(|most| ring_blocks(most, MIB, 8)), [0, 2, 32]);
        // Its own Block, a small ring, a large one.
        assert_eq!(cut(4 * MIB, 1), Some((2, 1, 2, 9)));
        assert_eq!(cut(64 * MIB, 1), Some((2, 1, 2, 129)));
        assert_eq!(cut(4 * MIB, 2), Some((4, 1, 2, 9)));
        assert_eq!(cut(16 * MIB, 8), Some((8, 2, 2, 17)));
        assert_eq!(cut(128 * MIB, 8), Some((4, 4, 4, 65)));
        assert_eq!(cut(1024 * MIB, 16), Some((4, 8, 4, 257)));
        assert_eq!(cut(1024 * MIB, 32), Some((4, 16, 4, 129)));
        assert_eq!(cut(0x7fff_f000, 32), Some((4, 16, 4, 256)));
        let coarse = Room { ring: 1, block: MIB, half: MIB / 2 };
        assert_eq!(Cut::new(64 * MIB, 0, MIB, coarse, 8), None, "coarser than a part");
    }

    #[test]
    fn each_slot_is_used_for_its_share_of_the_pieces() {
        for (slots, pieces) in [(2, 2), (2, 9), (3, 10), (4, 129), (8, 33), (8, 8), (5, 6)] {
            let cut = Cut { slots, step: 4096, part: 4096, parts: 1, pieces };
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
            // The last copy made has told of those before it when it began, and somebody sees that sooner or later.
            if random(2) > 0 {
                plan.was_copied(here.saturating_sub(1));
            }
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
            run(seed, Cut { slots: slots.min(pieces), step: 24, part, parts, pieces }, lead, len);
        }
    }

    #[test]
    fn what_is_abandoned_copies_nothing_more() {
        let mut plan = Plan::new(Cut { slots: 2, step: 8, part: 8, parts: 1, pieces: 5 });
        plan.bind(0, 40);
        let mut ready = Vec::new();
        assert!(plan.advance(&mut ready));
        let (first, second) = (plan.take(), plan.take());
        plan.done(&first, 8, &mut ready);
        plan.abandon(4);
        plan.done(&second, 8, &mut ready);
        let ranges: Vec<_> = ready.iter().map(|ready| (ready.piece, ready.range.clone())).collect();
        assert_eq!(ranges, [(0, 0..8), (1, 0..0)]);
        ready.clear();
        assert!(plan.is_waiting());
        plan.was_copied(1);
        assert!(!plan.advance(&mut ready) && plan.is_waiting());
        plan.was_copied(2);
        assert!(!plan.advance(&mut ready) && ready.iter().all(|ready| ready.range.is_empty()));
        assert_eq!(ready.len(), 2, "the fifth was not queued");
        assert!(!plan.is_waiting());
    }
}
