//! Every input of the corpus, among them whatever was found once, and changed ones for a moment.

use std::process::Command;

#[test]
fn every_input_of_the_corpus_is_survived() {
    let done = Command::new(env!("CARGO_BIN_EXE_hostile")).args(["all", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(said.lines().count(), hipfile_hostile::TARGETS.len(), "{said}");
}
