//! `cargo xtask abi`: the tests that compare `include/*.h` with the Rust definitions (types, constants,
//! prototypes) and with the symbol table of the built library. They are ordinary tests of `libhipfile`.

use crate::nextest::Nextest;

/// The test binaries of `libhipfile` that make up the comparison.
pub(crate) const FILTER: &str =
    "package(libhipfile) and binary(/^(header|layout|signatures|status|symbols)$/)";

/// Runs the comparison.
///
/// # Errors
/// A test failed, or there is none.
pub(crate) fn run() -> Result<(), String> {
    Nextest::new().filter(FILTER).run()
}
