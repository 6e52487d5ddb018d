//! Where the tests of this workspace find the emulated GPU's libraries and headers, and how they make up a /proc and
//! /sys. For tests only: it panics on whatever it cannot do, and no shipped crate depends on it.

pub mod afterwards;
pub mod fake_root;
pub mod fuse;
pub mod moto;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Names the folder that `cargo xtask dist` staged; then nothing is built.
const DIST: &str = "HIPFILE_TEST_DIST";

/// The emulated GPU as C programs use it.
#[derive(Debug)]
pub struct Emulation {
    /// Holds `libamdhip64.so.7`, its links `.so.6` and `.so`, and `libhiprtc.so`.
    pub lib: PathBuf,
    /// Holds the folder `hip` with the headers.
    pub include: PathBuf,
}

/// The emulation's libraries and headers: those staged in `$HIPFILE_TEST_DIST` if it is set, else built with cargo, in
/// the build folder of the running tests. The first call of a process may take as long as the build.
///
/// # Panics
/// The staged folder lacks the library, or the build failed.
pub fn emulation() -> &'static Emulation {
    static EMULATION: OnceLock<Emulation> = OnceLock::new();
    EMULATION.get_or_init(|| match variable(DIST) {
        Some(dist) => staged(Path::new(&dist)),
        None => built(),
    })
}

impl Emulation {
    /// `libamdhip64.so.7`.
    pub fn runtime(&self) -> PathBuf {
        self.lib.join("libamdhip64.so.7")
    }

    /// Lets a program find the emulation: the folder is put before what `LD_LIBRARY_PATH` holds already.
    pub fn serve(&self, command: &mut Command) {
        let mut path = self.lib.clone().into_os_string();
        let set = command.get_envs().find(|(name, _)| *name == OsStr::new("LD_LIBRARY_PATH"));
        let old = match set {
            Some((_, value)) => value.map(OsStr::to_owned),
            None => variable("LD_LIBRARY_PATH"),
        };
        if let Some(old) = old.filter(|old| !old.is_empty()) {
            path.push(":");
            path.push(old);
        }
        command.env("LD_LIBRARY_PATH", path);
    }
}

fn staged(dist: &Path) -> Emulation {
    let emulation = Emulation { lib: dist.join("lib/hip-emu"), include: dist.join("include/hip-emu") };
    let runtime = emulation.runtime();
    assert!(runtime.exists(), "{DIST}: {} does not exist (cargo xtask dist)", runtime.display());
    emulation
}

fn built() -> Emulation {
    let cargo = variable("CARGO").unwrap_or_else(|| env!("CARGO").into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--message-format=json-render-diagnostics"])
        .args(["--package=hip-emu-so", "--package=hip-emu-rtc-so", "--target-dir"])
        .arg(target_folder())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "the emulated GPU does not build");
    let messages = String::from_utf8(output.stdout).expect("cargo speaks UTF-8");
    let runtime = artefact(&messages, "libamdhip64.so");
    let compiler = artefact(&messages, "libhiprtc.so");

    let lib = runtime.with_file_name("hip-emu");
    std::fs::create_dir_all(&lib).expect("a folder in the build folder");
    link(&runtime, &lib.join("libamdhip64.so.7"));
    link(&runtime, &lib.join("libamdhip64.so.6"));
    link(&runtime, &lib.join("libamdhip64.so"));
    link(&compiler, &lib.join("libhiprtc.so"));
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hip-emu-so/include");
    Emulation { lib, include }
}

/// The build folder that the running test program lies in, `TARGET/PROFILE/deps/NAME`.
fn target_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    program.ancestors().nth(3).expect("a test lies in a build folder").to_owned()
}

/// The path of the built file of that name, from cargo's messages.
fn artefact(messages: &str, name: &str) -> PathBuf {
    let found = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let files = message.get("filenames")?.as_array()?.clone();
        files.iter().filter_map(|file| file.as_str()).map(PathBuf::from).find(|file| file.ends_with(name))
    });
    found.unwrap_or_else(|| panic!("cargo did not say where {name} is"))
}

/// Other test processes make the same links at the same time.
fn link(to: &Path, at: &Path) {
    match std::os::unix::fs::symlink(to, at) {
        Ok(()) => (),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => (),
        Err(error) => panic!("{}: {error}", at.display()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the tests' runner speaks to tests by environment")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
