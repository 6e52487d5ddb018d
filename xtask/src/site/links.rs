//! The links between the pages of a site. Those to other places of the world are not followed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::files;
use crate::layout;

/// Links to Markdown files that are no pages of the site, which mdBook believes them to be, lead to the files themselves again.
pub(super) fn mend(site: &Path) -> Result<(), String> {
    for page in files(site, ".html")? {
        let text = layout::read(&page)?;
        let mut mended = text.clone();
        for link in targets(&text) {
            let (path, _) = split(link);
            let Some(stem) = path.strip_suffix(".html") else { continue };
            if !place(&page, path).exists() && place(&page, &format!("{stem}.md")).exists() {
                // A file that is shown as it is has no places to jump to.
                mended = mended.replace(&format!("\"{link}\""), &format!("\"{stem}.md\""));
            }
        }
        if mended != text {
            fs::write(&page, mended).map_err(|e| format!("{}: {e}", page.display()))?;
        }
    }
    Ok(())
}

/// Links that lead nowhere, with their pages.
pub(super) fn dead(site: &Path) -> Result<Vec<String>, String> {
    let mut dead = BTreeSet::new();
    for page in files(site, ".html")? {
        // What is not found may have been looked for from anywhere: its links are from the root.
        if page.ends_with("404.html") {
            continue;
        }
        let text = layout::read(&page)?;
        for link in targets(&text) {
            let (path, anchor) = split(link);
            let to = if path.is_empty() { page.clone() } else { place(&page, path) };
            let there = to.exists()
                && (anchor.is_empty()
                    || to.extension().is_none_or(|end| end != "html")
                    || layout::read(&to)?.contains(&format!("id=\"{anchor}\"")));
            if !there {
                dead.insert(format!("{}: {link}", page.display()));
            }
        }
    }
    Ok(dead.into_iter().collect())
}

fn place(page: &Path, path: &str) -> PathBuf {
    page.parent().unwrap_or(page).join(path)
}

fn split(link: &str) -> (&str, &str) {
    link.split_once('#').unwrap_or((link, ""))
}

/// What a page refers to within the site.
fn targets(page: &str) -> Vec<&str> {
    let marks = ["href=\"", "src=\""];
    let all =
        marks.iter().flat_map(|mark| page.split(mark).skip(1)).filter_map(|rest| rest.split('"').next());
    all.filter(|link| {
        !link.contains("://")
            && !link.starts_with("mailto:")
            && !link.starts_with("javascript:")
            && !link.is_empty()
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found_and_those_to_files_mended() {
        let tmp = tempfile::tempdir().expect("a folder");
        let docs = tmp.path().join("docs");
        fs::create_dir(&docs).expect("a folder");
        fs::write(tmp.path().join("README.md"), "# x").expect("written");
        fs::write(docs.join("b.html"), "<h2 id=\"there\">").expect("written");
        let page = "<a href=\"../README.html#state\"> <a href=\"b.html#there\"> <a href=\"b.html#gone\"> <a href=\"c.html\"> \
                    <a href=\"https://example.org/x\"> <img src=\"d.svg\">";
        fs::write(docs.join("a.html"), page).expect("written");
        mend(&docs).expect("mended");
        let dead = dead(&docs).expect("looked at");
        let ends: Vec<&str> = dead.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(ends, ["b.html#gone", "c.html", "d.svg"]);
    }
}
