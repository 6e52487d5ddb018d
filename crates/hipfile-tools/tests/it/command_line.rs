//! Arguments, exit status, help, the JSON summary, and the name of AMD's tool.

use std::path::Path;

use crate::support::{HIPFILE, Lab, run};

#[test]
fn help_is_what_it_was() {
    let lab = Lab::new();
    for (arguments, expected) in [
        (&["--help"][..], include_str!("help/hipfile.txt")),
        (&["copy", "--help"], include_str!("help/copy.txt")),
        (&["check", "--help"], include_str!("help/check.txt")),
        (&["stats", "--help"], include_str!("help/stats.txt")),
        (&["tune", "--help"], include_str!("help/tune.txt")),
    ] {
        let run = run(lab.command(Path::new(HIPFILE)).args(arguments));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
        let got: Vec<&str> = run.stdout.lines().map(str::trim_end).collect();
        let expected: Vec<&str> = expected.lines().collect();
        assert_eq!(got, expected, "{arguments:?} says:\n{}", run.stdout);
    }
}

#[test]
fn the_version_is_the_packages() {
    let lab = Lab::new();
    let run = run(lab.command(Path::new(HIPFILE)).arg("--version"));
    assert_eq!((run.code, run.stdout.trim()), (Some(0), concat!("hipfile ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_wrong_command_line_is_status_2() {
    let lab = Lab::new();
    lab.write("source", b"x");
    for arguments in [
        &[][..],
        &["fly"],
        &["copy"],
        &["copy", "source"],
        &["copy", "source", "a", "b"],
        &["copy", "source", "a", "--unknown"],
        &["copy", "source", "a", "--gpu", "-1"],
        &["copy", "source", "a", "--chunk", "4095"],
        &["copy", "source", "a", "--chunk", "2G"],
        &["copy", "source", "a", "--chunk", "16X"],
    ] {
        let run = run(lab.command(Path::new(HIPFILE)).args(arguments));
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(!run.stderr.is_empty(), "{arguments:?}");
    }
    assert!(!lab.path("a").exists());
}

#[test]
fn success_is_silent_on_standard_output() {
    let lab = Lab::new();
    lab.write("source", b"x");
    let run = lab.copies(&["source", "destination"]);
    assert_eq!(run.stdout, "");
    assert_eq!(run.said(), Vec::<&str>::new());
    let verified = lab.copies(&["source", "destination", "--verify"]);
    // What xxh128sum gives for the byte "x".
    assert_eq!(verified.stdout, "verified: xxh128:5c7401c0ec22eeeeeaf06c6480b2cd11\n");
}

#[test]
fn json_tells_what_happened() {
    let lab = Lab::new();
    lab.write_sparse("source", 1 << 20, &[(0, &[7; 4096])]);
    lab.mkdir("there");
    let run = lab.copies(&["source", "there", "--json", "--verify", "--chunk", "64K"]);
    assert_eq!(run.stdout.lines().count(), 1, "one line, for those who read lines");
    let json = run.json();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "schema_version",
        "source",
        "destination",
        "bytes",
        "bytes_moved",
        "seconds",
        "gb_per_s",
        "engines",
        "gpu",
        "device",
        "runtime",
        "runtime_version",
        "emulated",
        "emulation_note",
        "in_place",
        "verified",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(json["schema_version"], 1);
    assert_eq!(
        (json["source"].as_str(), json["destination"].as_str()),
        (Some("source"), Some("there/source"))
    );
    assert_eq!(
        (&json["bytes"], &json["gpu"], &json["emulated"]),
        (&(1 << 20).into(), &0.into(), &true.into())
    );
    assert!(json["bytes_moved"].as_u64().unwrap() >= 4096);
    assert!(json["seconds"].as_f64().unwrap() > 0.0 && json["gb_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(json["runtime"], "hip");
    assert!(
        !json["device"].as_str().unwrap().is_empty() && !json["runtime_version"].as_str().unwrap().is_empty()
    );
    assert!(json["emulation_note"].is_null() && json["in_place"].is_null());
    assert!(json["verified"].as_str().unwrap().starts_with("xxh128:"));
    let unverified = lab.copies(&["source", "there", "--json"]).json();
    assert!(unverified["verified"].is_null());
}

#[test]
fn json_that_cannot_be_delivered_is_a_failure() {
    let lab = Lab::new();
    lab.write("source", b"x");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let child = lab
        .copy(&["source", "destination", "--json"])
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn();
    let run: crate::support::Run = child.unwrap().wait_with_output().unwrap().into();
    run.failed_with(&["standard output", "No space left"]);
}

#[test]
fn what_would_be_lost_is_not_begun() {
    let lab = Lab::new();
    lab.write("source", b"x");
    for (redirected, why) in [
        (">&-", "it is closed"),
        ("</dev/null 1<&0", "it is open for reading only"),
        (">/dev/full", "No space left"),
    ] {
        for (arguments, begun) in [
            ("stats -- HIPFILE copy source copied", "copied"),
            ("check", ""),
            ("check --config", ""),
            ("copy source copied --json", "copied"),
            ("copy source copied --verify", "copied"),
            ("bench made --size 1M --repeat 1 --alone", "made"),
            ("--help", ""),
            ("copy --help", ""),
            ("--version", ""),
        ] {
            let line = format!("HIPFILE {arguments} {redirected}").replace("HIPFILE", HIPFILE);
            let run = run(lab.command(Path::new("sh")).args(["-c", &line]));
            assert_eq!(run.code, Some(1), "{line}: {}", run.stderr);
            let said = run.said();
            let last = said.last().unwrap();
            assert!(last.starts_with("hipfile: ") && last.contains("standard output: "), "{line}: {last}");
            assert!(last.contains(why), "{line}: {last}");
            if redirected != ">/dev/full" {
                assert!(begun.is_empty() || !lab.path(begun).exists(), "{line}");
            }
        }
        // Who has nothing to print wants nothing to print to; /dev/null is a good place.
        for quiet in ["copy source quiet", "check --quiet; test $? -le 1"] {
            let line = format!("{HIPFILE} {quiet}").replacen(" quiet", &format!(" quiet {redirected}"), 1);
            let line = line.replacen("--quiet;", &format!("--quiet {redirected};"), 1);
            let run = run(lab.command(Path::new("sh")).args(["-c", &line]));
            assert_eq!(run.code, Some(0), "{line}: {}", run.stderr);
        }
        let run = run(lab.command(Path::new("sh")).args(["-c", &format!("{HIPFILE} --version >/dev/null")]));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    }
}

#[test]
fn called_aiscp_it_is_aiscp() {
    let lab = Lab::new();
    let aiscp = lab.path("aiscp");
    std::os::unix::fs::symlink(HIPFILE, &aiscp).unwrap();
    lab.write("source", b"content");
    let done = run(lab.command(&aiscp).args(["source", "destination"]));
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), ""), "{}", done.stderr);
    assert_eq!(lab.read("destination"), b"content");
    for arguments in [&[][..], &["source"], &["a", "b", "c"]] {
        let wrong = run(lab.command(&aiscp).args(arguments));
        assert_eq!(wrong.code, Some(1), "{arguments:?}");
        assert!(wrong.stderr.contains("Usage: aiscp"), "{}", wrong.stderr);
    }
    let failed = run(lab.command(&aiscp).args(["missing", "destination"]));
    failed.failed_with(&["aiscp: missing: No such file"]);
    let help = run(lab.command(&aiscp).arg("--help"));
    assert_eq!(help.code, Some(0));
}
