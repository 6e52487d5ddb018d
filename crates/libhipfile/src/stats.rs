//! The header's group "Statistics", and `include/hipfile-stats.h`. Not available yet: the getters answer
//! `hipFileInternalError`, the client functions what they answer when a process cannot be asked.

use core::ffi::c_int;

use crate::abi::*;
use crate::dispatch::forward;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
///
/// # Safety
/// `stats` is NULL or points to such a structure that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetStatsL1(stats: *mut hipFileStatsLevel1_t) -> hipFileError_t {
    forward!(pfn_hipfile_get_stats_l1(stats))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `stats` is NULL or points to such a structure that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetStatsL2(stats: *mut hipFileStatsLevel2_t) -> hipFileError_t {
    forward!(pfn_hipfile_get_stats_l2(stats))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `stats` is NULL or points to such a structure that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileGetStatsL3(stats: *mut hipFileStatsLevel3_t) -> hipFileError_t {
    forward!(pfn_hipfile_get_stats_l3(stats))
}

pub(crate) extern "C" fn get_l1(_stats: *mut hipFileStatsLevel1_t) -> hipFileError_t {
    guard::status(c"hipFileGetStatsL1", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn get_l2(_stats: *mut hipFileStatsLevel2_t) -> hipFileError_t {
    guard::status(c"hipFileGetStatsL2", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn get_l3(_stats: *mut hipFileStatsLevel3_t) -> hipFileError_t {
    guard::status(c"hipFileGetStatsL3", || Err(Failure::not_available()))
}
/// See `include/hipfile-stats.h`.
///
/// # Safety
/// `ctx` is NULL or points to a pointer that may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStatsCreateContext(
    ctx: *mut *mut hipFileStatsContext_t,
    target_pid: c_int,
) -> hipFileStatsError_t {
    guard::value(hipFileStatsTargetProcessNotAccessible, || {
        if ctx.is_null() {
            return hipFileStatsInvalidArgument;
        }
        // SAFETY: not NULL, so it points to a pointer that may be written to.
        unsafe { ctx.write(core::ptr::null_mut()) };
        if target_pid <= 0 { hipFileStatsInvalidArgument } else { hipFileStatsTargetProcessNotAccessible }
    })
}

/// See `include/hipfile-stats.h`. No context can exist yet.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileStatsCloseContext(_ctx: *mut hipFileStatsContext_t) {}

/// See `include/hipfile-stats.h`. No context can exist yet, so none is looked at.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileStatsConnectToTargetProcess(ctx: *mut hipFileStatsContext_t) -> hipFileStatsError_t {
    if ctx.is_null() { hipFileStatsInvalidArgument } else { hipFileStatsTargetProcessNotAccessible }
}

/// See `include/hipfile-stats.h`. No context can exist yet, so none is looked at.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileStatsPollTargetProcess(
    ctx: *const hipFileStatsContext_t,
    _block: bool,
) -> hipFileStatsError_t {
    if ctx.is_null() { hipFileStatsInvalidArgument } else { hipFileStatsTargetProcessNotAccessible }
}

/// See `include/hipfile-stats.h`. No context can exist yet, so none is looked at.
#[unsafe(no_mangle)]
pub extern "C" fn hipFileStatsGenerateReport(
    ctx: *const hipFileStatsContext_t,
    fd: c_int,
) -> hipFileStatsError_t {
    if ctx.is_null() || fd < 0 { hipFileStatsInvalidArgument } else { hipFileStatsReportGenerationFailed }
}
