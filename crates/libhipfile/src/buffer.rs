//! The header's group "Buffers". What memory is accepted is decided in the core.

use core::ffi::{c_int, c_void};

use hipfile::DevPtr;

use crate::abi::*;
use crate::dispatch::forward;
use crate::global;
use crate::guard;

/// See `include/hipfile.h`.
///
/// # Safety
/// The memory, if it is device memory, must not be freed before it is deregistered. The pointer is not dereferenced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileBufRegister(
    buffer_base: *const c_void,
    length: usize,
    flags: c_int,
) -> hipFileError_t {
    forward!(pfn_hipfile_buf_register(buffer_base, length, flags))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a device address: only compared")]
pub extern "C" fn hipFileBufDeregister(buffer_base: *const c_void) -> hipFileError_t {
    forward!(pfn_hipfile_buf_deregister(buffer_base))
}

pub(crate) unsafe extern "C" fn buf_register(
    buffer_base: *const c_void,
    length: usize,
    flags: c_int,
) -> hipFileError_t {
    guard::status(c"hipFileBufRegister", || {
        let driver = global::open_first()?;
        // SAFETY: the caller keeps the memory until it is deregistered.
        Ok(unsafe { driver.register_buffer(DevPtr::from(buffer_base), length, flags) }?)
    })
}

pub(crate) extern "C" fn buf_deregister(buffer_base: *const c_void) -> hipFileError_t {
    guard::status(c"hipFileBufDeregister", || {
        Ok(global::current_or_closing()?.deregister_buffer(DevPtr::from(buffer_base))?)
    })
}
