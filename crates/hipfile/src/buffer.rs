//! Registered memory and proven pieces of it. Only this module makes a [`Span`]; it copies nothing.

use std::any::Any;
use std::sync::Arc;

use crate::device::Device;
use crate::rangemap::Ranged;
use crate::sync::{Mutex, PoisonError};
use crate::sys;
use crate::usage::{Usage, Used};

/// An address as the caller gave it: of device memory, or of host memory. Never dereferenced by safe code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DevPtr(pub usize);

impl From<*const core::ffi::c_void> for DevPtr {
    fn from(ptr: *const core::ffi::c_void) -> DevPtr {
        DevPtr(ptr.addr())
    }
}

impl From<*mut core::ffi::c_void> for DevPtr {
    fn from(ptr: *mut core::ffi::c_void) -> DevPtr {
        DevPtr(ptr.addr())
    }
}

/// Whose memory a range is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Memory of a GPU, reached through its runtime only, unless it is shared: then the kernel reaches it too. With the
    /// memory node near it, where there are several.
    Device { device: Arc<dyn Device>, ordinal: u32, node: Option<u32>, shared: bool },
    /// Memory the kernel can read into and write from.
    Host,
}

impl Place {
    /// Memory of this GPU.
    pub(crate) fn of(device: &Arc<dyn Device>, ordinal: u32) -> Place {
        Place::Device { device: Arc::clone(device), ordinal, node: device.node(ordinal), shared: false }
    }

    /// The same for memory at this address, which may be shared with the processor.
    pub(crate) fn at(mut self, at: DevPtr) -> Place {
        if let Place::Device { device, ordinal, shared, .. } = &mut self {
            *shared = device.shares_memory(*ordinal) && sys::is_reached(at.0);
        }
        self
    }

    /// Whether the kernel reads into it and writes from it as it is.
    pub(crate) fn is_reached(&self) -> bool {
        matches!(self, Place::Host | Place::Device { shared: true, .. })
    }

    /// The GPU whose memory it is; `None` for host memory.
    pub(crate) fn gpu(&self) -> Option<u32> {
        match self {
            Place::Device { ordinal, .. } => Some(*ordinal),
            Place::Host => None,
        }
    }

    /// Its GPU; for host memory, which all of them reach, the first.
    pub(crate) fn gpu_or_first(&self) -> u32 {
        self.gpu().unwrap_or(0)
    }

    /// The memory node that staging memory for it should lie on, where there are several.
    pub(crate) fn node(&self) -> Option<u32> {
        match self {
            Place::Device { node, .. } => *node,
            Place::Host => None,
        }
    }
}

/// A range of memory with its place; a registration, or made for one call.
#[derive(Debug)]
pub(crate) struct BufferRecord {
    base: usize,
    len: usize,
    place: Place,
    /// What names the allocation at its first byte, where the runtime says.
    allocation: Option<u64>,
    /// Addresses inside where one mapped piece of memory follows another, in order.
    borders: Vec<usize>,
    /// Of a registration: what engines keep with it.
    kept: Option<Kept>,
    pub(crate) usage: Usage,
}

/// What engines keep with a registration until it ends, so that it is made once and not for each transfer. Each kind of thing
/// by a type and a number of its engine's own.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    things: Mutex<Vec<Thing>>,
    /// The flags that the caller gave.
    flags: i32,
}

#[derive(Clone, Debug)]
struct Thing {
    key: (usize, usize),
    value: Arc<dyn Any + Send + Sync>,
}

impl Kept {
    /// What was made for this key, or what `make` makes now. It is called with no lock held, so it may be called twice at the
    /// same time: then one of both is kept.
    pub(crate) fn get<T: Any + Send + Sync>(&self, key: (usize, usize), make: impl FnOnce() -> T) -> Arc<T> {
        let find = |things: &[Thing]| {
            let found = things.iter().filter(|thing| thing.key == key);
            found.map(|thing| Arc::clone(&thing.value).downcast::<T>()).find_map(std::result::Result::ok)
        };
        let lock = || self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let found = find(&lock());
        if let Some(found) = found {
            return found;
        }
        let made = Arc::new(make());
        let mut things = lock();
        if let Some(found) = find(&things) {
            drop(things);
            return found;
        }
        things.push(Thing { key, value: Arc::<T>::clone(&made) });
        made
    }

    /// The flags that the caller gave.
    pub(crate) fn flags(&self) -> i32 {
        self.flags
    }
}

impl BufferRecord {
    /// # Safety
    /// `base..base+len` must be memory of `place` that stays valid for as long as the record is used, and that
    /// nothing else accesses in a conflicting way during transfers.
    pub(crate) unsafe fn new(base: usize, len: usize, place: Place) -> BufferRecord {
        BufferRecord {
            base,
            len,
            place,
            allocation: None,
            borders: Vec::new(),
            kept: None,
            usage: Usage::default(),
        }
    }

    /// The same memory, and what it is made of: the allocation's name, and where pieces meet.
    pub(crate) fn made_of(self, allocation: Option<u64>, mut borders: Vec<usize>) -> BufferRecord {
        borders.retain(|border| self.base < *border && *border < self.base + self.len);
        BufferRecord { allocation, borders, ..self }
    }

    /// The same memory as a registration.
    pub(crate) fn registered(self, flags: i32) -> BufferRecord {
        BufferRecord { kept: Some(Kept { flags, ..Kept::default() }), ..self }
    }

    /// The registration has ended: what was kept with it goes, though somebody may still look at the record.
    pub(crate) fn let_go(&self) {
        let Some(kept) = &self.kept else { return };
        let things = std::mem::take(&mut *kept.things.lock().unwrap_or_else(PoisonError::into_inner));
        // With no lock held.
        drop(things);
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn allocation(&self) -> Option<u64> {
        self.allocation
    }

    /// Of how many pieces it is made.
    pub(crate) fn pieces(&self) -> usize {
        self.borders.len() + 1
    }

    /// The piece `offset..offset+len`, if it lies inside.
    pub(crate) fn span(&self, offset: usize, len: usize) -> Option<Span<'_>> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        Some(Span { buffer: self, start: self.base + offset, len })
    }
}

impl Used for BufferRecord {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

impl Ranged for BufferRecord {
    fn base(&self) -> usize {
        self.base
    }
    fn len(&self) -> usize {
        self.len
    }
}

/// A piece of a buffer, proven to lie inside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    buffer: &'a BufferRecord,
    start: usize,
    len: usize,
}

impl<'a> Span<'a> {
    /// Address of the first byte.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn place(&self) -> &'a Place {
        &self.buffer.place
    }

    /// What is kept with the registration it is a piece of, if it is one of any.
    pub(crate) fn kept(&self) -> Option<&'a Kept> {
        self.buffer.kept.as_ref()
    }

    /// All of the piece of memory that it begins in, as far as the buffer has it.
    pub(crate) fn whole_piece(&self) -> Span<'a> {
        let BufferRecord { base, len, borders, .. } = self.buffer;
        let next = borders.partition_point(|border| *border <= self.start);
        let start = if next == 0 { *base } else { borders[next - 1] };
        let end = borders.get(next).copied().unwrap_or(base + len);
        Span { buffer: self.buffer, start, len: end - start }
    }

    /// How many bytes from its start on lie in one piece of memory: what a single call of the runtime may cover.
    pub(crate) fn unbroken(&self) -> usize {
        let next = self.buffer.borders.partition_point(|border| *border <= self.start);
        self.buffer.borders.get(next).map_or(self.len, |border| self.len.min(border - self.start))
    }

    /// This piece and the next as one, if they touch.
    pub(crate) fn joined(&self, next: &Span<'_>) -> Option<Span<'a>> {
        let touch = std::ptr::eq(self.buffer, next.buffer) && self.start + self.len == next.start;
        touch.then(|| Span { len: self.len + next.len, ..*self })
    }

    /// A piece of this piece.
    ///
    /// # Panics
    /// When it does not lie inside, which is a defect of the caller.
    pub(crate) fn slice(&self, offset: usize, len: usize) -> Span<'a> {
        assert!(offset <= self.len && len <= self.len - offset, "a slice must lie inside its span");
        Span { buffer: self.buffer, start: self.start + offset, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_know_where_pieces_of_memory_meet() {
        // SAFETY: the range is never accessed.
        let buffer = unsafe { BufferRecord::new(1000, 100, Place::Host) };
        let buffer = buffer.made_of(Some(1), vec![1000, 1010, 1050, 1100]);
        assert_eq!(buffer.pieces(), 3, "the ends are no borders");
        let unbroken = |at, len| buffer.span(at, len).unwrap().unbroken();
        assert_eq!([unbroken(0, 100), unbroken(9, 91), unbroken(10, 90), unbroken(50, 50)], [10, 1, 40, 50]);
        assert_eq!([unbroken(0, 10), unbroken(0, 5), unbroken(20, 3), unbroken(100, 0)], [10, 5, 3, 0]);
        let piece = |at| {
            let piece = buffer.span(at, 1).unwrap().whole_piece();
            (piece.start(), piece.len())
        };
        assert_eq!(
            [piece(0), piece(9), piece(10), piece(49)],
            [(1000, 10), (1000, 10), (1010, 40), (1010, 40)]
        );
        assert_eq!([piece(50), piece(99)], [(1050, 50), (1050, 50)]);
    }

    #[test]
    fn what_is_kept_is_made_once_and_let_go() {
        // SAFETY: the range is never accessed.
        let buffer = unsafe { BufferRecord::new(1000, 100, Place::Host) };
        assert!(buffer.span(0, 1).unwrap().kept().is_none(), "no registration");
        let buffer = buffer.registered(2);
        let kept = buffer.span(0, 1).unwrap().kept().unwrap();
        assert_eq!(kept.flags(), 2);
        let first = kept.get((1, 1000), || 7_u8);
        assert_eq!(*kept.get((1, 1000), || -> u8 { unreachable!("it is there") }), 7);
        assert_eq!(*kept.get((2, 1000), || 8_u8), 8, "another key");
        assert_eq!(*kept.get((1, 1000), || "another kind"), "another kind");
        assert_eq!(Arc::strong_count(&first), 2);
        buffer.let_go();
        assert_eq!(Arc::strong_count(&first), 1);
        assert_eq!(*kept.get((1, 1000), || 9_u8), 9);
    }

    #[test]
    fn spans_never_leave_their_buffer() {
        // SAFETY: the range is never accessed.
        let buffer = unsafe { BufferRecord::new(0x1000, 100, Place::Host) };
        for (offset, len, inside) in [
            (0, 100, true),
            (100, 0, true),
            (99, 1, true),
            (99, 2, false),
            (101, 0, false),
            (1, usize::MAX, false),
        ] {
            assert_eq!(buffer.span(offset, len).is_some(), inside, "{offset}+{len}");
        }
        let span = buffer.span(10, 50).unwrap().slice(5, 45);
        assert_eq!((span.start(), span.len()), (0x100f, 45));
        let whole = buffer.span(0, 100).unwrap();
        let joined = whole.slice(10, 20).joined(&whole.slice(30, 5)).unwrap();
        assert_eq!((joined.start(), joined.len()), (0x100a, 25));
        assert!(whole.slice(10, 20).joined(&whole.slice(31, 5)).is_none());
        let outside = std::panic::AssertUnwindSafe(|| buffer.span(0, 10).unwrap().slice(5, 6).len());
        assert!(std::panic::catch_unwind(outside).is_err());
    }
}
