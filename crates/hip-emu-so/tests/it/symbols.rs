//! The names that the libraries export: those of the headers, the marker, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use hip_emu::function::Function;
use test_support::emulation;

use crate::cc::{code_of, header};
use crate::prototypes::of_header;

fn exported(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect()
}

fn declared(name: &str) -> BTreeSet<String> {
    of_header(&code_of(&header(name))).into_iter().map(|prototype| prototype.name).collect()
}

#[test]
fn the_runtime_exports_what_its_header_declares() {
    let mut expected = declared("hip_runtime_api.h");
    assert!(expected.len() > 90, "{}", expected.len());
    expected.insert(gpu_sys::hip::EMULATION_MARKER.to_str().unwrap().to_owned());
    assert_eq!(exported(&emulation().runtime()), expected);
}

#[test]
fn the_compiler_exports_what_its_header_declares() {
    let expected = declared("hiprtc.h");
    assert!(expected.len() > 8);
    assert_eq!(exported(&emulation().lib.join("libhiprtc.so")), expected);
}

#[test]
fn every_emulated_function_is_exported() {
    let mut all = declared("hip_runtime_api.h");
    all.append(&mut declared("hiprtc.h"));
    // Reached by hipGetProcAddress alone, as in ROCm.
    let hidden = ["hipAmdFileRead", "hipAmdFileWrite", "hipMemGetHandleForAddressRange"];
    all.extend(hidden.map(str::to_owned));
    let emulated: BTreeSet<String> =
        Function::ALL.iter().map(|function| function.name().to_owned()).collect();
    assert_eq!(all, emulated);
}

#[test]
fn the_runtime_has_amds_soname() {
    let output = Command::new("readelf").arg("-d").arg(emulation().runtime()).output().expect("readelf runs");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[libamdhip64.so.7]"), "{text}");
    assert!(text.contains("NODELETE"), "{text}");
    for name in ["libamdhip64.so.6", "libamdhip64.so"] {
        let link = emulation().lib.join(name).canonicalize().unwrap();
        assert_eq!(link, emulation().runtime().canonicalize().unwrap(), "{name}");
    }
}
