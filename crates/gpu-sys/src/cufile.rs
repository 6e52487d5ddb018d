//! NVIDIA's libcufile, as hipfile uses it: its types and functions, and where it is found. Opening its driver, which starts
//! threads, is the caller's business.

use core::ffi::{CStr, c_int, c_uint, c_void};

use crate::library::Library;
use crate::table::function_table;

/// `CUfileError_t`: the library's own number, 0 for success, and CUDA's.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CufileError {
    /// `CUfileOpError`.
    pub err: c_int,
    /// `CUresult`, of failures of CUDA's.
    pub cu_err: c_int,
}

/// `CUfileHandle_t`.
pub type CufileHandle = *mut c_void;

/// `CUfileDescr_t` of a descriptor of Linux.
#[repr(C)]
#[derive(Debug)]
pub struct CufileDescr {
    /// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
    pub kind: c_int,
    before: c_int,
    /// The union's member `fd`, and the rest of the union.
    pub fd: c_int,
    rest: c_int,
    ops: *const c_void,
}

impl CufileDescr {
    /// Of a descriptor.
    pub fn of(fd: c_int) -> CufileDescr {
        CufileDescr { kind: 1, before: 0, fd, rest: 0, ops: core::ptr::null() }
    }
}

/// `CUfileDrvProps_t`, and room behind it for a library that has more.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct CufileProps {
    /// Version of nvidia-fs.
    pub version: [c_uint; 2],
    /// From where on it polls, in KB.
    pub poll_threshold: usize,
    /// Most it moves at once, in KB.
    pub max_direct_io: usize,
    /// What it can reach, by the bits of `CUfileDriverStatusFlags_t`.
    pub status_flags: c_uint,
    /// How it is set, by the bits of `CUfileDriverControlFlags_t`.
    pub control_flags: c_uint,
    /// Sizes and limits.
    pub others: [c_uint; 6],
    room: [u64; 16],
}

/// The bit of [`CufileProps::control_flags`] that says that it may stage in host memory: `CU_FILE_ALLOW_COMPAT_MODE`.
pub const ALLOWS_COMPAT: c_uint = 1 << 1;

/// `CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE`.
pub const PARAM_ALLOW_COMPAT: c_int = 1;
/// `CUFILE_PARAM_FORCE_COMPAT_MODE`.
pub const PARAM_FORCE_COMPAT: c_int = 2;
/// `CUFILE_PARAM_USE_PCIP2PDMA`.
pub const PARAM_USE_PCIP2PDMA: c_int = 7;

function_table! {
    /// The functions of libcufile that hipfile calls.
    pub struct CufileApi;
    required {
        fn cuFileDriverOpen() -> CufileError;
        fn cuFileDriverGetProperties(props: *mut CufileProps) -> CufileError;
        fn cuFileHandleRegister(handle: *mut CufileHandle, descr: *mut CufileDescr) -> CufileError;
        fn cuFileHandleDeregister(handle: CufileHandle) -> ();
        fn cuFileRead(
            handle: CufileHandle, base: *mut c_void, size: usize, file_offset: i64, base_offset: i64,
        ) -> isize;
        fn cuFileWrite(
            handle: CufileHandle, base: *const c_void, size: usize, file_offset: i64, base_offset: i64,
        ) -> isize;
    }
    optional {
        /// Before the driver is opened only.
        fn cuFileSetParameterBool(parameter: c_int, value: bool) -> CufileError;
    }
}

const SONAME: &CStr = c"libcufile.so.0";
/// What a libcufile exports that stands in for the real one where the GPU is emulated.
const STAND_IN: &CStr = c"hipfile_stands_in_for_libcufile";

/// The library, and whether it is this call that has loaded it: then nobody else has set it up.
///
/// # Errors
/// Why there is none.
pub fn load() -> Result<(CufileApi, bool), String> {
    let loaded = Library::already_loaded(SONAME);
    let library = match loaded {
        Some(library) => library,
        None => Library::open(SONAME)?,
    };
    fill(library).map(|api| (api, loaded.is_none()))
}

/// A library that knows the emulated GPU's memory, if the process has one; the real one does not.
///
/// # Errors
/// That there is none.
pub fn stand_in() -> Result<CufileApi, String> {
    let loaded = Library::already_loaded(SONAME).filter(|library| !library.symbol(STAND_IN).is_null());
    fill(loaded.ok_or("libcufile knows no emulated GPU")?)
}

fn fill(library: Library) -> Result<CufileApi, String> {
    // SAFETY: the library is libcufile by its name, whose prototypes are those of NVIDIA's cuFile API reference for version 0 of
    // its interface; it is never closed.
    unsafe { CufileApi::from_resolver(|name| library.symbol(name)) }
        .map_err(|name| format!("libcufile has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_reference() {
        assert_eq!((size_of::<CufileDescr>(), core::mem::offset_of!(CufileDescr, fd)), (24, 8));
        assert_eq!(core::mem::offset_of!(CufileDescr, ops), 16);
        assert_eq!(core::mem::offset_of!(CufileProps, status_flags), 24);
        assert_eq!(core::mem::offset_of!(CufileProps, control_flags), 28);
        assert_eq!(core::mem::offset_of!(CufileProps, others), 32);
        assert_eq!(size_of::<CufileError>(), 8);
    }
}
