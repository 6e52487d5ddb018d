//! Object stores: the tests of `hipfile-object` and of the tool with it, against an S3 server from the Python package index, and
//! the proof that the usual builds carry nothing of them.

use std::path::Path;

use crate::cmd::cargo;
use crate::nextest::Nextest;
use crate::python;

/// What is tested here and not with the rest.
pub(crate) const FILTER: &str = "package(hipfile-object)";

const REQUIREMENTS: &str = "crates/hipfile-object/tests/requirements.txt";
/// What is shipped, and must stay small.
const USUAL: &[&str] = &["libhipfile", "hipfile-tools", "hipfile-python", "hip-emu-so"];
/// An asynchronous runtime, TLS, and who brings them.
const HEAVY: &[&str] = &["tokio", "rustls", "ring", "reqwest", "hyper", "object_store", "hipfile-object"];

/// The step of `cargo xtask ci`.
///
/// # Errors
/// A usual build depends on object stores, or a test fails.
pub(crate) fn run() -> Result<(), String> {
    for package in USUAL {
        let tree = cargo()
            .words("tree --locked --edges normal,build --prefix none --package")
            .arg(package)
            .output()?;
        if let Some(heavy) = heavy(&tree) {
            return Err(format!("{package} depends on {heavy} without being asked for object stores"));
        }
    }
    cargo()
        .words("clippy --locked --package hipfile-tools --features objects --all-targets -- -D warnings")
        .run()?;
    let tests = "--package hipfile-object --package hipfile-tools --features hipfile-tools/objects";
    let filter = format!("{FILTER} or (package(hipfile-tools) and test(/object/))");
    with_server(Nextest::new().select(tests).filter(&filter))?.run()
}

/// The step of `cargo xtask deep`.
///
/// # Errors
/// The bytes that come back are others.
pub(crate) fn large() -> Result<(), String> {
    let mib = std::env::var("HIPFILE_TEST_OBJECT_MIB").unwrap_or_else(|_| "1024".to_owned());
    let tests = Nextest::new().profile("deep").select("--package hipfile-object --test it");
    let tests = tests.filter("test(a_large_object)").env("HIPFILE_TEST_OBJECT_MIB", &mib);
    with_server(tests)?.run()
}

/// The tests find the server by the Python that has it. Without one they say that they are skipped.
fn with_server(tests: Nextest) -> Result<Nextest, String> {
    let Some(python) = python::oldest() else {
        return Ok(tests);
    };
    let home = python::environment(python, "moto", Some(Path::new(REQUIREMENTS)), &[])?;
    Ok(tests.env("HIPFILE_TEST_MOTO", &home.join("bin/python").to_string_lossy()))
}

/// The first of the packages in a tree that must not be there.
fn heavy(tree: &str) -> Option<&str> {
    tree.lines().filter_map(|line| line.split(' ').next()).find(|name| HEAVY.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_packages_are_found() {
        assert_eq!(heavy("hipfile-tools v0.5.0 (path)\nlibc v0.2.1\ntokio v1.0.0 (*)\n"), Some("tokio"));
        assert_eq!(heavy("hipfile v0.5.0\ntracing v0.1.0\n"), None);
    }
}
