//! Finding and opening shared libraries. Nothing opened here is ever closed: code of a GPU runtime may run on its
//! own threads until the process ends.

use core::ffi::{CStr, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

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
    /// The library of this soname, if the process has it loaded already.
    pub fn already_loaded(soname: &CStr) -> Option<Library> {
        Self::dlopen(soname, libc::RTLD_NOLOAD | libc::RTLD_LAZY).ok()
    }

    /// Loads a library by soname or path.
    ///
    /// # Errors
    /// The dynamic loader's own words.
    pub fn open(name: &CStr) -> Result<Library, String> {
        Self::dlopen(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// As [`Library::open`], for a path.
    ///
    /// # Errors
    /// The dynamic loader's own words, or that the path holds a NUL byte.
    pub fn open_path(path: &Path) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| format!("path {} holds a NUL byte", path.display()))?;
        Self::open(&name)
    }

    /// The address of a symbol, null when the library has none of that name.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle came from dlopen and is never closed; the name ends in NUL.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    fn dlopen(name: &CStr, flags: i32) -> Result<Library, String> {
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
