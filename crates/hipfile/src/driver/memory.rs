//! The driver's memory: what registers, which registration serves a range, and what stands in for one. It moves no byte,
//! and asks the GPU runtime for nothing while it holds a lock.

use std::sync::Arc;

use super::{Driver, Inner};
use crate::buffer::{BufferRecord, DevPtr, Place};
use crate::device::{Device, MemoryKind};
use crate::error::{Error, ErrorKind, Result};
use crate::log;
use crate::op::Op;
use crate::rangemap::{Ranged, Removal, View};
use crate::stats::Event;
use crate::transfer;
use crate::usage::Hold;

/// Whose memory an address is, and how far it reaches from there.
struct Located {
    place: Place,
    /// Where it ends; `None` for host memory, whose end nobody could tell.
    end: Option<usize>,
    /// Addresses before the end where one mapped piece follows another.
    borders: Vec<usize>,
}

impl Located {
    fn host() -> Located {
        Located { place: Place::Host, end: None, borders: Vec::new() }
    }
}

impl Driver {
    /// Registers `len` bytes of GPU memory. Of the `flags`, 2 lets RDMA devices write in relaxed order; others are kept without
    /// effect.
    ///
    /// The range may lie anywhere inside an allocation, and may overlap other registrations. It may span several pieces
    /// of one GPU's memory that the virtual-memory API mapped next to each other. A registration costs no GPU resource:
    /// nothing is pinned or mapped. Should its allocation be freed and its address be given out anew, transfers notice and
    /// follow the rules for memory that is not registered.
    ///
    /// # Errors
    /// In this order: `MemoryAlreadyRegistered` (exactly this address), `InvalidValue` (null or unknown to the
    /// runtime), `PlatformNotSupported` or `HipDriverError` without a usable runtime, `HipMemoryTypeInvalid`,
    /// `HipPointerRangeError` when the range leaves its allocation.
    ///
    /// # Safety
    /// The memory must stay valid until it is deregistered, and must not be accessed in a conflicting way during a
    /// transfer.
    pub unsafe fn register_buffer(&self, ptr: DevPtr, len: usize, flags: i32) -> Result<()> {
        let result = self.begin_buffer(ptr, len, flags);
        self.counted(&result, Event::BufferOk, Event::BufferErr);
        result
    }

    /// As [`Driver::register_buffer`] demands it, whose only part this is.
    fn begin_buffer(&self, ptr: DevPtr, len: usize, flags: i32) -> Result<()> {
        const OP: &str = "register buffer";
        self.check_process(OP, ErrorKind::DriverClosing)?;
        let taken = || Error::message(ErrorKind::MemoryAlreadyRegistered, OP, format!("{:#x}", ptr.0));
        if self.inner.buffers.view().exact(ptr.0).is_some() {
            return Err(taken());
        }
        let end = ptr.0.checked_add(len);
        let located = self.inner.locate(ptr, end.unwrap_or(ptr.0), OP)?;
        if end.is_none_or(|end| located.end.is_some_and(|bound| end > bound)) {
            let why = format!("{len} bytes at {:#x} leave their allocation", ptr.0);
            return Err(Error::message(ErrorKind::HipPointerRangeError, OP, why));
        }
        self.inner.blocks.warm(located.place.node());
        // A record for one call need not know: only a registration can outlive its allocation.
        let allocation = match &located.place {
            Place::Device { device, .. } => device.allocation_id(ptr),
            Place::Host => None,
        };
        // SAFETY: the caller promises that the memory stays valid; its place was just asked for.
        let record = unsafe { BufferRecord::new(ptr.0, len, located.place) };
        let record = Arc::new(record.made_of(allocation, located.borders).registered(flags));
        let gpu = record.place().gpu();
        self.inner.buffers.insert(Arc::clone(&record)).map_err(|_| taken())?;
        log::buffer_registered(&record);
        self.inner.count_memory(gpu, true, len);
        Ok(())
    }

    /// Ends the registration of exactly this address.
    ///
    /// # Errors
    /// `MemoryNotRegistered`, or `InternalError` while a transfer uses the memory (nothing changes then).
    pub fn deregister_buffer(&self, ptr: DevPtr) -> Result<()> {
        let result = self.end_buffer(ptr);
        self.counted(&result, Event::BufferEndOk, Event::BufferEndErr);
        result
    }

    fn end_buffer(&self, ptr: DevPtr) -> Result<()> {
        const OP: &str = "deregister buffer";
        self.check_process(OP, ErrorKind::DriverClosing)?;
        match self.inner.buffers.remove(ptr.0, |record| record.usage.retire()) {
            Removal::Done(record) => {
                record.let_go();
                self.inner.count_memory(record.place().gpu(), false, record.len());
                Ok(())
            }
            Removal::Refused => {
                Err(Error::message(ErrorKind::InternalError, OP, "a transfer is using the memory"))
            }
            Removal::Unknown => {
                Err(Error::message(ErrorKind::MemoryNotRegistered, OP, format!("{:#x}", ptr.0)))
            }
        }
    }
}

/// Whether the allocation that was registered is still the one at its address.
pub(crate) fn is_current(record: &BufferRecord) -> bool {
    match (record.place(), record.allocation()) {
        (Place::Device { device, .. }, Some(known)) => {
            device.allocation_id(DevPtr(record.base())) == Some(known)
        }
        _ => true,
    }
}

impl Inner {
    /// The memory for a request, held for queued work: a registration, or else a record made for requests at this
    /// address. `last` keeps such a record for the next request.
    pub(crate) fn hold_buffer(
        &self,
        ptr: DevPtr,
        len: usize,
        buffer_offset: i64,
        op: Op,
        last: &mut Option<Arc<BufferRecord>>,
    ) -> Result<Hold<BufferRecord>> {
        let view = self.buffers.view();
        let registered = self.registered(&view, ptr, len, buffer_offset).map(Arc::clone).and_then(Hold::new);
        if let Some(hold) = registered {
            return Ok(hold);
        }
        let record = match last.take().filter(|record| serves(record, ptr, len, buffer_offset)) {
            Some(record) => record,
            None => Arc::new(self.unregistered(ptr, len, buffer_offset, op)?),
        };
        *last = Some(Arc::clone(&record));
        Hold::new(record).ok_or_else(|| Error::new(ErrorKind::InternalError, op.name()))
    }

    /// The place of a registration of exactly this address.
    pub(crate) fn place_of(&self, ptr: DevPtr) -> Option<Place> {
        self.buffers.view().exact(ptr.0).map(|record| record.place().clone())
    }

    /// The registration that a transfer may use: it serves the range, and is still of the memory that is there.
    pub(super) fn registered<'v>(
        &self,
        view: &'v View<BufferRecord>,
        ptr: DevPtr,
        len: usize,
        buffer_offset: i64,
    ) -> Option<&'v Arc<BufferRecord>> {
        self.serving(view, ptr, len, buffer_offset).filter(|record| is_current(record))
    }

    /// The registration that serves a range: that of exactly this address, else one that holds it wholly.
    fn serving<'v>(
        &self,
        view: &'v View<BufferRecord>,
        ptr: DevPtr,
        len: usize,
        buffer_offset: i64,
    ) -> Option<&'v Arc<BufferRecord>> {
        if let Some(exact) = view.exact(ptr.0) {
            return Some(exact);
        }
        let start = ptr.0.checked_add(usize::try_from(buffer_offset).ok()?)?;
        let record = view.holding(start, len.min(transfer::MAX_TRANSFER))?;
        // The address itself must lie inside as well, or offsets would be counted from outside the memory.
        (record.base() <= ptr.0 && ptr.0 < record.end()).then_some(record)
    }

    /// A record for one call, with the bounds of the allocation around the address.
    pub(super) fn unregistered(
        &self,
        ptr: DevPtr,
        len: usize,
        buffer_offset: i64,
        op: Op,
    ) -> Result<BufferRecord> {
        let located = self.locate(ptr, end_of(ptr, len, buffer_offset), op.name())?;
        // Plain host memory has no bound we could know: the kernel answers EFAULT where there is none.
        let len = located.end.unwrap_or(usize::MAX) - ptr.0;
        // SAFETY: the caller of the transfer promises that the memory is valid during the call.
        let record = unsafe { BufferRecord::new(ptr.0, len, located.place) };
        Ok(record.made_of(None, located.borders))
    }

    /// Whose memory an address is, and where it ends; asked about up to `wanted`, if several pieces lie one after the other.
    fn locate(&self, ptr: DevPtr, wanted: usize, op: &'static str) -> Result<Located> {
        if ptr.0 == 0 {
            return Err(Error::message(ErrorKind::InvalidValue, op, "the address is null"));
        }
        let host_allowed = self.config.allow_system_memory;
        let devices = self.devices();
        if devices.serving().is_empty() && host_allowed {
            return Ok(Located::host());
        }
        let wrong = |what: &str| {
            let why = format!("{:#x} is {what}, not device memory", ptr.0);
            Error::message(ErrorKind::HipMemoryTypeInvalid, op, why)
        };
        match devices.locate(ptr)? {
            Some((device, region)) => match region.kind {
                MemoryKind::Device => {
                    let (base, len) = device.allocation(ptr)?;
                    let end = base.saturating_add(len);
                    if ptr.0 < base || ptr.0 >= end.max(base + 1) {
                        let why = format!("{:#x} lies outside its allocation", ptr.0);
                        return Err(Error::message(ErrorKind::HipPointerRangeError, op, why));
                    }
                    let (end, borders) = extend(device, region.ordinal, ptr, end, wanted);
                    let place = Place::of(device, region.ordinal);
                    let place = if borders.is_empty() { place.at(ptr) } else { place };
                    Ok(Located { place, end: Some(end), borders })
                }
                MemoryKind::Host | MemoryKind::Managed if host_allowed => Ok(Located::host()),
                MemoryKind::Host => Err(wrong("pinned host memory")),
                MemoryKind::Managed => Err(wrong("managed memory")),
                MemoryKind::Other => Err(wrong("memory without a plain address")),
            },
            None if host_allowed => Ok(Located::host()),
            None => Err(wrong("unknown to the GPU runtime (host memory, or freed)")),
        }
    }
}

/// Where a request would end; an empty one must name a byte all the same.
fn end_of(ptr: DevPtr, len: usize, buffer_offset: i64) -> usize {
    let offset = usize::try_from(buffer_offset).unwrap_or(0);
    ptr.0.saturating_add(offset).saturating_add(len.clamp(1, transfer::MAX_TRANSFER))
}

/// Whether a record that was found for this address is what would be found for that range of it.
pub(crate) fn serves(record: &BufferRecord, ptr: DevPtr, len: usize, buffer_offset: i64) -> bool {
    record.base() == ptr.0 && end_of(ptr, len, buffer_offset) <= record.end()
}

/// How far memory goes on behind the piece at `ptr` that ends at `end`, up to `wanted`, and where pieces meet. Only what the
/// virtual-memory API has mapped goes on: allocations that merely lie next to each other are not one.
fn extend(
    device: &Arc<dyn Device>,
    ordinal: u32,
    ptr: DevPtr,
    mut end: usize,
    wanted: usize,
) -> (usize, Vec<usize>) {
    let mut borders = Vec::new();
    if end >= wanted || !device.is_mapping(ptr) {
        return (end, borders);
    }
    while end < wanted {
        let next = DevPtr(end);
        let same =
            |found: crate::device::Region| found.kind == MemoryKind::Device && found.ordinal == ordinal;
        if !device.locate(next).is_ok_and(|found| found.is_some_and(same)) || !device.is_mapping(next) {
            break;
        }
        match device.allocation(next) {
            Ok((base, len)) if base == end && len > 0 => {
                borders.push(end);
                end = end.saturating_add(len);
            }
            _ => break,
        }
    }
    (end, borders)
}
