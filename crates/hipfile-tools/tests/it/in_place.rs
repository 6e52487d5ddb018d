//! Destinations that cannot be replaced: written where they are, and said so.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::support::{Lab, Run, is_root, pattern, run, skip, unprivileged};

fn said_in_place(run: &Run, why: &str) {
    let said = run.said();
    assert!(said.len() == 1 && said[0].contains("writing in place: ") && said[0].contains(why), "{said:?}");
}

#[test]
fn a_file_of_several_names_keeps_them() {
    let lab = Lab::new();
    let content = pattern(300_000, 1);
    lab.write("source", &content);
    lab.write("one", &pattern(500_000, 2));
    lab.hard_link("one", "two");
    let run = lab.copies(&["source", "two", "--json", "--verify"]);
    said_in_place(&run, "it has 2 names");
    assert!(lab.read("one") == content && lab.read("two") == content);
    assert_eq!(lab.inode("one"), lab.inode("two"));
    assert!(run.json()["in_place"].as_str().unwrap().contains("2 names"));
}

#[test]
fn asked_for_it_is_done_without_a_word() {
    let lab = Lab::new();
    lab.write("source", b"short");
    lab.write("destination", &pattern(100_000, 2));
    lab.chmod("destination", 0o640);
    let inode = lab.inode("destination");
    let run = lab.copies(&["source", "destination", "--in-place"]);
    assert_eq!(run.said(), Vec::<&str>::new());
    assert_eq!((lab.read("destination").as_slice(), lab.inode("destination")), (&b"short"[..], inode));
    assert_eq!(lab.mode("destination"), 0o640);
    lab.copies(&["source", "new", "--in-place"]);
    assert_eq!(lab.read("new"), b"short");
}

#[test]
fn a_directory_that_cannot_be_written_is_no_hindrance() {
    let lab = Lab::for_all_users();
    let content = pattern(200_000, 1);
    lab.write("source", &content);
    lab.mkdir("closed");
    lab.write("closed/destination", b"old");
    lab.chmod("closed/destination", 0o666);
    lab.chmod("closed", 0o555);
    let mut command = lab.command(&lab.path("hipfile"));
    let done = run(unprivileged(command.args(["copy", "source", "closed/destination", "--verify"])));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    said_in_place(&done, "its directory cannot be written");
    assert!(lab.read("closed/destination") == content);
    lab.chmod("closed", 0o755);
}

#[test]
fn what_would_change_its_owner_is_not_replaced() {
    if !is_root() {
        return skip("files of other owners", "only root can make them");
    }
    let lab = Lab::for_all_users();
    lab.write("source", b"new");
    for (mode, why) in [(0o777, "could not keep its owner"), (0o1777, "only its owner may replace it")] {
        let folder = format!("folder-{mode:o}");
        let file = format!("{folder}/destination");
        lab.mkdir(&folder);
        lab.chmod(&folder, mode);
        lab.write(&file, b"old");
        lab.chmod(&file, 0o666);
        let inode = lab.inode(&file);
        let mut command = lab.command(&lab.path("hipfile"));
        let done = run(unprivileged(command.args(["copy", "source", &file])));
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        said_in_place(&done, why);
        assert_eq!((lab.read(&file).as_slice(), lab.inode(&file)), (&b"new"[..], inode));
        assert_eq!(std::fs::read_dir(lab.path(&folder)).unwrap().count(), 1);
    }
}

#[test]
fn a_mount_point_is_not_replaced() {
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.write("below", b"below");
    lab.write("mounted", b"old");
    let mounted = run(lab.command("mount".as_ref()).args(["--bind", "mounted", "below"]));
    if mounted.code != Some(0) {
        return skip("a file that is a mount point", mounted.stderr.trim());
    }
    let done = run(&mut lab.copy(&["source", "below"]));
    let unmounted = Command::new("umount").arg(lab.path("below")).status().unwrap();
    assert!(unmounted.success());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    said_in_place(&done, "mount point");
    assert_eq!((lab.read("mounted").as_slice(), lab.read("below").as_slice()), (&b"new"[..], &b"below"[..]));
}

#[test]
fn a_fifo_is_fed() {
    let lab = Lab::new();
    let mark = pattern(70_000, 1);
    lab.write_sparse("source", 1 << 20, &[(0, &mark), (900_000, &mark)]);
    lab.mkfifo("fifo");
    let mut child = lab.copy(&["source", "fifo", "--chunk", "64K", "--json"]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut received = Vec::new();
    File::open(lab.path("fifo")).unwrap().read_to_end(&mut received).unwrap();
    let run: Run = child.wait_with_output().unwrap().into();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(received == lab.read("source"));
    said_in_place(&run, "it is a FIFO");
    let json = run.json();
    let piped = json["engines"].as_array().unwrap().iter().find(|row| row["engine"] == "pipe").unwrap();
    assert_eq!(piped["bytes"], 1 << 20);
    lab.fails(&["source", "fifo", "--verify"], &["--verify", "fifo cannot be read back"]);
}

#[test]
fn a_reader_that_goes_away_is_an_error() {
    let lab = Lab::new();
    lab.write("source", &pattern(1 << 20, 1));
    lab.mkfifo("fifo");
    let child = lab.copy(&["source", "fifo"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 10];
    File::open(lab.path("fifo")).unwrap().read_exact(&mut first).unwrap();
    let run: Run = child.wait_with_output().unwrap().into();
    run.failed_with(&["fifo", "Broken pipe"]);
}

#[test]
fn character_devices_and_open_files_are_written_through() {
    let lab = Lab::new();
    lab.write("source", &pattern(100_000, 1));
    said_in_place(&lab.copies(&["source", "/dev/null"]), "it is a character device");
    lab.fails(&["source", "/dev/full"], &["/dev/full", "No space left"]);
    let target = File::create(lab.path("target")).unwrap();
    let inode = lab.inode("target");
    let child = lab.copy(&["source", "/dev/stdout"]).stdout(target).stderr(Stdio::piped()).spawn().unwrap();
    let run: Run = child.wait_with_output().unwrap().into();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    said_in_place(&run, "it is an open file");
    assert_eq!(lab.inode("target"), inode);
    assert!(lab.read("target") == lab.read("source"));
}

#[test]
fn a_block_device_is_written_and_read() {
    let lab = Lab::new();
    lab.write("image", &vec![0xee; 1 << 20]);
    let attached = run(lab.command("losetup".as_ref()).args(["--find", "--show", "image"]));
    if attached.code != Some(0) {
        return skip("a block device", attached.stderr.trim());
    }
    let device = attached.stdout.trim().to_owned();
    let content = pattern(300_001, 1);
    lab.write_sparse("source", 300_001, &[(0, &content[..5000]), (200_000, &content[200_000..])]);
    lab.write("large", &vec![0; (1 << 20) + 1]);
    let written = run(&mut lab.copy(&["source", &device, "--verify"]));
    let read = run(&mut lab.copy(&[&device, "back", "--chunk", "64K"]));
    let large = run(&mut lab.copy(&["large", &device]));
    let same = run(&mut lab.copy(&[&device, &device]));
    let detached = run(lab.command("losetup".as_ref()).args(["--detach", &device]));
    assert_eq!(detached.code, Some(0), "{}", detached.stderr);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    said_in_place(&written, "it is a block device");
    let mut expected = lab.read("source");
    expected.resize(1 << 20, 0xee);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    assert!(lab.read("back") == expected);
    large.failed_with(&[&device, "it holds 1048576 bytes, the source has 1048577"]);
    same.failed_with(&["same file"]);
}
