//! Finding CUDA's driver library and filling the table from it. It refuses drivers older than CUDA 12 and incomplete
//! ones; whether a device is there is the caller's business. `cuInit` is not called here.

use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use std::path::PathBuf;

use crate::cuda::{CudaApi, CudaError, OLDEST_DRIVER_VERSION};
use crate::library::{Library, object_of};

/// The driver has had this name since there is one; it comes with the kernel module, not with the toolkit.
const SONAME: &CStr = c"libcuda.so.1";
const VERSION_SYMBOL: &CStr = c"cuDriverGetVersion";

/// A usable CUDA driver. It stays loaded until the process ends.
#[derive(Clone, Debug)]
pub struct LoadedCuda {
    /// Its functions.
    pub api: CudaApi,
    /// What `cuDriverGetVersion` answered: major * 1000 + minor * 10.
    pub version: c_int,
    /// The file it was loaded from, as the dynamic loader names it.
    pub path: Option<PathBuf>,
}

/// Why no CUDA driver can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// No driver was found; the dynamic loader's words.
    NotFound(String),
    /// A driver older than CUDA 12.
    TooOld {
        /// What `cuDriverGetVersion` answered.
        version: c_int,
        /// Its file, when the dynamic loader knows it.
        path: Option<PathBuf>,
    },
    /// A library without a function that hipfile cannot do without.
    MissingSymbol {
        /// The first missing one.
        name: &'static str,
        /// Its file, when the dynamic loader knows it.
        path: Option<PathBuf>,
    },
    /// A driver that cannot tell its version: the toolkit's stub, for instance.
    Broken {
        /// What `cuDriverGetVersion` returned.
        code: CudaError,
        /// Its file, when the dynamic loader knows it.
        path: Option<PathBuf>,
    },
}

/// Whether the process has the driver already. Loads nothing.
pub fn is_loaded() -> bool {
    find_loaded().is_some()
}

/// Finds the CUDA driver and fills the table from it: the one that the process has already, by name or as part of the
/// program itself, else (unless `only_if_loaded`) the one that the dynamic loader finds.
///
/// Thread-safe. It runs the library's constructors and calls `cuDriverGetVersion`, which starts nothing.
///
/// # Errors
/// See [`LoadError`].
pub fn load(only_if_loaded: bool) -> Result<LoadedCuda, LoadError> {
    let library = match find_loaded() {
        Some(library) => library,
        None if only_if_loaded => {
            return Err(LoadError::NotFound("libcuda.so.1: not loaded in this process".to_owned()));
        }
        None => Library::open(SONAME).map_err(LoadError::NotFound)?,
    };
    fill(library)
}

fn find_loaded() -> Option<Library> {
    Library::already_loaded(SONAME)
        .or_else(|| (!Library::PROCESS.symbol(VERSION_SYMBOL).is_null()).then_some(Library::PROCESS))
}

/// Checks the version before anything else of the library is used, then fills the table.
fn fill(library: Library) -> Result<LoadedCuda, LoadError> {
    type VersionFn = unsafe extern "C" fn(*mut c_int) -> CudaError;

    let address = library.symbol(VERSION_SYMBOL);
    let path = object_of(address);
    // SAFETY: null is the None of an optional function pointer; every CUDA driver declares cuDriverGetVersion with this
    // prototype.
    let get_version = unsafe { core::mem::transmute::<*mut c_void, Option<VersionFn>>(address) };
    let Some(get_version) = get_version else {
        return Err(LoadError::MissingSymbol { name: "cuDriverGetVersion", path });
    };
    let mut version = 0;
    // SAFETY: see above; `version` is a valid out parameter.
    let code = unsafe { get_version(&raw mut version) };
    if code != CudaError::SUCCESS {
        return Err(LoadError::Broken { code, path });
    }
    if version < OLDEST_DRIVER_VERSION {
        return Err(LoadError::TooOld { version, path });
    }
    // SAFETY: the library is a CUDA driver of version 12 or newer by its own word, the names hold the versions of the
    // prototypes, and it is never closed.
    match unsafe { CudaApi::from_resolver(|name| library.symbol(name)) } {
        Ok(api) => Ok(LoadedCuda { api, version, path }),
        Err(name) => Err(LoadError::MissingSymbol { name, path }),
    }
}

impl std::error::Error for LoadError {}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(|| "(file unknown)".to_owned(), |path| path.display().to_string())
        };
        match self {
            LoadError::NotFound(reason) => write!(f, "no CUDA driver found: {reason}"),
            LoadError::TooOld { version, path } => write!(
                f,
                "the CUDA driver {} serves CUDA {}.{} and is too old: {}.0 or newer is needed",
                shown(path),
                version / 1000,
                version % 1000 / 10,
                OLDEST_DRIVER_VERSION / 1000,
            ),
            LoadError::MissingSymbol { name, path } => {
                write!(f, "the CUDA driver {} has no {name}", shown(path))
            }
            LoadError::Broken { code, path } => {
                write!(f, "the CUDA driver {} cannot tell its version: {code:?}", shown(path))
            }
        }
    }
}
