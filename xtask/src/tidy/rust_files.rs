//! Rules for single Rust files: the first line says what the module is, files stay short, and some things are done in
//! one place only (reading the environment, opening libraries, hipFile's C numbers).

use std::collections::BTreeSet;

use super::File;
use super::source::{code, lines_with_word, without_tests};

const LONG: usize = 400;
const TOO_LONG: usize = 600;
/// A file above [`TOO_LONG`] lines says why in a line that starts so.
const LONG_BECAUSE: &str = "//! Long because: ";

/// Something done in few places: the words that do it, and the places.
struct Only {
    what: &'static str,
    words: &'static [&'static str],
    places: &'static [&'static str],
}

const ONLY: &[Only] = &[
    Only {
        what: "reads the environment",
        words: &[
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
            "getenv",
            "secure_getenv",
            "environ",
        ],
        places: &[
            "crates/hipfile/src/config.rs",
            "crates/hip-emu/src/options.rs",
            "crates/test-support/",
            "xtask/",
        ],
    },
    Only { what: "opens a library", words: &["dlopen", "dlsym", "dlmopen"], places: &["crates/gpu-sys/"] },
];

pub(super) fn check(files: &[File], problems: &mut BTreeSet<String>) {
    for file in files.iter().filter(|file| file.is_rust()) {
        let path = &file.path;
        if !file.text.starts_with("//! ") {
            problems.insert(format!("{path}:1: the first line is no //! line that says what the module is"));
        }
        let lines = file.text.lines().count();
        if lines > TOO_LONG && !file.text.lines().any(|line| line.starts_with(LONG_BECAUSE)) {
            problems.insert(format!(
                "{path}: {lines} lines, above {TOO_LONG}; split it, or say \"{LONG_BECAUSE}...\""
            ));
        }
        if !is_shipped(path) {
            continue;
        }
        let code = code(&file.text);
        let shipped = without_tests(&code);
        for only in ONLY.iter().filter(|only| !only.places.iter().any(|place| path.starts_with(place))) {
            for line in only.words.iter().flat_map(|word| lines_with_word(shipped, word)) {
                problems.insert(format!("{path}:{line}: {}; only {} may", only.what, only.places.join(", ")));
            }
        }
        if path.starts_with("crates/hipfile/src/") {
            for number in 5001..=5039 {
                for line in lines_with_word(shipped, &number.to_string()) {
                    problems.insert(format!(
                        "{path}:{line}: {number} is a C error code; the core knows kinds only"
                    ));
                }
            }
        }
    }
}

/// Code that ends up in a library or program, as opposed to tests, benchmarks, examples and build scripts.
fn is_shipped(path: &str) -> bool {
    let aside = |part: &str| matches!(part, "tests" | "tests.rs" | "benches" | "examples" | "build.rs");
    !path.split('/').any(aside)
}

/// How many Rust files are above the length that we aim for.
pub(super) fn long(files: &[File]) -> usize {
    files.iter().filter(|file| file.is_rust() && file.text.lines().count() > LONG).count()
}

/// The numbers of the behaviours after which tests are named, `fn behaviour_57_...`, in order.
pub(super) fn behaviours(files: &[File]) -> String {
    let mut numbers = BTreeSet::new();
    for file in
        files.iter().filter(|file| file.is_rust() || [".c", ".py"].iter().any(|end| file.path.ends_with(end)))
    {
        for (at, prefix) in file.text.match_indices("behaviour_") {
            let rest = &file.text[at + prefix.len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            numbers.extend(rest[..digits].parse::<u32>());
        }
    }
    match numbers.is_empty() {
        true => "none".to_owned(),
        false => numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, problems};
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        problems(|p| check(&[file(path, text)], p))
    }

    #[test]
    fn a_module_says_what_it_is_in_its_first_line() {
        assert_eq!(found("a.rs", "//! A thing.\n"), Vec::<String>::new());
        assert_eq!(found("a.rs", "\n//! A thing.\n").len(), 1);
        assert_eq!(found("tests/a.rs", "use x;\n").len(), 1);
        assert_eq!(found("a.txt", "use x;\n"), Vec::<String>::new());
    }

    #[test]
    fn a_long_file_gives_a_reason() {
        let body = "x();\n".repeat(TOO_LONG);
        assert_eq!(found("a.rs", &format!("//! A.\n{body}")).len(), 1);
        assert_eq!(found("a.rs", &format!("//! A.\n{LONG_BECAUSE}a table.\n{body}")), Vec::<String>::new());
    }

    #[test]
    fn the_environment_is_read_in_one_place() {
        let text = "//! A.\nfn f() { std::env::var(\"X\") }\n// getenv\n";
        let problem = found("crates/hipfile/src/a.rs", text);
        assert!(problem.len() == 1 && problem[0].contains("a.rs:2: reads the environment"), "{problem:?}");
        assert_eq!(found("crates/hipfile/src/config.rs", text), Vec::<String>::new());
        assert_eq!(found("crates/hipfile/tests/it/a.rs", text), Vec::<String>::new());
        assert_eq!(found("crates/hipfile/build.rs", text), Vec::<String>::new());
        let in_tests = "//! A.\n#[cfg(test)]\nmod tests { fn f() { std::env::var(\"X\") } }\n";
        assert_eq!(found("crates/hipfile/src/a.rs", in_tests), Vec::<String>::new());
    }

    #[test]
    fn libraries_are_opened_in_one_crate() {
        let text = "//! A.\nfn f() { libc::dlopen(p, 0) }\n";
        assert_eq!(found("crates/hipfile/src/a.rs", text).len(), 1);
        assert_eq!(found("crates/gpu-sys/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn the_core_knows_no_c_error_code() {
        let text = "//! A: 5022.\nconst X: i32 = 5022;\nconst Y: u64 = 50220;\n";
        let problem = found("crates/hipfile/src/a.rs", text);
        assert!(problem.len() == 1 && problem[0].contains("a.rs:2: 5022"), "{problem:?}");
        assert_eq!(found("crates/libhipfile/src/a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn behaviours_are_counted_once_each() {
        let files = [
            file("a.rs", "fn behaviour_57_x() {}\nfn behaviour_8_y() {}"),
            file("b.rs", "fn behaviour_57_z() {}"),
        ];
        assert_eq!(behaviours(&files), "8 57");
        assert_eq!(behaviours(&[]), "none");
    }
}
