//! A copy that is ended from outside leaves the old content, and, where it gets the chance, nothing else.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{HIPFILE, Lab, Run, pattern, run, skip, slow, wait_until};

/// A slow copy of 64 MiB over an old destination, met while its temporary file exists.
fn half_way(lab: &Lab) -> Child {
    lab.write("source", &pattern(64 << 20, 1));
    lab.write("destination", b"old");
    let mut child = slow(&mut lab.copy(&["source", "destination", "--chunk", "1M"])).spawn().unwrap();
    wait_for_unfinished(lab, &mut child);
    child
}

fn wait_for_unfinished(lab: &Lab, child: &mut Child) {
    let id = child.id();
    wait_until(child, "the new file", || lab.unfinished(id).is_some());
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_signal_leaves_nothing_behind() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let lab = Lab::new();
        let child = half_way(&lab);
        send(&child, signal);
        let run: Run = child.wait_with_output().unwrap().into();
        assert_eq!(run.signal, Some(signal.as_raw()), "{:?}: {}", run.code, run.stderr);
        assert_eq!(lab.leftovers(), Vec::<String>::new());
        assert_eq!(lab.read("destination"), b"old");
    }
}

#[test]
fn a_signal_removes_a_new_file_in_place_but_never_an_old_one() {
    let lab = Lab::new();
    lab.write("source", &pattern(64 << 20, 1));
    lab.write("old", b"old");
    for (name, remains) in [("new", false), ("old", true)] {
        let arguments = ["source", name, "--in-place", "--chunk", "1M"];
        let mut child = slow(&mut lab.copy(&arguments)).spawn().unwrap();
        wait_until(&mut child, "the first data", || {
            std::fs::metadata(lab.path(name)).is_ok_and(|stat| stat.len() > 1000)
        });
        send(&child, Signal::TERM);
        let run: Run = child.wait_with_output().unwrap().into();
        assert_eq!(run.signal, Some(Signal::TERM.as_raw()));
        assert_eq!(lab.path(name).exists(), remains, "{name}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let lab = Lab::new();
    lab.write("source", &pattern(64 << 20, 1));
    let mut command = lab.command("/bin/sh".as_ref());
    let script = "trap '' HUP INT; exec \"$0\" copy source destination --chunk 1M";
    let mut child = slow(command.args(["-c", script, HIPFILE])).spawn().unwrap();
    wait_for_unfinished(&lab, &mut child);
    send(&child, Signal::HUP);
    send(&child, Signal::INT);
    send(&child, Signal::TERM);
    let run: Run = child.wait_with_output().unwrap().into();
    assert_eq!(run.signal, Some(Signal::TERM.as_raw()));
}

#[test]
fn a_killed_copy_leaves_the_old_content() {
    let lab = Lab::new();
    let child = half_way(&lab);
    let unfinished = std::fs::metadata(lab.unfinished(child.id()).unwrap()).unwrap();
    assert_eq!(unfinished.permissions().mode() & 0o7777, 0o600);
    send(&child, Signal::KILL);
    let killed: Run = child.wait_with_output().unwrap().into();
    assert_eq!(killed.signal, Some(Signal::KILL.as_raw()));
    assert_eq!(lab.read("destination"), b"old");
    if unfinished.nlink() == 0 {
        assert_eq!(lab.leftovers(), Vec::<String>::new());
    } else {
        skip("nothing is left by a copy that is killed", "the file system here has no files without a name");
    }
    // What it may have left is in nobody's way.
    lab.copies(&["source", "destination"]);
    assert!(lab.read("destination") == lab.read("source"));
}

#[test]
fn the_file_size_limit_is_an_error_like_any_other() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    lab.write("destination", b"old");
    let mut command = lab.command("/bin/sh".as_ref());
    let script = "ulimit -f 256; exec \"$0\" copy source destination --chunk 64K";
    let limited = run(command.args(["-c", script, HIPFILE]));
    limited.failed_with(&["destination", "File too large"]);
    assert_eq!(lab.read("destination"), b"old");
    assert_eq!(lab.leftovers(), Vec::<String>::new());
}
