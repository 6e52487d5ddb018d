//! The map of all memory the runtime knows: device, pinned, managed. It answers what a pointer is and where its bytes are.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;

use gpu_sys::hip::{HipError, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, MEMORY_TYPE_MANAGED, MemoryType};

use crate::virtual_memory::Physical;

/// What an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Device memory: the CPU cannot reach it.
    Device,
    /// Pinned memory from the runtime; the mapping it lies in.
    Host { mapping: usize, mapping_len: usize },
    /// The caller's memory, pinned by registration.
    Registered,
    /// Managed memory: both sides reach it; the mapping it lies in.
    Managed { mapping: usize, mapping_len: usize },
}

/// One allocation or registration.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Unique during the life of the process.
    pub(crate) id: u32,
    pub(crate) kind: Kind,
    /// The device it belongs to, or that was current when it was pinned.
    pub(crate) device: usize,
    pub(crate) base: usize,
    pub(crate) len: usize,
    /// Where the CPU finds the first byte; the base itself unless it is device memory.
    pub(crate) reach: usize,
    /// The flags it was made with.
    pub(crate) flags: u32,
    /// From hipMallocAsync: freeing it does not wait.
    pub(crate) stream_ordered: bool,
    /// The memory that is mapped here, if it is a mapping.
    pub(crate) physical: Option<Arc<Physical>>,
    /// Whose memory it is, if it was imported from another allocation.
    pub(crate) imported: Option<Arc<Allocation>>,
    /// Whether it may be used: a mapping may not from the start.
    pub(crate) open: AtomicBool,
    /// Transfers at work in it right now without the map's lock.
    busy: AtomicUsize,
}

impl Allocation {
    pub(crate) fn new(
        id: u32,
        kind: Kind,
        device: usize,
        base: usize,
        len: usize,
        reach: usize,
    ) -> Allocation {
        Allocation {
            id,
            kind,
            device,
            base,
            len,
            reach,
            flags: 0,
            stream_ordered: false,
            physical: None,
            imported: None,
            open: AtomicBool::new(true),
            busy: AtomicUsize::new(0),
        }
    }

    /// The same, made with these flags, and whether in the order of a stream.
    pub(crate) fn made_with(mut self, flags: u32, stream_ordered: bool) -> Allocation {
        self.flags = flags;
        self.stream_ordered = stream_ordered;
        self
    }

    /// The same as a mapping of this memory, which nobody may use yet.
    pub(crate) fn mapping(mut self, physical: Arc<Physical>) -> Allocation {
        self.physical = Some(physical);
        self.open = AtomicBool::new(false);
        self
    }

    /// The same as another address of this allocation's memory.
    pub(crate) fn import_of(mut self, original: Arc<Allocation>) -> Allocation {
        self.imported = Some(original);
        self
    }

    /// `hipMemoryType`.
    pub(crate) fn memory_type(&self) -> MemoryType {
        match self.kind {
            Kind::Device => MEMORY_TYPE_DEVICE,
            Kind::Host { .. } | Kind::Registered => MEMORY_TYPE_HOST,
            Kind::Managed { .. } => MEMORY_TYPE_MANAGED,
        }
    }

    /// Waits until no transfer is at work in it. It must be out of the map already, so that none can begin.
    pub(crate) fn settle(&self) {
        while self.busy.load(Ordering::Acquire) != 0 {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// Keeps an allocation's memory in place while a transfer works in it.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Allocation>);

impl Busy {
    /// To be called under the map's lock.
    pub(crate) fn new(allocation: &Arc<Allocation>) -> Busy {
        allocation.busy.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(allocation))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Release);
    }
}

/// A proven piece of one allocation, or memory the runtime does not know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Where the CPU finds it.
    pub(crate) reach: usize,
    /// None: pageable memory of the process.
    pub(crate) allocation: Option<&'a Arc<Allocation>>,
}

impl Place<'_> {
    /// Device memory that the CPU cannot reach.
    pub(crate) fn is_device(&self) -> bool {
        self.allocation.is_some_and(|allocation| allocation.kind == Kind::Device)
    }

    /// Memory that a GPU reaches.
    pub(crate) fn is_visible(&self) -> bool {
        self.allocation.is_some()
    }
}

/// All allocations, sorted by address; none overlaps another.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    sorted: Vec<(usize, Arc<Allocation>)>,
}

impl Ranges {
    /// The allocation that holds this address.
    pub(crate) fn find(&self, address: usize) -> Option<&Arc<Allocation>> {
        let after = self.sorted.partition_point(|(base, _)| *base <= address);
        let (base, allocation) = self.sorted.get(after.checked_sub(1)?)?;
        (address - base < allocation.len).then_some(allocation)
    }

    /// The allocation that begins at this address.
    pub(crate) fn find_base(&self, address: usize) -> Option<&Arc<Allocation>> {
        let at = self.sorted.binary_search_by_key(&address, |(base, _)| *base).ok()?;
        self.sorted.get(at).map(|(_, allocation)| allocation)
    }

    /// Proves that `len` bytes from `address` may be copied: they lie within one allocation, or are memory that the
    /// runtime knows nothing of. `device_span` holds the addresses of all devices: what is not allocated there is
    /// nobody's.
    pub(crate) fn prove(
        &self,
        address: usize,
        len: usize,
        device_span: &core::ops::Range<usize>,
    ) -> Result<Place<'_>, HipError> {
        match self.find(address) {
            Some(allocation) => {
                let offset = address - allocation.base;
                if len > allocation.len - offset || !allocation.open.load(Ordering::Relaxed) {
                    return Err(HipError::INVALID_VALUE);
                }
                Ok(Place { reach: allocation.reach + offset, allocation: Some(allocation) })
            }
            None if device_span.contains(&address) => Err(HipError::INVALID_VALUE),
            None => Ok(Place { reach: address, allocation: None }),
        }
    }

    /// How many of `len` bytes from `address` a kernel reaches before the next mapping begins.
    pub(crate) fn unbroken(&self, address: usize, len: usize) -> usize {
        match self.find(address) {
            Some(found) if found.physical.is_some() => len.min(found.len - (address - found.base)),
            _ => len,
        }
    }

    /// Whether any allocation overlaps the range.
    pub(crate) fn overlaps(&self, base: usize, len: usize) -> bool {
        let before_end = self.sorted.partition_point(|(other, _)| *other < base + len);
        before_end
            .checked_sub(1)
            .and_then(|at| self.sorted.get(at))
            .is_some_and(|(other, allocation)| other + allocation.len > base)
    }

    /// Adds an allocation that overlaps none.
    pub(crate) fn insert(&mut self, allocation: Arc<Allocation>) {
        let at = self.sorted.partition_point(|(base, _)| *base < allocation.base);
        self.sorted.insert(at, (allocation.base, allocation));
    }

    /// Takes an allocation out, if it is still in.
    pub(crate) fn remove(&mut self, allocation: &Arc<Allocation>) -> bool {
        match self.sorted.binary_search_by_key(&allocation.base, |(base, _)| *base) {
            Ok(at) if self.sorted.get(at).is_some_and(|(_, found)| Arc::ptr_eq(found, allocation)) => {
                self.sorted.remove(at);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> (Ranges, Vec<Arc<Allocation>>) {
        let mut ranges = Ranges::default();
        let made: Vec<_> = [(5000, 10), (1000, 100), (3000, 50)]
            .into_iter()
            .map(|(base, len)| Arc::new(Allocation::new(1, Kind::Registered, 0, base, len, base)))
            .collect();
        for allocation in &made {
            ranges.insert(Arc::clone(allocation));
        }
        (ranges, made)
    }

    #[test]
    fn addresses_are_found_by_their_allocation() {
        let (ranges, _) = known();
        let base_of = |address| ranges.find(address).map(|allocation| allocation.base);
        assert_eq!(base_of(999), None);
        assert_eq!(base_of(1000), Some(1000));
        assert_eq!(base_of(1099), Some(1000));
        assert_eq!(base_of(1100), None);
        assert_eq!(base_of(5009), Some(5000));
        assert_eq!(base_of(usize::MAX), None);
        assert!(ranges.find_base(3000).is_some() && ranges.find_base(3001).is_none());
    }

    #[test]
    fn what_leaves_an_allocation_is_refused() {
        let (ranges, _) = known();
        let span = 4000..6000;
        assert!(ranges.prove(1000, 100, &span).unwrap().is_visible());
        assert_eq!(ranges.prove(1050, 51, &span).unwrap_err(), HipError::INVALID_VALUE);
        assert_eq!(ranges.prove(4500, 1, &span).unwrap_err(), HipError::INVALID_VALUE);
        assert!(!ranges.prove(100, usize::MAX, &span).unwrap().is_visible());
    }

    #[test]
    fn overlap_is_any_shared_byte() {
        let (ranges, _) = known();
        assert!(ranges.overlaps(900, 101) && ranges.overlaps(1099, 1) && ranges.overlaps(0, 9000));
        assert!(!ranges.overlaps(900, 100) && !ranges.overlaps(1100, 1900));
    }

    #[test]
    fn an_allocation_is_removed_once() {
        let (mut ranges, made) = known();
        assert!(ranges.remove(&made[1]) && !ranges.remove(&made[1]));
        assert!(ranges.find(1000).is_none() && ranges.find(3000).is_some());
    }
}
