//! What `check` says of a file is what happens to it: over the file systems that can be had here, the words of `check`, the facts
//! of a handle, and the engine that a real aligned read used agree.

use std::path::{Path, PathBuf};
use std::process::Command;

use hipfile::{Buffer, Config, DeviceChoice, Driver, Reason};

use test_support::afterwards::Afterwards;
use test_support::fuse;

use super::{check, run, skip};
use crate::support::is_root;

/// A mounted file system; unmounted when dropped, or when this process ends, and then without its loop device.
struct Mounted {
    _unmounts: Afterwards,
    _detaches: Option<Afterwards>,
    at: tempfile::TempDir,
}

impl Mounted {
    fn new(folder: &Path, image: Option<&Path>) -> Mounted {
        let at = tempfile::tempdir_in(folder).unwrap();
        let (_unmounts, _detaches) = (Afterwards::unmount(at.path()), image.map(Afterwards::detach));
        Mounted { _unmounts, _detaches, at }
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}", said.lines().next().unwrap_or_default()))
}

/// A loop device over a new image.
fn loop_device(folder: &Path, name: &str) -> Result<String, String> {
    let image = folder.join(name);
    let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
    file.set_len(512 << 20).map_err(|error| error.to_string())?;
    succeeds("losetup", &["-f", "--show", image.to_str().unwrap()])
}

fn on_loop(folder: &Path, make: &[&str], options: &str) -> Result<Mounted, String> {
    let image = format!("{}.img", make.concat());
    let device = loop_device(folder, &image)?;
    let mounted = Mounted::new(folder, Some(&folder.join(image)));
    let (program, arguments) = make.split_first().unwrap();
    succeeds(program, &[arguments, &[device.as_str()]].concat())?;
    succeeds("mount", &["-o", options, &device, mounted.at.path().to_str().unwrap()])?;
    Ok(mounted)
}

fn of_type(folder: &Path, kind: &str, options: &str) -> Result<Mounted, String> {
    let mounted = Mounted::new(folder, None);
    succeeds("mount", &["-t", kind, "-o", options, kind, mounted.at.path().to_str().unwrap()])?;
    Ok(mounted)
}

fn driver() -> Driver {
    let mut config = Config::default();
    config.device = DeviceChoice::Emulated;
    Driver::open(config).unwrap()
}

/// What a handle and a real read say: the engine with the bytes, and why not direct.
fn really(path: &Path) -> (Option<&'static str>, Option<Reason>, String) {
    let driver = driver();
    let file = hipfile::File::register(&driver, std::fs::File::open(path).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 65536).unwrap();
    let before = file.info().unwrap();
    assert_eq!(file.read_at(&mut buffer, 0..65536, 0).unwrap(), 65536);
    let info = file.info().unwrap();
    let engine = info.stats.read.iter().max_by_key(|engine| engine.bytes).map(|engine| engine.engine);
    let reason = info.stats.read_staged.first().map(|staged| staged.reason);
    if reason.is_none_or(|reason| reason as u8 <= Reason::NetworkTcp as u8) && info.direct_align.is_some() {
        // Refusals known beforehand come from the facts that the handle shows.
        assert_eq!(info.storage.direct(false, true).err(), reason, "{}", path.display());
    }
    assert_eq!((before.reason, info.reason), (reason, reason), "{}", path.display());
    (engine, reason, info.storage.fs_text())
}

fn agree(path: &Path, expected: Option<Reason>) {
    let mut command = check(&["--json", path.to_str().unwrap()]);
    let run = run(command.env("HIPFILE_DEVICE", "emulated"));
    let said = run.json();
    let (engine, reason, fs) = really(path);
    assert_eq!(reason, expected, "{}", path.display());
    assert_eq!(said["engine"].as_str(), engine, "{said}");
    assert_eq!(said["reason"].as_str(), reason.map(Reason::word), "{said}");
    assert_eq!(said["direct"].as_bool(), Some(reason.is_none()), "{said}");
    assert_eq!(run.code, Some(i32::from(reason.is_some())));
    assert_eq!(said["emulated"].as_bool(), Some(true));
    if said["mountpoint"].is_string() && said["fstype"] != "block device" {
        assert_eq!(said["fstype"].as_str(), Some(fs.as_str()));
    }
    assert_eq!(engine == Some("p2p"), reason.is_none(), "{said}");
}

fn file_on(mount: &Path) -> PathBuf {
    let path = mount.join("file");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    path
}

#[test]
fn behaviour_100_check_handle_and_read_agree() {
    if !is_root() {
        return skip("check against real file systems", "mounting needs root");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = folder.path();
    let sub = |name: &str| {
        let path = at.join(name);
        std::fs::create_dir(&path).unwrap();
        path.display().to_string()
    };
    let overlay = format!("lowerdir={},upperdir={},workdir={}", sub("lower"), sub("upper"), sub("work"));
    let huge = "pagesize=2M,size=4M";
    let cases: [(&str, Result<Mounted, String>, Option<Reason>); 7] = [
        ("ext4", on_loop(at, &["mkfs.ext4", "-q", "-F"], "defaults"), None),
        ("xfs", on_loop(at, &["mkfs.xfs", "-q", "-f"], "defaults"), None),
        (
            "ext4 with data=journal",
            on_loop(at, &["mkfs.ext4", "-qF"], "data=journal"),
            Some(Reason::JournalMode),
        ),
        ("btrfs", on_loop(at, &["mkfs.btrfs", "-q", "-f"], "defaults"), Some(Reason::FileSystem)),
        ("tmpfs", of_type(at, "tmpfs", "size=8M"), Some(Reason::FileSystem)),
        ("overlay", of_type(at, "overlay", &overlay), Some(Reason::FileSystem)),
        ("hugetlbfs", of_type(at, "hugetlbfs", huge), Some(Reason::FileSystem)),
    ];
    for (name, mounted, expected) in &cases {
        match mounted {
            Ok(mounted) if *name == "hugetlbfs" => match huge_file(mounted.at.path()) {
                Ok(path) => agree(&path, *expected),
                Err(why) => skip(name, &why),
            },
            Ok(mounted) => agree(&file_on(mounted.at.path()), *expected),
            Err(why) => skip(name, why),
        }
    }
    let mounted = Mounted::new(at, None);
    match fuse::serve(mounted.at.path(), vec![7; 1 << 20]) {
        Ok(()) => agree(&mounted.at.path().join(fuse::NAME), Some(Reason::FileSystem)),
        Err(why) => skip("FUSE", &why),
    }
    match loop_device(at, "raw.img") {
        Ok(device) => {
            let _detaches = Afterwards::detach(&at.join("raw.img"));
            agree(Path::new(&device), None);
        }
        Err(why) => skip("a raw loop device", &why),
    }
    for what in ["md", "device-mapper", "NFS"] {
        skip(&format!("check against a real {what}"), "not in every kernel; made-up machines stand in");
    }
}

/// Files of huge pages cannot be written to, only mapped and sized; reading gives zeroes.
fn huge_file(mount: &Path) -> Result<PathBuf, String> {
    let path = mount.join("file");
    let file = std::fs::File::create(&path).map_err(|error| error.to_string())?;
    file.set_len(2 << 20).map_err(|error| error.to_string())?;
    Ok(path)
}

/// The default journal mode of the file system itself is not in the mount table; the file's facts know it all the same.
#[test]
fn behaviour_104_a_journal_mode_set_by_tune2fs_is_seen() {
    if !is_root() {
        return skip("tune2fs -o journal_data", "mounting needs root");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let device = match loop_device(folder.path(), "tuned.img") {
        Ok(device) => device,
        Err(why) => return skip("tune2fs -o journal_data", &why),
    };
    let mounted = Mounted::new(folder.path(), Some(&folder.path().join("tuned.img")));
    let steps = [
        succeeds("mkfs.ext4", &["-q", "-F", &device]),
        succeeds("tune2fs", &["-o", "journal_data", &device]),
        succeeds("mount", &[&device, mounted.at.path().to_str().unwrap()]),
    ];
    if let Some(why) = steps.into_iter().find_map(Result::err) {
        return skip("tune2fs -o journal_data", &why);
    }
    agree(&file_on(mounted.at.path()), Some(Reason::JournalMode));
}

/// In a mount namespace of its own, through a bind mount whose name is the start of another's.
#[test]
fn behaviour_28_the_very_mount_is_told() {
    if !is_root() {
        return skip("bind mounts", "mounting needs root");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = r#"set -e
        cd "$1"; mkdir a ab real; echo data >real/file
        mount -t tmpfs none a; mount --bind real ab
        exec "$2" check --json ab/file"#;
    let here = folder.path().to_str().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", here, super::HIPFILE]).env("HIPFILE_DEVICE", "emulated");
    let run = run(&mut command);
    if run.stdout.is_empty() {
        return skip("bind mounts", run.stderr.trim());
    }
    let said = run.json();
    assert_eq!(
        said["mountpoint"].as_str().map(Path::new),
        Some(folder.path().join("ab").as_path()),
        "{said}"
    );
    assert!(!said["fstype"].as_str().unwrap().starts_with("tmpfs"), "{said}");
}
