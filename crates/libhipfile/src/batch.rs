//! The header's group "Batches": handles, C's entries and events. What happens to entries is decided in the core.

use core::ffi::{c_int, c_uint};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use hipfile::monitor::BatchCall;
use hipfile::{Batches, DevPtr, Entry, ErrorKind, Event, EventStatus, NoOp, Op, RawBatch};

use crate::abi::*;
use crate::dispatch::forward;
use crate::file::file_id;
use crate::global;
use crate::guard::{self, Failure};
use crate::status;

/// See `include/hipfile.h`.
///
/// # Safety
/// `batch_idp` is NULL or points to a handle that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileBatchIOSetUp(
    batch_idp: *mut hipFileBatchHandle_t,
    max_nr: c_uint,
) -> hipFileError_t {
    forward!(pfn_hipfile_batch_io_set_up(batch_idp, max_nr))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `iocbp` is NULL or points to `nr` transfers, whose device memory stays allocated until their events are collected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileBatchIOSubmit(
    batch_idp: hipFileBatchHandle_t,
    nr: c_uint,
    iocbp: *mut hipFileIOParams_t,
    flags: c_uint,
) -> hipFileError_t {
    forward!(pfn_hipfile_batch_io_submit(batch_idp, nr, iocbp, flags))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `nr` and `timeout` are NULL or point to such values; `iocbp` is NULL or has room for `*nr` events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileBatchIOGetStatus(
    batch_idp: hipFileBatchHandle_t,
    min_nr: c_uint,
    nr: *mut c_uint,
    iocbp: *mut hipFileIOEvents_t,
    timeout: *mut libc::timespec,
) -> hipFileError_t {
    forward!(pfn_hipfile_batch_io_get_status(batch_idp, min_nr, nr, iocbp, timeout))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a handle: looked up, never dereferenced")]
pub extern "C" fn hipFileBatchIOCancel(batch_idp: hipFileBatchHandle_t) -> hipFileError_t {
    forward!(pfn_hipfile_batch_io_cancel(batch_idp))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a handle: looked up, never dereferenced")]
pub extern "C" fn hipFileBatchIODestroy(batch_idp: hipFileBatchHandle_t) {
    forward!(pfn_hipfile_batch_io_destroy(batch_idp));
}

/// The process's batches; never freed, since a thread may be inside at any time.
struct Known {
    batches: Batches,
    /// What the process this one was forked from had.
    inherited: Option<&'static Known>,
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> Option<&'static Known> {
    let place = KNOWN.load(Ordering::Acquire);
    // SAFETY: null, or from Box::into_raw below: made before it was published and never freed.
    unsafe { place.as_ref() }
}

/// The list that batches can be added to; another one than the parent's in the child of a fork. Made without a lock,
/// which a fork might find taken.
fn own() -> &'static Known {
    loop {
        let current = known();
        if let Some(own) = current.filter(|known| !known.batches.in_forked_child()) {
            return own;
        }
        let fresh = Box::into_raw(Box::new(Known { batches: Batches::new(), inherited: current }));
        let before = current.map_or(std::ptr::null_mut(), |known| std::ptr::from_ref(known).cast_mut());
        if KNOWN.compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: `fresh` came from Box::into_raw above and nobody else has seen it.
            drop(unsafe { Box::from_raw(fresh) });
        }
    }
}

fn invalid(text: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(hipFileInvalidValue, text)
}

/// The batch behind a handle.
fn batch_of(handle: hipFileBatchHandle_t) -> Result<Arc<RawBatch>, Failure> {
    let number = handle.addr() as u64;
    let mut list = known();
    while let Some(Known { batches, inherited }) = list {
        match batches.get(number) {
            Some(batch) if batch.in_forked_child() => {
                return Err(Failure::new(hipFileDriverClosing, "the batch was made before fork"));
            }
            Some(batch) => return Ok(batch),
            None => list = *inherited,
        }
    }
    Err(invalid(format!("the batch handle {handle:p} is unknown")))
}

pub(crate) unsafe extern "C" fn set_up(
    batch_idp: *mut hipFileBatchHandle_t,
    max_nr: c_uint,
) -> hipFileError_t {
    guard::status(c"hipFileBatchIOSetUp", || {
        // SAFETY: as this function demands.
        let result = unsafe { make(batch_idp, max_nr) };
        global::count_batch(BatchCall::SetUp, result.is_ok());
        result
    })
}

/// # Safety
/// As [`hipFileBatchIOSetUp`].
unsafe fn make(batch_idp: *mut hipFileBatchHandle_t, max_nr: c_uint) -> Result<(), Failure> {
    if batch_idp.is_null() {
        return Err(invalid("batch_idp is NULL"));
    }
    let most = global::settings().batch_size;
    if max_nr as usize > most {
        return Err(invalid(format!("a batch has room for at most {most} entries, not {max_nr}")));
    }
    let number = own().batches.insert(RawBatch::new(max_nr as usize)?)?;
    let handle = core::ptr::without_provenance_mut(number as usize);
    // SAFETY: `batch_idp` is not NULL, so it points to a handle that may be written to.
    unsafe { batch_idp.write(handle) };
    Ok(())
}

pub(crate) unsafe extern "C" fn submit(
    batch_idp: hipFileBatchHandle_t,
    nr: c_uint,
    iocbp: *mut hipFileIOParams_t,
    _flags: c_uint,
) -> hipFileError_t {
    guard::status(c"hipFileBatchIOSubmit", || {
        if nr == 0 || iocbp.is_null() {
            return Err(invalid(if nr == 0 { "nr is 0" } else { "iocbp is NULL" }));
        }
        let batch = batch_of(batch_idp)?;
        let driver = global::current()
            .ok_or_else(|| Failure::new(hipFileDriverNotInitialized, "the driver is not open"))?;
        // One more than there can be room for is enough to be refused.
        let count = (nr as usize).min(batch.capacity() + 1);
        // SAFETY: `iocbp` is not NULL, so it points to `nr` transfers.
        let params = unsafe { std::slice::from_raw_parts(iocbp, count) };
        let mut entries = Vec::new();
        let reserved = entries.try_reserve_exact(count);
        reserved.map_err(|_| Failure::new(hipFileInternalError, "there is not enough memory"))?;
        entries.extend(params.iter().map(entry));
        // SAFETY: the caller keeps the memory allocated until the events are collected.
        Ok(unsafe { batch.submit(&driver, &entries) }?)
    })
}

#[expect(non_upper_case_globals, reason = "the names are the header's")]
fn entry(params: &hipFileIOParams_t) -> Entry {
    // SAFETY: the union has one member, of plain numbers.
    let transfer = unsafe { params.u.batch };
    let op = match (params.opcode, params.mode) {
        (hipFileBatchRead, hipFileBatch) => Ok(Op::Read),
        (hipFileBatchWrite, hipFileBatch) => Ok(Op::Write),
        (hipFileBatchRead | hipFileBatchWrite, mode) => Err(NoOp { name: "mode", value: mode.0.into() }),
        (opcode, _) => Err(NoOp { name: "opcode", value: opcode.0.into() }),
    };
    Entry {
        op,
        file: file_id(params.fh),
        buffer: DevPtr::from(transfer.devPtr_base),
        buffer_offset: transfer.devPtr_offset,
        file_offset: transfer.file_offset,
        len: transfer.size,
        cookie: params.cookie.expose_provenance() as u64,
    }
}

pub(crate) unsafe extern "C" fn get_status(
    batch_idp: hipFileBatchHandle_t,
    min_nr: c_uint,
    nr: *mut c_uint,
    iocbp: *mut hipFileIOEvents_t,
    timeout: *mut libc::timespec,
) -> hipFileError_t {
    guard::status(c"hipFileBatchIOGetStatus", || {
        if iocbp.is_null() || nr.is_null() {
            return Err(invalid(if iocbp.is_null() { "iocbp is NULL" } else { "nr is NULL" }));
        }
        // SAFETY: `nr` is not NULL, so it points to a number.
        let room = unsafe { nr.read() };
        if room == 0 || min_nr > room {
            return Err(invalid(format!("{min_nr} events are wanted, with room for {room}")));
        }
        let batch = batch_of(batch_idp)?;
        // SAFETY: NULL, or it points to a time.
        let timeout = match unsafe { timeout.as_ref() } {
            None => None,
            Some(time) => Some(duration(time)?),
        };
        if min_nr as usize > batch.capacity() {
            let capacity = batch.capacity();
            return Err(invalid(format!("{min_nr} events are wanted of a batch with room for {capacity}")));
        }
        // SAFETY: `nr` is not NULL, so it points to a number that may be written to.
        unsafe { nr.write(0) };
        let events = batch.poll(min_nr as usize, room as usize, timeout)?;
        for (at, event) in events.iter().enumerate() {
            // SAFETY: there is room for `room` events, and no more were asked for.
            let place = unsafe { iocbp.add(at) };
            // SAFETY: as above.
            unsafe { place.write(event_of(event)) };
            if let EventStatus::Failed(error) = &event.status {
                // A number is all that the event itself has room for.
                guard::retell(c"hipFileBatchIOGetStatus", Failure::from(error.clone()));
            }
        }
        // SAFETY: as above.
        unsafe { nr.write(events.len() as c_uint) };
        Ok(())
    })
}

fn duration(time: &libc::timespec) -> Result<Duration, Failure> {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanoseconds @ 0..1_000_000_000)) => Ok(Duration::new(seconds, nanoseconds)),
        _ => Err(invalid(format!("{} s and {} ns are no timeout", time.tv_sec, time.tv_nsec))),
    }
}

fn event_of(event: &Event) -> hipFileIOEvents_t {
    let cookie = core::ptr::with_exposed_provenance_mut(event.cookie as usize);
    let (status, ret) = match &event.status {
        EventStatus::Complete(moved) => (hipFileComplete, *moved),
        EventStatus::Failed(error) => (hipFileFailed, negative(error) as usize),
        EventStatus::Canceled => (hipFileCanceled, 0),
        EventStatus::TimedOut => (hipFileTimeout, 0),
        // A state this version does not know is no success.
        _ => (hipFileFailed, -(hipFileInternalError.0 as isize) as usize),
    };
    hipFileIOEvents_t { cookie, status, ret }
}

/// How a failed entry tells why. Unlike a synchronous call it never gives a code of the GPU runtime.
fn negative(error: &hipfile::Error) -> isize {
    let code = match error.kind() {
        ErrorKind::Io => error.os_error().unwrap_or(libc::EIO),
        kind => status::from_kind(kind).0 as c_int,
    };
    -(code as isize)
}

pub(crate) extern "C" fn cancel(batch_idp: hipFileBatchHandle_t) -> hipFileError_t {
    guard::status(c"hipFileBatchIOCancel", || {
        let result = batch_of(batch_idp).and_then(|batch| Ok(batch.cancel()?));
        global::count_batch(BatchCall::Cancel, result.is_ok());
        result
    })
}

pub(crate) extern "C" fn destroy(batch_idp: hipFileBatchHandle_t) {
    guard::value((), || {
        if let Some(batch) = known().and_then(|known| known.batches.remove(batch_idp.addr() as u64)) {
            batch.destroy();
            global::count_batch(BatchCall::Destroy, true);
        }
    });
}
