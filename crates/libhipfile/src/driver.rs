//! The header's group "Driver". The count and the driver itself are in `global`.

use core::ffi::{c_int, c_uint};

use hipfile::platform::Reach;
use hipfile::storage::{FsClass, Roots};
use hipfile::{Config, Fallback, Setting, Value};

use crate::abi::*;
use crate::dispatch::forward;
use crate::global;
use crate::guard::{self, Failure};
use crate::params;

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

pub(crate) extern "C" fn get_properties(props: *mut hipFileDriverProps_t) -> hipFileError_t {
    guard::status(c"hipFileDriverGetProperties", || {
        if props.is_null() {
            return Err(Failure::new(hipFileInvalidValue, "props is NULL"));
        }
        let config = global::settings();
        let all = properties(&config, &Reach::probe(&config, &Roots::real()));
        // SAFETY: `props` is not NULL, so it points to properties that may be written to.
        unsafe { props.write(all) };
        Ok(())
    })
}

fn properties(config: &Config, reach: &Reach) -> hipFileDriverProps_t {
    let number = |name| Setting::named(name).map_or(0, |setting| params::number_of(setting, config));
    let bit = |is: bool, number: c_int| c_uint::from(is) << number;
    let network = |fs| reach.network.contains(&fs);
    let status = bit(network(FsClass::Lustre), hipFileLustreSupported.0)
        | bit(network(FsClass::Weka), hipFileWekaFSSupported.0)
        | bit(network(FsClass::Nfs), hipFileNFSSupported.0)
        | bit(network(FsClass::Gpfs), hipFileGPFSSupported.0)
        | bit(network(FsClass::Beegfs), hipFileBeeGFSSupported.0)
        | bit(reach.nvme, hipFileNVMeSupported.0)
        | bit(reach.nvme, hipFileNVMeP2PSupported.0);
    hipFileDriverProps_t {
        nvfs: hipFileDriverProps_nvfs {
            // NVIDIA's kernel module, which this library has no use for.
            major_version: 0,
            minor_version: 0,
            poll_thresh_size: number("poll_max"),
            max_direct_io_size: number("max_direct_io"),
            driver_status_flags: status,
            driver_control_flags: bit(config.poll, hipFileUsePollMode.0)
                | bit(config.fallback != Fallback::Forbid, hipFileAllowCompatMode.0),
        },
        feature_flags: bit(true, hipFileBatchIOSupported.0)
            | bit(true, hipFileStreamsSupported.0)
            | bit(config.threads_per_request() > 1, hipFileParallelIOSupported.0),
        max_device_cache_size: number("pool_size"),
        per_buffer_cache_size: number("block_size"),
        max_device_pinned_mem_size: number("max_pinned"),
        max_batch_io_count: number("batch_size") as c_uint,
        max_batch_io_timeout_msecs: number("batch_timeout") as c_uint,
    }
}

/// A number for a live setting.
fn live(name: &'static str, value: usize) -> Result<params::Call, Failure> {
    let setting = Setting::named(name)
        .ok_or_else(|| Failure::new(hipFileInternalError, format!("there is no setting {name}")))?;
    let (setting, value) = params::number(setting, value)?;
    setting.check(&value)?;
    // The steps of the header's functions; the environment may be more exact.
    match value {
        Value::Number(bytes) if name != "poll_max" && !bytes.is_multiple_of(64 << 10) => {
            Err(Failure::new(hipFileInvalidValue, format!("{} KiB are no multiple of 64", bytes >> 10)))
        }
        value => Ok((setting, value)),
    }
}

pub(crate) extern "C" fn set_poll_mode(poll: bool, poll_threshold_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetPollMode", || {
        let size = live("poll_max", poll_threshold_size)?;
        let mode = Setting::named("poll").map(|setting| (setting, Value::Bool(poll)));
        global::change(mode.into_iter().chain([size]).collect())
    })
}

pub(crate) extern "C" fn set_max_direct_io_size(max_direct_io_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetMaxDirectIOSize", || {
        global::change(vec![live("max_direct_io", max_direct_io_size)?])
    })
}

pub(crate) extern "C" fn set_max_cache_size(max_cache_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetMaxCacheSize", || {
        global::change(vec![live("pool_size", max_cache_size)?])
    })
}

pub(crate) extern "C" fn set_max_pinned_mem_size(max_pinned_size: usize) -> hipFileError_t {
    guard::status(c"hipFileDriverSetMaxPinnedMemSize", || {
        global::change(vec![live("max_pinned", max_pinned_size)?])
    })
}
