//! Whatever fails, the destination's old content stays and nothing else is left.

use std::fs::File;
use std::process::Command;

use test_support::afterwards::Afterwards;

use crate::support::{Lab, faulty, is_root, pattern, run, skip, slow, unprivileged, wait_until};

#[test]
fn a_source_that_cannot_be_read_keeps_the_destination() {
    let lab = Lab::new();
    lab.write("destination", b"old");
    lab.mkdir("folder");
    lab.mkfifo("fifo");
    lab.symlink("nowhere", "dangling");
    for (source, words) in [
        ("missing", "missing: No such file or directory"),
        ("dangling", "dangling: No such file or directory"),
        ("folder", "folder: it is a directory"),
        ("fifo", "fifo: it is a FIFO"),
        ("/dev/zero", "/dev/zero: it is a character device"),
    ] {
        for option in ["--verify", "--in-place"] {
            lab.fails(&[source, "destination", option], &[words]);
            assert_eq!(lab.read("destination"), b"old", "{source}");
        }
    }
}

#[test]
fn a_gpu_that_fails_half_way_keeps_the_destination() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    lab.write("destination", b"old");
    for call in 1..=12 {
        let mut command = lab.copy(&["source", "destination", "--chunk", "128K"]);
        let failed = run(faulty(&mut command, &call.to_string()));
        failed.failed_with(&["hipErrorUnknown"]);
        assert_eq!(lab.read("destination"), b"old");
        assert!(lab.leftovers().is_empty());
    }
}

#[test]
fn a_failure_in_place_says_what_it_did() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    lab.write("destination", &pattern(2 << 20, 2));
    let arguments = ["source", "destination", "--in-place", "--chunk", "128K"];
    // The second chunk is lost; the first has been written, and nothing behind it is cut off.
    let failed = run(faulty(&mut lab.copy(&arguments), "6+"));
    failed.failed_with(&["hipErrorUnknown", "in place and is incomplete"]);
    assert_eq!(lab.stat("destination").len(), 2 << 20);
    // Nothing could be read, so nothing was touched.
    lab.write("destination", b"old");
    let failed = run(faulty(&mut lab.copy(&arguments), "*"));
    failed.failed_with(&["source", "hipErrorUnknown"]);
    assert!(!failed.stderr.contains("incomplete"), "{}", failed.stderr);
    assert_eq!(lab.read("destination"), b"old");
    // What was not there before is not there after.
    let arguments = ["source", "new", "--in-place", "--chunk", "128K"];
    run(faulty(&mut lab.copy(&arguments), "6+")).failed_with(&["hipErrorUnknown"]);
    assert!(!lab.path("new").exists());
}

#[test]
fn a_source_that_shrinks_is_named() {
    let lab = Lab::new();
    lab.write("source", &pattern(64 << 20, 1));
    lab.write("destination", b"old");
    let mut child = slow(&mut lab.copy(&["source", "destination", "--chunk", "1M"])).spawn().unwrap();
    let id = child.id();
    wait_until(&mut child, "the new file", || lab.unfinished(id).is_some());
    File::options().write(true).open(lab.path("source")).unwrap().set_len(100_000).unwrap();
    let run: crate::support::Run = child.wait_with_output().unwrap().into();
    run.failed_with(&["source", "shrank"]);
    assert_eq!(lab.read("destination"), b"old");
    assert!(lab.leftovers().is_empty());
}

#[test]
fn a_protected_destination_stays() {
    let lab = Lab::for_all_users();
    lab.write("source", b"new");
    lab.mkdir("open");
    lab.chmod("open", 0o777);
    lab.write("open/destination", b"old");
    lab.chmod("open/destination", 0o444);
    let mut command = lab.command(&lab.path("hipfile"));
    let denied = run(unprivileged(command.args(["copy", "source", "open/destination"])));
    denied.failed_with(&["open/destination", "Permission denied"]);
    lab.mkdir("closed");
    lab.chmod("closed", 0o555);
    let mut command = lab.command(&lab.path("hipfile"));
    let denied = run(unprivileged(command.args(["copy", "source", "closed/new"])));
    denied.failed_with(&["closed/new", "cannot be created", "Permission denied"]);
    lab.write("secret", b"secret");
    lab.chmod("secret", 0o000);
    let mut command = lab.command(&lab.path("hipfile"));
    run(unprivileged(command.args(["copy", "secret", "open/destination"])))
        .failed_with(&["secret", "Permission denied"]);
    assert_eq!(lab.read("open/destination"), b"old");
}

/// A file system of this size on a folder of the lab, gone with the value.
struct SmallDisk<'a>(&'a Lab, #[allow(dead_code, reason = "dropped")] Afterwards);

impl<'a> SmallDisk<'a> {
    fn new(lab: &'a Lab, size: &str) -> Option<Self> {
        lab.mkdir("disk");
        let options = format!("size={size}");
        let mounted =
            run(lab.command("mount".as_ref()).args(["-t", "tmpfs", "-o", &options, "none", "disk"]));
        if mounted.code != Some(0) {
            skip("full disk", &format!("no tmpfs can be mounted: {}", mounted.stderr.trim()));
            return None;
        }
        Some(Self(lab, Afterwards::unmount(&lab.path("disk"))))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.0.path("disk")).status();
        assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking(), "umount failed");
    }
}

#[test]
fn a_full_disk_keeps_the_old_content() {
    if !is_root() {
        return skip("full disk", "mounting a small file system needs root");
    }
    let lab = Lab::new();
    let Some(_disk) = SmallDisk::new(&lab, "3m") else { return };
    let old = pattern(2 << 20, 1);
    let new = pattern(2 << 20, 2);
    lab.write("disk/destination", &old);
    lab.write("source", &new);
    lab.fails(
        &["source", "disk/destination", "--chunk", "256K"],
        &["disk/destination", "No space left on device"],
    );
    assert!(lab.read("disk/destination") == old);
    assert_eq!(
        std::fs::read_dir(lab.path("disk")).unwrap().count(),
        1,
        "something was left on the full disk"
    );
    lab.copies(&["source", "disk/destination", "--in-place", "--verify"]);
    assert!(lab.read("disk/destination") == new);
}
