//! Destinations that cannot be replaced: written where they are, and said so.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use test_support::afterwards::Afterwards;

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
    let _unmounts = Afterwards::unmount(&lab.path("below"));
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
    let _detaches = Afterwards::detach(&lab.path("image"));
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

/// A loop device over an image of the lab's; detached when dropped.
struct Attached(String, #[allow(dead_code, reason = "dropped")] Afterwards);

impl Attached {
    fn over(lab: &Lab, image: &str) -> Option<Attached> {
        let attached = run(lab.command("losetup".as_ref()).args(["--find", "--show", image]));
        if attached.code != Some(0) {
            skip("a block device", attached.stderr.trim());
            return None;
        }
        let detaches = Afterwards::detach(&lab.path(image));
        Some(Attached(attached.stdout.trim().to_owned(), detaches))
    }
}

#[test]
fn behaviour_106_a_block_device_that_holds_something_is_not_overwritten() {
    const SIZE: usize = 16 << 20;
    let lab = Lab::new();
    let content = pattern(100_000, 1);
    lab.write("source", &content);
    // What each image holds: bytes at an offset, or what a program makes of it.
    let marks: [(&str, usize, &[u8]); 4] = [
        ("LVM", 512 + 24, b"LVM2 001"),
        ("partition table (MBR)", 510, b"\x55\xaa"),
        ("partition table (GPT)", 512, b"EFI PART"),
        ("swap", 4086, b"SWAPSPACE2"),
    ];
    for (words, at, mark) in marks {
        let mut image = vec![0; SIZE];
        image[at..at + mark.len()].copy_from_slice(mark);
        refused_unless_forced(&lab, &image, words, &content);
    }
    for (program, arguments, words) in [
        ("mkfs.ext4", &["-q", "-F"][..], "ext4"),
        ("mkfs.btrfs", &["-q", "-f"], "Btrfs"),
        ("mkfs.vfat", &[], "FAT"),
    ] {
        File::create(lab.path("image")).unwrap().set_len(256 << 20).unwrap();
        let made = Command::new(program).args(arguments).arg(lab.path("image")).output();
        match made {
            Ok(made) if made.status.success() => {
                refused_unless_forced(&lab, &lab.read("image"), words, &content);
            }
            Ok(made) => skip(program, &String::from_utf8_lossy(&made.stderr)),
            Err(error) => skip(program, &error.to_string()),
        }
    }
}

fn refused_unless_forced(lab: &Lab, image: &[u8], words: &str, content: &[u8]) {
    lab.write("image", image);
    let Some(device) = Attached::over(lab, "image") else { return };
    lab.fails(&["source", &device.0], &[&device.0, "it holds ", words, "--force"]);
    assert!(lab.read("image") == image, "{words}: it was written to all the same");
    let forced = lab.copies(&["source", &device.0, "--force", "--verify"]);
    assert!(
        forced.said().iter().any(|line| line.contains("overwriting") && line.contains(words)),
        "{}",
        forced.stderr
    );
    drop(device);
    let mut expected = image.to_owned();
    expected[..content.len()].copy_from_slice(content);
    assert!(lab.read("image") == expected, "{words}");
}

#[test]
fn behaviour_106_a_mounted_block_device_is_not_overwritten() {
    let lab = Lab::new();
    lab.write("source", &pattern(100_000, 1));
    File::create(lab.path("image")).unwrap().set_len(64 << 20).unwrap();
    lab.mkdir("mounted");
    let Some(device) = Attached::over(&lab, "image") else { return };
    let made = run(lab.command("mkfs.ext4".as_ref()).args(["-q", "-F", &device.0]));
    let mounted = run(lab.command("mount".as_ref()).args([&device.0, "mounted"]));
    if made.code != Some(0) || mounted.code != Some(0) {
        return skip("a mounted block device", mounted.stderr.trim());
    }
    let _unmounts = Afterwards::unmount(&lab.path("mounted"));
    let copy = run(&mut lab.copy(&["source", &device.0]));
    let mut bench = lab.command(crate::support::HIPFILE.as_ref());
    let bench = run(bench.args([
        "bench",
        &device.0,
        "--rw",
        "write",
        "--destroy",
        "--size",
        "1M",
        "--block",
        "1M",
        "--repeat",
        "1",
    ]));
    let unmounted = Command::new("umount").arg(lab.path("mounted")).status().unwrap();
    assert!(unmounted.success());
    copy.failed_with(&[&device.0, "mounted", "--force"]);
    assert!(bench.code == Some(1) && bench.stderr.contains("mounted"), "{:?} {}", bench.code, bench.stderr);
    let checked = run(lab.command("fsck.ext4".as_ref()).args(["-f", "-n", &device.0]));
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);
}
