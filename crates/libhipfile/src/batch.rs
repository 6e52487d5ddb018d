//! The header's group "Batches". Not available yet: everything answers `hipFileInternalError` and touches nothing.

use core::ffi::c_uint;

use crate::abi::*;
use crate::dispatch::forward;
use crate::guard::{self, Failure};

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

pub(crate) extern "C" fn set_up(_batch_idp: *mut hipFileBatchHandle_t, _max_nr: c_uint) -> hipFileError_t {
    guard::status(c"hipFileBatchIOSetUp", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn submit(
    _batch_idp: hipFileBatchHandle_t,
    _nr: c_uint,
    _iocbp: *mut hipFileIOParams_t,
    _flags: c_uint,
) -> hipFileError_t {
    guard::status(c"hipFileBatchIOSubmit", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn get_status(
    _batch_idp: hipFileBatchHandle_t,
    _min_nr: c_uint,
    _nr: *mut c_uint,
    _iocbp: *mut hipFileIOEvents_t,
    _timeout: *mut libc::timespec,
) -> hipFileError_t {
    guard::status(c"hipFileBatchIOGetStatus", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn cancel(_batch_idp: hipFileBatchHandle_t) -> hipFileError_t {
    guard::status(c"hipFileBatchIOCancel", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn destroy(_batch_idp: hipFileBatchHandle_t) {}
