//! The direction of dependencies inside the core: the `use crate::` lines of `crates/hipfile/src` against the list of
//! layers in ARCHITECTURE.md. Modules that tests consist of may use everything.

use std::collections::{BTreeMap, BTreeSet};

use super::File;
use super::source::{code, without_tests};

const CORE: &str = "crates/hipfile/src/";
/// Opens the block in ARCHITECTURE.md that lists the layers, the top one first, one a line.
const FENCE: &str = "```layers";

pub(super) fn check(architecture: &str, files: &[File], problems: &mut BTreeSet<String>) {
    let layers = layers(architecture);
    if layers.is_empty() {
        problems.insert(format!("ARCHITECTURE.md: no block {FENCE}"));
        return;
    }
    let mut sideways: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for file in files {
        let Some(module) = module_of(&file.path) else {
            continue;
        };
        let Some(layer) = layers.get(module) else {
            problems.insert(format!(
                "{}: the layers in ARCHITECTURE.md do not name {module}",
                file.path
            ));
            continue;
        };
        seen.insert(module);
        for (line, used) in uses(without_tests(&code(&file.text))) {
            if used == module {
                continue;
            }
            match layers.get(used.as_str()) {
                Some(below) if below > layer => (),
                Some(same) if same == layer => {
                    sideways.entry(module).or_default().insert(used);
                }
                Some(_) => {
                    problems.insert(format!(
                        "{}:{line}: {module} may not use {used}, which is above it",
                        file.path
                    ));
                }
                // A name that lib.rs exports or a macro of the crate: the defining module is not known here.
                None if files.iter().any(|f| module_of(&f.path) == Some(used.as_str())) => {
                    problems.insert(format!("{}:{line}: {used} is in no layer", file.path));
                }
                None => {
                    problems.insert(format!(
                        "{}:{line}: crate::{used}: name the module that defines it, so that its layer is seen",
                        file.path
                    ));
                }
            }
        }
    }
    for module in layers.keys().filter(|module| !seen.contains(module.as_str())) {
        problems.insert(format!(
            "ARCHITECTURE.md: the layers name {module}, which {CORE} has not"
        ));
    }
    for module in sideways.keys() {
        if reaches(&sideways, module, module) {
            problems.insert(format!(
                "{CORE}: {module} uses itself in a circle through modules of its own layer"
            ));
        }
    }
}

/// Each module and the number of its layer, 0 on top.
fn layers(architecture: &str) -> BTreeMap<String, usize> {
    architecture
        .lines()
        .skip_while(|line| line.trim() != FENCE)
        .skip(1)
        .take_while(|line| line.trim() != "```")
        .enumerate()
        .flat_map(|(layer, line)| {
            line.split_whitespace()
                .map(move |module| (module.to_owned(), layer))
        })
        .collect()
}

/// The top module that a file of the core belongs to. None for the front door, for tests, and outside the core.
fn module_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix(CORE)?.strip_suffix(".rs")?;
    let mut parts = inside.split('/');
    let module = parts.next()?;
    let is_test = inside
        .split('/')
        .any(|part| part == "tests" || part == "testing" || part.ends_with("_tests"));
    (module != "lib" && !is_test).then_some(module)
}

/// The first names after `crate::`, with their lines: `crate::a::B` gives a, `crate::{a::B, c}` gives a and c.
fn uses(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // $crate:: in a macro is the same crate; my_crate:: is not.
        if code[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_')
        {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_heads(group).into_iter().map(|name| (line, name))),
            None => found.extend(head(rest).map(|name| (line, name))),
        }
    }
    found
}

fn head(path: &str) -> Option<String> {
    let name: String = path
        .trim_start()
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
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
        let files: Vec<File> = modules
            .iter()
            .map(|(name, text)| file(&format!("{CORE}{name}.rs"), text))
            .collect();
        problems(|p| check(LIST, &files, p))
    }

    #[test]
    fn downwards_is_allowed_and_upwards_is_not() {
        let down = [
            ("lib", "use crate::top;"),
            ("top", "use crate::mid::X;\nuse crate::{low::{A, B}, side};"),
            (
                "mid",
                "use crate::side::Y; // use crate::top\n#[cfg(test)]\nmod tests {\n use crate::top; }",
            ),
            ("side/mod", "fn f() { crate::low::g() }"),
            ("side/tests", "use crate::top;"),
            ("low", ""),
        ];
        assert_eq!(core(&down), Vec::<String>::new());
        let up = [
            ("top", ""),
            ("mid", ""),
            ("side", ""),
            ("low", "\nuse std::fs;\nuse crate::mid::X;"),
        ];
        let found = core(&up);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("low.rs:3: low may not use mid"), "{found:?}");
    }

    #[test]
    fn modules_of_one_layer_may_not_use_each_other_in_a_circle() {
        let circle = [
            ("top", ""),
            ("mid", "use crate::side;"),
            ("side", "use crate::mid;"),
            ("low", ""),
        ];
        let found = core(&circle);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("in a circle"), "{found:?}");
    }

    #[test]
    fn the_list_and_the_modules_must_agree() {
        let found = core(&[
            ("top", "use crate::Thing;"),
            ("mid", ""),
            ("low", ""),
            ("new", ""),
        ]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("layers name side"), "{found:?}");
        assert!(found[1].contains("new.rs: the layers"), "{found:?}");
        assert!(found[2].contains("top.rs:1: crate::Thing"), "{found:?}");
    }

    #[test]
    fn names_of_groups_are_found_over_several_lines() {
        let found = uses("use crate::{\n    a::{b, c},\n    d,\n};\nuse my_crate::e;\n$crate::f!()");
        let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["a", "d", "f"]);
    }
}
