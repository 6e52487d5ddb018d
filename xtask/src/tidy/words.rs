//! Words that must not stand in a committed file: marks of unfinished work, switched-off tests, paths of somebody's
//! machine, and skip lines that the automation would not recognise.

use std::collections::BTreeSet;

use super::File;
use super::source::{code, has_word, lines_with_word};

/// Put together here so that this file does not hold them itself.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
const MACROS: &[&str] = &["todo!", "unimplemented!"];

pub(super) fn check(files: &[File], problems: &mut BTreeSet<String>) {
    for file in files {
        let path = &file.path;
        for word in UNFINISHED {
            for line in lines_with_word(&file.text, word) {
                problems.insert(format!(
                    "{path}:{line}: {word}; finish it, or say what is missing in the documentation"
                ));
            }
        }
        for (index, line) in file.text.lines().enumerate() {
            let number = index + 1;
            for word in MACHINE_PATHS.iter().filter(|word| starts_a_path(line, word)) {
                problems.insert(format!("{path}:{number}: {word} is a path of somebody's machine"));
            }
            if file.is_rust() && line.contains("\"SKIP") && !line.contains("\"SKIP: ") {
                problems.insert(format!("{path}:{number}: a skip is told as SKIP: what: reason"));
            }
        }
        if file.is_rust() {
            let code = code(&file.text);
            for (index, line) in code.lines().enumerate() {
                let number = index + 1;
                for word in MACROS
                    .iter()
                    .filter(|word| has_word(line, word.trim_end_matches('!')) && line.contains(**word))
                {
                    problems.insert(format!("{path}:{number}: {word}"));
                }
                if line.contains("#[ignore") && !runs_elsewhere(&file.text, number) {
                    problems.insert(format!(
                        "{path}:{number}: a test that is switched off; one that another test starts says so: \
                         #[ignore = \"why: run by its_name\"]"
                    ));
                }
            }
        }
    }
}

/// Whether the attribute in this line says which test of the file starts the ignored one, in a process of its own.
fn runs_elsewhere(text: &str, number: usize) -> bool {
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let name = line.split("run by ").nth(1).and_then(|rest| rest.split('"').next());
    name.is_some_and(|name| text.contains(&format!("fn {name}()")))
}

/// Whether an absolute path that starts with `word` stands in the line, as opposed to `a/home/`.
fn starts_a_path(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-/}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, problems};
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        problems(|p| check(&[file(path, text)], p)).len()
    }

    #[test]
    fn unfinished_work_is_found_everywhere() {
        for word in UNFINISHED {
            assert_eq!(found("a.md", &format!("x\n{word}: y\n")), 1, "{word}");
            assert_eq!(found("a.rs", &format!("// {word} y\n")), 1, "{word}");
            assert_eq!(found("a.rs", &format!("// {word}S y\n")), 0, "{word}");
        }
        assert_eq!(found("a.rs", concat!("fn f() { to", "do!() }\n")), 1);
        assert_eq!(found("a.rs", concat!("// to", "do!()\nclippy::to", "do\n")), 0);
    }

    #[test]
    fn paths_of_machines_are_found() {
        assert_eq!(found("a.toml", &format!("x = \"{}me/y\"", MACHINE_PATHS[0])), 1);
        assert_eq!(found("a.toml", &format!("x = \"a{}me/y\"", MACHINE_PATHS[0])), 0);
    }

    #[test]
    fn switched_off_tests_and_odd_skips_are_found() {
        assert_eq!(found("a.rs", "#[ignore]\nfn f() {}\n"), 1);
        assert_eq!(found("a.rs", "#[ignore = \"slow\"]\nfn f() {}\n"), 1);
        assert_eq!(found("a.rs", "// #[ignore]\n"), 0);
        let child = "#[ignore = \"own process: run by parent\"]\nfn child() {}\n";
        assert_eq!(found("a.rs", child), 1);
        assert_eq!(found("a.rs", &format!("{child}fn parent() {{ start(); }}\n")), 0);
        assert_eq!(found("a.rs", "eprintln!(\"SKIP: x: y\");\n"), 0);
        assert_eq!(found("a.rs", concat!("eprintln!(\"SK", "IPPED x\");\n")), 1);
    }
}
