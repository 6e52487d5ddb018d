//! Objects in a local folder, by `file://`: what holds for every store, without a server.

use hipfile::UserFs as _;
use hipfile_object::{Objects, Options};
use rustix::io::Errno;

use crate::support::{bytes, driver, from_gpu, through_gpu};

fn url(folder: &tempfile::TempDir, name: &str) -> String {
    format!("file://{}/{name}", folder.path().display())
}

fn small_parts() -> Objects {
    Objects::new(Options { part_len: 64 << 10, parallel: 2, ..Options::default() }).unwrap()
}

#[test]
fn a_local_file_is_an_object() {
    let (driver, folder, objects) = (driver(), tempfile::tempdir().unwrap(), small_parts());
    let content = bytes(1_000_003, 1);
    let object = objects.create(&url(&folder, "new/file"), None).unwrap();
    from_gpu(&driver, &object, &content, 100_000);
    assert!(!folder.path().join("new/file").exists());
    object.finish().unwrap();
    assert!(std::fs::read(folder.path().join("new/file")).unwrap() == content);
    assert!(through_gpu(&driver, &objects.open(&url(&folder, "new/file")).unwrap(), 333_333) == content);
    let object = objects.create(&url(&folder, "given-up"), None).unwrap();
    from_gpu(&driver, &object, &content, 100_000);
    drop(object);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "new, and nothing else");
}

#[test]
fn parts_may_be_filled_in_any_order_within_reach() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), small_parts());
    let content = bytes(250_000, 2);
    let object = objects.create(&url(&folder, "file"), None).unwrap();
    // The third part, the end, the first, and what lies between.
    for range in [140_000..190_000, 240_000..250_000, 0..70_000, 190_000..240_000, 66_000..140_000] {
        assert_eq!(object.write(&content[range.clone()], range.start as u64), Ok(range.len()));
    }
    assert_eq!(object.size(), 250_000);
    let sent = object.write(b"x", 5).unwrap_err();
    assert_eq!(sent, Errno::SPIPE.raw_os_error());
    assert!(object.last_error().unwrap().to_string().contains("written from start to end"));
    let far = object.write(b"x", 10 << 20).unwrap_err();
    assert_eq!(far, Errno::NOBUFS.raw_os_error());
    object.finish().unwrap();
    assert!(std::fs::read(folder.path().join("file")).unwrap() == content);
}

#[test]
fn what_was_not_written_is_zeros() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), small_parts());
    let object = objects.create(&url(&folder, "file"), None).unwrap();
    object.write(b"begin", 0).unwrap();
    object.write_zeros(5, 1_000_000).unwrap();
    object.write(b"island", 1_000_005).unwrap();
    object.write(b"end", 1_100_000).unwrap();
    object.finish().unwrap();
    let mut due = vec![0; 1_100_003];
    due[..5].copy_from_slice(b"begin");
    due[1_000_005..][..6].copy_from_slice(b"island");
    due[1_100_000..].copy_from_slice(b"end");
    assert!(std::fs::read(folder.path().join("file")).unwrap() == due);
}

#[test]
fn what_may_not_be_is_refused() {
    let (driver, folder, objects) = (driver(), tempfile::tempdir().unwrap(), small_parts());
    assert_eq!(objects.open(&url(&folder, "none")).unwrap_err().errno(), Errno::NOENT.raw_os_error());
    std::fs::write(folder.path().join("file"), b"content").unwrap();
    let object = objects.open(&url(&folder, "file")).unwrap();
    assert_eq!(object.write(b"x", 0), Err(Errno::BADF.raw_os_error()));
    assert_eq!(object.finish().unwrap_err().errno(), Errno::BADF.raw_os_error());
    let new = objects.create(&url(&folder, "new"), None).unwrap();
    assert_eq!(new.read(&mut [0], 0), Err(Errno::BADF.raw_os_error()));
    new.discard();
    assert_eq!(new.write(b"x", 0), Err(Errno::BADF.raw_os_error()));
    for options in [
        Options { parallel: 0, ..Options::default() },
        Options { part_len: 1, ..Options::default() },
        Options { settings: vec![("aws_endpiont".into(), "x".into())], ..Options::default() },
    ] {
        assert_eq!(Objects::new(options).unwrap_err().errno(), Errno::INVAL.raw_os_error());
    }
    // The handle leads to the object for as long as there is one.
    let file = object.register(&driver).unwrap();
    let id = file.id();
    assert_eq!(objects.of_file(id).unwrap().size(), 7);
    drop((file, object));
    assert!(objects.of_file(id).is_none());
}
