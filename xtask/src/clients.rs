//! `cargo xtask clients`: other people's programs on our library and the emulated GPU. They are installed from the package
//! registry into environments of their own; nothing of theirs is in this repository, and nothing of theirs is read.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{Cmd, cmd};
use crate::python::{self, Python};
use crate::{dist, layout};

/// AMD's own bindings, the newest that the registry has.
const BINDINGS: &str = "hipfile==0.4.0.dev0";
const PROGRAMS: &str = "crates/libhipfile/tests/clients";

/// How HIP's symbols come to AMD's bindings, which have them from AMD's library only (docs/abi.md).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hip {
    Preloaded,
    Linked,
}

impl Hip {
    fn name(self) -> &'static str {
        match self {
            Hip::Preloaded => "preloaded",
            Hip::Linked => "linked",
        }
    }
}

/// The command, and the step of `cargo xtask ci`.
///
/// # Errors
/// A client does not build, or finds something that it does not expect.
pub(crate) fn run() -> Result<(), String> {
    let Some(python) = python::oldest() else {
        println!("SKIP: clients of the library in Python: there is no Python that the checks can use");
        return Ok(());
    };
    let staged = dist::stage(true, None)?;
    program(&python.path, "by_ctypes.py", &staged)?.run()?;

    let list = Path::new(PROGRAMS).join("requirements.txt");
    let home = python::environment(python, "fastsafetensors", Some(&list), &[])?;
    program(&home.join("bin/python"), "fastsafetensors_reads.py", &staged)?.run()?;

    if !python.has_headers() {
        println!("SKIP: AMD's bindings: Python {} is here without its headers", python.name());
        return Ok(());
    }
    for hip in [Hip::Preloaded, Hip::Linked] {
        let wheel = bindings(python, hip, &staged)?;
        let home = python::environment(python, &format!("bindings-{}", hip.name()), None, &[&wheel])?;
        let mut program = program(&home.join("bin/python"), "amd_bindings.py", &staged)?;
        if hip == Hip::Preloaded {
            program = program.env("LD_PRELOAD", staged.join("lib/hip-emu/libamdhip64.so"));
        }
        program.run()?;
    }
    Ok(())
}

/// One of our programs that drive a client. The staged libraries are the first that are found.
fn program(python: &Path, name: &str, staged: &Path) -> Result<Cmd, String> {
    let (lib, hip) = (staged.join("lib"), staged.join("lib/hip-emu"));
    let path = std::env::join_paths([lib, hip]).map_err(|e| format!("{}: {e}", staged.display()))?;
    Ok(cmd(python)
        .env("LD_LIBRARY_PATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("STAGED", staged)
        .env("VERSION", layout::version()?)
        .arg("-X")
        .arg("faulthandler")
        .arg(Path::new(PROGRAMS).join(name)))
}

/// AMD's bindings, built against our header and library; once for each header.
fn bindings(python: &Python, hip: Hip, staged: &Path) -> Result<PathBuf, String> {
    let header = staged.join("include/hipfile.h");
    let text = fs::read(&header).map_err(|e| format!("{}: {e}", header.display()))?;
    let key = format!("{}-{}-{:016x}", BINDINGS.replace("==", "-"), hip.name(), python::fingerprint(&text));
    let house = python::tools().join(format!("{key}-python{}", python.name()));
    python::once(&house, || {
        let [include, hip_include] = ["include", "include/hip-emu"].map(|dir| staged.join(dir));
        let arguments = format!(
            "-DHIPFILE_INCLUDE_DIR={} -DHIPFILE_LIBRARY={} -DHIP_INCLUDE_DIR={}",
            include.display(),
            staged.join("lib/libhipfile.so").display(),
            hip_include.display()
        );
        let mut build = python::pip(&python.path)?.env("CMAKE_ARGS", arguments);
        if hip == Hip::Linked {
            let folder = staged.join("lib/hip-emu");
            build = build.env("LDFLAGS", format!("-Wl,--no-as-needed -L{} -lamdhip64", folder.display()));
        }
        // A wheel in pip's own cache would be one that was linked otherwise.
        build
            .words("--no-cache-dir wheel --no-deps --no-binary hipfile --wheel-dir")
            .arg(&house)
            .arg(BINDINGS)
            .run()
    })?;
    python::only_wheel(&house)
}
