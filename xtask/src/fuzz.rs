//! The fuzzer: builds its targets with the nightly toolchain and runs each for a while. What is fuzzed is in `fuzz/`.

use std::fs;

use crate::nightly;
use crate::{layout, tools};

const TARGETS: &[&str] =
    &["mounts", "machine", "settings", "statistics", "answers", "peers", "texts", "calls"];

/// Runs every target for so many seconds, from the corpus in the repository on. What it finds lies under the build folder, in
/// `fuzz-found`, and belongs into the corpus once it is mended.
///
/// # Errors
/// A target found something, or does not build.
pub(crate) fn run(seconds: u64) -> Result<(), String> {
    let Some(nightly) = nightly::with_component("fuzzing", "rustc") else { return Ok(()) };
    let fuzz = layout::root().join("fuzz");
    for target in TARGETS {
        let grown = layout::target().join("fuzz-corpus").join(target);
        let found = layout::target().join("fuzz-found").join(target);
        for folder in [&grown, &found] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        nightly
            .within(tools::tool("fuzz")?)
            .env("ASAN_OPTIONS", "detect_leaks=0")
            .words("run --target-dir")
            .arg(layout::target().join("fuzz"))
            .arg("--fuzz-dir")
            .arg(&fuzz)
            .arg(target)
            .arg(&grown)
            .arg(fuzz.join("corpus").join(target))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", found.display()))
            .words("-timeout=120 -rss_limit_mb=3000 -max_len=4096 -detect_leaks=0 -print_final_stats=1 -verbosity=0")
            .run()?;
    }
    Ok(())
}
