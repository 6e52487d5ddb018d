//! Every type and constant: what the C compiler makes of the headers against what Rust makes of `abi.rs`. The lists come
//! from both sides, so nothing can be left out of one.
#![allow(clippy::unwrap_used, reason = "a test: what fails panics")]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use hipfile_c::abi::{LAYOUTS, Layout, MACROS};
use support::{header, include_dir, run};

/// Rust's view, in the words of the C program below.
fn rust_view() -> BTreeMap<String, i64> {
    let mut view = BTreeMap::new();
    let mut put = |key: String, value: i64| {
        assert!(view.insert(key.clone(), value).is_none(), "{key} is listed twice");
    };
    for layout in LAYOUTS {
        let name = layout.c_name;
        put(format!("sizeof {name}"), layout.size as i64);
        put(format!("alignof {name}"), layout.align as i64);
        for (field, offset, size) in fields(layout) {
            put(format!("offsetof {name} {field}"), offset as i64);
            put(format!("sizeof {name} {field}"), size as i64);
        }
        for (enumerator, value) in layout.values {
            put((*enumerator).to_owned(), *value);
        }
    }
    for (name, value) in MACROS {
        put((*name).to_owned(), *value);
    }
    view
}

fn fields(layout: &Layout) -> impl Iterator<Item = (&'static str, usize, usize)> {
    layout.fields.iter().map(|(name, offset, size)| (name.trim_start_matches("r#"), *offset, *size))
}

/// A C program that prints the same keys with the compiler's values.
fn c_program() -> String {
    let mut c = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <hipfile.h>\n#include <hipfile-stats.h>\n\
         #include <hipfile_ext.h>\n#define P(key, value) printf(\"%s=%lld\\n\", key, (long long)(value))\n\
         int main(void) {\n",
    );
    for layout in LAYOUTS {
        let name = layout.c_name;
        // `type.member` is a member that has no type name of its own.
        let (owner, path) = name.split_once('.').unwrap_or((name, ""));
        let thing = if path.is_empty() { name.to_owned() } else { format!("((({owner} *)0)->{path})") };
        writeln!(c, "P(\"sizeof {name}\", sizeof({thing}));").unwrap();
        writeln!(c, "P(\"alignof {name}\", __alignof__({thing}));").unwrap();
        for (field, ..) in fields(layout) {
            let (member, base) = if path.is_empty() {
                (field.to_owned(), "0".to_owned())
            } else {
                (format!("{path}.{field}"), format!("offsetof({owner}, {path})"))
            };
            writeln!(c, "P(\"offsetof {name} {field}\", offsetof({owner}, {member}) - {base});").unwrap();
            writeln!(c, "P(\"sizeof {name} {field}\", sizeof((({owner} *)0)->{member}));").unwrap();
        }
        for (enumerator, _) in layout.values {
            writeln!(c, "P(\"{enumerator}\", {enumerator});").unwrap();
        }
    }
    for (name, _) in MACROS {
        writeln!(c, "P(\"{name}\", {name});").unwrap();
    }
    c.push_str("return 0; }\n");
    c
}

/// The C compiler's view.
fn c_view(flags: &[&str]) -> BTreeMap<String, i64> {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&source, c_program()).unwrap();
    run(Command::new("cc")
        .args(["-std=c11", "-Wall", "-Werror", "-I"])
        .arg(include_dir())
        .args(flags)
        .arg("-o")
        .args([&program, &source]));
    let output = run(&mut Command::new(&program));
    let lines = output.lines().map(|line| line.split_once('=').unwrap());
    lines.map(|(key, value)| (key.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn the_c_compiler_and_rust_agree() {
    let rust = rust_view();
    assert!(rust.len() > 440, "only {} facts", rust.len());
    assert_eq!(c_view(&[]), rust);
}

#[test]
fn the_layout_is_the_same_with_hip_included() {
    let stub = support::crate_dir().join("tests/hip-stub");
    assert_eq!(c_view(&["-D__HIP_PLATFORM_AMD__", "-isystem", stub.to_str().unwrap()]), rust_view());
}

#[test]
fn rust_has_every_type_of_the_headers() {
    let layout = |name: &str| {
        let found = LAYOUTS.iter().find(|layout| layout.c_name == name);
        found.unwrap_or_else(|| panic!("{name} is missing in abi.rs"))
    };
    let enumerations = header::enumerations();
    for (name, enumerators) in &enumerations {
        let known: Vec<_> = layout(name).values.iter().map(|(name, _)| *name).collect();
        assert_eq!(&known, enumerators, "{name}");
    }
    let structures = header::structures();
    for (name, members) in &structures {
        let known: Vec<_> = fields(layout(name)).map(|(name, ..)| name).collect();
        assert_eq!(&known, members, "{name}");
    }
    assert_eq!(enumerations.len() + structures.len(), LAYOUTS.len());
}

#[test]
fn rust_has_every_number_macro_of_the_headers() {
    let known: Vec<_> = MACROS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(header::number_macros(), known);
}

/// The sizes that programs built against hipFile 0.5 have compiled in.
#[test]
fn the_sizes_are_those_of_hipfile_0_5() {
    let view = rust_view();
    for (name, size) in [
        ("hipFileError_t", 8),
        ("hipFileDriverProps_t", 72),
        ("hipFileRDMAInfo_t", 16),
        ("hipFileFSOps_t", 40),
        ("hipFileDescr_t", 24),
        ("hipFileIOParams_t", 64),
        ("hipFileIOEvents_t", 24),
        ("hipFileOpCounter_t", 16),
        ("hipFileStatsLevel1_t", 512),
        ("hipFileStatsLevel2_t", 1024),
        ("hipFilePerGpuStats_t", 248),
        ("hipFileStatsLevel3_t", 5000),
    ] {
        assert_eq!(view[&format!("sizeof {name}")], size, "{name}");
    }
    for (key, offset) in [
        ("hipFileError_t hip_drv_err", 4),
        ("hipFileDriverProps_t feature_flags", 32),
        ("hipFileDriverProps_t max_device_cache_size", 40),
        ("hipFileDriverProps_t max_batch_io_timeout_msecs", 68),
        ("hipFileDriverProps_t.nvfs driver_control_flags", 28),
        ("hipFileDescr_t handle", 8),
        ("hipFileDescr_t fs_ops", 16),
        ("hipFileIOParams_t u", 8),
        ("hipFileIOParams_t.u.batch size", 24),
        ("hipFileIOParams_t fh", 40),
        ("hipFileIOParams_t opcode", 48),
        ("hipFileIOParams_t cookie", 56),
        ("hipFileIOEvents_t ret", 16),
        ("hipFileStatsLevel1_t read_bytes", 96),
        ("hipFileStatsLevel1_t read_ops_per_sec", 144),
        ("hipFileStatsLevel1_t batch_submit_ops", 176),
        ("hipFileStatsLevel1_t batch_read_bytes", 416),
        ("hipFileStatsLevel2_t read_size_kb_hist", 512),
        ("hipFileStatsLevel2_t write_size_kb_hist", 768),
        ("hipFilePerGpuStats_t write_bytes", 120),
        ("hipFilePerGpuStats_t n_mmap", 208),
        ("hipFileStatsLevel3_t num_gpus", 1024),
        ("hipFileStatsLevel3_t per_gpu_stats", 1032),
    ] {
        assert_eq!(view[&format!("offsetof {key}")], offset, "{key}");
    }
}

/// What programs built against another header of the same interface rely on: written down here, not derived.
#[test]
fn behaviour_143_the_statistics_keep_their_sizes_and_places() {
    let sizes = [
        ("hipFileOpCounter_t", 16),
        ("hipFileStatsLevel1_t", 512),
        ("hipFileStatsLevel2_t", 1024),
        ("hipFilePerGpuStats_t", 248),
        ("hipFileStatsLevel3_t", 5000),
    ];
    let places = [
        ("hipFileStatsLevel1_t", "read_bytes", 96),
        ("hipFileStatsLevel1_t", "read_ops_per_sec", 144),
        ("hipFileStatsLevel1_t", "read_lat_sum_us", 160),
        ("hipFileStatsLevel1_t", "batch_submit_ops", 176),
        ("hipFileStatsLevel1_t", "batch_total_submit_ops", 400),
        ("hipFileStatsLevel1_t", "batch_read_bytes", 416),
        ("hipFileStatsLevel1_t", "last_batch_write_bytes", 504),
        ("hipFileStatsLevel2_t", "read_size_kb_hist", 512),
        ("hipFileStatsLevel2_t", "write_size_kb_hist", 768),
        ("hipFilePerGpuStats_t", "read_bytes", 16),
        ("hipFilePerGpuStats_t", "write_bytes", 120),
        ("hipFilePerGpuStats_t", "n_mmap", 208),
        ("hipFilePerGpuStats_t", "reg_bytes", 240),
        ("hipFileStatsLevel3_t", "num_gpus", 1024),
        ("hipFileStatsLevel3_t", "per_gpu_stats", 1032),
    ];
    // What the C compiler makes of the headers is compared with these by the tests above.
    let view = rust_view();
    for (name, size) in sizes {
        assert_eq!(view[&format!("sizeof {name}")], size, "{name}");
    }
    for (name, member, offset) in places {
        assert_eq!(view[&format!("offsetof {name} {member}")], offset, "{name}.{member}");
    }
    let codes = [
        "Success",
        "InvalidArgument",
        "TargetProcessNotFound",
        "TargetProcessNotAccessible",
        "ReportGenerationFailed",
    ];
    for (code, name) in codes.iter().enumerate() {
        assert_eq!(view[&format!("hipFileStats{name}")], code as i64, "{name}");
    }
}
