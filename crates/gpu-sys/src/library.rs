//! Finding and opening shared libraries. Nothing opened here is ever closed: code of a GPU runtime may run on its
//! own threads until the process ends. It does not know what any library is for.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf;

/// An open shared library, open until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: *mut c_void,
}

// SAFETY: a dlopen handle is a token that any thread may use; dlsym is thread-safe and the library is never closed.
unsafe impl Send for Library {}
// SAFETY: as for Send.
unsafe impl Sync for Library {}

impl Library {
    /// Whatever the process as a whole offers: the program, its libraries and the preloaded ones, in the order in
    /// which the dynamic loader itself searches them (`RTLD_DEFAULT`).
    pub const PROCESS: Library = Library { handle: libc::RTLD_DEFAULT };

    /// The library of this soname, if the process has it loaded already.
    pub fn already_loaded(soname: &CStr) -> Option<Library> {
        Self::dlopen(soname, libc::RTLD_NOLOAD | libc::RTLD_LAZY).ok()
    }

    /// The library at this path, if the process has it loaded already. The file is looked at first: even to compare
    /// it with what is loaded, the dynamic loader opens it, and would wait for ever on a FIFO.
    ///
    /// # Errors
    /// What is wrong with the file or the path.
    pub fn already_loaded_path(path: &Path) -> Result<Option<Library>, String> {
        let name = c_path(path)?;
        elf::check_shared_object(path)?;
        Ok(Self::already_loaded(&name))
    }

    /// Loads a library by soname, from wherever the dynamic loader finds it.
    ///
    /// # Errors
    /// The dynamic loader's own words.
    pub fn open(name: &CStr) -> Result<Library, String> {
        Self::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// Loads the library at `path`, after a look whether it is a complete shared object at all.
    ///
    /// # Errors
    /// What is wrong with the file or the path, or the dynamic loader's own words.
    pub fn open_path(path: &Path) -> Result<Library, String> {
        let name = c_path(path)?;
        elf::check_shared_object(path)?;
        Self::open(&name)
    }

    /// The address of a symbol, null when the library (or a library it depends on) has none of that name.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is RTLD_DEFAULT or came from dlopen and is never closed; the name ends in NUL.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    fn dlopen(name: &CStr, flags: c_int) -> Result<Library, String> {
        // SAFETY: the name ends in NUL. Loading runs the library's constructors, which is what the caller asked for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if handle.is_null() {
            // SAFETY: dlerror has no preconditions; its text is per thread and copied before anything else is called.
            let text = unsafe { libc::dlerror() };
            if text.is_null() {
                return Err(format!("{} could not be loaded", name.to_string_lossy()));
            }
            // SAFETY: a non-null dlerror answer is a NUL-terminated string, valid until the next dl call of this thread.
            return Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        }
        Ok(Library { handle })
    }
}

/// The file that the code or data at `address` was loaded from; `None` for memory that no object owns.
pub(crate) fn object_of(address: *const c_void) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: dladdr only compares the address with the loaded objects and writes to `info`.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gave a NUL-terminated name, which lives as long as the object that holds the address.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Paths of the loaded objects whose file name starts with `prefix`, in load order. It finds what a search by soname
/// cannot: copies that were renamed, as Python wheels do with the libraries they bundle.
pub(crate) fn loaded_objects(prefix: &str) -> Vec<PathBuf> {
    struct Search<'a> {
        prefix: &'a [u8],
        found: Vec<PathBuf>,
    }

    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the Search below, which nobody else touches while dl_iterate_phdr runs.
        let search = unsafe { &mut *data.cast::<Search<'_>>() };
        // SAFETY: the loader passes a valid record for the time of this call.
        let name = unsafe { (*info).dlpi_name };
        if name.is_null() {
            return 0;
        }
        // SAFETY: a non-null object name is NUL-terminated and outlives this call.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
        if path.file_name().is_some_and(|name| name.as_bytes().starts_with(search.prefix)) {
            search.found.push(path.to_owned());
        }
        0
    }

    let mut search = Search { prefix: prefix.as_bytes(), found: Vec::new() };
    // SAFETY: `visit` has the prototype asked for, does not unwind (it only compares and pushes), and gets a pointer
    // to `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| format!("path {} holds a NUL byte", path.display()))
}
