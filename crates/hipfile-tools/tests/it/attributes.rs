//! Mode, owner and extended attributes of what is replaced and of what is new.

use std::os::unix::fs::{MetadataExt as _, chown};

use rustix::fs::XattrFlags;

use crate::support::{Lab, NOBODY, is_root, run, skip};

fn set_xattr(lab: &Lab, name: &str, attribute: &str, value: &[u8]) -> bool {
    match rustix::fs::setxattr(lab.path(name), attribute, value, XattrFlags::empty()) {
        Ok(()) => true,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::PERM) => false,
        Err(error) => panic!("{attribute}: {error}"),
    }
}

fn xattr(lab: &Lab, name: &str, attribute: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::getxattr(lab.path(name), attribute, value.as_mut_slice()).ok()?;
    value.truncate(len);
    Some(value)
}

#[test]
fn a_replaced_file_keeps_its_mode() {
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.chmod("source", 0o777);
    for mode in [0o600, 0o640, 0o664, 0o1755, 0o222] {
        lab.write("destination", b"old");
        lab.chmod("destination", mode);
        lab.copies(&["source", "destination"]);
        assert_eq!(lab.mode("destination"), mode);
        std::fs::remove_file(lab.path("destination")).unwrap();
    }
}

#[test]
fn a_new_file_has_the_sources_mode_less_the_umask() {
    let lab = Lab::new();
    lab.write("source", b"new");
    for (source, umask, expected) in [(0o777, "027", 0o750), (0o444, "022", 0o444), (0o4755, "0", 0o755)] {
        lab.chmod("source", source);
        for option in ["", "--in-place"] {
            let script = format!("umask {umask}; exec \"$0\" copy source destination {option}");
            let mut command = lab.command("/bin/sh".as_ref());
            let done = run(command.args(["-c", &script, crate::support::HIPFILE]));
            assert_eq!(done.code, Some(0), "{}", done.stderr);
            assert_eq!(lab.mode("destination"), expected, "{source:o} with umask {umask} {option}");
            std::fs::remove_file(lab.path("destination")).unwrap();
        }
    }
}

#[test]
fn a_replaced_file_keeps_its_owner() {
    if !is_root() {
        return skip("owner of a replaced file", "only root can give a file away");
    }
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.write("destination", b"old");
    chown(lab.path("destination"), Some(NOBODY), Some(12345)).unwrap();
    lab.chmod("destination", 0o4750);
    let run = lab.copies(&["source", "destination"]);
    let stat = lab.stat("destination");
    assert_eq!((stat.uid(), stat.gid(), lab.mode("destination")), (NOBODY, 12345, 0o4750));
    assert_eq!(run.said(), Vec::<&str>::new());
}

#[test]
fn a_replaced_file_keeps_its_extended_attributes() {
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.write("destination", b"old");
    if !set_xattr(&lab, "destination", "user.origin", b"here") {
        return skip("extended attributes", "this file system has none");
    }
    let privileged = set_xattr(&lab, "destination", "trusted.secret", &[0, 1, 255]);
    set_xattr(&lab, "source", "user.origin", b"there");
    set_xattr(&lab, "source", "user.of-source", b"not taken over");
    lab.copies(&["source", "destination"]);
    assert_eq!(lab.read("destination"), b"new");
    assert_eq!(xattr(&lab, "destination", "user.origin").as_deref(), Some(&b"here"[..]));
    assert_eq!(xattr(&lab, "destination", "user.of-source"), None);
    if privileged {
        assert_eq!(xattr(&lab, "destination", "trusted.secret").as_deref(), Some(&[0, 1, 255][..]));
    }
}

#[test]
fn a_new_file_gets_the_users_attributes_of_the_source() {
    let lab = Lab::new();
    lab.write("source", b"new");
    if !set_xattr(&lab, "source", "user.origin", b"there") {
        return skip("extended attributes", "this file system has none");
    }
    lab.copies(&["source", "destination"]);
    assert_eq!(xattr(&lab, "destination", "user.origin").as_deref(), Some(&b"there"[..]));
}

#[test]
fn a_replaced_file_keeps_its_access_list_and_gets_none_from_its_directory() {
    const ACCESS: &str = "system.posix_acl_access";
    const DEFAULT: &str = "system.posix_acl_default";
    // Version 2; then tag, rights and id of: owner rw, user 12345 r, group r, mask r, others none.
    let entries =
        [(1_u16, 6_u16, u32::MAX), (2, 4, 12345), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.write("with", b"old");
    lab.write("without", b"old");
    lab.chmod("without", 0o640);
    if !set_xattr(&lab, "with", ACCESS, &list) {
        return skip("access control lists", "this file system has none");
    }
    assert!(set_xattr(&lab, ".", DEFAULT, &list));
    lab.copies(&["source", "with"]);
    lab.copies(&["source", "without"]);
    assert_eq!(xattr(&lab, "with", ACCESS).as_deref(), Some(list.as_slice()));
    assert_eq!(lab.mode("with"), 0o640);
    assert_eq!((xattr(&lab, "without", ACCESS), lab.mode("without")), (None, 0o640));
}
