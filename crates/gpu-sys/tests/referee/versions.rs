//! The other ROCm versions. The compiler compares one set of bindings; here the declarations that matter are shown
//! to read alike in all of them, so that its word holds for every version.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use hip_emu::function::Function;

use crate::bindings::{Declarations, sets};
use crate::{constants, functions, types};

/// Functions that some versions declare with a pointer to const where others forgot to; nothing else changed.
const CONST_ADDED: &[&str] =
    &["hipMemcpyHtoD", "hipMemcpyHtoDAsync", "hiprtcCompileProgram", "hiprtcCreateProgram"];

/// Which ROCm the bindings of this build are of: the one that `hipconfig` names, the newest without one.
#[test]
fn the_bindings_are_those_asked_for() {
    let sets = sets();
    let patch = cubecl_hip_sys::HIP_VERSION_PATCH;
    let asked = match Command::new("hipconfig").arg("--version").output() {
        Ok(output) => String::from_utf8(output.stdout).unwrap(),
        Err(_) => format!("..{}-", sets.keys().max_by_key(|patch| version_of(&sets[patch])).unwrap()),
    };
    let asked = asked.trim().split(['.', '-']).nth(2).unwrap();
    assert_eq!(asked, patch.to_string(), "a stale build: use a build folder for each hipconfig");
    assert!(cubecl_hip_sys::HIP_VERSION >= gpu_sys::hip::OLDEST_RUNTIME_VERSION.unsigned_abs());
    eprintln!("compared with the bindings of HIP {}", cubecl_hip_sys::HIP_VERSION);
}

#[test]
fn the_declarations_read_alike_in_every_version() {
    let sets = sets();
    let compiled = Declarations::read(&sets[&cubecl_hip_sys::HIP_VERSION_PATCH]);
    let names: BTreeSet<&str> = Function::ALL
        .iter()
        .map(|function| function.name())
        .filter(|name| !functions::UNDECLARED.contains(name))
        .chain(constants::their_names())
        .chain(types::their_names())
        .collect();
    assert!(sets.len() > 5 && names.len() > 150, "{} sets, {} names", sets.len(), names.len());

    let mut changed = BTreeSet::new();
    for (patch, path) in &sets {
        let declarations = Declarations::read(path);
        for name in &names {
            let here = declarations.get(name).unwrap_or_else(|| panic!("{patch}: {name} is not declared"));
            let there = compiled.get(name).unwrap();
            if here != there {
                let alike = here.replace("*const", "*mut") == there.replace("*const", "*mut");
                assert!(alike && CONST_ADDED.contains(name), "{patch}: {here}\nnot as {there}");
                changed.insert(*name);
            }
        }
    }
    assert_eq!(changed, CONST_ADDED.iter().copied().collect(), "what changed, and what is said to");
}

fn version_of(path: &Path) -> u32 {
    let declarations = Declarations::read(path);
    let text = declarations.get("HIP_VERSION").unwrap();
    text.trim_end_matches(';').rsplit(' ').next().unwrap().parse().unwrap()
}
