//! The pinned memory that streams share, and the words that go with each Block of it. It knows no stream.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::{CELLS, Seat, Told, Words, lock};
use crate::device::{Device, Pinned, Streams};
use crate::error::{Error, ErrorKind, Result};
use crate::sys;

/// Bytes of a seat beside its Block: lines of 64, one for each of its cells' words, one to tell at, and one for a mark.
const CONTROL: usize = (CELLS + 2) * LINE;
const LINE: usize = 64;
/// Where in a cell's line the word is that parked functions look at, behind those of the copy.
const PARK: usize = 48;
/// `hipErrorOutOfMemory`, what a caller is told when the reserve is used up. The same number in CUDA.
const OUT_OF_MEMORY: u32 = 2;

/// All seats of a runtime, and what else must not be made while a stream is held.
#[derive(Debug)]
pub(super) struct Reserve {
    runtime: &'static str,
    emulated: bool,
    block_len: usize,
    parks: bool,
    /// By their place in memory, in which their Blocks are adjacent.
    blocks: Vec<Pinned>,
    /// Of each seat.
    words: Vec<[Words; CELLS]>,
    told: Vec<Told>,
    /// Lines of marks that no stream has.
    marks: Mutex<Vec<Pinned>>,
    free: Mutex<Free>,
    /// The copy kernel of each GPU.
    kernels: Mutex<HashMap<u32, usize>>,
    forks: u32,
}

#[derive(Debug)]
struct Free {
    /// Whether each seat is taken.
    taken: Vec<bool>,
    /// How many are taken as parts of rings.
    in_rings: usize,
}

impl Free {
    fn new(count: usize) -> Free {
        Free { taken: vec![false; count], in_rings: 0 }
    }

    /// Whether half of them are free.
    fn is_roomy(&self) -> bool {
        2 * self.taken.iter().filter(|taken| **taken).count() <= self.taken.len()
    }

    fn take(&mut self) -> Option<usize> {
        let index = self.taken.iter().position(|taken| !taken)?;
        self.taken[index] = true;
        Some(index)
    }

    /// At least two adjacent seats and at most `most`, from the far end. Rings never have more than half of all, so that
    /// streams find a seat; and each no more than half of what is left of that, so that who comes later finds some too.
    fn take_ring(&mut self, most: usize) -> Option<Range<usize>> {
        let left = (self.taken.len() / 2).saturating_sub(self.in_rings);
        let most = most.min((left / 2).max(2)).min(left);
        let mut best = 0..0;
        let mut end = self.taken.len();
        while end > best.len() && best.len() < most {
            let run = self.taken[..end].iter().rev().take_while(|taken| !**taken).take(most).count();
            if run > best.len() {
                best = end - run..end;
            }
            end -= run.max(1);
        }
        if best.len() < 2 {
            return None;
        }
        self.taken[best.clone()].fill(true);
        self.in_rings += best.len();
        Some(best)
    }

    fn leave_ring(&mut self, ring: Range<usize>) {
        self.in_rings -= ring.len();
        self.taken[ring].fill(false);
    }
}

/// All that were made. Pinned memory cannot be given back where a driver ends, with a stream in its last copy perhaps, so the
/// next driver takes it, also while operations of the one before are under way.
static MADE: Mutex<Vec<Arc<Reserve>>> = Mutex::new(Vec::new());

impl Reserve {
    pub(super) fn make(
        device: &dyn Device,
        streams: &dyn Streams,
        gpu: u32,
        block_len: usize,
        count: usize,
    ) -> Result<Arc<Reserve>> {
        let parks = !streams.can_wait(gpu);
        let fits = |made: &&Arc<Reserve>| {
            (made.runtime, made.emulated, made.block_len, made.blocks.len(), made.parks, made.forks)
                == (device.name(), device.is_emulated(), block_len, count, parks, sys::forks())
                // Seats of streams that never come to their end are taken for good.
                && lock(&made.free).is_roomy()
        };
        // In a child of a fork the lock may never be free.
        if let Some(made) = MADE.try_lock().ok().and_then(|made| made.iter().find(fits).cloned()) {
            return Ok(made);
        }
        let memory = streams.alloc_pinned(gpu, count * (block_len + CONTROL) + LINE)?;
        let at = |offset, len| Pinned { host: memory.host + offset, device: memory.device + offset, len };
        // The lines behind the Blocks.
        let line = |index: usize, of: usize| {
            at((count * block_len).next_multiple_of(LINE) + index * CONTROL + of * LINE, LINE)
        };
        let mut words = Vec::with_capacity(count);
        for index in 0..count {
            let mut cells = [Words::default(); CELLS];
            for (cell, words) in cells.iter_mut().enumerate() {
                let Pinned { host, device, .. } = line(index, cell);
                let word = if parks { host + PARK } else { streams.alloc_word(gpu)? };
                *words = Words { late_host: host, late_device: device, word };
            }
            words.push(cells);
        }
        let reserve = Arc::new(Reserve {
            runtime: device.name(),
            emulated: device.is_emulated(),
            block_len,
            parks,
            free: Mutex::new(Free::new(count)),
            blocks: (0..count).map(|index| at(index * block_len, block_len)).collect(),
            told: (0..count).map(|index| Told::new(line(index, CELLS))).collect(),
            marks: Mutex::new((0..count).map(|index| line(index, CELLS + 1)).collect()),
            words,
            kernels: Mutex::default(),
            forks: sys::forks(),
        });
        if let Ok(mut made) = MADE.try_lock() {
            made.push(Arc::clone(&reserve));
        }
        Ok(reserve)
    }

    pub(super) fn kernel(&self, streams: &dyn Streams, gpu: u32) -> Result<usize> {
        if let Some(kernel) = lock(&self.kernels).get(&gpu) {
            return Ok(*kernel);
        }
        // Outside the lock: loading may wait for the GPU. Loaded twice does no harm.
        let kernel = streams.load_copy(gpu)?;
        lock(&self.kernels).insert(gpu, kernel);
        Ok(kernel)
    }

    /// Whether streams are held by functions that do not return.
    pub(super) fn parks(&self) -> bool {
        self.parks
    }

    pub(super) fn block_len(&self) -> usize {
        self.block_len
    }

    pub(super) fn seat(&self, index: usize) -> Seat {
        self.place(index, 0, 0, self.block_len)
    }

    /// So much memory from a place in a seat's Block on, which may go on in the Blocks behind it, with one of its cells.
    pub(super) fn place(&self, index: usize, cell: usize, from: usize, len: usize) -> Seat {
        let Pinned { host, device, .. } = self.blocks[index];
        Seat {
            block: Pinned { host: host + from, device: device + from, len },
            words: self.words[index][cell],
        }
    }

    pub(super) fn told(&self, index: usize) -> Told {
        self.told[index]
    }

    /// The line of a mark, if there is one left.
    pub(super) fn take_mark(&self) -> Option<Pinned> {
        lock(&self.marks).pop()
    }

    pub(super) fn leave_mark(&self, line: Pinned) {
        lock(&self.marks).push(line);
    }

    /// A seat, by its index.
    pub(super) fn take(&self) -> Result<usize> {
        lock(&self.free).take().ok_or_else(|| {
            let (kind, op) = (ErrorKind::HipDriverError, "take staging memory of streams");
            Error::device(
                kind,
                op,
                OUT_OF_MEMORY,
                "all of it (HIPFILE_STREAM_MEMORY) is in use by other streams",
            )
        })
    }

    pub(super) fn leave(&self, index: usize) {
        lock(&self.free).taken[index] = false;
    }

    /// At least two adjacent seats and at most `most`, if some can be spared.
    pub(super) fn take_ring(&self, most: usize) -> Option<Range<usize>> {
        lock(&self.free).take_ring(most)
    }

    pub(super) fn leave_ring(&self, ring: Range<usize>) {
        lock(&self.free).leave_ring(ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_adjacent_and_leave_half() {
        let mut free = Free::new(16);
        assert_eq!(free.take_ring(6), Some(12..16), "half of what is left");
        assert_eq!(free.take_ring(6), Some(10..12));
        assert_eq!(free.take_ring(6), Some(8..10), "half of all is the limit");
        assert_eq!(free.take_ring(2), None);
        let seats: Vec<_> = std::iter::from_fn(|| free.take()).collect();
        assert_eq!(seats, [0, 1, 2, 3, 4, 5, 6, 7]);
        free.leave_ring(12..16);
        free.leave_ring(10..12);
        assert_eq!(free.take_ring(1), None, "one seat is no ring");
        assert_eq!(std::iter::from_fn(|| free.take()).count(), 6);
        free.leave_ring(8..10);
        // What is free lies apart: the longest run, and no more than may be.
        for index in [3, 4, 6, 7, 9, 12] {
            free.taken[index] = false;
        }
        assert_eq!(free.take_ring(8), Some(6..10));
        assert_eq!(free.take_ring(8), Some(3..5));
        assert_eq!(free.take_ring(8), None);
        let mut free = Free::new(64);
        let lens = std::iter::from_fn(|| free.take_ring(32).map(|ring| ring.len()));
        assert_eq!(lens.collect::<Vec<_>>(), [16, 8, 4, 2, 2]);
    }

    #[test]
    fn a_reserve_is_roomy_while_half_of_it_is_free() {
        for (count, most) in [(1, 0), (2, 1), (4, 2), (5, 2)] {
            let mut free = Free::new(count);
            let roomy = std::iter::from_fn(|| free.is_roomy().then(|| free.take())?);
            assert_eq!(roomy.count(), most + 1, "of {count}");
        }
    }

    #[test]
    fn small_reserves_have_no_rings() {
        for count in 1..4 {
            assert_eq!(Free::new(count).take_ring(8), None);
        }
        assert_eq!(Free::new(4).take_ring(8), Some(2..4));
    }
}
