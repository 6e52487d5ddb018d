//! What stays right when nobody is careful: mixed work for a while, copies that are killed at any moment, a caller with fewer rights
//! than the program.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{HIPFILE, Lab, NOBODY, Run, is_root, pattern, run, skip, slow};

fn setting(variable: &str, usual: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the tests' runner speaks to tests by environment")]
    let value = std::env::var(variable);
    value.ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// A short one here; `cargo xtask ci soak` takes two minutes, `cargo xtask deep soak` half an hour.
#[test]
fn a_soak_finds_nothing_and_nothing_grows() {
    let lab = Lab::new();
    let seconds = setting("HIPFILE_TEST_SOAK", 8).to_string();
    let mut command = lab.command(HIPFILE.as_ref());
    command.args(["bench", "soaked", "--soak", &seconds, "--threads", "4", "--json"]);
    let done = run(command.env("HIP_EMU_DEVICES", "2").env("HIPFILE_LOG_LEVEL", "off"));
    assert_eq!(done.code, Some(0), "{done:?}");
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    for what in
        ["operations_by_calls", "operations_by_batches", "operations_by_streams", "bytes_verified", "refused"]
    {
        assert!(report[what].as_u64().unwrap() > 0, "{what}: {report}");
    }
    assert_eq!(report["gpus"], 2);
    eprintln!("{report}");
    assert!(!lab.path("soaked").exists());
}

/// Whoever opens the destination finds the old content or the new.
#[test]
fn a_copy_killed_at_any_moment_leaves_old_or_new() {
    let lab = Lab::new();
    let (old, new) = (pattern(3 << 20, 1), pattern((4 << 20) + 77, 2));
    lab.write("source", &new);
    let rounds = setting("HIPFILE_TEST_KILLS", 40);
    let (mut kept, mut replaced) = (0, 0);
    for round in 0..rounds {
        lab.write("destination", &old);
        let mut command = lab.copy(&["source", "destination", "--chunk", "256K"]);
        // Half of them slow, so that kills fall into the copy; the others also before and after it.
        let command = if round % 2 == 0 { slow(&mut command) } else { &mut command };
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(round * 9_973 % 120_000));
        // It may have ended.
        let _ = kill_process(Pid::from_child(&child), Signal::KILL);
        child.wait().unwrap();
        let now = lab.read("destination");
        match (now == old, now == new) {
            (true, _) => kept += 1,
            (_, true) => replaced += 1,
            _ => panic!("round {round}: {} bytes that are neither old nor new", now.len()),
        }
    }
    eprintln!("{kept} times the old content, {replaced} times the new");
    assert!(kept > 0, "no copy was killed before its end");
    lab.copies(&["source", "destination"]);
    assert!(lab.read("destination") == new);
}

/// No variable and no file that the caller names is believed by a program with more rights than the caller.
#[test]
fn a_set_user_id_program_honours_no_environment() {
    if !is_root() {
        return skip("a set-user-ID program", "making one needs root");
    }
    let lab = Lab::for_all_users();
    lab.write("settings", b"HIPFILE_ENGINES=from-the-file\n");
    lab.chmod("settings", 0o644);
    let told = |lab: &Lab| -> Run {
        let mut command = Command::new(lab.path("hipfile"));
        command.current_dir(lab.path(".")).args(["check", "--json"]).uid(NOBODY).gid(NOBODY);
        command.env("HIPFILE_ENGINES", "frobnicate").env("HIPFILE_CONFIG", lab.path("settings"));
        run(command.env("HIPFILE_DEVICE", "emulated").env("HIP_EMU_DEVICES", "many"))
    };
    let words = |run: &Run| format!("{}{}", run.stdout, run.stderr);
    let plain = told(&lab);
    assert!(words(&plain).contains("frobnicate"), "the control: it is told of: {plain:?}");
    lab.chmod("hipfile", 0o4755);
    let privileged = told(&lab);
    let said = words(&privileged);
    if said.contains("frobnicate") && on_nosuid(&lab) {
        return skip("a set-user-ID program", "the folder of temporary files does not allow one");
    }
    for word in ["frobnicate", "from-the-file", "HIP_EMU_DEVICES"] {
        assert!(!said.contains(word), "{word}: {said}");
    }
}

fn on_nosuid(lab: &Lab) -> bool {
    let facts = rustix::fs::statvfs(lab.path("."));
    facts.is_ok_and(|facts| facts.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
}
