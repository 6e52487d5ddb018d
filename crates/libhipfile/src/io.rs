//! The header's group "Synchronous I/O". All checks but that of a closed driver are the core's.

use core::ffi::c_void;

use hipfile::{DevPtr, Driver, ErrorKind, FileId};

use crate::abi::*;
use crate::dispatch::forward;
use crate::file::file_id;
use crate::global;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
///
/// # Safety
/// The device memory named by the arguments must stay allocated during the call, and nothing else may use the part that
/// is read into. The pointer is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileRead(
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    size: usize,
    file_offset: hoff_t,
    buffer_offset: hoff_t,
) -> isize {
    forward!(pfn_hipfile_read(fh, buffer_base, size, file_offset, buffer_offset))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// The device memory named by the arguments must stay allocated during the call, and nothing may write to the part that
/// is written from. The pointer is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileWrite(
    fh: hipFileHandle_t,
    buffer_base: *const c_void,
    size: usize,
    file_offset: hoff_t,
    buffer_offset: hoff_t,
) -> isize {
    forward!(pfn_hipfile_write(fh, buffer_base, size, file_offset, buffer_offset))
}

pub(crate) unsafe extern "C" fn read(
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    size: usize,
    file_offset: hoff_t,
    buffer_offset: hoff_t,
) -> isize {
    guard::count(c"hipFileRead", || {
        transfer(fh, |driver, file| {
            // SAFETY: the caller keeps the memory allocated, and to itself, during the call.
            unsafe { driver.read(file, DevPtr::from(buffer_base), size, file_offset, buffer_offset) }
        })
    })
}

pub(crate) unsafe extern "C" fn write(
    fh: hipFileHandle_t,
    buffer_base: *const c_void,
    size: usize,
    file_offset: hoff_t,
    buffer_offset: hoff_t,
) -> isize {
    guard::count(c"hipFileWrite", || {
        transfer(fh, |driver, file| {
            // SAFETY: the caller keeps the memory allocated and unchanged during the call.
            unsafe { driver.write(file, DevPtr::from(buffer_base), size, file_offset, buffer_offset) }
        })
    })
}

/// A closed driver is an errno here, unlike everywhere else; one that closes during the call too.
fn transfer(
    fh: hipFileHandle_t,
    run: impl FnOnce(&Driver, FileId) -> hipfile::Result<usize>,
) -> Result<usize, Failure> {
    let closed = || Failure::errno(libc::EINVAL, "the driver is not open");
    let driver = global::current().ok_or_else(closed)?;
    run(&driver, file_id(fh)).map_err(|error| match error.kind() {
        ErrorKind::DriverNotInitialized | ErrorKind::DriverClosing => closed(),
        _ => Failure::Core(error),
    })
}
