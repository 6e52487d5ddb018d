//! The header's group "Streams". Not available yet: everything answers `hipFileInternalError` and touches nothing.

use core::ffi::{c_uint, c_void};

use crate::abi::*;
use crate::dispatch::forward;
use crate::guard::{self, Failure};

/// See `include/hipfile.h`.
///
/// # Safety
/// Each pointer but `buffer_base` is NULL or points to a value that stays valid until the stream has passed the operation;
/// the device memory stays allocated as long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileReadAsync(
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    size_p: *mut usize,
    file_offset_p: *mut hoff_t,
    buffer_offset_p: *mut hoff_t,
    bytes_read_p: *mut isize,
    stream: hipStream_t,
) -> hipFileError_t {
    forward!(pfn_hipfile_read_async(
        fh,
        buffer_base,
        size_p,
        file_offset_p,
        buffer_offset_p,
        bytes_read_p,
        stream
    ))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// Each pointer but `buffer_base` is NULL or points to a value that stays valid until the stream has passed the operation;
/// the device memory stays allocated as long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileWriteAsync(
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    size_p: *mut usize,
    file_offset_p: *mut hoff_t,
    buffer_offset_p: *mut hoff_t,
    bytes_written_p: *mut isize,
    stream: hipStream_t,
) -> hipFileError_t {
    forward!(pfn_hipfile_write_async(
        fh,
        buffer_base,
        size_p,
        file_offset_p,
        buffer_offset_p,
        bytes_written_p,
        stream
    ))
}

/// See `include/hipfile.h`.
///
/// # Safety
/// `stream` is NULL or a stream of the GPU runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipFileStreamRegister(stream: hipStream_t, flags: c_uint) -> hipFileError_t {
    forward!(pfn_hipfile_stream_register(stream, flags))
}

/// See `include/hipfile.h`.
#[unsafe(no_mangle)]
#[allow(clippy::not_unsafe_ptr_arg_deref, reason = "a handle: looked up, never dereferenced")]
pub extern "C" fn hipFileStreamDeregister(stream: hipStream_t) -> hipFileError_t {
    forward!(pfn_hipfile_stream_deregister(stream))
}

pub(crate) extern "C" fn read_async(
    _fh: hipFileHandle_t,
    _buffer_base: *mut c_void,
    _size_p: *mut usize,
    _file_offset_p: *mut hoff_t,
    _buffer_offset_p: *mut hoff_t,
    _bytes_read_p: *mut isize,
    _stream: hipStream_t,
) -> hipFileError_t {
    guard::status(c"hipFileReadAsync", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn write_async(
    _fh: hipFileHandle_t,
    _buffer_base: *mut c_void,
    _size_p: *mut usize,
    _file_offset_p: *mut hoff_t,
    _buffer_offset_p: *mut hoff_t,
    _bytes_written_p: *mut isize,
    _stream: hipStream_t,
) -> hipFileError_t {
    guard::status(c"hipFileWriteAsync", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn register(_stream: hipStream_t, _flags: c_uint) -> hipFileError_t {
    guard::status(c"hipFileStreamRegister", || Err(Failure::not_available()))
}

pub(crate) extern "C" fn deregister(_stream: hipStream_t) -> hipFileError_t {
    guard::status(c"hipFileStreamDeregister", || Err(Failure::not_available()))
}
