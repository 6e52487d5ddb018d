//! Virtual memory: addresses reserved apart from the memory that is mapped there, piece by piece. Each mapping is an
//! allocation of its own to whoever asks what an address is, and no copy passes from one to the next; kernels do.

use core::ffi::{c_ulonglong, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use gpu_sys::hip::{AllocationPtr, HipError};

use crate::arena::Arena;
use crate::call::{call, put};
use crate::function::Function;
use crate::lock::lock;
use crate::ranges::{Allocation, Kind};
use crate::state::State;
use crate::sys::HUGE;
use crate::types::{
    MEM_ACCESS_NONE, MEM_ACCESS_READ, MEM_ACCESS_READ_WRITE, MEM_ALLOCATION_PINNED, MEM_GRANULARITY_MINIMUM,
    MEM_GRANULARITY_RECOMMENDED, MEM_HANDLE_NONE, MEM_HANDLE_POSIX_FD, MEM_LOCATION_DEVICE, MemAccessDesc,
    MemAllocationProp, MemGranularity, MemLocation,
};

/// Sizes and addresses are multiples of it, the smallest and the recommended alike.
pub const GRANULARITY: usize = HUGE;

/// Addresses that may be reserved at the same time, in bytes.
pub(crate) const ZONE: usize = 8 << 30;

/// Memory of a device that may be mapped; given back with its last handle and its last mapping.
#[derive(Debug)]
pub(crate) struct Physical {
    arena: &'static Arena,
    device: usize,
    at: usize,
    len: usize,
    /// How many times its handle must be released.
    references: AtomicUsize,
    handle: AtomicUsize,
}

impl Drop for Physical {
    fn drop(&mut self) {
        self.arena.free(self.at);
    }
}

/// Which addresses of the zone are reserved.
#[derive(Debug)]
pub(crate) struct Reserved {
    zone: Range<usize>,
    /// First address and length.
    ranges: Mutex<BTreeMap<usize, usize>>,
}

impl Reserved {
    /// A zone in which nothing is.
    pub(crate) fn new(zone: Range<usize>) -> Reserved {
        Reserved { zone, ranges: Mutex::default() }
    }

    /// Takes the lowest range that fits, with a gap behind it.
    pub(crate) fn take(&self, len: usize, align: usize) -> Option<usize> {
        let mut ranges = lock(&self.ranges);
        let mut at = self.zone.start.next_multiple_of(align);
        for (&start, &taken) in ranges.iter() {
            if at.checked_add(len)?.checked_add(GRANULARITY)? <= start {
                break;
            }
            at = (start + taken + GRANULARITY).next_multiple_of(align);
        }
        if at.checked_add(len)? > self.zone.end {
            return None;
        }
        ranges.insert(at, len);
        Some(at)
    }

    /// Whether one reservation holds the range.
    fn holds(&self, at: usize, len: usize) -> bool {
        let ranges = lock(&self.ranges);
        let before = ranges.range(..=at).next_back();
        before.is_some_and(|(&start, &taken)| at - start <= taken && len <= taken - (at - start))
    }

    pub(crate) fn give_back(&self, at: usize, len: usize) -> bool {
        let mut ranges = lock(&self.ranges);
        ranges.get(&at) == Some(&len) && ranges.remove(&at).is_some()
    }
}

/// How many addresses are reserved for so many bytes of memory.
pub(crate) fn reserved_for(len: usize) -> usize {
    len.next_multiple_of(GRANULARITY)
}

fn is_whole(size: usize) -> bool {
    size > 0 && size.is_multiple_of(GRANULARITY)
}

/// The device of a location that must be one.
fn device_of(state: &State, location: &MemLocation) -> Result<usize, HipError> {
    let device = usize::try_from(location.id).ok().filter(|device| *device < state.devices.len());
    device.filter(|_| location.kind == MEM_LOCATION_DEVICE).ok_or(HipError::INVALID_VALUE)
}

/// # Safety
/// `prop` is null or leads to properties.
unsafe fn properties(state: &State, prop: *const MemAllocationProp) -> Result<usize, HipError> {
    if prop.is_null() {
        return Err(HipError::INVALID_VALUE);
    }
    // SAFETY: not null, so it leads to properties.
    let prop = unsafe { prop.read() };
    if prop.kind != MEM_ALLOCATION_PINNED {
        return Err(HipError::INVALID_VALUE);
    }
    let device = device_of(state, &prop.location)?;
    if ![MEM_HANDLE_NONE, MEM_HANDLE_POSIX_FD].contains(&prop.handle_types) {
        return Err(HipError::NOT_SUPPORTED);
    }
    Ok(device)
}

/// The mappings that a range consists of, wholly and without gaps.
fn mappings(state: &State, at: usize, len: usize) -> Result<Vec<Arc<Allocation>>, HipError> {
    let end = at.checked_add(len).filter(|_| len > 0).ok_or(HipError::INVALID_VALUE)?;
    let ranges = state.ranges.read();
    let mut found = Vec::new();
    let mut next = at;
    while next < end {
        let mapping = ranges.find_base(next).filter(|mapping| mapping.physical.is_some());
        let mapping = mapping.ok_or(HipError::INVALID_VALUE)?;
        next += mapping.len;
        found.push(Arc::clone(mapping));
    }
    if next == end { Ok(found) } else { Err(HipError::INVALID_VALUE) }
}

/// The unit of sizes and addresses: 2 MiB, whichever is asked for.
///
/// # Errors
/// hipErrorInvalidValue for null, for properties that no memory here has, and for an unknown option.
///
/// # Safety
/// `granularity` is null or may be written to; `prop` is null or leads to properties.
pub unsafe extern "C" fn hipMemGetAllocationGranularity(
    granularity: *mut usize,
    prop: *const MemAllocationProp,
    option: MemGranularity,
) -> HipError {
    call(Function::hipMemGetAllocationGranularity, |state| {
        // SAFETY: as this function demands.
        unsafe { properties(state, prop) }?;
        if ![MEM_GRANULARITY_MINIMUM, MEM_GRANULARITY_RECOMMENDED].contains(&option) {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: as this function demands.
        unsafe { put(granularity, GRANULARITY) }
    })
}

/// Takes memory of a device that has no address yet.
///
/// # Errors
/// hipErrorInvalidValue for null, flags, a size that is no multiple of the granularity, and for anything but pinned memory
/// of a device; hipErrorNotSupported for handles to be shared otherwise than as descriptors; hipErrorOutOfMemory.
///
/// # Safety
/// `handle` is null or may be written to; `prop` is null or leads to properties.
pub unsafe extern "C" fn hipMemCreate(
    handle: *mut AllocationPtr,
    size: usize,
    prop: *const MemAllocationProp,
    flags: c_ulonglong,
) -> HipError {
    call(Function::hipMemCreate, |state| {
        // SAFETY: as this function demands.
        let device = &state.devices[unsafe { properties(state, prop) }?];
        if handle.is_null() || flags != 0 || !is_whole(size) {
            return Err(HipError::INVALID_VALUE);
        }
        let at = device.arena.allocate(size).ok_or(HipError::OUT_OF_MEMORY)?;
        let physical = Arc::new(Physical {
            arena: &device.arena,
            device: device.ordinal,
            at,
            len: size,
            references: AtomicUsize::new(0),
            handle: AtomicUsize::new(0),
        });
        // SAFETY: as this function demands.
        unsafe { put(handle, retain(state, &physical)) }
    })
}

/// The memory's handle, to be released once more.
fn retain(state: &State, physical: &Arc<Physical>) -> AllocationPtr {
    // Under the lock of the reservations, so that a handle is not released and asked for at the same time.
    let _lock = lock(&state.reserved.ranges);
    if physical.references.fetch_add(1, Ordering::Relaxed) == 0 {
        physical.handle.store(state.physical.insert(Arc::clone(physical)), Ordering::Relaxed);
    }
    physical.handle.load(Ordering::Relaxed) as AllocationPtr
}

/// Releases a handle. What is mapped stays.
///
/// # Errors
/// hipErrorInvalidValue for what is no handle (any more).
///
/// # Safety
/// None beyond C's: the handle is looked up, never followed.
pub unsafe extern "C" fn hipMemRelease(handle: AllocationPtr) -> HipError {
    call(Function::hipMemRelease, |state| {
        let _lock = lock(&state.reserved.ranges);
        let physical = state.physical.get(handle as usize).ok_or(HipError::INVALID_VALUE)?;
        if physical.references.fetch_sub(1, Ordering::Relaxed) == 1 {
            state.physical.remove(handle as usize);
        }
        Ok(())
    })
}

/// Reserves addresses. A wish for particular ones is not heard, as HIP may do.
///
/// # Errors
/// hipErrorInvalidValue for null, flags, a size that is no multiple of the granularity, an alignment that is no power of
/// two; hipErrorOutOfMemory.
///
/// # Safety
/// `ptr` is null or may be written to.
pub unsafe extern "C" fn hipMemAddressReserve(
    ptr: *mut *mut c_void,
    size: usize,
    alignment: usize,
    _addr: *mut c_void,
    flags: c_ulonglong,
) -> HipError {
    call(Function::hipMemAddressReserve, |state| {
        if ptr.is_null() || flags != 0 || !is_whole(size) || !(alignment == 0 || alignment.is_power_of_two())
        {
            return Err(HipError::INVALID_VALUE);
        }
        let at = state.reserved.take(size, alignment.max(GRANULARITY)).ok_or(HipError::OUT_OF_MEMORY)?;
        // SAFETY: as this function demands.
        unsafe { put(ptr, at as *mut c_void) }
    })
}

/// Gives a reservation back, all of it.
///
/// # Errors
/// hipErrorInvalidValue for anything but a reservation, and while something is mapped in it.
///
/// # Safety
/// Nobody uses the addresses any more.
pub unsafe extern "C" fn hipMemAddressFree(ptr: *mut c_void, size: usize) -> HipError {
    call(Function::hipMemAddressFree, |state| {
        let at = ptr as usize;
        if at.checked_add(size).is_none() || state.ranges.read().overlaps(at, size) {
            return Err(HipError::INVALID_VALUE);
        }
        if state.reserved.give_back(at, size) { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    })
}

/// Maps memory, all of it, at reserved addresses. Nobody may use it before [`hipMemSetAccess`].
///
/// # Errors
/// hipErrorInvalidValue for an offset, flags, an unknown handle, a size other than the memory's, and for addresses that are
/// not reserved or not free.
///
/// # Safety
/// None beyond C's.
pub unsafe extern "C" fn hipMemMap(
    ptr: *mut c_void,
    size: usize,
    offset: usize,
    handle: AllocationPtr,
    flags: c_ulonglong,
) -> HipError {
    call(Function::hipMemMap, |state| {
        let at = ptr as usize;
        let physical = state.physical.get(handle as usize).ok_or(HipError::INVALID_VALUE)?;
        let fits = offset == 0 && flags == 0 && size == physical.len && at.is_multiple_of(GRANULARITY);
        if !fits || !state.reserved.holds(at, size) {
            return Err(HipError::INVALID_VALUE);
        }
        let (id, reach) = (state.next_buffer(), physical.arena.reach(physical.at));
        let mapping = Allocation::new(id, Kind::Device, physical.device, at, size, reach);
        let mut ranges = state.ranges.write();
        if ranges.overlaps(at, size) {
            return Err(HipError::INVALID_VALUE);
        }
        ranges.insert(Arc::new(mapping.mapping(physical)));
        Ok(())
    })
}

/// Takes mappings away, after all work of all devices.
///
/// # Errors
/// hipErrorInvalidValue for a range that does not consist of whole mappings.
///
/// # Safety
/// Nobody uses the memory any more, but for work already queued.
pub unsafe extern "C" fn hipMemUnmap(ptr: *mut c_void, size: usize) -> HipError {
    call(Function::hipMemUnmap, |state| {
        let found = mappings(state, ptr as usize, size)?;
        state.drain_all();
        let gone = found.iter().filter(|mapping| state.give_back(mapping)).count();
        if gone == found.len() { Ok(()) } else { Err(HipError::INVALID_VALUE) }
    })
}

/// Says who may use mapped memory. Here all devices may, or none.
///
/// # Errors
/// hipErrorInvalidValue for null, for a range that does not consist of whole mappings, for a location that is no device, for
/// unknown flags.
///
/// # Safety
/// `desc` is null or leads to `count` descriptions.
pub unsafe extern "C" fn hipMemSetAccess(
    ptr: *mut c_void,
    size: usize,
    desc: *const MemAccessDesc,
    count: usize,
) -> HipError {
    call(Function::hipMemSetAccess, |state| {
        if desc.is_null() || count == 0 {
            return Err(HipError::INVALID_VALUE);
        }
        // SAFETY: not null, so it leads to that many.
        let all = unsafe { core::slice::from_raw_parts(desc, count) };
        for one in all {
            device_of(state, &one.location)?;
            if ![MEM_ACCESS_NONE, MEM_ACCESS_READ, MEM_ACCESS_READ_WRITE].contains(&one.flags) {
                return Err(HipError::INVALID_VALUE);
            }
        }
        let may_use = all.iter().any(|one| one.flags == MEM_ACCESS_READ_WRITE);
        for mapping in mappings(state, ptr as usize, size)? {
            mapping.open.store(may_use, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// The handle of the memory that is mapped at an address, to be released.
///
/// # Errors
/// hipErrorInvalidValue for null, and where nothing is mapped: other allocations have no handle.
///
/// # Safety
/// `handle` is null or may be written to.
pub unsafe extern "C" fn hipMemRetainAllocationHandle(
    handle: *mut AllocationPtr,
    addr: *mut c_void,
) -> HipError {
    call(Function::hipMemRetainAllocationHandle, |state| {
        if handle.is_null() {
            return Err(HipError::INVALID_VALUE);
        }
        let found = state.find(addr as usize).ok_or(HipError::INVALID_VALUE)?;
        let physical = found.physical.as_ref().ok_or(HipError::INVALID_VALUE)?;
        // SAFETY: as this function demands.
        unsafe { put(handle, retain(state, physical)) }
    })
}
