//! The process's one table of functions: each public symbol forwards through it, so that a profiler can put its own
//! function in an entry's place. The layout is an ABI of its own: entries are appended, never moved. Offering the
//! table to a profiler is the business of `profiler`.
#![allow(non_camel_case_types, reason = "the type's name is part of the ABI")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use std::cell::UnsafeCell;

use crate::abi::*;
use crate::{batch, buffer, driver, file, io, params, stats, status, stream, version};

/// A place in the table: a function pointer that foreign code may exchange at any time.
#[repr(transparent)]
pub struct Entry<F>(UnsafeCell<F>);

// SAFETY: the cell holds one aligned pointer-sized function pointer; this library only reads it, in one volatile read
// that the machine does not tear, and whoever exchanges it stores a whole pointer to a function of the same type.
unsafe impl<F: Copy + Send + Sync> Sync for Entry<F> {}

impl<F: Copy> Entry<F> {
    const fn new(function: F) -> Entry<F> {
        Entry(UnsafeCell::new(function))
    }

    /// The function in this place now.
    pub fn get(&self) -> F {
        // SAFETY: the cell is initialised and aligned, and never holds anything but a function pointer of this type.
        unsafe { self.0.get().read_volatile() }
    }

    /// The place itself, for exchanging the function.
    pub const fn as_ptr(&self) -> *mut F {
        self.0.get()
    }
}

/// Calls through the table; the arguments are handed on as they came.
macro_rules! forward {
    ($entry:ident($($argument:expr),* $(,)?)) => {{
        $crate::profiler::before_use();
        let function = $crate::dispatch::TABLE.$entry.get();
        // SAFETY: the entry has the type of the public function that forwards to it, whose caller has promised for the
        // arguments what the entry asks for.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use forward;

macro_rules! table {
    ($($entry:ident = $function:path: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The table's layout: its size in bytes, then the functions.
        #[repr(C)]
        pub struct hipFileDispatchTable {
            /// Bytes in the table; a reader must not look behind them.
            pub size: usize,
            $(
                /// Serves the public function of this name; see `include/hipfile.h`.
                pub $entry: Entry<unsafe extern "C" fn($($argument),*) $(-> $result)?>,
            )*
        }

        /// The table. Built by the linker, so that no first use can race.
        pub static TABLE: hipFileDispatchTable = hipFileDispatchTable {
            size: size_of::<hipFileDispatchTable>(),
            $($entry: Entry::new($function),)*
        };

        /// The entries' names, in order.
        pub const ENTRIES: &[&str] = &[$(stringify!($entry)),*];
    };
}

table! {
    pfn_hipfile_get_op_error_string = status::get_op_error_string: fn(hipFileOpError_t) -> *const c_char;
    pfn_hipfile_handle_register = file::handle_register:
        fn(*mut hipFileHandle_t, *mut hipFileDescr_t) -> hipFileError_t;
    pfn_hipfile_handle_deregister = file::handle_deregister: fn(hipFileHandle_t);
    pfn_hipfile_buf_register = buffer::buf_register: fn(*const c_void, usize, c_int) -> hipFileError_t;
    pfn_hipfile_buf_deregister = buffer::buf_deregister: fn(*const c_void) -> hipFileError_t;
    pfn_hipfile_read = io::read: fn(hipFileHandle_t, *mut c_void, usize, hoff_t, hoff_t) -> isize;
    pfn_hipfile_write = io::write: fn(hipFileHandle_t, *const c_void, usize, hoff_t, hoff_t) -> isize;
    pfn_hipfile_driver_open = driver::open: fn() -> hipFileError_t;
    pfn_hipfile_driver_close = driver::close: fn() -> hipFileError_t;
    pfn_hipfile_use_count = driver::use_count: fn() -> i64;
    pfn_hipfile_driver_get_properties = driver::get_properties: fn(*mut hipFileDriverProps_t) -> hipFileError_t;
    pfn_hipfile_driver_set_poll_mode = driver::set_poll_mode: fn(bool, usize) -> hipFileError_t;
    pfn_hipfile_driver_set_max_direct_io_size = driver::set_max_direct_io_size: fn(usize) -> hipFileError_t;
    pfn_hipfile_driver_set_max_cache_size = driver::set_max_cache_size: fn(usize) -> hipFileError_t;
    pfn_hipfile_driver_set_max_pinned_mem_size = driver::set_max_pinned_mem_size: fn(usize) -> hipFileError_t;
    pfn_hipfile_batch_io_set_up = batch::set_up: fn(*mut hipFileBatchHandle_t, c_uint) -> hipFileError_t;
    pfn_hipfile_batch_io_submit = batch::submit:
        fn(hipFileBatchHandle_t, c_uint, *mut hipFileIOParams_t, c_uint) -> hipFileError_t;
    pfn_hipfile_batch_io_get_status = batch::get_status:
        fn(hipFileBatchHandle_t, c_uint, *mut c_uint, *mut hipFileIOEvents_t, *mut libc::timespec) -> hipFileError_t;
    pfn_hipfile_batch_io_cancel = batch::cancel: fn(hipFileBatchHandle_t) -> hipFileError_t;
    pfn_hipfile_batch_io_destroy = batch::destroy: fn(hipFileBatchHandle_t);
    pfn_hipfile_read_async = stream::read_async:
        fn(hipFileHandle_t, *mut c_void, *mut usize, *mut hoff_t, *mut hoff_t, *mut isize, hipStream_t) -> hipFileError_t;
    pfn_hipfile_write_async = stream::write_async:
        fn(hipFileHandle_t, *mut c_void, *mut usize, *mut hoff_t, *mut hoff_t, *mut isize, hipStream_t) -> hipFileError_t;
    pfn_hipfile_stream_register = stream::register: fn(hipStream_t, c_uint) -> hipFileError_t;
    pfn_hipfile_stream_deregister = stream::deregister: fn(hipStream_t) -> hipFileError_t;
    pfn_hipfile_get_version = version::get_version: fn(*mut c_uint, *mut c_uint, *mut c_uint) -> hipFileError_t;
    pfn_hipfile_get_parameter_size_t = params::get_size_t:
        fn(hipFileSizeTConfigParameter_t, *mut usize) -> hipFileError_t;
    pfn_hipfile_get_parameter_bool = params::get_bool: fn(hipFileBoolConfigParameter_t, *mut bool) -> hipFileError_t;
    pfn_hipfile_get_parameter_string = params::get_string:
        fn(hipFileStringConfigParameter_t, *mut c_char, c_int) -> hipFileError_t;
    pfn_hipfile_set_parameter_size_t = params::set_size_t: fn(hipFileSizeTConfigParameter_t, usize) -> hipFileError_t;
    pfn_hipfile_set_parameter_bool = params::set_bool: fn(hipFileBoolConfigParameter_t, bool) -> hipFileError_t;
    pfn_hipfile_set_parameter_string = params::set_string:
        fn(hipFileStringConfigParameter_t, *const c_char) -> hipFileError_t;
    // Appended in step 1.
    pfn_hipfile_get_stats_l1 = stats::get_l1: fn(*mut hipFileStatsLevel1_t) -> hipFileError_t;
    pfn_hipfile_get_stats_l2 = stats::get_l2: fn(*mut hipFileStatsLevel2_t) -> hipFileError_t;
    pfn_hipfile_get_stats_l3 = stats::get_l3: fn(*mut hipFileStatsLevel3_t) -> hipFileError_t;
}
