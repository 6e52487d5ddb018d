//! `cargo xtask deep`: the tests that draw random operations, with far more of them than `ci` has time for.

use crate::nextest::Nextest;

/// Runs every test whose name says that it draws operations or compares with a model.
///
/// # Errors
/// A test failed, or there is none.
pub(crate) fn run() -> Result<(), String> {
    let ops = std::env::var("HIPFILE_TEST_OPS").unwrap_or_else(|_| "1000000".to_owned());
    crate::dist::stage(true, None)?;
    Nextest::new().profile("deep").filter("test(/random|model/)").staged().env("HIPFILE_TEST_OPS", &ops).run()
}
