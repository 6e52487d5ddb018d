//! Shared by the tests that compare the headers, the Rust definitions and the built library: finding files, reading the
//! headers' declarations, running compilers. It compares nothing itself.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod header;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The headers, in the order in which they are installed.
pub(crate) const HEADERS: [&str; 3] = ["hipfile.h", "hipfile-stats.h", "hipfile_ext.h"];

/// This crate's folder.
pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the public headers.
pub(crate) fn include_dir() -> PathBuf {
    crate_dir().join("../../include")
}

/// A file that the build put beside the test programs.
pub(crate) fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let path = program.parent().unwrap().join(name);
    assert!(path.is_file(), "{} was not built", path.display());
    path
}

/// Whether a program can be started at all.
pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Runs a program that must succeed; returns its standard output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What a program said on standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
