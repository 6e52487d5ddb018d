//! A device's memory: addresses the CPU cannot touch, and the memory behind them. Which of it is allocated is known here;
//! what an allocation is, in `ranges.rs`.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::lock::lock;
use crate::sys::{self, HUGE, PAGE};

/// What fresh memory holds at its ends, so that nobody relies on zeros that a real GPU does not promise.
pub(crate) const FRESH_BYTE: u8 = 0xCB;
/// How far from either end of an allocation [`FRESH_BYTE`] is written; smaller allocations are filled whole.
const FRESH_REACH: usize = 64 << 10;

/// From this size on, freed memory goes back to the kernel. Smaller blocks keep their pages for the next allocation there.
const RETURN_FROM: usize = 64 << 20;

/// One device's memory.
#[derive(Debug)]
pub(crate) struct Arena {
    /// First device address. Nothing is mapped readable there, but on an integrated device.
    base: usize,
    /// Where the bytes are: `backing + (address - base)`.
    backing: usize,
    /// Bytes of address space: more than `capacity`, since allocations leave gaps.
    len: usize,
    /// Bytes that may be allocated.
    capacity: usize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Offset of each allocation, and its length rounded up to pages.
    blocks: BTreeMap<usize, usize>,
    bytes: usize,
}

impl Arena {
    /// Address space that an arena of this capacity takes, a multiple of the huge page.
    pub(crate) fn span(capacity: usize) -> usize {
        (capacity + capacity / 8 + (64 << 20)).next_multiple_of(HUGE)
    }

    /// An arena whose device addresses start at `base`, a multiple of the huge page with [`Arena::span`] unreachable
    /// bytes behind it. None when the kernel gives no address space.
    ///
    /// Of an `integrated` device the CPU reaches them all.
    pub(crate) fn new(base: usize, capacity: usize, integrated: bool) -> Option<Arena> {
        let len = Self::span(capacity);
        let backing = match integrated {
            true => sys::open_up(base, len).then_some(base)?,
            false => sys::map(len, HUGE, libc::PROT_READ | libc::PROT_WRITE)?,
        };
        sys::advise(backing, len, libc::MADV_HUGEPAGE);
        // A child has no use for the GPU of its parent, and a core file none for gigabytes of it.
        sys::advise(backing, len, libc::MADV_DONTFORK);
        sys::advise(backing, len, libc::MADV_DONTDUMP);
        Some(Arena { base, backing, len, capacity, used: Mutex::default() })
    }

    /// Where the CPU finds the byte at a device address of this arena.
    pub(crate) fn reach(&self, address: usize) -> usize {
        debug_assert!(address >= self.base && address <= self.base + self.len);
        self.backing + (address - self.base)
    }

    /// Takes `size` bytes, at the lowest address where they fit with a page of gap on both sides. The address is a
    /// multiple of the page, for large sizes of the huge page.
    pub(crate) fn allocate(&self, size: usize) -> Option<usize> {
        let rounded = size.checked_next_multiple_of(PAGE)?;
        let align = if size >= HUGE { HUGE } else { PAGE };
        let offset = {
            let mut used = lock(&self.used);
            if rounded > self.capacity - used.bytes {
                return None;
            }
            let mut at = align.max(PAGE);
            for (&start, &len) in &used.blocks {
                if at + rounded + PAGE <= start {
                    break;
                }
                at = (start + len + PAGE).next_multiple_of(align);
            }
            if at + rounded + PAGE > self.len {
                return None;
            }
            used.blocks.insert(at, rounded);
            used.bytes += rounded;
            at
        };
        if size >= HUGE {
            sys::populate(self.backing + offset, rounded);
        }
        self.freshen(self.backing + offset, rounded);
        Some(self.base + offset)
    }

    /// Gives back what [`Arena::allocate`] gave.
    pub(crate) fn free(&self, address: usize) {
        let offset = address - self.base;
        let mut used = lock(&self.used);
        let Some(len) = used.blocks.remove(&offset) else { return };
        used.bytes -= len;
        if len < RETURN_FROM {
            return;
        }
        // Whole huge pages, while the lock still keeps others from taking the range.
        let (start, end) = (offset.next_multiple_of(HUGE), (offset + len) / HUGE * HUGE);
        if end > start {
            sys::advise(self.backing + start, end - start, libc::MADV_DONTNEED);
        }
    }

    /// Bytes free and bytes in all.
    pub(crate) fn room(&self) -> (usize, usize) {
        let used = lock(&self.used);
        (self.capacity - used.bytes, self.capacity)
    }

    fn freshen(&self, at: usize, len: usize) {
        let reach = len.min(FRESH_REACH);
        let tail = at + len - reach;
        // SAFETY: `at..at + len` was just allocated, so it lies in the backing and nobody else may use it yet.
        unsafe { core::ptr::write_bytes(at as *mut u8, FRESH_BYTE, reach) };
        // SAFETY: as above; `tail` is `reach` bytes before the end.
        unsafe { core::ptr::write_bytes(tail as *mut u8, FRESH_BYTE, reach) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(capacity: usize) -> Arena {
        let base = sys::map(Arena::span(capacity), HUGE, libc::PROT_NONE).unwrap();
        Arena::new(base, capacity, false).unwrap()
    }

    #[test]
    fn the_lowest_fitting_address_is_taken_again() {
        let arena = arena(64 << 20);
        let a = arena.allocate(5000).unwrap();
        let b = arena.allocate(100).unwrap();
        assert!(a.is_multiple_of(PAGE) && b >= a + 2 * PAGE + PAGE, "{a:x} {b:x}");
        arena.free(a);
        assert_eq!(arena.allocate(8192), Some(a));
        arena.free(a);
        let c = arena.allocate(3 * PAGE).unwrap();
        assert!(c > b, "does not fit with its gap below b");
        assert_eq!(arena.allocate(1), Some(a));
    }

    #[test]
    fn large_blocks_are_aligned_and_capacity_holds() {
        let arena = arena(64 << 20);
        let small = arena.allocate(1).unwrap();
        let large = arena.allocate(3 << 20).unwrap();
        assert!(large.is_multiple_of(HUGE) && large > small);
        assert_eq!(arena.room(), ((64 << 20) - (3 << 20) - PAGE, 64 << 20));
        assert_eq!(arena.allocate(62 << 20), None);
        assert_eq!(arena.allocate(usize::MAX), None);
        arena.free(large);
        arena.free(small);
        assert!(arena.allocate(64 << 20).is_some(), "all of it is there again");
    }

    #[test]
    fn fresh_memory_is_not_zero() {
        let arena = arena(16 << 20);
        let at = arena.allocate(10_000).unwrap();
        // SAFETY: the allocation is 10,000 bytes long and this test's own.
        let bytes = unsafe { core::slice::from_raw_parts(arena.reach(at) as *const u8, 10_000) };
        assert!(bytes.iter().all(|byte| *byte == FRESH_BYTE));
    }
}
