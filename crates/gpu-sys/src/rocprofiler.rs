//! The library by which ROCm's profilers learn which tables of functions a process has (rocprofiler-register). It is looked
//! for and never loaded: without it nobody wants to know.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::library::Library;

/// Says a table's version. Its symbol must be `rocprofiler_register_import_` and the table's name, exported by the library
/// that the table is in; by it the registration is recognised.
pub type ImportFn = unsafe extern "C" fn() -> u32;

type RegisterFn =
    unsafe extern "C" fn(*const c_char, ImportFn, u32, *mut *mut c_void, u64, *mut u64) -> c_int;

/// Offers a table of functions to the profilers of this process, which may put functions of their own into it, now and
/// later. Their status, 0 for success; `None` when the process has not loaded that library.
///
/// # Safety
/// `table` must be the table of functions that is known by `name` and `version`, open to writing until the process ends.
pub unsafe fn register_api_table(
    name: &CStr,
    import: ImportFn,
    version: u32,
    table: *mut c_void,
) -> Option<c_int> {
    let library = Library::already_loaded(c"librocprofiler-register.so.0")?;
    let symbol = library.symbol(c"rocprofiler_register_library_api_table");
    if symbol.is_null() {
        return None;
    }
    // SAFETY: the function of this name has this prototype in every version of that library's interface so far.
    let register = unsafe { core::mem::transmute::<*mut c_void, RegisterFn>(symbol) };
    let (mut tables, mut id) = ([table], 0);
    // SAFETY: the name ends in NUL, `tables` holds one table, which the caller vouches for, and `id` may be written to.
    Some(unsafe { register(name.as_ptr(), import, version, tables.as_mut_ptr(), 1, &raw mut id) })
}
