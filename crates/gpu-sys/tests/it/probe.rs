//! Runs the loader in a process of its own: this test program starts itself with one test, `probe::probe`, whose
//! wishes come by environment and whose findings go to stdout.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_sys::hip_load::{LoadOptions, load, lookup_amd_file};

const LIBRARY: &str = "PROBE_LIBRARY";
const ROCM_PATH: &str = "PROBE_ROCM_PATH";
const ONLY_IF_LOADED: &str = "PROBE_ONLY_IF_LOADED";
const LOADED_LOCALLY: &str = "PROBE_LOADED_LOCALLY";
/// The library is a stub whose file functions may be called with anything.
pub(crate) const CALL_AMD_FILE: &str = "PROBE_CALL_AMD_FILE";

/// A run of the loader to come.
pub(crate) struct Probe {
    command: Command,
}

/// What the run found.
#[derive(Debug)]
pub(crate) struct Findings {
    lines: Vec<(String, String)>,
}

impl Probe {
    pub(crate) fn new() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "probe::probe", "--nocapture", "--test-threads=1"]);
        for name in [
            LIBRARY,
            ROCM_PATH,
            ONLY_IF_LOADED,
            LOADED_LOCALLY,
            CALL_AMD_FILE,
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
        ] {
            command.env_remove(name);
        }
        Probe { command }
    }

    /// The loader's option of that name.
    pub(crate) fn library(mut self, path: impl AsRef<Path>) -> Self {
        self.command.env(LIBRARY, path.as_ref());
        self
    }

    /// The loader's option of that name.
    pub(crate) fn rocm_path(mut self, path: &Path) -> Self {
        self.command.env(ROCM_PATH, path);
        self
    }

    /// The loader's option of that name.
    pub(crate) fn only_if_loaded(mut self) -> Self {
        self.command.env(ONLY_IF_LOADED, "1");
        self
    }

    /// Where the dynamic loader looks first.
    pub(crate) fn search(mut self, folder: &Path) -> Self {
        self.command.env("LD_LIBRARY_PATH", folder);
        self
    }

    /// A library whose symbols the process has from its start.
    pub(crate) fn preload(mut self, library: &Path) -> Self {
        self.command.env("LD_PRELOAD", library);
        self
    }

    /// A library that the process has opened for itself alone, as Python does with extension modules.
    pub(crate) fn loaded_locally(mut self, library: &Path) -> Self {
        self.command.env(LOADED_LOCALLY, library);
        self
    }

    /// A setting of the library that is to be loaded.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn run(mut self) -> Findings {
        let output = self.command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "the loader's process ended with {} (signal {:?})\n{text}\n{errors}",
            output.status,
            output.status.signal(),
        );
        // The harness may have begun a line of its own before the first finding.
        let found = |line: &str| {
            let (_, finding) = line.split_once("probe> ")?;
            let (name, value) = finding.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Findings { lines: text.lines().filter_map(found).collect() }
    }
}

impl Findings {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.lines.iter().find(|(line, _)| line == name).map(|(_, value)| value.as_str())
    }

    /// The loader's error, as shown to users.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        self.get("error").unwrap_or_else(|| panic!("an error was expected: {self:?}"))
    }

    /// Asserts that this file serves.
    #[track_caller]
    pub(crate) fn serves(&self, path: &Path) {
        let got = self.get("path").map(|path| PathBuf::from(path).canonicalize().unwrap());
        assert_eq!(got, Some(path.canonicalize().unwrap()), "{self:?}");
    }
}

impl Findings {
    /// Whether the process had anything below that folder loaded at its end.
    pub(crate) fn has_mapped(&self, folder: &Path) -> bool {
        let mut maps = self.lines.iter().filter(|(name, _)| name == "mapped");
        maps.any(|(_, path)| Path::new(path).starts_with(folder))
    }
}

fn show(name: &str, value: impl std::fmt::Display) {
    println!("probe> {name}={value}");
}

/// Without wishes this is the default search on this machine, whatever it has: an answer that explains itself.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent's wishes come by environment")]
fn probe() {
    if let Some(library) = std::env::var_os(LOADED_LOCALLY) {
        let name = CString::new(library.as_bytes()).unwrap();
        // SAFETY: the name ends in NUL; the library's constructors are what the test asked for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} does not load", OsStr::display(&library));
    }
    let options = LoadOptions {
        library: std::env::var_os(LIBRARY).map(PathBuf::from),
        rocm_path: std::env::var_os(ROCM_PATH).map(PathBuf::from),
        only_if_loaded: std::env::var_os(ONLY_IF_LOADED).is_some(),
    };
    match load(&options) {
        Ok(loaded) => {
            assert!(loaded.version >= gpu_sys::hip::OLDEST_RUNTIME_VERSION);
            show("version", loaded.version);
            show("path", loaded.path.as_deref().unwrap_or(Path::new("")).display());
            show("emulated", loaded.emulated);
            show("already_loaded", loaded.already_loaded);
            show("optional", loaded.api.hipStreamWaitValue64.is_some());
            let amd_file = lookup_amd_file(&loaded.api, Some(loaded.library));
            show("amd_file", if amd_file.is_some() { "both" } else { "none" });
            if let Some(functions) = amd_file
                && std::env::var_os(CALL_AMD_FILE).is_some()
            {
                crate::amd_file::probe(functions);
            }
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("HIP") || text.contains("ROCm"), "{text}");
            show("error", text);
        }
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for path in maps.lines().filter_map(|line| line.split_whitespace().nth(5)) {
        show("mapped", path);
    }
}
