//! Every byte of files of every size, holes as holes.

use std::os::unix::fs::MetadataExt as _;

use crate::support::{Lab, pattern, run, same_content};

#[test]
fn sizes_around_every_edge() {
    const CHUNK: usize = 64 << 10;
    let lab = Lab::new();
    let edges = [0, 512, 4096, CHUNK, 2 * CHUNK, 3 * CHUNK];
    for len in edges.into_iter().flat_map(|edge: usize| [edge.wrapping_sub(1), edge, edge + 1]) {
        if len == usize::MAX {
            continue;
        }
        let content = pattern(len, len as u64);
        lab.write("source", &content);
        lab.copies(&["source", "destination", "--chunk", "64K"]);
        let mut staged = lab.copy(&["source", "staged", "--chunk", "64K"]);
        let staged = run(staged.env("HIPFILE_ENGINES", "bounce"));
        assert_eq!(staged.code, Some(0), "{len} bytes: {}", staged.stderr);
        for destination in ["destination", "staged"] {
            assert!(lab.read(destination) == content, "{len} bytes came out differently in {destination}");
        }
    }
    assert!(lab.leftovers().is_empty());
}

#[test]
fn a_chunk_of_an_odd_size_is_as_good() {
    let lab = Lab::new();
    let content = pattern(100_003, 3);
    lab.write("source", &content);
    lab.copies(&["source", "destination", "--chunk", "4099"]);
    assert!(lab.read("destination") == content);
}

#[test]
fn an_empty_source_empties_the_destination() {
    let lab = Lab::new();
    lab.write("source", b"");
    lab.write("destination", b"old");
    let run = lab.copies(&["source", "destination", "--json", "--verify"]);
    assert_eq!(lab.read("destination"), b"");
    assert_eq!(run.json()["bytes"], 0);
}

#[test]
fn a_hundred_mebibytes_verified() {
    let lab = Lab::new();
    lab.write("source", &pattern(100 << 20, 100));
    let run = lab.copies(&["source", "destination", "--verify", "--json"]);
    assert!(same_content(&lab.path("source"), &lab.path("destination")));
    let json = run.json();
    assert_eq!(json["bytes"], 100 << 20);
    let moved = |direction: &str| -> u64 {
        let engines = json["engines"].as_array().unwrap().iter();
        engines.filter(|row| row["direction"] == direction).map(|row| row["bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!((moved("read"), moved("write")), (100 << 20, 100 << 20), "{json}");
}

#[test]
fn five_gibibytes_of_holes_stay_holes() {
    const LEN: u64 = (5 << 30) + 7;
    const FOUR_GIB: u64 = 4 << 30;
    let lab = Lab::new();
    let marks = [(0, 5000), (FOUR_GIB - 3, 100_000), (FOUR_GIB + (512 << 20), 4096), (LEN - 1, 1)]
        .map(|(offset, len)| (offset, pattern(len, offset + 1)));
    let data = marks.each_ref().map(|(offset, bytes)| (*offset, bytes.as_slice()));
    lab.write_sparse("source", LEN, &data);

    let run = lab.copies(&["source", "destination", "--verify", "--json"]);
    let json = run.json();
    assert_eq!(json["bytes"], LEN);
    assert!(json["bytes_moved"].as_u64().unwrap() < 4 << 20, "holes were moved: {json}");
    let stat = lab.stat("destination");
    assert_eq!(stat.len(), LEN);
    assert!(stat.blocks() * 512 < 4 << 20, "the copy takes {} bytes", stat.blocks() * 512);
    assert!(same_content(&lab.path("source"), &lab.path("destination")));
}

#[test]
fn a_hole_overwrites_old_data_in_place() {
    const LEN: usize = 4 << 20;
    let lab = Lab::new();
    let mark = pattern(10_000, 9);
    lab.write_sparse("source", LEN as u64, &[(1_234_567, &mark)]);
    lab.write("destination", &vec![0xff; LEN + 12345]);
    lab.copies(&["source", "destination", "--in-place", "--verify"]);
    let mut expected = vec![0; LEN];
    expected[1_234_567..][..mark.len()].copy_from_slice(&mark);
    assert!(lab.read("destination") == expected);
    let blocks = lab.stat("destination").blocks();
    assert!(blocks * 512 < 1 << 20, "the holes were filled: {} bytes", blocks * 512);
}

#[test]
fn a_file_that_hides_its_size_is_read_to_its_end() {
    let lab = Lab::new();
    lab.copies(&["/proc/version", "destination"]);
    assert_eq!(lab.read("destination"), std::fs::read("/proc/version").unwrap());
}
