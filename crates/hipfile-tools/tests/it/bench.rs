//! `hipfile bench`: what it reports, what it refuses, and that it leaves nothing behind. How fast anything is, is no matter here.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{HIPFILE, Lab, Run, pattern, run, wait_until};

const MIB: u64 = 1 << 20;

fn bench(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = lab.command(Path::new(HIPFILE));
    command.arg("bench").args(arguments);
    command
}

fn report(lab: &Lab, arguments: &[&str]) -> serde_json::Value {
    let run = run(bench(lab, arguments).arg("--json"));
    assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
    run.json()
}

fn refused(run: &Run, words: &[&str]) {
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let said = run.said();
    let last = said.last().expect("a failure says why");
    assert!(last.starts_with("hipfile: bench: "), "{last}");
    for word in words {
        assert!(last.contains(word), "{word:?} is missing in: {last}");
    }
}

fn is_empty(lab: &Lab) -> bool {
    std::fs::read_dir(lab.path(".")).unwrap().next().is_none()
}

#[test]
fn help_is_what_it_was() {
    let run = run(&mut bench(&Lab::new(), &["--help"]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    let got: Vec<&str> = run.stdout.lines().map(str::trim_end).collect();
    let expected: Vec<&str> = include_str!("help/bench.txt").lines().collect();
    assert_eq!(got, expected, "it says:\n{}", run.stdout);
}

#[test]
fn a_report_names_machine_device_and_every_contender() {
    let lab = Lab::new();
    let all = "serial,raw,copy,posix,host,pread,uring16";
    let report =
        report(&lab, &["--size", "1M", "--block", "64K", "--repeat", "2", "--cold", "--baseline", all]);
    assert_eq!(report["schema_version"], 1);
    assert!(report["machine"]["kernel"].as_str().unwrap().starts_with("Linux "));
    assert!(report["machine"]["cpus"].as_u64().unwrap() > 0);
    assert_eq!((&report["device"]["emulated"], &report["device"]["gpu"]), (&true.into(), &0.into()));
    assert_eq!(report["file"]["bytes"], MIB);
    assert_eq!((&report["job"]["mix"], &report["job"]["cache"]), (&"read".into(), &"cold".into()));
    let contenders = report["contenders"].as_array().unwrap();
    let skipped = report["skipped"].as_array().unwrap();
    assert_eq!(contenders.len() + skipped.len(), 8, "{skipped:?}");
    for contender in contenders {
        let name = contender["name"].as_str().unwrap();
        let runs = contender["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2, "{name}");
        for run in runs {
            assert_eq!(run["bytes"], MIB, "{name}");
            assert!(
                run["seconds"].as_f64().unwrap() > 0.0 && run["operations"].as_u64().unwrap() > 0,
                "{name}"
            );
        }
        let rate = &contender["gb_per_s"];
        let [min, median, max] = ["min", "median", "max"].map(|field| rate[field].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{name}");
        let latency = &contender["latency"];
        let [p50, p99, last] = ["p50_us", "p99_us", "p99_9_us"].map(|field| latency[field].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99 && p99 <= last, "{name}");
        assert!(contender["cpu_s_per_gb"]["median"].as_f64().unwrap() >= 0.0, "{name}");
        assert!(contender.get("physical_share").is_some(), "{name}");
    }
    let engines = contenders[0]["engines"].as_array().unwrap();
    assert_eq!(contenders[0]["name"], "hipfile");
    assert_eq!(engines.iter().map(|engine| engine["bytes"].as_u64().unwrap()).sum::<u64>(), 2 * MIB);
    for ratio in report["ratios"].as_array().unwrap() {
        assert_eq!((&ratio["of"], &ratio["pairs"]), (&"hipfile".into(), &2.into()));
        assert!(ratio["median"].as_f64().unwrap() > 0.0);
    }
    assert!(is_empty(&lab));
}

#[test]
fn the_report_for_people_says_that_the_gpu_is_emulated() {
    let lab = Lab::new();
    let run = run(&mut bench(&lab, &["--size", "1M", "--repeat", "1", "--baseline", "serial"]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("EMULATED") && run.stdout.contains("serial"), "{}", run.stdout);
    let timed = bench(&lab, &["--size", "1M", "--repeat", "1", "--alone"]).env("HIP_EMU_LINK", "50").output();
    let timed = Run::from(timed.unwrap());
    assert!(timed.stdout.contains("timed link"), "{}", timed.stdout);
}

#[test]
fn behaviour_131_every_byte_is_verified_on_request() {
    let lab = Lab::new();
    for arguments in [
        &["--rw", "read", "--block", "1M", "--cold"][..],
        &["--rw", "read", "--block", "99999", "--offset-shift", "7", "--half-warm", "--threads", "3"],
        &["--rw", "randread", "--block", "4K", "--warm"],
        &["--rw", "write", "--block", "1M"],
        &["--rw", "write", "--block", "1M", "--extend"],
        &["--rw", "write", "--block", "99999", "--offset-shift", "7", "--threads", "3"],
        &["--rw", "randwrite", "--block", "4K", "--threads", "2"],
        &["--rw", "read", "--block", "99999", "--door", "batch", "--depth", "5", "--cold"],
        &["--rw", "randread", "--block", "4K", "--door", "batch", "--depth", "64"],
        &["--rw", "write", "--block", "256K", "--door", "batch"],
        &["--rw", "read", "--block", "99999", "--door", "async", "--depth", "3", "--cold"],
        &["--rw", "randwrite", "--block", "64K", "--door", "async"],
        // More streams than the usual staging memory for streams has Blocks.
        &["--rw", "randread", "--block", "4K", "--door", "async", "--depth", "40"],
    ] {
        for engine in ["auto", "uring,bounce", "bounce"] {
            let common = ["--verify", "--alone", "--size", "3M", "--repeat", "2", "--engine", engine];
            let report = report(&lab, &[arguments, &common].concat());
            let runs = report["contenders"][0]["runs"].as_array().unwrap();
            assert!(runs.iter().all(|run| run["bytes"].as_u64().unwrap() > 3_000_000), "{arguments:?}");
            assert_eq!(report["job"]["verify"], true);
            let door = ["batch", "async"].into_iter().find(|door| arguments.contains(door)).unwrap_or("sync");
            assert_eq!(report["door"], door, "{arguments:?}");
        }
    }
    assert!(is_empty(&lab));
}

#[test]
fn what_cannot_be_verified_is_refused() {
    let lab = Lab::new();
    let timed = run(bench(&lab, &["--verify", "--size", "1M"]).env("HIP_EMU_LINK", "50"));
    refused(&timed, &["--verify", "timed link"]);
    let null = run(&mut bench(&lab, &["--verify", "--size", "1M", "--engine", "null"]));
    refused(&null, &["--verify", "moves no bytes"]);
    assert!(is_empty(&lab));
}

#[test]
fn a_file_that_exists_is_read_but_not_written_unless_told() {
    let lab = Lab::new();
    let content = pattern(2_000_001, 1);
    lab.write("precious", &content);
    let read =
        report(&lab, &["precious", "--block", "64K", "--repeat", "1", "--baseline", "posix", "--verify"]);
    assert_eq!(read["contenders"][1]["runs"][0]["bytes"], 2_000_001);
    refused(&run(&mut bench(&lab, &["precious", "--rw", "write"])), &["precious", "--destroy"]);
    refused(&run(&mut bench(&lab, &["precious", "--size", "3M"])), &["precious", "2000001"]);
    refused(&run(&mut bench(&lab, &["precious", "--size", "0"])), &["precious", "no bytes"]);
    assert_eq!(lab.read("precious"), content);
    report(&lab, &["precious", "--rw", "write", "--block", "64K", "--repeat", "1", "--alone", "--destroy"]);
    let now = lab.read("precious");
    assert!(now.len() == content.len() && now != content);
}

#[test]
fn a_file_that_was_made_goes_unless_it_is_kept() {
    let lab = Lab::new();
    report(&lab, &["made", "--size", "1M", "--repeat", "1", "--alone"]);
    assert!(is_empty(&lab));
    report(&lab, &["made", "--size", "1M", "--repeat", "1", "--alone", "--keep"]);
    assert_eq!(lab.stat("made").len(), MIB);
}

#[test]
fn a_signal_leaves_nothing_behind() {
    let lab = Lab::new();
    let mut command = bench(&lab, &["made", "--size", "1M", "--warm", "--duration", "1000", "--alone"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(&mut child, "the file", || lab.path("made").exists());
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(is_empty(&lab));
}

#[test]
fn a_wrong_request_names_what_is_wrong() {
    let lab = Lab::new();
    refused(&run(&mut bench(&lab, &["--engine", "warp", "--size", "1M"])), &["--engine", "warp", "bounce"]);
    refused(&run(&mut bench(&lab, &["--rw", "randread", "--size", "1M", "--block", "2M"])), &["--block"]);
    refused(&run(&mut bench(&lab, &["--table", "--row", "wrte"])), &["--row", "wrte", "warm-small"]);
    refused(&run(&mut bench(&lab, &["--rw", "randwrite", "--size", "1M", "--extend"])), &["--extend"]);
    refused(&run(&mut bench(&lab, &["--door", "batch", "--size", "1M", "--threads", "2"])), &["--threads"]);
    for arguments in [
        &["--cold", "--warm"][..],
        &["--block", "0"],
        &["--block", "2G"],
        &["--threads", "0"],
        &["--duration", "0"],
        &["--baseline", "nothing"],
        &["--scale", "0.5"],
        &["--rw", "sideways"],
    ] {
        assert_eq!(run(&mut bench(&lab, arguments)).code, Some(2), "{arguments:?}");
    }
    assert!(is_empty(&lab));
}

#[test]
fn the_process_that_measures_memory_works_on_the_same_gpu() {
    let lab = Lab::new();
    let mut command = bench(&lab, &["--table", "--row", "memory", "--scale", "0.001", "--json"]);
    // As for a user who has set nothing, with or without a GPU.
    let run = run(command.env_remove("HIPFILE_DEVICE"));
    assert_eq!(run.json()["rows"].as_array().map(Vec::len), Some(3), "{}", run.stderr);
}

#[test]
fn the_table_has_a_line_for_each_requirement() {
    let lab = Lab::new();
    let table = report(&lab, &["--table", "--scale", "0.001", "--repeat", "1"]);
    let rows = table["rows"].as_array().unwrap();
    for (name, lines) in [
        ("warm-small", 5),
        ("cold-sequential", 3),
        ("warm-sequential", 1),
        ("warm-timed-link", 1),
        ("cold-unaligned", 1),
        ("cold-calls", 4),
        ("adaptive", 3),
        ("random-direct", 3),
        ("many-threads", 2),
        ("statistics", 2),
        ("first-use", 1),
        ("cache-growth", 3),
        ("memory", 3),
        ("write", 4),
    ] {
        let lines_of_row: Vec<_> = rows.iter().filter(|row| row["row"] == name).collect();
        assert_eq!(lines_of_row.len(), lines, "{name}");
        for line in lines_of_row {
            let (median, least, most) =
                (line["median"].as_f64(), line["at_least"].as_f64(), line["at_most"].as_f64());
            let reached = match (median, least, most) {
                (Some(median), Some(least), None) => median >= least,
                (Some(median), None, Some(most)) => median <= most,
                _ => panic!("{line}"),
            };
            assert_eq!(line["reached"], reached, "{line}");
        }
    }
    assert!(is_empty(&lab));
}
