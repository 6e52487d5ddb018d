//! The header's group "Streams". It reads and writes the caller's variables when the core says so; when that is, it
//! does not decide.

use core::ffi::{CStr, c_uint, c_void};
use std::collections::hash_map::Entry;

use hipfile::{Ask, Caller, DevPtr, ErrorKind, Op, StreamPtr};

use crate::abi::*;
use crate::dispatch::forward;
use crate::file::file_id;
use crate::global;
use crate::guard::{self, Failure};
use crate::status;

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

/// The caller's variables. The promise that they stay valid until the stream has passed the operation is the C functions'.
struct Variables {
    size: *const usize,
    file_offset: *const hoff_t,
    buffer_offset: *const hoff_t,
    bytes: *mut isize,
    /// The function that was called.
    function: &'static CStr,
    /// `HIPFILE_STREAM_*` of the stream's registration at submit.
    flags: c_uint,
    first: Option<Ask>,
}

// SAFETY: the caller leaves the variables to the operation until the stream has passed it, whatever the thread.
unsafe impl Send for Variables {}

impl Variables {
    /// What was captured at submit where the flag says so, else the variable as it is now.
    fn value<T: Copy>(&self, flag: c_uint, captured: impl FnOnce(&Ask) -> T, from: *const T) -> T {
        match &self.first {
            Some(first) if self.flags & flag != 0 => captured(first),
            // SAFETY: without its flag a variable stays valid until the stream has passed the operation.
            _ => unsafe { from.read() },
        }
    }

    fn put(&self, bytes: isize) {
        // SAFETY: it stays valid until the stream has passed the operation, of which this is the last act.
        unsafe { self.bytes.write(bytes) };
    }
}

const FIXED: c_uint =
    HIPFILE_STREAM_FIXED_BUF_OFFSET | HIPFILE_STREAM_FIXED_FILE_OFFSET | HIPFILE_STREAM_FIXED_FILE_SIZE;

impl Caller for Variables {
    fn bind(&mut self) -> Ask {
        let ask = Ask {
            len: self.value(HIPFILE_STREAM_FIXED_FILE_SIZE, |a| a.len, self.size),
            file_offset: self.value(HIPFILE_STREAM_FIXED_FILE_OFFSET, |a| a.file_offset, self.file_offset),
            buffer_offset: self.value(
                HIPFILE_STREAM_FIXED_BUF_OFFSET,
                |a| a.buffer_offset,
                self.buffer_offset,
            ),
        };
        self.first.get_or_insert(ask);
        ask
    }

    fn is_fixed(&self) -> bool {
        self.flags & FIXED == FIXED
    }

    fn accepted(&mut self) {
        self.put(0);
    }

    fn done(self: Box<Self>, result: hipfile::Result<usize>) {
        let bytes = match result {
            // The core moves at most 0x7ffff000 bytes.
            Ok(moved) => moved as isize,
            Err(error) => {
                let number = match error.kind() {
                    ErrorKind::Io => -1,
                    // Its own number could be taken for an errno, or for success.
                    ErrorKind::HipDriverError => -(hipFileInternalError.0 as isize),
                    kind => -(status::from_kind(kind).0 as isize),
                };
                // Before the number: who sees it may ask at once.
                global::keep_failure(self.bytes.addr(), (self.function, error));
                number
            }
        };
        self.put(bytes);
    }
}

fn submit(
    op: Op,
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    mut variables: Variables,
    stream: hipStream_t,
) -> Result<(), Failure> {
    let invalid = |why: &'static str| Failure::new(hipFileInvalidValue, why);
    let Some(driver) = global::current() else {
        global::open_first()?;
        return Err(invalid("the driver was not open; it is now"));
    };
    let Variables { size, file_offset, buffer_offset, bytes, .. } = variables;
    if buffer_base.is_null()
        || size.is_null()
        || file_offset.is_null()
        || buffer_offset.is_null()
        || bytes.is_null()
    {
        return Err(invalid("a pointer is null"));
    }
    variables.flags = global::streams().get(&stream.addr()).copied().unwrap_or(0);
    let (ptr, handle) = (DevPtr::from(buffer_base), StreamPtr(stream.addr()));
    // SAFETY: the caller keeps the memory allocated, and to the stream, until it has passed the operation.
    let queued = unsafe { driver.enqueue(op, file_id(fh), ptr, handle, Box::new(variables)) };
    queued.map_err(|error| match error.kind() {
        // AMD's answer here, unlike everywhere else.
        ErrorKind::HipMemoryTypeInvalid => Failure::new(hipFileInternalError, error.to_string()),
        _ => Failure::Core(error),
    })
}

pub(crate) unsafe extern "C" fn read_async(
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    size: *mut usize,
    file_offset: *mut hoff_t,
    buffer_offset: *mut hoff_t,
    bytes: *mut isize,
    stream: hipStream_t,
) -> hipFileError_t {
    const NAME: &CStr = c"hipFileReadAsync";
    let variables =
        Variables { size, file_offset, buffer_offset, bytes, function: NAME, flags: 0, first: None };
    guard::status(NAME, || submit(Op::Read, fh, buffer_base, variables, stream))
}

pub(crate) unsafe extern "C" fn write_async(
    fh: hipFileHandle_t,
    buffer_base: *mut c_void,
    size: *mut usize,
    file_offset: *mut hoff_t,
    buffer_offset: *mut hoff_t,
    bytes: *mut isize,
    stream: hipStream_t,
) -> hipFileError_t {
    const NAME: &CStr = c"hipFileWriteAsync";
    let variables =
        Variables { size, file_offset, buffer_offset, bytes, function: NAME, flags: 0, first: None };
    guard::status(NAME, || submit(Op::Write, fh, buffer_base, variables, stream))
}

/// The registrations are the process's, not the driver's: closing it leaves them.
pub(crate) extern "C" fn register(stream: hipStream_t, flags: c_uint) -> hipFileError_t {
    guard::status(c"hipFileStreamRegister", || {
        let invalid = |why: &'static str| Failure::new(hipFileInvalidValue, why);
        if global::streams().contains_key(&stream.addr()) {
            return Err(invalid("the stream is registered already"));
        }
        if flags & !HIPFILE_STREAM_FLAGS_MASK != 0 {
            return Err(invalid("a flag is unknown"));
        }
        // Outside the lock, since the runtime is asked.
        match global::current() {
            Some(driver) => driver.prepare_stream(StreamPtr(stream.addr()))?,
            None => global::passing_driver()?.prepare_stream(StreamPtr(stream.addr()))?,
        }
        match global::streams().entry(stream.addr()) {
            Entry::Occupied(_) => Err(invalid("the stream is registered already")),
            Entry::Vacant(place) => {
                place.insert(flags);
                Ok(())
            }
        }
    })
}

/// Waits for nothing: what is queued has taken from the registration what it needs.
pub(crate) extern "C" fn deregister(stream: hipStream_t) -> hipFileError_t {
    guard::status(c"hipFileStreamDeregister", || match global::streams().remove(&stream.addr()) {
        Some(_) => Ok(()),
        None => Err(Failure::new(hipFileInvalidValue, "the stream is not registered")),
    })
}
