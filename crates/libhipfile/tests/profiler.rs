//! The table of functions is offered to a profiler that is in the process: a small library stands in for ROCm's, and a C
//! program runs with it.
#![allow(clippy::unwrap_used, reason = "a test: what fails panics")]

mod support;

use std::path::Path;
use std::process::Command;

use support::{built, crate_dir, include_dir, run, stderr};

/// Compiles the program and the library, and runs the program with or without the library in its process.
fn profiled(mode: &str, profiler: bool, set: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(built("libhipfile_c.so"), at("libhipfile.so.0")).unwrap();
    compile(&at("program"), "profiled.c", &["-pthread"], &[&at("libhipfile.so.0")]);
    compile(
        &at("preloaded"),
        "profiler.c",
        &["-shared", "-fPIC", "-Wl,-soname,librocprofiler-register.so.0"],
        &[],
    );
    let mut command = Command::new(at("program"));
    command.arg(mode).env_clear().env("LD_LIBRARY_PATH", folder.path()).envs(set.iter().copied());
    if profiler {
        command.env("LD_PRELOAD", at("preloaded"));
    }
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stdout == b"OK\n", "{}: {}", output.status, stderr(&output));
}

fn compile(to: &Path, source: &str, flags: &[&str], libraries: &[&Path]) {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-DHIPFILE_NO_HIP", "-O1", "-Wall", "-Wextra", "-Werror"])
        .args(flags);
    cc.arg("-I").arg(include_dir()).arg(crate_dir().join("tests/profiler").join(source));
    run(cc.args(libraries).arg("-ldl").arg("-o").arg(to));
}

#[test]
fn behaviour_128_a_profiler_is_offered_the_table_once_and_sees_the_calls() {
    profiled("replaces", true, &[]);
}

#[test]
fn a_profiler_that_wants_nothing_changes_nothing() {
    profiled("fails", true, &[("PROFILER_FAILS", "1")]);
}

#[test]
fn behaviour_128_without_a_profiler_nothing_is_offered() {
    profiled("none", false, &[]);
}
