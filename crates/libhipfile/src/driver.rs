//! The header's group "Driver". The count and the driver itself are in `global`.

use crate::abi::*;
use crate::dispatch::forward;
use crate::global;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileDriverOpen() -> hipFileError_t {
    forward!(pfn_hipfile_driver_open())
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileDriverClose() -> hipFileError_t {
    forward!(pfn_hipfile_driver_close())
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileUseCount() -> i64 {
    forward!(pfn_hipfile_use_count())
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `props` is NULL or points to a `hipFileDriverProps_t` that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileDriverGetProperties(props: *mut hipFileDriverProps_t) -> hipFileError_t {
    forward!(pfn_hipfile_driver_get_properties(props))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileDriverSetPollMode(poll: bool, poll_threshold_size: usize) -> hipFileError_t {
    forward!(pfn_hipfile_driver_set_poll_mode(poll, poll_threshold_size))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileDriverSetMaxDirectIOSize(max_direct_io_size: usize) -> hipFileError_t {
    forward!(pfn_hipfile_driver_set_max_direct_io_size(max_direct_io_size))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileDriverSetMaxCacheSize(max_cache_size: usize) -> hipFileError_t {
    forward!(pfn_hipfile_driver_set_max_cache_size(max_cache_size))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileDriverSetMaxPinnedMemSize(max_pinned_size: usize) -> hipFileError_t {
    forward!(pfn_hipfile_driver_set_max_pinned_mem_size(max_pinned_size))
}

pub(crate) extern "C" fn open() -> hipFileError_t {
    guard::status(c"hipFileDriverOpen", global::open)
}

pub(crate) extern "C" fn close() -> hipFileError_t {
    guard::status(c"hipFileDriverClose", global::close)
}

pub(crate) extern "C" fn use_count() -> i64 {
    guard::value(-1, global::use_count)
}

pub(crate) extern "C" fn get_properties(_props: *mut hipFileDriverProps_t) -> hipFileError_t {
    guard::status(c"hipFileDriverGetProperties", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_poll_mode(_poll: bool, _poll_threshold_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetPollMode", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_max_direct_io_size(_max_direct_io_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetMaxDirectIOSize", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_max_cache_size(_max_cache_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetMaxCacheSize", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn set_max_pinned_mem_size(_max_pinned_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetMaxPinnedMemSize", || Err(Failure::not_available()))
}
