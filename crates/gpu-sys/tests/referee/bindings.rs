//! The source text of the bindings: where it is, and what it declares. It compares nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::packages::folder_of;

/// The bindings' source files by ROCm patch number.
pub(crate) fn sets() -> BTreeMap<u32, PathBuf> {
    let folder = folder_of("cubecl-hip-sys").join("src/bindings");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let patch = |path: &Path| path.file_stem()?.to_str()?.strip_prefix("bindings_")?.parse().ok();
    files.filter_map(|path| Some((patch(&path)?, path))).collect()
}

/// What one file of bindings declares: each name with its declaration, white space and parameters' names removed.
pub(crate) struct Declarations {
    by_name: BTreeMap<String, String>,
}

impl Declarations {
    pub(crate) fn read(path: &Path) -> Self {
        let source = std::fs::read_to_string(path).unwrap();
        // Documentation may hold anything, and stands on lines of its own.
        let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("#[doc")).collect();
        let code = code.join("\n");
        let mut by_name = BTreeMap::new();
        for keyword in ["pub fn ", "pub const ", "pub type ", "pub struct "] {
            for (at, _) in code.match_indices(keyword) {
                let rest = &code[at..];
                let closes = if keyword == "pub struct " { "}" } else { ";" };
                let end = array_aware_end(rest, closes);
                let text = rest[..end].split_whitespace().collect::<Vec<_>>().join(" ");
                let name =
                    text[keyword.len()..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                let text = if keyword == "pub fn " { without_parameter_names(&text) } else { text.clone() };
                by_name.insert(name.to_owned(), text);
            }
        }
        Declarations { by_name }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(String::as_str)
    }
}

/// Where the declaration ends: at the first `closes` outside brackets, which hold the `;` of array types.
fn array_aware_end(text: &str, closes: &str) -> usize {
    let mut depth = 0;
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ if depth == 0 && text[at..].starts_with(closes) => return at + closes.len(),
            _ => (),
        }
    }
    text.len()
}

/// `fn f(a: T, b: U) -> R;` as `fn f(T,U)-> R;`.
fn without_parameter_names(text: &str) -> String {
    let (head, rest) = text.split_once('(').unwrap();
    let (parameters, result) = rest.rsplit_once(')').unwrap();
    let types: Vec<&str> = parameters
        .split(',')
        .map(|parameter| parameter.split_once(": ").map_or("", |(_, kind)| kind.trim()))
        .filter(|kind| !kind.is_empty())
        .collect();
    format!("{head}({}){result}", types.join(","))
}
