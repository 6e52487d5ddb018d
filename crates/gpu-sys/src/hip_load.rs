//! Finding the HIP runtime and filling the table from it. It refuses runtimes older than ROCm 6 and incomplete
//! ones; whether a device is there, and what to do without a runtime, is the caller's business.

use core::ffi::{CStr, c_int, c_void};
use core::fmt;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::hip::{AmdFileFn, EMULATION_MARKER, ExportFn, HipApi, HipError, OLDEST_RUNTIME_VERSION};
use crate::library::{Library, loaded_objects, object_of};

/// Names the runtime is loaded under, newest first.
const SONAMES: &[&CStr] = &[c"libamdhip64.so.7", c"libamdhip64.so.6", c"libamdhip64.so"];
/// Names of runtimes too old to serve. Looked for among the loaded libraries only, so that a program that runs on
/// one is told so instead of getting a second runtime beside it.
const OLD_SONAMES: &[&CStr] = &[c"libamdhip64.so.5", c"libamdhip64.so.4"];
/// What file names of the runtime start with, also where a packager renamed it.
const FILE_PREFIX: &str = "libamdhip64";
const VERSION_SYMBOL: &CStr = c"hipRuntimeGetVersion";
const DEFAULT_ROCM_PATH: &str = "/opt/rocm";

/// Where [`load`] may look.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The one library to use, as a path or as a name for the dynamic loader; it wins over everything, also over a
    /// copy the process has already, and nothing else is tried when it cannot be used.
    pub library: Option<PathBuf>,
    /// ROCm's folder; its `lib` is searched after the loader's own paths and before `/opt/rocm/lib`.
    pub rocm_path: Option<PathBuf>,
    /// Load nothing: use a runtime only if the process has it already.
    pub only_if_loaded: bool,
}

/// A usable HIP runtime. It stays loaded until the process ends.
#[derive(Clone, Debug)]
pub struct LoadedHip {
    /// Its functions.
    pub api: HipApi,
    /// What `hipRuntimeGetVersion` answered: major * 10,000,000 + minor * 100,000 + patch.
    pub version: c_int,
    /// The file it was loaded from, as the dynamic loader names it.
    pub path: Option<PathBuf>,
    /// Whether it is the emulated runtime: it exports [`EMULATION_MARKER`].
    pub emulated: bool,
    /// Whether the process had it before it was asked for.
    pub already_loaded: bool,
    /// Where further symbols are looked up.
    pub library: Library,
}

/// Why no HIP runtime can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// No runtime was found.
    NotFound {
        /// What was tried, each with what came of it.
        tried: Vec<(String, String)>,
    },
    /// The library named in [`LoadOptions::library`] cannot be loaded.
    CannotOpen {
        /// As it was named.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A runtime whose numbers differ from the table's.
    TooOld {
        /// What `hipRuntimeGetVersion` answered.
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
    /// A runtime that cannot tell its version.
    Broken {
        /// What `hipRuntimeGetVersion` returned.
        code: HipError,
        /// The version it gave, if it returned success.
        version: c_int,
        /// Its file, when the dynamic loader knows it.
        path: Option<PathBuf>,
    },
}

/// Finds a HIP runtime and fills the table from it.
///
/// The order: [`LoadOptions::library`] alone if given; else a copy that the process has already, by soname, by file
/// name (wheels rename the libraries they bundle) or as part of the program itself; else `libamdhip64.so.7`, `.6`
/// and the unversioned name, wherever the dynamic loader finds them; else the same names under `rocm_path/lib` and
/// `/opt/rocm/lib`. A runtime that is in the process already is the only one considered: the program and hipfile must
/// share one. Among files, an unusable one does not end the search; its error is the answer if no other serves.
///
/// Thread-safe. It runs the library's constructors and calls `hipRuntimeGetVersion`, which may start the runtime.
///
/// # Errors
/// See [`LoadError`].
pub fn load(options: &LoadOptions) -> Result<LoadedHip, LoadError> {
    if let Some(path) = &options.library {
        return load_named(path, options.only_if_loaded);
    }
    if let Some((name, library)) = find_loaded() {
        return open_runtime(library, &name, true);
    }

    let mut tried = Vec::new();
    if options.only_if_loaded {
        tried.push((FILE_PREFIX.to_owned(), "not loaded in this process".to_owned()));
        return Err(LoadError::NotFound { tried });
    }
    let mut first_unusable = None;
    for (name, opened) in candidates(options) {
        match opened.map(|library| open_runtime(library, Path::new(&name), false)) {
            Ok(Ok(loaded)) => return Ok(loaded),
            Ok(Err(unusable)) => {
                tried.push((name, unusable.to_string()));
                first_unusable.get_or_insert(unusable);
            }
            Err(reason) => tried.push((name, reason)),
        }
    }
    Err(first_unusable.unwrap_or(LoadError::NotFound { tried }))
}

/// Whether the process has a HIP runtime already, of whatever version. Loads nothing.
pub fn is_loaded() -> bool {
    find_loaded().is_some()
}

/// AMD's file functions `(hipAmdFileRead, hipAmdFileWrite)`, which are in no header. The runtime itself is asked
/// first, for the version it reports; `library` is searched if it does not know them. `None` unless both exist.
///
/// The addresses are trusted to have the prototype of [`AmdFileFn`].
pub fn lookup_amd_file(api: &HipApi, library: Option<Library>) -> Option<(AmdFileFn, AmdFileFn)> {
    let mut version = 0;
    // SAFETY: the table's functions match their prototypes, and `version` is a valid out parameter.
    let known = unsafe { (api.hipRuntimeGetVersion)(&raw mut version) };
    let version = known.ok().is_ok().then_some(version);
    let find = |name: &CStr| {
        let address = ask_runtime(api, version, name);
        if !address.is_null() {
            return amd_file_fn(address);
        }
        amd_file_fn(library?.symbol(name))
    };
    Some((find(c"hipAmdFileRead")?, find(c"hipAmdFileWrite")?))
}

/// hipMemGetHandleForAddressRange, of ROCm 6.4 and newer, which older headers do not declare.
pub fn lookup_export(api: &HipApi, library: Option<Library>) -> Option<ExportFn> {
    let mut version = 0;
    // SAFETY: the table's functions match their prototypes, and `version` is a valid out parameter.
    let known = unsafe { (api.hipRuntimeGetVersion)(&raw mut version) };
    let name = c"hipMemGetHandleForAddressRange";
    let mut address = ask_runtime(api, known.ok().is_ok().then_some(version), name);
    if address.is_null() {
        address = library?.symbol(name);
    }
    // SAFETY: null is the None of an optional function pointer; a function of this name has this prototype.
    unsafe { core::mem::transmute::<*mut c_void, Option<ExportFn>>(address) }
}

fn ask_runtime(api: &HipApi, version: Option<c_int>, name: &CStr) -> *mut c_void {
    let mut address = core::ptr::null_mut();
    let (Some(get), Some(version)) = (api.hipGetProcAddress, version) else {
        return address;
    };
    // SAFETY: the name ends in NUL, `address` is a valid out parameter, and HIP allows a null status pointer.
    let answer = unsafe { get(name.as_ptr(), &raw mut address, version, 0, core::ptr::null_mut()) };
    if answer == HipError::SUCCESS { address } else { core::ptr::null_mut() }
}

fn amd_file_fn(address: *mut c_void) -> Option<AmdFileFn> {
    // SAFETY: null is the None of an optional function pointer; an address that the runtime gives for this name has
    // this prototype, by AMD's documentation.
    unsafe { core::mem::transmute::<*mut c_void, Option<AmdFileFn>>(address) }
}

fn load_named(path: &Path, only_if_loaded: bool) -> Result<LoadedHip, LoadError> {
    let fail = |reason: String| LoadError::CannotOpen { path: path.to_owned(), reason };
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(fail("the name is empty".into()));
    }
    // As for dlopen, a name without a slash is one for the loader to find.
    let name = CString::new(bytes).map_err(|_| fail("the name holds a NUL byte".into()))?;
    let is_path = bytes.contains(&b'/');
    let loaded =
        if is_path { Library::already_loaded_path(path) } else { Ok(Library::already_loaded(&name)) };
    if let Some(library) = loaded.map_err(fail)? {
        return open_runtime(library, path, true);
    }
    if only_if_loaded {
        let tried = vec![(path.display().to_string(), "not loaded in this process".into())];
        return Err(LoadError::NotFound { tried });
    }
    let opened = if is_path { Library::open_path(path) } else { Library::open(&name) };
    open_runtime(opened.map_err(fail)?, path, false)
}

/// The runtime that the process has, and the name it was found by.
fn find_loaded() -> Option<(PathBuf, Library)> {
    let by_name = |name: &&CStr| {
        let library = Library::already_loaded(name)?;
        Some((PathBuf::from(&*name.to_string_lossy()), library))
    };
    let by_path = |path: PathBuf| {
        let library = Library::already_loaded_path(&path).ok()??;
        Some((path, library))
    };
    SONAMES
        .iter()
        .chain(OLD_SONAMES)
        .find_map(by_name)
        .or_else(|| loaded_objects(FILE_PREFIX).into_iter().find_map(by_path))
        .or_else(|| {
            let address = Library::PROCESS.symbol(VERSION_SYMBOL);
            let path = object_of(address).unwrap_or_default();
            (!address.is_null()).then_some((path, Library::PROCESS))
        })
}

/// The libraries to try, opened one by one as the caller asks for the next.
fn candidates(options: &LoadOptions) -> impl Iterator<Item = (String, Result<Library, String>)> {
    let by_name = SONAMES.iter().map(|name| (name.to_string_lossy().into_owned(), Library::open(name)));
    let folders = [options.rocm_path.clone(), Some(PathBuf::from(DEFAULT_ROCM_PATH))];
    let by_path = folders
        .into_iter()
        .flatten()
        .filter(|folder| !folder.as_os_str().is_empty())
        .flat_map(|folder| SONAMES.iter().map(move |name| folder.join("lib").join(&*name.to_string_lossy())))
        .map(|path| (path.display().to_string(), Library::open_path(&path)));
    by_name.chain(by_path)
}

/// Checks the version before anything else of the library is used, then fills the table. `name` is what the library
/// was asked for by.
fn open_runtime(library: Library, name: &Path, already_loaded: bool) -> Result<LoadedHip, LoadError> {
    type VersionFn = unsafe extern "C" fn(*mut c_int) -> HipError;

    let address = library.symbol(VERSION_SYMBOL);
    // SAFETY: null is the None of an optional function pointer; every HIP since its first release declares
    // hipRuntimeGetVersion with this prototype.
    let get_version = unsafe { core::mem::transmute::<*mut c_void, Option<VersionFn>>(address) };
    let Some(get_version) = get_version else {
        return Err(LoadError::MissingSymbol { name: "hipRuntimeGetVersion", path: Some(name.to_owned()) });
    };
    let path = object_of(address);
    let mut version = 0;
    // SAFETY: see above; `version` is a valid out parameter.
    let code = unsafe { get_version(&raw mut version) };
    if code != HipError::SUCCESS || version <= 0 {
        return Err(LoadError::Broken { code, version, path });
    }
    if version < OLDEST_RUNTIME_VERSION {
        return Err(LoadError::TooOld { version, path });
    }

    // SAFETY: the library is a HIP runtime of ROCm 6 or newer by its own word, and the table's prototypes are those
    // of ROCm 6 and newer; it is never closed.
    let filled = unsafe { HipApi::from_resolver(|name| library.symbol(name)) };
    let emulated = !library.symbol(EMULATION_MARKER).is_null();
    match filled {
        Ok(api) => Ok(LoadedHip { api, version, path, emulated, already_loaded, library }),
        Err(name) => Err(LoadError::MissingSymbol { name, path }),
    }
}

impl std::error::Error for LoadError {}

/// Whether what came of a name is that there is no such file: not so where the file lacks another that it needs.
fn is_absence(name: &str, reason: &str) -> bool {
    let own = reason.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(reason);
    own == "cannot open shared object file: No such file or directory"
        || own == std::io::Error::from_raw_os_error(libc::ENOENT).to_string()
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::NotFound { tried } => {
                write!(f, "no HIP runtime found")?;
                let (gone, broken): (Vec<_>, Vec<_>) =
                    tried.iter().partition(|(name, reason)| is_absence(name, reason));
                let gone: Vec<&str> = gone.iter().map(|(name, _)| name.as_str()).collect();
                let mut lead = ": ";
                if !gone.is_empty() {
                    write!(f, "{lead}there is no {}", gone.join(", "))?;
                    lead = "; ";
                }
                for (name, reason) in broken {
                    // The loader's own text starts with the name it was given.
                    match reason.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix(": ")) {
                        Some(rest) => write!(f, "{lead}{name}: {rest}")?,
                        None => write!(f, "{lead}{name}: {reason}")?,
                    }
                    lead = "; ";
                }
                Ok(())
            }
            LoadError::CannotOpen { path, reason } => {
                write!(f, "the HIP library {} cannot be loaded: {reason}", path.display())
            }
            LoadError::TooOld { version, path } => write!(
                f,
                "ROCm {}.{} at {} is too old: ROCm {}.0 or newer is needed; its memory-type numbers differ",
                version / 10_000_000,
                version / 100_000 % 100,
                Shown(path),
                OLDEST_RUNTIME_VERSION / 10_000_000,
            ),
            LoadError::MissingSymbol { name, path } => {
                write!(f, "the HIP library {} has no {name}", Shown(path))
            }
            LoadError::Broken { code, version, path } if *code == HipError::SUCCESS => {
                write!(f, "the HIP library {} reports the impossible version {version}", Shown(path))
            }
            LoadError::Broken { code, path, .. } => {
                write!(f, "the HIP library {} cannot tell its version: {code:?}", Shown(path))
            }
        }
    }
}

struct Shown<'a>(&'a Option<PathBuf>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => path.display().fmt(f),
            None => f.write_str("(file unknown)"),
        }
    }
}
