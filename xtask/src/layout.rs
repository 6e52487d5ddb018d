//! Where things are in the checkout and in the build folder. It creates nothing.

use std::path::{Path, PathBuf};

/// The root of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The folder for build outputs: `CARGO_TARGET_DIR`, else `target`.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The folder that `cargo xtask dist` fills unless told otherwise.
pub(crate) fn dist(debug: bool) -> PathBuf {
    target().join(if debug { "dist-debug" } else { "dist" })
}

/// The version in the workspace manifest, as in `0.5.0`.
pub(crate) fn version() -> Result<String, String> {
    let manifest = root().join("Cargo.toml");
    let text = read(&manifest)?;
    text.lines()
        .find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .map(str::to_owned)
        .ok_or_else(|| format!("{} has no version line", manifest.display()))
}

/// A whole text file, with its name in the error.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}
