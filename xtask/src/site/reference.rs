//! The reference of the C interface, docs/reference.md, made from the comments in the headers. It knows the few marks of Doxygen that
//! they use (`@defgroup`, `@param`, `@return`) and no others.

use std::fmt::Write as _;

use crate::layout;

const HEADERS: [&str; 3] = ["hipfile.h", "hipfile_ext.h", "hipfile-stats.h"];

const HEAD: &str = "# Reference of the C interface

Made from the comments in [hipfile.h](../include/hipfile.h), [hipfile_ext.h](../include/hipfile_ext.h) and
[hipfile-stats.h](../include/hipfile-stats.h) by `cargo xtask site --bless`; change those. What the headers say at their top holds
for all functions. Where this library differs from AMD's is in [abi.md](abi.md).
";

/// The whole page.
///
/// # Errors
/// A header cannot be read, or a comment belongs to nothing.
pub(crate) fn page() -> Result<String, String> {
    let mut out = HEAD.to_owned();
    for header in HEADERS {
        let text = layout::read(&layout::root().join("include").join(header))?;
        if let Some(top) = text.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
            let _ = writeln!(out, "\n## {header}\n\n{}", head(top.0));
        }
        items(&text, &mut out).map_err(|problem| format!("{header}: {problem}"))?;
    }
    Ok(out)
}

/// What a header says at its top, without the licence.
fn head(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.trim().trim_start_matches('*').trim());
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("SPDX")).collect();
    lines.join("\n").trim().replace('<', "\\<")
}

fn items(text: &str, out: &mut String) -> Result<(), String> {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix("/**") else { continue };
        let mut comment = Vec::new();
        let mut rest = first;
        loop {
            let marked = rest.trim_start();
            let text =
                if marked.starts_with("*/") { marked } else { marked.strip_prefix('*').unwrap_or(rest) };
            if let Some((last, _)) = text.split_once("*/") {
                comment.push(last);
                break;
            }
            comment.push(text);
            rest = lines.next().ok_or("a comment without an end")?;
        }
        let comment: Vec<&str> =
            comment.iter().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
        let first = comment.iter().find(|line| !line.is_empty()).copied().unwrap_or_default();
        if first.starts_with("@}") {
            continue;
        }
        if let Some(group) = first.strip_prefix("@defgroup ") {
            let title = group.split_once(' ').map_or(group, |(_, title)| title);
            let _ = writeln!(out, "\n## {title}");
            let about = comment.iter().skip_while(|line| **line != first).skip(1);
            describe(&about.copied().filter(|line| *line != "@{").collect::<Vec<_>>(), out);
            continue;
        }
        let mut declaration = Vec::new();
        let macros = lines.peek().is_some_and(|line| line.starts_with("#define"));
        let mut depth = 0;
        while let Some(line) =
            if macros { lines.next_if(|line| line.starts_with("#define")) } else { lines.next() }
        {
            declaration.push(line.trim_end());
            depth += line.matches('{').count();
            depth -= line.matches('}').count().min(depth);
            if !macros && depth == 0 && line.trim_end().ends_with(';') {
                break;
            }
        }
        let declaration = declaration.join("\n");
        let name = name(&declaration).ok_or_else(|| format!("what is named here: {declaration:?}"))?;
        let _ = writeln!(out, "\n### {name}\n\n```c\n{}\n```", declaration.replace("HIPFILE_API ", ""));
        describe(&comment, out);
    }
    Ok(())
}

/// The name of what a declaration declares: behind the last brace or before the first parenthesis.
fn name(declaration: &str) -> Option<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if let Some(rest) = declaration.strip_prefix("#define ") {
        return rest.split(|c| !is_word(c)).next();
    }
    let before = match declaration.rfind('}') {
        Some(end) => &declaration[end + 1..],
        None if declaration.starts_with("typedef") => declaration,
        None => declaration.split('(').next()?,
    };
    before.trim_end_matches(|c| !is_word(c)).rsplit(|c| !is_word(c)).next().filter(|name| !name.is_empty())
}

/// A comment as Markdown: paragraphs, then the parameters, then what is returned.
fn describe(comment: &[&str], out: &mut String) {
    let mut text = String::new();
    let mut part = Part::Text;
    for line in comment {
        let trimmed = line.trim();
        if let Some(param) = line.strip_prefix("@param") {
            let marks = ["[out]", "[in,out]", "[in]"];
            let param = marks.iter().fold(param, |rest, mark| rest.trim_start_matches(mark)).trim();
            let (name, about) = param.split_once(' ').unwrap_or((param, ""));
            let gap = if part == Part::Text { "\n" } else { "" };
            let _ = writeln!(text, "{gap}* `{name}`: {}", about.trim());
            part = Part::Item;
        } else if let Some(about) = line.strip_prefix("@return") {
            let _ = writeln!(text, "\n**Returns** {}", about.trim());
            part = Part::Returned;
        } else if part == Part::Text || trimmed.is_empty() {
            let _ = writeln!(text, "{line}");
        } else if let (Part::Returned | Part::Item, Some(item)) = (part, trimmed.strip_prefix("- ")) {
            let gap = if part == Part::Returned { "\n" } else { "" };
            let _ = writeln!(text, "{gap}* {item}");
            part = Part::Item;
        } else if part == Part::Item {
            let _ = writeln!(text, "  {trimmed}");
        } else {
            let _ = writeln!(text, "{trimmed}");
        }
    }
    let text = text.trim();
    if !text.is_empty() {
        let _ = writeln!(out, "\n{}", text.replace('<', "\\<"));
    }
}

/// Where in a comment a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Text,
    /// In an item of a list.
    Item,
    /// Behind `@return`, before any list.
    Returned,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_checkout_is_that_of_the_headers() {
        let there = layout::read(&layout::root().join("docs/reference.md")).expect("docs/reference.md");
        assert!(there == page().expect("a page"), "docs/reference.md is old: cargo xtask site --bless");
    }

    #[test]
    fn a_function_has_its_parameters_and_results_as_lists() {
        let mut out = String::new();
        let header = "/**\n * Does it.\n *\n * @param[out] a  one\n *                more\n * @param b       two\n \
                      * @return none, or\n *         - -1: bad\n *           luck;\n *         - 0\n */\nint f(int *a,\n      int b);\n";
        items(header, &mut out).expect("items");
        let expected = "\n### f\n\n```c\nint f(int *a,\n      int b);\n```\n\nDoes it.\n\n\n* `a`: one\n  more\n* `b`: two\n\n\
                        **Returns** none, or\n\n* -1: bad\n  luck;\n* 0\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn names_are_found() {
        assert_eq!(name("typedef void *hipFileHandle_t;"), Some("hipFileHandle_t"));
        assert_eq!(name("typedef enum a {\n b = 1, /* } */\n} a_t;"), Some("a_t"));
        assert_eq!(name("#define X(e) (e)"), Some("X"));
        assert_eq!(name("HIPFILE_API const char *f(int x);"), Some("f"));
    }
}
