//! Which GPU serves, and that an emulation is never taken for one.

use std::path::Path;

use crate::support::{HIPFILE, Lab, run, skip};

#[test]
fn the_emulation_says_so_once() {
    let lab = Lab::new();
    lab.write("source", &[1; 300_000]);
    let run = lab.copies(&["source", "destination", "--chunk", "64K", "--verify"]);
    assert_eq!(run.stderr.matches("emulated").count(), 1, "{}", run.stderr);
}

#[test]
fn without_a_gpu_the_emulation_serves_but_not_in_its_place() {
    let lab = Lab::new();
    lab.write("source", b"x");
    let done = run(lab.copy(&["source", "destination", "--json"]).env_remove("HIPFILE_DEVICE"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    if done.json()["emulated"] == false {
        return skip("falling back to the emulation", "this machine has a GPU");
    }
    assert!(done.stderr.contains("using the emulated GPU"), "{}", done.stderr);
    let asked = run(lab.copy(&["source", "other"]).env("HIPFILE_DEVICE", "hip"));
    asked.failed_with(&["GPU: "]);
    assert!(!asked.stderr.contains("using the emulated GPU"), "{}", asked.stderr);
    assert!(!lab.path("other").exists());
}

#[test]
fn any_gpu_that_is_there_can_be_chosen() {
    let lab = Lab::new();
    lab.write("source", &[3; 100_000]);
    lab.write("destination", b"old");
    lab.fails(&["source", "destination", "--gpu", "1"], &["GPU 1", "no such GPU"]);
    assert_eq!(lab.read("destination"), b"old");
    let chosen =
        run(lab.copy(&["source", "destination", "--gpu", "2", "--json"]).env("HIP_EMU_DEVICES", "3"));
    assert_eq!(chosen.code, Some(0), "{}", chosen.stderr);
    assert_eq!(chosen.json()["gpu"], 2);
    assert_eq!(lab.read("destination"), [3; 100_000]);
}

#[test]
fn too_little_memory_is_named() {
    let lab = Lab::new();
    lab.write("source", &[3; 4 << 20]);
    lab.write("destination", b"old");
    let failed = run(lab.copy(&["source", "destination"]).env("HIP_EMU_MEMORY", "1M"));
    failed.failed_with(&["bytes of memory of GPU 0", "hipErrorOutOfMemory"]);
    assert_eq!(lab.read("destination"), b"old");
}

#[test]
fn a_link_that_moves_no_bytes_is_never_verified_and_never_silent() {
    let lab = Lab::new();
    lab.write("source", &[3; 100_000]);
    lab.write("destination", b"old");
    let refused = run(lab.copy(&["source", "destination", "--verify"]).env("HIP_EMU_LINK", "10"));
    refused.failed_with(&["--verify: not possible", "timed link"]);
    assert_eq!(lab.read("destination"), b"old");
    let warned = run(lab.copy(&["source", "destination", "--json"]).env("HIP_EMU_LINK", "10"));
    assert_eq!(warned.code, Some(0), "{}", warned.stderr);
    assert!(warned.said()[0].contains("will not hold the source's bytes"), "{}", warned.stderr);
    assert!(warned.json()["emulation_note"].as_str().unwrap().contains("timed link"));
}

#[test]
fn an_engine_that_moves_no_bytes_is_refused() {
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.write("destination", b"old");
    let refused = run(lab.copy(&["source", "destination"]).env("HIPFILE_ENGINES", "null"));
    refused.failed_with(&["engine null", "moves no bytes"]);
    assert_eq!(lab.read("destination"), b"old");
}

#[test]
fn help_needs_no_gpu() {
    let lab = Lab::new();
    let run = run(lab.command(Path::new(HIPFILE)).args(["copy", "--help"]).env("HIP_EMU_DEVICES", "0"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
}
