//! The built libraries: what they export against what the headers declare, both ways, and what they ask of the system.
#![allow(clippy::unwrap_used, reason = "a test: what fails panics")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use support::header::prototypes;
use support::{built, run};

fn declared() -> BTreeSet<String> {
    prototypes().into_iter().map(|prototype| prototype.name).collect()
}

/// Kind and name of each symbol that `nm` prints.
fn nm(arguments: &[&str], library: &str) -> Vec<(String, String)> {
    let output = run(Command::new("nm").args(arguments).arg(built(library)));
    let symbols = output.lines().filter_map(|line| {
        let mut words = line.split_whitespace().rev();
        let (name, kind) = (words.next()?, words.next()?);
        (kind.len() == 1).then(|| (kind.to_owned(), name.to_owned()))
    });
    symbols.collect()
}

fn readelf(argument: &str) -> String {
    run(Command::new("readelf").env("LC_ALL", "C").args(["-W", argument]).arg(built("libhipfile_c.so")))
}

#[test]
fn the_shared_library_exports_the_headers_functions_and_nothing_else() {
    let exported = nm(&["-D", "--defined-only"], "libhipfile_c.so");
    assert!(exported.iter().all(|(kind, _)| kind == "T"), "not all are functions: {exported:?}");
    let exported: BTreeSet<_> = exported.into_iter().map(|(_, name)| name).collect();
    // What no header declares: by it a profiler recognises the table of functions.
    let mut expected = declared();
    expected.insert("rocprofiler_register_import_hipFile".into());
    assert_eq!(exported, expected);
}

#[test]
fn the_static_library_defines_the_headers_functions() {
    let defined = nm(&["--defined-only", "--extern-only"], "libhipfile_c.a");
    let defined: BTreeSet<_> =
        defined.into_iter().map(|(_, name)| name).filter(|name| name.starts_with("hip")).collect();
    assert_eq!(defined, declared());
}

#[test]
fn behaviour_140_the_shared_library_needs_the_c_library_only() {
    let dynamic = readelf("-d");
    let needed: Vec<_> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .map(|line| line.split(['[', ']']).nth(1).unwrap())
        .collect();
    assert!(!needed.is_empty());
    for library in needed {
        let stem = library.split(".so").next().unwrap();
        let known = ["libc", "libm", "libgcc_s"].contains(&stem) || stem.starts_with("ld-linux");
        assert!(known, "{library} is needed");
    }
}

#[test]
fn behaviour_141_the_shared_library_is_linked_as_promised() {
    let dynamic = readelf("-d");
    assert!(dynamic.contains("Library soname: [libhipfile.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(dynamic.contains("BIND_NOW"), "{dynamic}");
    for unwanted in ["TEXTREL", "RPATH", "RUNPATH"] {
        assert!(!dynamic.contains(unwanted), "{unwanted}: {dynamic}");
    }
    let segments = readelf("-l");
    assert!(segments.contains("GNU_RELRO"), "{segments}");
    let stack = segments.lines().find(|line| line.contains("GNU_STACK")).unwrap();
    assert!(!stack.contains("RWE"), "{stack}");
}

#[test]
fn behaviour_152_no_gpu_runtime_is_linked() {
    let undefined = nm(&["-D", "--undefined-only"], "libhipfile_c.so");
    assert!(!undefined.is_empty());
    for (_, name) in undefined {
        assert!(!name.starts_with("hip") && !name.starts_with("cu"), "{name} must come by dlopen");
    }
}

/// Locations of the probes that the notes of the shared library name.
#[cfg(target_arch = "x86_64")]
fn probes(name: &str) -> Vec<u64> {
    let notes = readelf("-n");
    let lines: Vec<&str> = notes.lines().map(str::trim).collect();
    let place = |at: usize| {
        let rest = &lines[at..];
        let location = rest.iter().find_map(|line| line.strip_prefix("Location: 0x")).unwrap();
        let hexadecimal = location.split(',').next().unwrap();
        u64::from_str_radix(hexadecimal, 16).unwrap()
    };
    let named =
        |at: &usize| lines[*at] == format!("Name: {name}") && lines[at - 1].ends_with("Provider: hipfile");
    (1..lines.len()).filter(named).map(place).collect()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn behaviour_128_probes_are_one_instruction_that_does_nothing() {
    for name in ["transfer_begin", "transfer_end"] {
        let places = probes(name);
        assert_eq!(places.len(), 1, "{name} is in the library once");
        for place in places {
            let range = [format!("--start-address={place}"), format!("--stop-address={}", place + 1)];
            let code = run(Command::new("objdump").arg("-d").args(range).arg(built("libhipfile_c.so")));
            let last = code.lines().last().unwrap_or_default();
            assert!(last.contains("90") && last.trim_end().ends_with("nop"), "{name} at {place:#x}: {code}");
        }
    }
}
