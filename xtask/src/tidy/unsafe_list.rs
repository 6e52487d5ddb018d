//! The table in ARCHITECTURE.md that names where unsafe code lives, compared with the source both ways. What stands
//! in an unsafe block is reviewed by people and clippy.

use std::collections::BTreeSet;

use super::File;
use super::source::{code, has_word};

/// The heading above the table.
const HEADING: &str = "## Where unsafe lives";

pub(super) fn check(architecture: &str, files: &[File], problems: &mut BTreeSet<String>) {
    let listed = listed(architecture);
    if listed.is_empty() {
        problems.insert(format!("ARCHITECTURE.md: no table below \"{HEADING}\""));
    }
    let with_unsafe: Vec<&str> = files
        .iter()
        .filter(|file| file.is_rust() && has_word(&code(&file.text), "unsafe"))
        .map(|file| file.path.as_str())
        .collect();
    for path in &with_unsafe {
        if !listed.iter().any(|entry| covers(entry, path)) {
            problems.insert(format!(
                "{path}: has unsafe code, but the table in ARCHITECTURE.md does not name it"
            ));
        }
    }
    for entry in &listed {
        if !with_unsafe.iter().any(|path| covers(entry, path)) {
            problems
                .insert(format!("ARCHITECTURE.md: the unsafe table names {entry}, which has no unsafe code"));
        }
    }
}

/// A folder (it ends in `/`) stands for all files below it.
fn covers(entry: &str, path: &str) -> bool {
    entry == path || (entry.ends_with('/') && path.starts_with(entry))
}

/// The paths in backquotes in the first column of the table.
fn listed(architecture: &str) -> Vec<String> {
    architecture
        .lines()
        .skip_while(|line| *line != HEADING)
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, problems};
    use super::*;

    const TABLE: &str = "# x\n## Where unsafe lives\n\n| place | why |\n|---|---|\n\
                         | `a/b.rs`, `a/c.rs` | `d.rs` |\n| `e/` | x |\n\n## Next\n| `f.rs` | |\n";

    #[test]
    fn only_the_first_column_of_the_right_table_counts() {
        assert_eq!(listed(TABLE), ["a/b.rs", "a/c.rs", "e/"]);
    }

    #[test]
    fn the_table_and_the_source_must_agree_both_ways() {
        let unsafe_code = "//! x\nfn f() { unsafe { g() } }\n";
        let agreed = [
            file("a/b.rs", unsafe_code),
            file("a/c.rs", unsafe_code),
            file("e/x/y.rs", unsafe_code),
            file("e/z.rs", "//! z\n"),
            file("g.rs", "//! unsafe\n#![forbid(unsafe_code)]\n"),
        ];
        assert_eq!(problems(|p| check(TABLE, &agreed, p)), Vec::<String>::new());

        let differ = [file("a/b.rs", unsafe_code), file("g.rs", unsafe_code), file("e/z.rs", "//! z\n")];
        let found = problems(|p| check(TABLE, &differ, p));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("names a/c.rs") && found[1].contains("names e/"), "{found:?}");
        assert!(found[2].contains("g.rs: has unsafe"), "{found:?}");
    }

    #[test]
    fn a_missing_table_is_a_problem() {
        assert_eq!(problems(|p| check("# x\n", &[], p)).len(), 1);
    }
}
