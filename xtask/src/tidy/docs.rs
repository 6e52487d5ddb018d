//! Rules for the Markdown files: relative links lead somewhere, the code map names what exists, and the change log is
//! open for the next change.

use std::collections::BTreeSet;

use super::File;

pub(super) fn check(files: &[File], problems: &mut BTreeSet<String>) {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, link) in links(&file.text) {
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let path = if target.is_empty() { file.path.clone() } else { resolved(&file.path, target) };
            if !exists(&paths, &path) {
                problems.insert(format!("{}:{line}: the link to {link} leads nowhere", file.path));
                continue;
            }
            let linked = files.iter().find(|other| other.path == path && path.ends_with(".md"));
            if let Some(linked) = linked
                && !anchor.is_empty()
                && !anchors(&linked.text).any(|known| known == anchor)
            {
                problems.insert(format!("{}:{line}: {path} has no heading for #{anchor}", file.path));
            }
        }
    }
    if let Some(file) = files.iter().find(|file| file.path == "ARCHITECTURE.md") {
        for (line, path) in code_paths(&file.text) {
            if !exists(&paths, path) {
                problems.insert(format!("ARCHITECTURE.md:{line}: {path} does not exist"));
            }
        }
    }
    match files.iter().find(|file| file.path == "CHANGELOG.md") {
        Some(file) if file.text.lines().any(|line| line == "## [Unreleased]") => (),
        Some(_) => _ = problems.insert("CHANGELOG.md: no heading \"## [Unreleased]\"".to_owned()),
        None => _ = problems.insert("CHANGELOG.md is missing".to_owned()),
    }
}

/// A file, or a folder with files.
fn exists(paths: &BTreeSet<&str>, path: &str) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    paths.contains(path) || path.is_empty() || paths.iter().any(|known| known.starts_with(&folder))
}

/// The targets of `[text](target)` outside code blocks.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (at, open) in line.match_indices("](") {
            let rest = &line[at + open.len()..];
            if let Some(target) = rest.split([')', ' ']).next() {
                found.push((number, target));
            }
        }
    }
    found
}

/// Numbered lines outside fenced code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn resolved(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => (),
            ".." => _ = parts.pop(),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors that a renderer makes of the headings.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// What stands in backquotes and starts with a folder of the checkout: a path that must exist.
fn code_paths(text: &str) -> Vec<(usize, &str)> {
    let roots = ["crates/", "include/", "xtask/", "docs/", "examples/", ".ci/"];
    let quoted =
        prose(text).flat_map(|(n, line)| line.split('`').skip(1).step_by(2).map(move |word| (n, word)));
    quoted
        .filter(|(_, word)| {
            roots.iter().any(|root| word.starts_with(root)) && !word.contains(['*', '<', ' ', '{'])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, problems};
    use super::*;

    fn found(files: &[File]) -> Vec<String> {
        problems(|p| check(files, p))
    }

    fn log() -> File {
        file("CHANGELOG.md", "# Changes\n\n## [Unreleased]\n")
    }

    #[test]
    fn relative_links_lead_somewhere() {
        let good = "[a](docs/b.md) [c](docs) [d](https://example.org/x) [e](#the-end)\n\
                    ```\n[x](nowhere.md)\n```\n# The end\n";
        let files = [log(), file("README.md", good), file("docs/b.md", "[up](../README.md#the-end)")];
        assert_eq!(found(&files), Vec::<String>::new());
        let bad = [log(), file("docs/b.md", "x\n[a](c.md) [b](#nothing)")];
        let problem = found(&bad);
        assert_eq!(problem.len(), 2, "{problem:?}");
        assert!(problem.iter().all(|p| p.starts_with("docs/b.md:2: ")), "{problem:?}");
    }

    #[test]
    fn the_code_map_names_what_exists() {
        let map = "`crates/a/src/b.rs` and `crates/a/`, `cargo xtask`, `crates/*/tests`\n`crates/gone/`\n";
        let files = [log(), file("ARCHITECTURE.md", map), file("crates/a/src/b.rs", "")];
        let problem = found(&files);
        assert_eq!(problem, ["ARCHITECTURE.md:2: crates/gone/ does not exist"]);
    }

    #[test]
    fn the_change_log_is_open() {
        assert_eq!(found(&[log()]), Vec::<String>::new());
        assert_eq!(found(&[file("CHANGELOG.md", "## [0.1.0]\n")]).len(), 1);
        assert_eq!(found(&[]).len(), 1);
    }
}
