//! `cargo xtask abi`: the tests that compare `include/*.h` with the Rust definitions (types, constants, prototypes) and with the
//! symbol table of the built library, which are ordinary tests of `libhipfile`; and the headers against the snapshot.

mod snapshot;

use crate::nextest::Nextest;

/// The test binaries of `libhipfile` that make up the comparison.
pub(crate) const FILTER: &str =
    "package(libhipfile) and binary(/^(header|layout|signatures|status|symbols)$/)";

/// The command line of `cargo xtask abi`.
///
/// # Errors
/// A wrong option, or as [`run`].
pub(crate) fn main(args: &[&str]) -> Result<(), String> {
    match args {
        [] => run(),
        ["--bless"] => snapshot::run(true),
        [other, ..] => Err(format!("abi: unknown option {other}; known: --bless")),
    }
}

/// Runs the comparison.
///
/// # Errors
/// A test failed, or there is none; or the interface is not that of the snapshot.
pub(crate) fn run() -> Result<(), String> {
    Nextest::new().filter(FILTER).run()?;
    snapshot::run(false)
}
