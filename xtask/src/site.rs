//! `cargo xtask site`: the documentation as a site of its own, by mdBook, with links that lead somewhere; and the code blocks of the
//! documentation, each of which must be code. What it says is in docs/; what of that is made from other files is made here.

mod blocks;
mod links;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::cmd;
use crate::{layout, tools};

/// Files and folders beside docs/ that its pages link to.
const BESIDE: [&str; 7] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "include", "examples", "scripts"];

/// The command line of `cargo xtask site`.
///
/// # Errors
/// A wrong option, or as [`run`].
pub(crate) fn main(args: &[&str]) -> Result<(), String> {
    match args {
        [] => build().map(|site| println!("the site begins at {}/docs/index.html", site.display())),
        ["--bless"] => {
            let page = layout::root().join("docs/reference.md");
            fs::write(&page, reference::page()?).map_err(|e| format!("{}: {e}", page.display()))
        }
        [other, ..] => Err(format!("site: unknown option {other}; known: --bless")),
    }
}

/// The step of `cargo xtask ci`: the site builds, and the code in it is code.
///
/// # Errors
/// mdBook failed, a link leads nowhere, or a block does not compile.
pub(crate) fn run() -> Result<(), String> {
    build()?;
    blocks::check()
}

/// Builds the site so that what lies beside docs/ in the checkout lies beside it there, and links to it hold.
fn build() -> Result<PathBuf, String> {
    let site = layout::target().join("site");
    if site.exists() {
        fs::remove_dir_all(&site).map_err(|e| format!("{}: {e}", site.display()))?;
    }
    tools::tool("mdbook")?
        .arg("build")
        .arg(layout::root().join("docs"))
        .arg("--dest-dir")
        .arg(site.join("docs"))
        .run()?;
    for name in BESIDE {
        cmd("cp").arg("-r").arg(layout::root().join(name)).arg(&site).run()?;
    }
    links::mend(&site.join("docs"))?;
    let dead = links::dead(&site.join("docs"))?;
    if dead.is_empty() {
        Ok(site)
    } else {
        Err(format!("links of the site that lead nowhere:\n{}", dead.join("\n")))
    }
}

/// All files below a folder whose names end so.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
