//! Hostile input for whatever reads text, pages or arguments that others made: one function for each reader, which a fuzzer
//! (`fuzz/`) and the program of this crate call. It makes no input.
#![allow(
    missing_docs,
    reason = "not for use elsewhere; each function is described by its module's first line"
)]

mod calls;
#[cfg(any(fuzzing, debug_assertions))]
mod machine;
mod socket;
mod texts;

use hipfile::storage::{JournalMode, Transport, mount};

/// Takes one input. It returns, whatever the input is; a panic, an abort or a hang is what is looked for.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders in `fuzz/corpus`; in a release build that is not the fuzzer's, those that need
/// nothing behind the API.
pub const TARGETS: &[(&str, Target)] = &[
    ("mounts", mounts),
    #[cfg(any(fuzzing, debug_assertions))]
    ("machine", machine::run),
    #[cfg(any(fuzzing, debug_assertions))]
    ("settings", settings),
    #[cfg(any(fuzzing, debug_assertions))]
    ("statistics", statistics),
    ("answers", socket::answers),
    ("peers", socket::peers),
    ("texts", texts::run),
    ("calls", calls::run),
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

/// Mount tables: any text gives mounts, and each can be described.
fn mounts(text: &[u8]) {
    for mount in mount::parse(text) {
        let _ = (Transport::of_mount(&mount), mount.option("data").map(JournalMode::of_option));
        let _ = format!("{mount:?}");
    }
}

/// Configuration files and environments: whatever stands in them, there is a configuration, and a driver opens with it.
#[cfg(any(fuzzing, debug_assertions))]
fn settings(input: &[u8]) {
    let (file, variables) = input.split_at(input.len() / 2);
    hipfile::fuzz_hooks::settings(file, variables);
}

/// Pages of statistics from another process: each is understood or refused, and nobody reads beside it.
#[cfg(any(fuzzing, debug_assertions))]
fn statistics(input: &[u8]) {
    if let [kind, page @ ..] = input {
        hipfile::fuzz_hooks::statistics(page, kind & 1 == 1);
    }
}

/// A place for the files of this process, in memory where there is such.
fn scratch(name: &str) -> std::path::PathBuf {
    let folder = if std::path::Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    format!("{folder}/hipfile-hostile-{name}-{}", std::process::id()).into()
}

/// Takes numbers off an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
