//! The libraries on a machine: the HIP runtime with AMD's file functions, and NVIDIA's libcufile. On the running system
//! HIP is loaded as the driver would load it; elsewhere files are looked at and nothing is loaded.

use std::path::{Path, PathBuf};

use gpu_sys::hip_load::{self, LoadError, LoadOptions};

use super::Finding;
use crate::config::Config;
use crate::storage::Roots;

/// Where libraries lie, below the root, after what the configuration names.
const FOLDERS: &[&str] = &[
    "opt/rocm/lib",
    "opt/rocm/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
    "usr/local/lib",
    "usr/local/cuda/lib64",
    "usr/local/cuda/targets/x86_64-linux/lib",
];
/// Largest library that is searched for names, in bytes.
const LIBRARY: u64 = 512 << 20;
const FILE_FUNCTIONS: [&str; 2] = ["hipAmdFileRead", "hipAmdFileWrite"];

const INSTALL_HIP: &str = "install ROCm 7.2 or newer, or name its libamdhip64.so in HIPFILE_HIP_LIBRARY";
const NEWER_HIP: &str = "install ROCm 7.2 or newer: older runtimes cannot read files into GPU memory";

/// Whether a HIP runtime with AMD's file functions is there.
pub(super) fn hip(config: &Config, roots: &Roots) -> Finding {
    if config.device.is_emulated() {
        // A real runtime that is merely installed must not be drawn into the process then.
        let found = "emulated: the emulated GPU was asked for, no real one is involved".to_owned();
        return Finding::no(found, "unset HIPFILE_DEVICE");
    }
    if roots.is_real() { loaded_hip(config) } else { hip_file(roots) }
}

fn loaded_hip(config: &Config) -> Finding {
    let options = LoadOptions {
        library: config.hip_library.clone(),
        rocm_path: config.rocm_path.clone(),
        only_if_loaded: false,
    };
    let loaded = match hip_load::load(&options) {
        Ok(loaded) => loaded,
        Err(LoadError::NotFound { .. }) => {
            let found = "no libamdhip64.so is in the process, on the library path, or under /opt/rocm";
            return Finding::no(found.to_owned(), INSTALL_HIP);
        }
        Err(error) => return Finding::no(error.to_string(), instead_of(&error)),
    };
    let path = loaded.path.as_deref().map_or("the program itself".into(), Path::to_string_lossy);
    let version = format!("{}.{}", loaded.version / 10_000_000, loaded.version / 100_000 % 100);
    if loaded.emulated {
        let found = format!("emulated: {path} is the emulated GPU, no real one is involved");
        return Finding::no(found, "take the emulated libamdhip64.so off the library path, and install ROCm");
    }
    match hip_load::lookup_amd_file(&loaded.api, Some(loaded.library)) {
        Some(_) => Finding::yes(format!("HIP {version} at {path} has hipAmdFileRead and hipAmdFileWrite")),
        None => Finding::no(
            format!("HIP {version} at {path} has no hipAmdFileRead or hipAmdFileWrite"),
            NEWER_HIP,
        ),
    }
}

/// What to do about a runtime that is there and cannot be used.
fn instead_of(error: &LoadError) -> &'static str {
    match error {
        LoadError::TooOld { .. } | LoadError::MissingSymbol { .. } => NEWER_HIP,
        LoadError::CannotOpen { .. } => {
            "name a libamdhip64.so that can be loaded in HIPFILE_HIP_LIBRARY, or unset it"
        }
        _ => INSTALL_HIP,
    }
}

fn hip_file(roots: &Roots) -> Finding {
    let found = find("libamdhip64.so", &rocm_folders(roots), roots);
    let Some(path) = found.first() else {
        return Finding::no("no libamdhip64.so is installed in the usual places".to_owned(), INSTALL_HIP);
    };
    let shown = format!("/{}", path.display());
    match roots.read(path, LIBRARY) {
        Err(error) => Finding::unknown(format!("{shown}: {error}"), "make the library readable"),
        Ok(bytes) if FILE_FUNCTIONS.iter().all(|name| names(&bytes, name)) => {
            Finding::yes(format!("{shown} names hipAmdFileRead and hipAmdFileWrite (not loaded)"))
        }
        Ok(_) => Finding::no(format!("{shown} does not name hipAmdFileRead and hipAmdFileWrite"), NEWER_HIP),
    }
}

/// Whether a table of strings in `bytes` holds exactly `name`.
fn names(bytes: &[u8], name: &str) -> bool {
    let pattern: Vec<u8> = [b"\0", name.as_bytes(), b"\0"].concat();
    // Runs of text between zeroes: far fewer than bytes.
    bytes.split_inclusive(|b| *b == 0).any(|run| run == &pattern[1..])
}

/// NVIDIA's library for direct file access.
pub(super) fn cufile(roots: &Roots) -> Finding {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    for entry in roots.list("usr/local", 256) {
        if entry.to_str().is_some_and(|name| name.starts_with("cuda-")) {
            folders.push(Path::new("usr/local").join(entry).join("lib64"));
        }
    }
    match find("libcufile.so", &folders, roots).first() {
        Some(path) => Finding::yes(format!("/{}", path.display())),
        None => Finding::no(
            "no libcufile.so is installed in the usual places".to_owned(),
            "install NVIDIA's package libcufile (part of the CUDA toolkit)",
        ),
    }
}

fn rocm_folders(roots: &Roots) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    for entry in roots.list("opt", 256) {
        if !entry.to_str().is_some_and(|name| name.starts_with("rocm")) {
            continue;
        }
        let rocm = Path::new("opt").join(entry);
        folders.extend(["lib", "lib64"].map(|lib| rocm.join(lib)));
        for core in roots.list(&rocm, 256) {
            if core.to_str().is_some_and(|name| name.starts_with("core-")) {
                folders.extend(["lib", "lib64"].map(|lib| rocm.join(&core).join(lib)));
            }
        }
    }
    folders
}

/// The first file in each folder whose name is `stem`, or `stem` and a version.
fn find(stem: &str, folders: &[PathBuf], roots: &Roots) -> Vec<PathBuf> {
    let fits =
        |name: &str| name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    folders
        .iter()
        .filter_map(|folder| {
            let names = roots.list(folder, 65_536);
            let name = names.iter().find(|name| name.to_str().is_some_and(fits))?;
            Some(folder.join(name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use test_support::fake_root::FakeRoot;

    use super::*;

    #[test]
    fn hip_is_found_in_all_its_places_and_judged_by_its_names() {
        let root = FakeRoot::new();
        let roots = Roots::under(root.path());
        assert!(!hip_file(&roots).answer.is_yes());
        root.file("opt/rocm-7.2.0/core-7/lib/libamdhip64.so.7.2", b"\0hipAmdFileRead\0hipAmdFileWrite\0");
        let finding = hip_file(&roots);
        assert!(
            finding.answer.is_yes() && finding.found.contains("/opt/rocm-7.2.0/core-7/lib/"),
            "{finding:?}"
        );
        root.file("usr/lib64/libamdhip64.so.6", b"\0hipAmdFileReadMore\0xhipAmdFileWrite\0");
        assert!(!hip_file(&roots).answer.is_yes(), "the loader's own folders go before versioned ones");
        root.hip(true);
        assert!(hip_file(&roots).answer.is_yes());
    }

    #[test]
    fn a_runtime_that_is_there_is_told_from_none() {
        let advice = |error: LoadError| instead_of(&error);
        assert_eq!(advice(LoadError::TooOld { version: 50_700_000, path: None }), NEWER_HIP);
        assert_eq!(advice(LoadError::MissingSymbol { name: "hipMemcpy", path: None }), NEWER_HIP);
        assert_eq!(advice(LoadError::NotFound { tried: Vec::new() }), INSTALL_HIP);
        let named = LoadError::CannotOpen { path: "x".into(), reason: "y".into() };
        assert!(advice(named).contains("HIPFILE_HIP_LIBRARY"));
    }

    #[test]
    fn cufile_is_found() {
        let root = FakeRoot::new();
        let roots = Roots::under(root.path());
        assert!(!cufile(&roots).answer.is_yes());
        root.file("usr/local/cuda-13.0/lib64/libcufile.so.0", "").file("usr/lib/libcufile_rdma.so", "");
        assert_eq!(cufile(&roots).found, "/usr/local/cuda-13.0/lib64/libcufile.so.0");
    }
}
