//! Mount tables: any text gives mounts, and each can be described.
#![no_main]

use hipfile::storage::{JournalMode, Transport, mount};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    for mount in mount::parse(text) {
        let _ = (Transport::of_mount(&mount), mount.option("data").map(JournalMode::of_option));
        let _ = format!("{mount:?}");
    }
});
