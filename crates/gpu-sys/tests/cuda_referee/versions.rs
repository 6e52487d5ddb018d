//! The text of the bindings, which says of each declaration for which versions of CUDA it holds: those that matter are
//! declared once for all versions since 12.0, and numbers are the same in all.

use gpu_sys::cuda::{CudaError, OLDEST_DRIVER_VERSION};

use crate::packages::folder_of;
use crate::{CONSTANTS, OPTIONAL, REQUIRED};

/// Version numbers as `cuDriverGetVersion` tells them, from the oldest served to the newest of the bindings.
fn versions(source: &str) -> Vec<String> {
    let mut all: Vec<u32> = source
        .split("feature = \"cuda-")
        .skip(1)
        .filter_map(|rest| rest[..5].parse().ok())
        .filter(|version| *version >= OLDEST_DRIVER_VERSION.unsigned_abs())
        .collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|version| format!("cuda-{version}")).collect()
}

fn source() -> String {
    std::fs::read_to_string(folder_of("cudarc").join("src/driver/sys/mod.rs")).unwrap()
}

/// What newer versions have that the oldest served do not, each since when.
const LATER: &[(&str, &str)] =
    &[("cuMemcpyBatchAsync_v2", "cuda-13000"), ("CU_MEMCPY_SRC_ACCESS_ORDER_STREAM", "cuda-13000")];

/// The versions that a declaration must hold for.
fn since<'a>(name: &str, versions: &'a [String]) -> &'a [String] {
    let first = LATER.iter().find(|(later, _)| *later == name).map(|(_, since)| *since);
    &versions[versions.iter().position(|v| first.is_none_or(|first| v == first)).unwrap()..]
}

/// Whether the lines before one say that it holds for all versions.
fn for_all(condition: Option<&str>, versions: &[String]) -> bool {
    condition.is_none_or(|line| versions.iter().all(|version| line.contains(version.as_str())))
}

fn for_any(condition: Option<&str>, versions: &[String]) -> bool {
    condition.is_none_or(|line| versions.iter().any(|version| line.contains(version.as_str())))
}

#[test]
fn functions_are_declared_alike_in_every_version() {
    let source = source();
    let versions = versions(&source);
    assert!(versions.len() >= 12 && versions[0] == "cuda-12000", "{versions:?}");
    let lines: Vec<&str> = source.lines().collect();
    for name in REQUIRED.iter().chain(OPTIONAL) {
        assert!(!REQUIRED.contains(name) || since(name, &versions) == versions, "{name} is required");
        let versions = since(name, &versions);
        let head = format!("pub unsafe fn {name}(");
        let found: Vec<_> = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.starts_with(&head))
            .map(|(at, _)| lines[at - 1].starts_with("#[cfg(").then_some(lines[at - 1]))
            .filter(|condition| for_any(*condition, versions))
            .collect();
        assert_eq!(found.len(), 1, "{name} is declared in more than one way");
        assert!(for_all(found[0], versions), "{name} is not in all: {}", found[0].unwrap_or_default());
    }
}

#[test]
fn numbers_are_the_same_in_every_version() {
    let source = source();
    let versions = versions(&source);
    let errors = CudaError::NAMED.iter().map(|(code, name)| (code.0, *name));
    for (value, name) in CONSTANTS.iter().map(|(_, value, name)| (*value, *name)).chain(errors) {
        let (mut condition, mut covered) = (None, Vec::new());
        for line in source.lines() {
            if line.starts_with("#[cfg(") {
                condition = Some(line);
            } else if line == "}" || line.ends_with(';') {
                let plain =
                    line.strip_prefix("pub const ").filter(|rest| rest.starts_with(&format!("{name}: ")));
                if plain.is_some() {
                    assert!(line.ends_with(&format!(" = {value};")), "{line}, not {value}");
                    covered.push(condition);
                }
                condition = None;
            }
            let variant = line.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(" = "));
            if let Some(theirs) = variant
                && for_any(condition, &versions)
            {
                assert_eq!(theirs.trim_end_matches(','), value.to_string(), "{name}");
                covered.push(condition);
            }
        }
        let missing: Vec<_> = since(name, &versions)
            .iter()
            .filter(|version| !covered.iter().any(|c| c.is_none_or(|line| line.contains(version.as_str()))))
            .collect();
        assert!(missing.is_empty(), "{name} is not in {missing:?}");
    }
}
