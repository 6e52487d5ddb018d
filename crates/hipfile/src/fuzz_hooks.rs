//! What the fuzzer reaches behind the API (`fuzz/`): readers of what others made. In release builds but the fuzzer's it is not there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::AtomicU64;

use crate::config::{Config, SETTINGS};
use crate::storage::Roots;

/// Takes a configuration from a file with these bytes and variables with those, and opens a driver with it.
pub fn settings(file: &[u8], variables: &[u8]) {
    let path = format!("/dev/shm/hipfile-fuzz-settings-{}", std::process::id());
    if std::fs::write(&path, file).is_err() {
        return;
    }
    // The nth line is the value of the nth setting.
    let values: Vec<&[u8]> = variables.split(|byte| *byte == b'\n').collect();
    let (config, warnings) = Config::from_lookup(|name| {
        if name == "HIPFILE_CONFIG" {
            return Some(OsString::from(&path));
        }
        let at = SETTINGS.iter().position(|setting| setting.variable == name)?;
        values.get(at).filter(|value| !value.is_empty()).map(|value| OsStr::from_bytes(value).to_owned())
    });
    assert!(warnings.iter().all(|warning| !warning.is_empty()));
    for setting in SETTINGS {
        let value = setting.get(&config);
        assert!(setting.check(&value).is_ok(), "{} is {value:?}", setting.variable);
    }
    let _ = std::fs::remove_file(&path);
}

/// Reads a page of statistics.
pub fn statistics(page: &[u8], is_amds: bool) {
    let words: Vec<AtomicU64> = page
        .chunks_exact(8)
        .map(|word| AtomicU64::new(u64::from_le_bytes(std::array::from_fn(|at| word[at]))))
        .collect();
    let snapshot = match is_amds {
        true if words.len() == crate::stats::AMD_WORDS => crate::stats::read_amd(&words, 1, 2),
        true => return,
        false => crate::stats::Snapshot::of(&words, 2),
    };
    if let Ok(snapshot) = snapshot {
        let _ = format!("{snapshot:?}");
    }
}

/// Describes a machine, as `hipfile check` does.
pub fn describe(roots: &Roots) {
    let _ = format!("{:?}", crate::platform::Platform::probe(&Config::default(), roots));
}
