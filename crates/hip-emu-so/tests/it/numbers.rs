//! Every number of the headers, as the C compiler sees it, against HIP's own, and the table's error names against the
//! headers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use gpu_sys::hip::HipError;

use crate::bindings::{Declarations, sets};
use crate::cc::{build, code_of, header, run, succeeded};

/// Macros that are no numbers, with the reason.
const NO_NUMBERS: &[(&str, &str)] = &[
    ("hipStreamLegacy", "a handle; the bindings leave it out"),
    ("hipStreamPerThread", "a handle; the bindings leave it out"),
    ("hipDeviceProp_t", "a type's name"),
    ("hipGetDeviceProperties", "a function's name"),
    ("HIP_EMU_DEFAULT", "takes an argument, and is taken back"),
];

/// The names that a header gives to numbers, each with the name that the bindings give it.
fn numbers(name: &str) -> Vec<(String, String)> {
    let text = header(name);
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("#define ") else { continue };
        let Some((name, value)) = rest.split_once([' ', '(']) else { continue };
        if !value.is_empty() && NO_NUMBERS.iter().all(|(known, _)| *known != name) {
            found.push((name.to_owned(), name.to_owned()));
        }
    }
    let code = code_of(&text);
    for list in code.split("typedef enum ").skip(1) {
        let (kind, rest) = list.split_once(" {").unwrap();
        let (items, _) = rest.split_once('}').unwrap();
        let names = items.split(',').map(|item| item.split('=').next().unwrap().trim());
        found.extend(names.map(|name| (name.to_owned(), format!("{kind}_{name}"))));
    }
    found
}

/// What a C program says these names are.
fn values(numbers: &[(String, String)]) -> BTreeMap<String, i64> {
    let folder = tempfile::tempdir().unwrap();
    let mut source =
        "#include <hip/hip_runtime.h>\n#include <hip/hiprtc.h>\n#include <stdio.h>\nint main(void) {\n"
            .to_owned();
    for (name, _) in numbers {
        let _ = writeln!(source, "    printf(\"{name} %lld\\n\", (long long){name});");
    }
    source.push_str("    return 0;\n}\n");
    let path = folder.path().join("numbers.c");
    std::fs::write(&path, source).unwrap();
    let program = build(&path, &folder.path().join("numbers"), &[]);
    let output = run(&mut Command::new(program));
    succeeded(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[test]
fn every_number_is_hips() {
    let sets = sets();
    let newest =
        sets.values().map(|path| Declarations::read(path)).max_by_key(|set| value(set, "HIP_VERSION"));
    let newest = newest.unwrap();
    let mut numbers = numbers("hip_emu_types.h");
    numbers.extend(self::numbers("hiprtc.h"));
    numbers.extend(self::numbers("hip_version.h"));
    assert!(numbers.len() > 200, "{}", numbers.len());
    let values = values(&numbers);
    for (name, binding) in &numbers {
        let theirs = value(&newest, binding).unwrap_or_else(|| panic!("the bindings have no {binding}"));
        assert_eq!(values[name], theirs, "{name}");
    }
}

fn value(set: &Declarations, name: &str) -> Option<i64> {
    let (_, value) = set.get(name)?.split_once(" = ")?;
    value.trim_end_matches(';').parse().ok()
}

#[test]
fn every_error_of_the_table_is_in_the_header() {
    let names: Vec<(String, String)> =
        HipError::NAMED.iter().map(|(_, name)| ((*name).to_owned(), String::new())).collect();
    let values = values(&names);
    for (code, name) in HipError::NAMED {
        assert_eq!(values[*name], i64::from(code.0), "{name}");
    }
}
