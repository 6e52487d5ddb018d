//! Which file is written: directories, links, the source itself, and that the name changes hands at once.

use std::fs::File;
use std::io::Read as _;

use crate::support::{Lab, pattern};

#[test]
fn a_directory_takes_the_sources_name() {
    let lab = Lab::new();
    lab.mkdir("there");
    lab.symlink("there", "link");
    lab.write("source", b"content");
    for directory in ["there", "there/", "there/.", "link"] {
        lab.copies(&["source", directory]);
        assert_eq!(lab.read("there/source"), b"content", "{directory}");
        std::fs::remove_file(lab.path("there/source")).unwrap();
    }
    lab.fails(&["source", "missing/"], &["missing/", "no such directory"]);
    lab.fails(&["source", "missing/name"], &["missing", "No such file or directory"]);
    lab.mkdir("there/source");
    lab.fails(&["source", "there"], &["there/source", "it is a directory"]);
}

#[test]
fn the_target_of_a_link_is_replaced_and_not_the_link() {
    let lab = Lab::new();
    lab.mkdir("there");
    lab.write("source", b"new");
    lab.write("there/target", b"old");
    lab.symlink("there/target", "direct");
    lab.symlink("../direct", "there/detour");
    lab.copies(&["source", "there/detour"]);
    assert!(lab.stat("direct").is_symlink() && lab.stat("there/detour").is_symlink());
    assert!(lab.stat("there/target").is_file());
    assert_eq!(lab.read("there/target"), b"new");
}

#[test]
fn a_link_to_nothing_gets_its_target() {
    let lab = Lab::new();
    lab.write("source", b"new");
    lab.symlink("target", "link");
    lab.copies(&["source", "link"]);
    assert_eq!(lab.read("target"), b"new");
    assert!(lab.stat("link").is_symlink());
    lab.symlink("loop", "loop");
    lab.fails(&["source", "loop"], &["loop", "symbolic link"]);
}

#[test]
fn the_source_is_never_its_own_destination() {
    let lab = Lab::new();
    let content = pattern(10_000, 1);
    lab.write("source", &content);
    lab.symlink("source", "link");
    lab.hard_link("source", "twin");
    for destination in ["source", "./source", "link", "twin", "."] {
        for option in ["--in-place", "--verify"] {
            lab.fails(&["source", destination, option], &["same file as source"]);
        }
        assert!(lab.read("source") == content, "{destination}");
    }
    lab.fails(&["link", "source"], &["same file as link"]);
}

#[test]
fn who_has_the_old_file_open_keeps_it() {
    let lab = Lab::new();
    lab.write("source", b"new content");
    lab.write("destination", b"old");
    let mut reader = File::open(lab.path("destination")).unwrap();
    let inode = lab.inode("destination");
    lab.copies(&["source", "destination"]);
    let mut seen = String::new();
    reader.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "old");
    assert_eq!(lab.read("destination"), b"new content");
    assert_ne!(lab.inode("destination"), inode);
}

#[test]
fn names_of_every_kind() {
    let lab = Lab::new();
    let long = "n".repeat(255);
    lab.write("source", b"x");
    for name in ["with space", "line\nbreak", "-dash", "ünï", long.as_str()] {
        lab.copies(&["--", "source", name]);
        lab.copies(&["--", "source", name]);
        assert_eq!(lab.read(name), b"x");
    }
    // A message stays on one line whatever the name.
    lab.fails(&["no\nsuch", "destination"], &["no\\nsuch: No such file"]);
}
