//! A reader for the declarations in our own headers. It knows the C that they are written in, not all of C.

use std::collections::BTreeMap;

use super::{HEADERS, include_dir};

/// A function as a header declares it.
#[derive(Debug)]
pub(crate) struct Prototype {
    pub(crate) name: String,
    pub(crate) result: String,
    /// Type and name of each parameter.
    pub(crate) parameters: Vec<(String, String)>,
}

/// A header without comments.
pub(crate) fn text(name: &str) -> String {
    let path = include_dir().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = after.split_once("*/").expect("a comment has an end").1;
    }
    out.push_str(rest);
    assert!(!out.contains("//"), "{name}: line comments are no C90 comments");
    out
}

/// Every function that the headers declare.
pub(crate) fn prototypes() -> Vec<Prototype> {
    HEADERS.iter().flat_map(|header| prototypes_of(header)).collect()
}

/// Every function that one header declares.
pub(crate) fn prototypes_of(header: &str) -> Vec<Prototype> {
    let text = code(header);
    let declarations = text.split("HIPFILE_API ").skip(1);
    declarations
        .map(|declaration| {
            let (head, rest) = declaration.split_once('(').unwrap();
            let (result, name) = type_and_name(head);
            let arguments = rest.split_once(");").unwrap().0;
            let parameters = arguments
                .split(',')
                .map(str::trim)
                .filter(|argument| *argument != "void")
                .map(type_and_name)
                .collect();
            Prototype { name, result, parameters }
        })
        .collect()
}

/// Splits `const void *ptr` into `const void*` and `ptr`.
fn type_and_name(declarator: &str) -> (String, String) {
    let declarator = declarator.trim();
    let at = declarator.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let (kind, name) = declarator.split_at(at);
    let kind = kind.split_whitespace().collect::<Vec<_>>().join(" ").replace(" *", "*");
    (kind, name.to_owned())
}

/// The macros that stand for a number, by name.
pub(crate) fn number_macros() -> Vec<String> {
    let mut names = Vec::new();
    for header in HEADERS {
        for line in text(header).lines() {
            let Some(definition) = line.strip_prefix("#define ") else {
                continue;
            };
            let mut words = definition.split_whitespace();
            let (Some(name), Some(value)) = (words.next(), words.next()) else {
                continue;
            };
            if value.starts_with(|c: char| c.is_ascii_digit()) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Each enumeration's enumerators, by the enumeration's type name.
pub(crate) fn enumerations() -> BTreeMap<String, Vec<String>> {
    definitions("typedef enum ")
        .into_iter()
        .map(|(name, body)| {
            let enumerators = body.split(',').map(|e| e.split('=').next().unwrap().trim().to_owned());
            (name, enumerators.filter(|e| !e.is_empty()).collect())
        })
        .collect()
}

/// Each structure's members, by the structure's type name. Members without a type name of their own are listed as
/// `outer.inner` and have rows of their own.
pub(crate) fn structures() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for (name, body) in definitions("typedef struct ") {
        members(&name, &body, &mut found);
    }
    found
}

fn members(owner: &str, body: &str, found: &mut BTreeMap<String, Vec<String>>) {
    let mut names = Vec::new();
    let mut rest = body.trim();
    while !rest.is_empty() {
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(open), Some(end)) if open < end => {
                let close = closing(rest, open);
                let end = close + rest[close..].find(';').unwrap();
                let name = rest[close + 1..end].trim();
                members(&format!("{owner}.{name}"), &rest[open + 1..close], found);
                names.push(name.to_owned());
                end
            }
            (_, Some(end)) => {
                let declaration = &rest[..end];
                let declarator = match declaration.split_once("(*") {
                    Some((_, pointer)) => pointer.split(')').next().unwrap(),
                    None => declaration.split('[').next().unwrap(),
                };
                names.push(type_and_name(declarator).1);
                end
            }
            (_, None) => panic!("{owner}: no end of: {rest}"),
        };
        rest = rest[end + 1..].trim();
    }
    found.insert(owner.to_owned(), names);
}

/// Type name and body of every `typedef struct` or `typedef enum` with a body.
fn definitions(keyword: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for header in HEADERS {
        let text = code(header);
        for (at, _) in text.match_indices(keyword) {
            let Some(open) = text[at..].find(['{', ';']).map(|n| at + n) else {
                continue;
            };
            if text.as_bytes()[open] == b';' {
                continue;
            }
            let close = closing(&text, open);
            let name = text[close + 1..].split(';').next().unwrap().trim();
            found.push((name.to_owned(), text[open + 1..close].to_owned()));
        }
    }
    found
}

fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return open + at,
            '}' => depth -= 1,
            _ => (),
        }
    }
    panic!("a brace has no partner");
}

/// A header without comments and preprocessor lines.
fn code(header: &str) -> String {
    let mut out = String::new();
    let text = text(header);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with('#') {
            let mut line = line;
            while line.ends_with('\\') {
                line = lines.next().unwrap();
            }
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}
