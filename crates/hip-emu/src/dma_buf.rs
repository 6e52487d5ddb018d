//! Device memory as a descriptor for other drivers of the kernel. There is no such memory here: the descriptor is a file that says
//! where the bytes are, which an emulated device that it is handed to reads.

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::io::Write as _;
use std::os::fd::{FromRawFd as _, IntoRawFd as _};

use gpu_sys::hip::{DevicePtr, HipError};

use crate::call::{call, put};
use crate::function::Function;
use crate::ranges::Kind;
use crate::sys::PAGE;

/// `hipMemRangeHandleTypeDmaBufFd`.
pub const DMA_BUF_FD: c_uint = 1;

/// What the file begins with; two hexadecimal numbers follow, the address for the CPU and the length.
pub const MARK: &str = "hip-emu dma-buf";

/// Exports a range of device memory. Whoever gets the descriptor closes it.
///
/// # Errors
/// hipErrorInvalidValue for null, for what is not whole pages of one allocation of device memory, for flags;
/// hipErrorNotSupported for another kind of handle; hipErrorOutOfMemory.
///
/// # Safety
/// `handle` is null or has room for an int.
pub unsafe extern "C" fn hipMemGetHandleForAddressRange(
    handle: *mut c_void,
    ptr: DevicePtr,
    size: usize,
    kind: c_uint,
    flags: c_ulonglong,
) -> HipError {
    call(Function::hipMemGetHandleForAddressRange, |state| {
        if kind != DMA_BUF_FD {
            return Err(HipError::NOT_SUPPORTED);
        }
        let at = ptr as usize;
        if handle.is_null() || flags != 0 || size == 0 || !(at | size).is_multiple_of(PAGE) {
            return Err(HipError::INVALID_VALUE);
        }
        let found = state.find(at).filter(|found| found.kind == Kind::Device);
        let found = found.ok_or(HipError::INVALID_VALUE)?;
        let offset = at - found.base;
        // The last page of an allocation is whole, whatever part of it was asked for.
        if size > found.len.next_multiple_of(PAGE) - offset {
            return Err(HipError::INVALID_VALUE);
        }
        let text = format!("{MARK} {:x} {size:x}\n", found.reach + offset);
        // SAFETY: a plain call with a string that ends in NUL.
        let fd = unsafe { libc::memfd_create(c"hip-emu-dma-buf".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(HipError::OUT_OF_MEMORY);
        }
        // SAFETY: the descriptor is new and nobody else's.
        let mut file = unsafe { std::fs::File::from_raw_fd(fd) };
        file.write_all(text.as_bytes()).map_err(|_| HipError::OUT_OF_MEMORY)?;
        // SAFETY: as this function demands.
        unsafe { put(handle.cast::<c_int>(), file.into_raw_fd()) }
    })
}
