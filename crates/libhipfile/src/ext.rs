//! `include/hipfile_ext.h`: what this library adds. Not in the dispatch table, whose layout is not ours to extend.

use core::ffi::CStr;

use crate::abi::*;
use crate::guard::{self, Failure};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version holds no NUL"),
};

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtGetBuildInfo(info: *mut hipFileExtBuildInfo_t) -> hipFileError_t {
    guard::status(c"hipFileExtGetBuildInfo", || {
        let full = hipFileExtBuildInfo_t {
            size: size_of::<hipFileExtBuildInfo_t>(),
            name: c"hipfile (independent implementation)".as_ptr(),
            version: VERSION.as_ptr(),
            features: HIPFILE_EXT_FEATURE_SYNC_IO,
            emulation_available: u32::from(hipfile::EMULATION_BUILT_IN),
            reserved: 0,
        };
        // SAFETY: the caller's promise is the one that `fill` asks for.
        unsafe { fill(info, full) }
    })
}

/// See `include/hipfile_ext.h`.
///
/// # Safety
/// `info` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileExtLastError(info: *mut hipFileExtErrorInfo_t) -> hipFileError_t {
    let answer = |err| hipFileError_t { err, hip_drv_err: hipSuccess };
    // A value, not a status: asking for the last error must not replace it.
    guard::value(answer(hipFileInternalError), || {
        let filled = guard::with_last(|last| {
            let full = hipFileExtErrorInfo_t {
                size: size_of::<hipFileExtErrorInfo_t>(),
                err: last.status.err,
                hip_drv_err: last.status.hip_drv_err,
                os_error: last.os_error,
                function: last.function.as_ptr(),
                text: last.text().as_ptr(),
            };
            // SAFETY: the caller's promise is the one that `fill` asks for.
            unsafe { fill(info, full) }
        });
        match filled {
            Some(Ok(())) => answer(hipFileSuccess),
            Some(Err(failure)) => failure.as_status(),
            None => answer(hipFileInternalError),
        }
    })
}

/// Copies as much of `full` as the caller's structure holds, and sets its size to that.
///
/// # Safety
/// `to` is NULL or points to a structure whose first member holds its size in bytes, all of which may be written to.
unsafe fn fill<T: Copy>(to: *mut T, full: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::new(hipFileInvalidValue, "info is NULL"));
    }
    let size = to.cast::<usize>();
    // SAFETY: not NULL, so the first member may be read.
    let room = unsafe { size.read() };
    if room <= size_of::<usize>() {
        return Err(Failure::new(
            hipFileInvalidValue,
            format!("info->size is {room}, too small for any field"),
        ));
    }
    let n = room.min(size_of::<T>());
    let from = (&raw const full).cast::<u8>();
    // SAFETY: `n` bytes lie within both structures, which do not overlap: one is a local variable.
    unsafe { from.copy_to_nonoverlapping(to.cast::<u8>(), n) };
    // SAFETY: the first member may be written to.
    unsafe { size.write(n) };
    Ok(())
}
