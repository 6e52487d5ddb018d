//! `hipfile stats`: reports on a program and on a process, the live view on a terminal and without one, and who is refused.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{HIPFILE, Lab, NOBODY, Run, is_root, pattern, run, skip, slow};
use crate::terminal::terminal;

const MIB: usize = 1 << 20;

/// `hipfile stats` with these arguments.
fn stats(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = lab.command(Path::new(HIPFILE));
    command.arg("stats").args(arguments);
    command
}

/// `hipfile stats` that runs a copy of `source` to `destination`.
fn of_a_copy(lab: &Lab, options: &[&str]) -> Command {
    let mut command = stats(lab, options);
    command.args(["--", HIPFILE, "copy", "source", "destination"]);
    command
}

fn lab(size: usize) -> Lab {
    let lab = Lab::new();
    lab.write("source", &pattern(size, 1));
    lab
}

/// A copy that takes its time: about a second for 8 MiB.
fn slow_copy(lab: &Lab) -> Child {
    let mut command = lab.copy(&["source", "destination", "--chunk", "64K"]);
    // The link is that of staged transfers.
    slow(&mut command)
        .env("HIPFILE_ENGINES", "bounce")
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What a line of AMD's report says.
fn value<'a>(report: &'a str, label: &str) -> &'a str {
    let line = report.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{label:?} is missing in:\n{report}"))
}

fn number(report: &str, label: &str) -> u64 {
    value(report, label).parse().unwrap()
}

#[test]
fn a_program_is_reported_when_it_has_ended() {
    let lab = lab(MIB);
    let run = run(&mut of_a_copy(&lab, &[]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stdout.starts_with("AIS-STATS Version: 1\nHipFile Stats Level: 1\nGPU: emulated"),
        "{}",
        run.stdout
    );
    let bytes = |direction: &str| {
        ["fast", "fallback"]
            .map(|path| number(&run.stdout, &format!("Total {path} path {direction} (B)")))
            .iter()
            .sum()
    };
    let (read, written): (u64, u64) = (bytes("reads"), bytes("writes"));
    assert_eq!((read, written), (MIB as u64, MIB as u64));
    assert_eq!(number(&run.stdout, "Files registered"), 2);
    assert!(run.stdout.contains("GPU 0 "), "{}", run.stdout);
    assert!(value(&run.stdout, "Engines").contains(" %"), "{}", run.stdout);
    assert!(!value(&run.stdout, "Staged for").is_empty());
    assert!(lab.read("destination") == lab.read("source"));
}

#[test]
fn json_has_a_version_and_the_same_numbers() {
    let lab = lab(MIB);
    let run = run(&mut of_a_copy(&lab, &["--json"]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json = run.json();
    assert_eq!((json["schema_version"].as_u64(), json["level"].as_u64()), (Some(1), Some(1)));
    assert_eq!((json["source"].as_str(), json["emulated"].as_bool()), (Some("hipfile"), Some(true)));
    assert_eq!(
        (json["read"]["bytes"].as_u64(), json["write"]["bytes"].as_u64()),
        (Some(1 << 20), Some(1 << 20))
    );
    for direction in ["read", "write"] {
        let side = &json[direction];
        let sum = |of: &str, what: &str| {
            side[of].as_array().unwrap().iter().map(|row| row[what].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(sum("sizes", "bytes"), 1 << 20);
        assert_eq!(sum("sizes", "operations"), side["operations"].as_u64().unwrap());
        assert_eq!(sum("engines", "bytes"), 1 << 20);
        assert!(
            side["latency_us"]["p50"].as_f64().unwrap() > 0.0 && side["gb_per_s"].as_f64().unwrap() > 0.0
        );
        assert_eq!(json["gpus"][0][direction]["bytes"], side["bytes"]);
    }
    assert_eq!(json["gpus"][0]["uuid"].as_str().unwrap().len(), 32);
}

/// What is looked at is what serves: without a word about the device, on a machine with no GPU, the emulation.
#[test]
fn a_tool_that_finds_its_device_by_itself_is_reported() {
    let lab = lab(MIB);
    let run = run(of_a_copy(&lab, &["--json"]).env_remove("HIPFILE_DEVICE"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json = run.json();
    let moved = (json["read"]["bytes"].as_u64(), json["write"]["bytes"].as_u64());
    assert_eq!(moved, (Some(1 << 20), Some(1 << 20)));
}

#[test]
fn a_program_that_fails_is_reported_too() {
    let lab = lab(MIB);
    let mut command = stats(&lab, &[]);
    let failed = run(command.args([HIPFILE, "copy", "source", "/dev/full", "--force"]));
    assert_eq!(failed.code, Some(1));
    let unknown = run(&mut stats(&lab, &["--", "./no-such-program"]));
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("stats: ./no-such-program: No such file"), "{}", unknown.stderr);
    let without = run(&mut stats(&lab, &["true"]));
    assert_eq!((without.code, without.stdout.as_str()), (Some(1), ""));
    assert!(
        without.stderr.contains("true: it ended without having shown any statistics"),
        "{}",
        without.stderr
    );
    let mut off = of_a_copy(&lab, &[]);
    let off = run(off.env("HIPFILE_STATS_LEVEL", "0"));
    assert_eq!(off.code, Some(1), "{}", off.stdout);
    let mut uncounted = lab.copy(&["source", "destination", "--json"]);
    let uncounted = run(uncounted.env("HIPFILE_STATS_LEVEL", "0"));
    assert!(!uncounted.json()["engines"].as_array().unwrap().is_empty(), "a tool knows what it does itself");
}

#[test]
fn a_running_process_is_reported_now_or_when_it_has_ended() {
    let lab = lab(8 * MIB);
    let mut copy = slow_copy(&lab);
    let pid = copy.id().to_string();
    let now = run(&mut stats(&lab, &["-p", &pid, "-i", "--json"]));
    assert_eq!(now.code, Some(0), "{}", now.stderr);
    let early = now.json()["read"]["bytes"].as_u64().unwrap();
    let metrics = run(&mut stats(&lab, &["-p", &pid, "--prometheus"]));
    assert_eq!(metrics.code, Some(0), "{}", metrics.stderr);
    assert!(metrics.stdout.contains(&format!("hipfile_emulated{{pid=\"{pid}\"}} ")), "{}", metrics.stdout);
    let later = run(&mut stats(&lab, &["-p", &pid, "--json"]));
    assert_eq!(later.code, Some(0), "{}", later.stderr);
    assert_eq!(later.json()["read"]["bytes"].as_u64(), Some(8 << 20));
    assert!(early < 8 << 20, "{early}");
    assert!(copy.wait().unwrap().success());
    let gone = run(&mut stats(&lab, &["-p", &pid]));
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("there is no such process"), "{}", gone.stderr);
}

#[test]
fn behaviour_159_another_users_process_is_refused() {
    if !is_root() {
        return skip("statistics of another user's process", "it takes root to be another user");
    }
    let lab = Lab::for_all_users();
    lab.write("source", &pattern(8 * MIB, 1));
    let mut copy = slow_copy(&lab);
    let pid = copy.id().to_string();
    let seen = run(&mut stats(&lab, &["-p", &pid, "-i"]));
    assert_eq!(seen.code, Some(0), "root sees it: {}", seen.stderr);
    let mut command = lab.command(&lab.path("hipfile"));
    let refused = run(command.args(["stats", "-p", &pid, "-i"]).uid(NOBODY).gid(NOBODY));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    assert!(refused.stderr.contains("to its own user and to root only"), "{}", refused.stderr);
    copy.kill().unwrap();
    copy.wait().unwrap();
}

#[test]
fn a_program_that_ends_before_it_could_be_asked_is_reported() {
    let lab = lab(MIB);
    // The tool is stopped before the program begins, and goes on when that is no more than a status to be waited for.
    let script = format!(
        "(until grep -q '^State:.Z' /proc/$$/status; do sleep 0.02; done; kill -CONT $PPID) & \
         kill -STOP $PPID; exec {HIPFILE} copy source destination"
    );
    let shown = run(stats(&lab, &["--json"]).args(["sh", "-c", &script]));
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    assert_eq!(shown.json()["read"]["bytes"].as_u64(), Some(1 << 20));
}

#[test]
fn called_ais_stats_it_is_ais_stats() {
    let lab = lab(MIB);
    let ais_stats = lab.path("ais-stats");
    std::os::unix::fs::symlink(HIPFILE, &ais_stats).unwrap();
    let done = run(lab.command(&ais_stats).args([HIPFILE, "copy", "source", "destination"]));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.starts_with("AIS-STATS Version: 1\n"), "{}", done.stdout);
    for arguments in [&[][..], &["-p"], &["-p", "0"], &["-p", "x"], &["-i"], &["-p", "1", "true"]] {
        let wrong = run(lab.command(&ais_stats).args(arguments));
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(1), ""), "{arguments:?}");
        assert!(wrong.stderr.starts_with("error: "), "{}", wrong.stderr);
    }
}

#[test]
fn without_a_terminal_each_interval_is_a_line() {
    let lab = lab(8 * MIB);
    let mut copy = slow_copy(&lab);
    let pid = copy.id().to_string();
    let watched = run(&mut stats(&lab, &["-p", &pid, "--watch", "--interval", "0.1"]));
    assert!(copy.wait().unwrap().success());
    assert_eq!(watched.code, Some(0), "{}", watched.stderr);
    assert!(!watched.stdout.contains(['\x1b', '\r']), "{}", watched.stdout);
    let lines: Vec<&str> = watched.stdout.lines().collect();
    assert!(lines.len() >= 3, "{}", watched.stdout);
    for line in &lines {
        assert!(
            line.contains(" s; read ") && line.contains("; write ") && line.ends_with("; emulated"),
            "{line}"
        );
    }
    assert!(lines.iter().any(|line| line.contains("; engines bounce 100 %")), "{}", watched.stdout);
    let json = run(&mut of_a_copy(&lab, &["--watch", "--json", "--interval", "0.01"]));
    let bytes = json.stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert!(bytes.map(|json| json["read"]["bytes"].as_u64().unwrap()).sum::<u64>() <= 8 << 20);
}

/// What a screen shows after these bytes: as far as the view uses a terminal.
fn screen(bytes: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![String::new()], 0_usize, 0_usize);
    let mut rest = bytes.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                lines.resize(lines.len().max(row + 1), String::new());
            }
            '\x1b' => {
                assert_eq!(rest.next(), Some('['));
                let mut number = String::new();
                while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                    number.push(digit);
                }
                match rest.next() {
                    Some('A') => row -= number.parse::<usize>().unwrap(),
                    Some('K') => lines[row].truncate(column),
                    Some('J') => {
                        lines[row].truncate(column);
                        lines.truncate(row + 1);
                    }
                    other => panic!("a sequence that the view does not use: {number}{other:?}"),
                }
            }
            c => {
                let line = &mut lines[row];
                line.truncate(column);
                line.push(c);
                column += 1;
            }
        }
    }
    lines
}

#[test]
fn on_a_terminal_the_view_is_drawn_over_itself() {
    let lab = lab(8 * MIB);
    let mut copy = slow_copy(&lab);
    let pid = copy.id().to_string();
    let (master, slave) = terminal(24, 100);
    let mut command = stats(&lab, &["-p", &pid, "--watch", "--interval", "0.1"]);
    let mut child = command.stdin(Stdio::null()).stdout(slave).stderr(Stdio::null()).spawn().unwrap();
    command.stdout(Stdio::null());
    let mut seen = Vec::new();
    // When the last descriptor of the other side is closed, reading fails with EIO.
    let _ = File::from(master).read_to_end(&mut seen);
    assert!(child.wait().unwrap().success());
    assert!(copy.wait().unwrap().success());
    let seen = String::from_utf8(seen).unwrap();
    let drawn = seen.matches("GB/s         /s").count();
    assert!(drawn >= 3, "{drawn}: {seen:?}");
    // While it runs: what is on the screen when the view was drawn for the second time.
    let half = seen.match_indices("\x1b[J").nth(1).unwrap().0;
    let running = screen(&seen[..half]);
    let expected = [
        &format!("process {pid}, emulated GPU, level 1, ")[..],
        "           GB/s         /s    p50 us    p99 us   p99.9 us  errors",
        "read  ",
        "write ",
        "engines  bounce 100 %",
        "reasons  ",
        "GPU 0    read ",
        "",
    ];
    assert_eq!(running.len(), expected.len(), "{running:#?}");
    for (line, expected) in running.iter().zip(expected) {
        assert!(line.starts_with(expected), "{expected:?} is not on the screen: {running:#?}");
    }
    let read: Vec<&str> = running[2].split_whitespace().collect();
    let numbers: Vec<f64> = read[1..].iter().map(|word| word.parse().unwrap()).collect();
    // The link carries 20 MB/s.
    assert!(
        read.len() == 7 && numbers[0] > 0.0 && numbers[0] < 0.1 && numbers[2] <= numbers[3],
        "{running:#?}"
    );
    // And in the end: nothing is left of longer lines.
    let last = screen(&seen);
    assert_eq!(last.len(), expected.len(), "{last:#?}");
    assert!(last[3].starts_with("write ") && last[3].split_whitespace().count() == 7, "{last:#?}");
}

#[test]
fn a_process_that_dies_ends_the_view() {
    let lab = lab(64 * MIB);
    let mut copy = slow_copy(&lab);
    let pid = copy.id().to_string();
    let mut command = stats(&lab, &["-p", &pid, "--watch", "--interval", "0.05"]);
    let mut watching =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    watching.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    copy.kill().unwrap();
    copy.wait().unwrap();
    let began = Instant::now();
    let ended: Run = watching.wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(began.elapsed() < Duration::from_secs(20));
}
