//! The direction of dependencies inside the core: the `use crate::` lines of `crates/hipfile/src` against the list of
//! layers in ARCHITECTURE.md. Modules that tests consist of may use everything.

use std::collections::{BTreeMap, BTreeSet};

use super::File;
use super::source::{code, has_word, lines_with_word, without_tests};

const CORE: &str = "crates/hipfile/src/";
/// Opens the block in ARCHITECTURE.md that lists the layers, the top one first, one a line.
const FENCE: &str = "```layers";

/// Folders with alternatives of one kind, of which none names another. They are the modules whose constructors,
/// `NAME::new` or `NAME::open`, stand in the folder's `mod.rs`; what else is there they may share.
const ALTERNATIVES: &[&str] = &["engine", "device"];

pub(super) fn check(architecture: &str, files: &[File], problems: &mut BTreeSet<String>) {
    let (layers, upwards) = layers(architecture);
    if layers.is_empty() {
        problems.insert(format!("ARCHITECTURE.md: no block {FENCE}"));
        return;
    }
    let mut sideways: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut needed = BTreeSet::new();
    for file in files {
        let Some(module) = module_of(&file.path) else {
            continue;
        };
        let Some(layer) = layers.get(module) else {
            problems.insert(format!("{}: the layers in ARCHITECTURE.md do not name {module}", file.path));
            continue;
        };
        seen.insert(module);
        let code = code(&file.text);
        for Use { line, path } in uses(without_tests(&code)) {
            let used = path.split("::").next().unwrap_or_default();
            if used == module {
                continue;
            }
            let exception = (module.to_owned(), path.clone());
            match layers.get(used) {
                Some(below) if below > layer => (),
                Some(same) if same == layer => {
                    _ = sideways.entry(module).or_default().insert(used.to_owned())
                }
                Some(_) if upwards.contains(&exception) => _ = needed.insert(exception),
                Some(_) => {
                    problems.insert(format!(
                        "{}:{line}: {module} may not use {path}, which is above it",
                        file.path
                    ));
                }
                // A module without a layer was reported with its own file.
                None if files.iter().any(|other| module_of(&other.path) == Some(used)) => (),
                // What lib.rs exports: the layer of the module that defines it is not known here.
                None => {
                    problems.insert(format!(
                        "{}:{line}: crate::{path}: name the module that defines it",
                        file.path
                    ));
                }
            }
        }
        alternatives(file, &code, files, problems);
    }
    for module in layers.keys().filter(|module| !seen.contains(module.as_str())) {
        problems.insert(format!("ARCHITECTURE.md: the layers name {module}, which {CORE} has not"));
    }
    for (module, path) in upwards.difference(&needed) {
        problems.insert(format!("ARCHITECTURE.md: the layers let {module} use {path}, which it does not"));
    }
    for module in sideways.keys() {
        if reaches(&sideways, module, module) {
            problems
                .insert(format!("{CORE}: {module} uses itself in a circle through modules of its own layer"));
        }
    }
}

/// A file of a folder of alternatives that names another file of that folder.
fn alternatives(file: &File, code: &str, files: &[File], problems: &mut BTreeSet<String>) {
    for folder in ALTERNATIVES.iter().map(|name| format!("{CORE}{name}/")) {
        let siblings = |path: &str| path.strip_prefix(&folder)?.split(['/', '.']).next().map(str::to_owned);
        let Some(own) = siblings(&file.path).filter(|own| own != "mod") else {
            continue;
        };
        let list = files.iter().find(|other| other.path == format!("{folder}mod.rs"));
        let list = list.map(|file| without_tests(&file.text)).unwrap_or_default();
        let listed =
            |name: &String| ["new", "open"].iter().any(|new| has_word(list, &format!("{name}::{new}")));
        if !listed(&own) {
            continue;
        }
        let others: BTreeSet<String> = files.iter().filter_map(|other| siblings(&other.path)).collect();
        for other in others.iter().filter(|other| **other != own && listed(other)) {
            for line in lines_with_word(code, &format!("super::{other}")) {
                problems.insert(format!("{}:{line}: names {other}, an alternative to it", file.path));
            }
        }
    }
}

/// Modules with the number of their layer, 0 on top.
type Layers = BTreeMap<String, usize>;

/// The layers of the block, and its exceptions: a line `buffer ^ device::Device` lets buffer name that one thing.
fn layers(architecture: &str) -> (Layers, BTreeSet<(String, String)>) {
    let mut layers = Layers::new();
    let mut upwards = BTreeSet::new();
    let block = architecture.lines().skip_while(|line| line.trim() != FENCE).skip(1);
    for (number, line) in block.take_while(|line| line.trim() != "```").enumerate() {
        match line.split_once(" ^ ") {
            Some((module, path)) => _ = upwards.insert((module.trim().to_owned(), path.trim().to_owned())),
            None => layers.extend(line.split_whitespace().map(|module| (module.to_owned(), number))),
        }
    }
    (layers, upwards)
}

/// The top module that a file of the core belongs to. None for the front door, for tests, and outside the core.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix(CORE)?.strip_suffix(".rs")?;
    let mut parts = inside.split('/');
    let module = parts.next()?;
    let is_test =
        inside.split('/').any(|part| part == "tests" || part == "testing" || part.ends_with("_tests"));
    (module != "lib" && !is_test).then_some(module)
}

/// Something of the crate that a line names, as in `error::Error`.
struct Use {
    line: usize,
    path: String,
}

/// The paths after `crate::`, of which the first name always counts and the second where it is simple:
/// `crate::a::B` gives `a::B`, `crate::{a::{B, C}, d}` gives `a` and `d`.
fn uses(code: &str) -> Vec<Use> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // $crate:: in a macro is the same crate; my_crate:: is not.
        if code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + "crate::".len()..];
        let paths = match rest.strip_prefix('{') {
            Some(group) => group_heads(group),
            None => head(rest).into_iter().collect(),
        };
        found.extend(paths.into_iter().map(|path| Use { line, path }));
    }
    found
}

/// `a::B` of `a::B::c`, `a` of `a` and of `a::{B, C}`.
fn head(path: &str) -> Option<String> {
    let name =
        |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let path = path.trim_start();
    let first = name(path);
    let second = path[first.len()..].strip_prefix("::").map(name).unwrap_or_default();
    match (first.is_empty(), second.is_empty()) {
        (true, _) => None,
        (false, true) => Some(first),
        (false, false) => Some(format!("{first}::{second}")),
    }
}

fn group_heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut heads: Vec<String> = head(group).into_iter().collect();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.extend(head(&group[at + 1..])),
            _ => (),
        }
    }
    heads
}

fn reaches(graph: &BTreeMap<&str, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(module) = open.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{file, problems};
    use super::*;

    const LIST: &str = "# x\n```layers\ntop\nmid side\nlow\n```\n";

    fn core(modules: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> =
            modules.iter().map(|(name, text)| file(&format!("{CORE}{name}.rs"), text)).collect();
        problems(|p| check(LIST, &files, p))
    }

    #[test]
    fn downwards_is_allowed_and_upwards_is_not() {
        let down = [
            ("lib", "use crate::top;"),
            ("top", "use crate::mid::X;\nuse crate::{low::{A, B}, side};"),
            ("mid", "use crate::side::Y; // use crate::top\n#[cfg(test)]\nmod tests {\n use crate::top; }"),
            ("side/mod", "fn f() { crate::low::g() }"),
            ("side/tests", "use crate::top;"),
            ("low", ""),
        ];
        assert_eq!(core(&down), Vec::<String>::new());
        let up = [("top", ""), ("mid", ""), ("side", ""), ("low", "\nuse std::fs;\nuse crate::mid::X;")];
        let found = core(&up);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("low.rs:3: low may not use mid::X"), "{found:?}");
    }

    #[test]
    fn modules_of_one_layer_may_not_use_each_other_in_a_circle() {
        let circle = [("top", ""), ("mid", "use crate::side;"), ("side", "use crate::mid;"), ("low", "")];
        let found = core(&circle);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("in a circle"), "{found:?}");
    }

    #[test]
    fn the_list_and_the_modules_must_agree() {
        let found = core(&[("top", "use crate::Thing;"), ("mid", ""), ("low", ""), ("new", "")]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("layers name side"), "{found:?}");
        assert!(found[1].contains("new.rs: the layers"), "{found:?}");
        assert!(found[2].contains("top.rs:1: crate::Thing"), "{found:?}");
    }

    #[test]
    fn an_exception_lets_one_name_through_and_must_be_needed() {
        let list = "```layers\ntop\nmid side\nlow\nlow ^ mid::X\n```\n";
        let check_low = |text: &str| {
            let files: Vec<File> = [("top", ""), ("mid", ""), ("side", ""), ("low", text)]
                .iter()
                .map(|(name, text)| file(&format!("{CORE}{name}.rs"), text))
                .collect();
            problems(|p| check(list, &files, p))
        };
        assert_eq!(check_low("use crate::mid::X;"), Vec::<String>::new());
        let found = check_low("use crate::mid::Y;");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("let low use mid::X, which it does not"), "{found:?}");
    }

    #[test]
    fn an_engine_names_no_other_engine() {
        let files = [
            file(&format!("{CORE}engine/mod.rs"), "const ENGINES: X = &[a::new, b::new];"),
            file(
                &format!("{CORE}engine/a.rs"),
                "use super::Engine;\nuse super::b::Y;\nuse super::common::Z;",
            ),
            file(&format!("{CORE}engine/b.rs"), "use super::Engine;"),
            file(&format!("{CORE}engine/common.rs"), "use super::b::Y;"),
        ];
        let found = problems(|p| check("```layers\nengine\n```", &files, p));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("engine/a.rs:2: names b"), "{found:?}");
    }

    #[test]
    fn names_of_groups_are_found_over_several_lines() {
        let found = uses("use crate::{\n    a::{b, c},\n    d,\n};\nuse my_crate::e;\n$crate::f!()");
        let names: Vec<&str> = found.iter().map(|used| used.path.as_str()).collect();
        assert_eq!(names, ["a", "d", "f"]);
        let found = uses("use crate::a::{b};\nuse crate::c::D;\nx(crate::e::F::g)");
        let names: Vec<&str> = found.iter().map(|used| used.path.as_str()).collect();
        assert_eq!(names, ["a", "c::D", "e::F"]);
    }
}
