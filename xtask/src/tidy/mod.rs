//! `cargo xtask tidy`: rules about the source that neither the compiler nor clippy can hold. Each rule reads text and
//! answers what breaks it; it changes nothing.

mod docs;
mod layers;
mod rust_files;
mod sites;
mod source;
mod unsafe_list;
mod words;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::cmd::cmd;
use crate::layout;

/// One file of the project.
struct File {
    /// From the root of the checkout, with `/`.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// Checks the checkout.
///
/// # Errors
/// The number of places where a rule is broken; each was printed.
pub(crate) fn main() -> Result<(), String> {
    let files = project_files()?;
    let problems = check(&files);
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    println!("tidy: {} files, {} above 400 lines", files.len(), rust_files::long(&files));
    println!("tidy: tests named after behaviours: {}", rust_files::behaviours(&files));
    match problems.len() {
        0 => Ok(()),
        n => Err(format!("tidy: rules are broken in {n} places")),
    }
}

fn check(files: &[File]) -> BTreeSet<String> {
    let mut problems = BTreeSet::new();
    let architecture = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    match architecture {
        Some(file) => {
            unsafe_list::check(&file.text, files, &mut problems);
            layers::check(&file.text, files, &mut problems);
        }
        None => {
            problems.insert("ARCHITECTURE.md is missing".to_owned());
        }
    }
    rust_files::check(files, &mut problems);
    sites::check(files, &mut problems);
    words::check(files, &mut problems);
    docs::check(files, &mut problems);
    problems
}

/// The text files that are or would be committed.
fn project_files() -> Result<Vec<File>, String> {
    let list = cmd("git").words("ls-files --cached --others --exclude-standard -z").output()?;
    let paths: BTreeSet<&str> = list.split('\0').filter(|path| !path.is_empty()).collect();
    let mut files = Vec::new();
    for path in paths {
        let full: PathBuf = layout::root().join(path);
        // Deleted but not yet committed; a link, whose target is listed itself; or not text.
        if !full.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let bytes = std::fs::read(&full).map_err(|e| format!("{path}: {e}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod fixture {
    use super::File;

    pub(super) fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// What a rule says about these files.
    pub(super) fn problems(check: impl Fn(&mut std::collections::BTreeSet<String>)) -> Vec<String> {
        let mut problems = std::collections::BTreeSet::new();
        check(&mut problems);
        problems.into_iter().collect()
    }
}
