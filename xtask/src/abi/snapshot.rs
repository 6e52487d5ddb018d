//! The snapshot of the interface that programs were built against, and what has changed since: names, types, layouts and values in
//! the headers, compared by libabigail. Whether the library is what the headers say is for its own tests.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cmd::{cmd, which};
use crate::layout;

const HEADERS: [&str; 3] = ["hipfile.h", "hipfile_ext.h", "hipfile-stats.h"];

/// The file in the checkout.
fn snapshot() -> PathBuf {
    layout::root().join("crates/libhipfile/abi/libhipfile.so.0.abi")
}

/// Compares. With `bless` what was added becomes the snapshot; what would break programs never does.
///
/// # Errors
/// There are changes (without `bless`), or incompatible ones; or a tool fails.
pub(crate) fn run(bless: bool) -> Result<(), String> {
    if which("abidiff").is_none() {
        println!("SKIP: the snapshot of the interface: there is no abidiff (Debian: abigail-tools)");
        return Ok(());
    }
    let scratch = layout::target().join("abi");
    fs::create_dir_all(&scratch).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let now = library(&layout::root().join("include"), &scratch)?;
    let snapshot = snapshot();
    if snapshot.exists() {
        match compare(&snapshot, &now)? {
            Change::None => return Ok(()),
            Change::Added if bless => {}
            Change::Added => {
                return Err(
                    "the interface grew; cargo xtask abi --bless takes that into the snapshot".to_owned()
                );
            }
            Change::Broken => {
                return Err(format!(
                    "programs that were built before may break. A structure with a size of its own may grow: \
                     then remove {} and bless a new one",
                    snapshot.display()
                ));
            }
        }
    } else if !bless {
        return Err(format!("{} is missing; cargo xtask abi --bless makes it", snapshot.display()));
    }
    let text = cmd("abidw").words("--no-corpus-path --no-show-locs --no-comp-dir-path").arg(&now).output()?;
    fs::write(&snapshot, text).map_err(|e| format!("{}: {e}", snapshot.display()))
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Broken,
}

fn compare(old: &Path, new: &Path) -> Result<Change, String> {
    let diff = |options: &str| {
        let out = Command::new("abidiff").args(options.split_whitespace()).arg(old).arg(new).output();
        let out = out.map_err(|e| format!("abidiff: {e}"))?;
        match out.status.code() {
            Some(0) => Ok(None),
            // The lowest two bits say that it could not compare.
            Some(code) if code & 3 == 0 => Ok(Some(String::from_utf8_lossy(&out.stdout).into_owned())),
            _ => Err(format!(
                "abidiff cannot compare: {}\n{}",
                out.status,
                String::from_utf8_lossy(&out.stderr)
            )),
        }
    };
    // A changed parameter is no incompatible change to it, so whatever is not an addition is taken for one.
    let (change, said) = match (diff("--no-added-syms")?, diff("")?) {
        (Some(said), _) => (Change::Broken, said),
        (None, Some(said)) => (Change::Added, said),
        (None, None) => return Ok(Change::None),
    };
    print!("{said}");
    Ok(change)
}

/// A library that defines what the headers of a folder declare, and does nothing: it carries their types.
fn library(include: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let (source, prototypes) = (scratch.join("interface.c"), scratch.join("prototypes"));
    let gcc = || cmd("gcc").words("-std=c2x -I").arg(include).arg(&source);
    let write = |text: &str| fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()));
    let mut text = String::new();
    HEADERS.iter().for_each(|header| _ = writeln!(text, "#include \"{header}\""));
    write(&text)?;
    gcc().words("-fsyntax-only -aux-info").arg(&prototypes).run()?;
    let ours = format!("/* {}/hipfile", include.display());
    for line in layout::read(&prototypes)?.lines().filter(|line| line.starts_with(&ours)) {
        let prototype = line.split_once("*/ extern ").and_then(|(_, rest)| rest.rsplit_once(';'));
        if let Some((prototype, _)) = prototype {
            let _ = writeln!(text, "{prototype} {{ __builtin_trap(); }}");
        }
    }
    write(&text)?;
    let library = scratch.join("libhipfile.so");
    gcc().words("-g -shared -fPIC -Wl,-soname,libhipfile.so.0 -o").arg(&library).run()?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers after a change, beside the snapshot.
    fn after(change: impl Fn(&str, String) -> String) -> Change {
        let tmp = tempfile::tempdir().expect("a folder");
        for header in HEADERS {
            let text = layout::read(&layout::root().join("include").join(header)).expect("a header");
            fs::write(tmp.path().join(header), change(header, text)).expect("written");
        }
        compare(&snapshot(), &library(tmp.path(), tmp.path()).expect("a library")).expect("compared")
    }

    #[test]
    fn behaviour_143_a_changed_interface_is_noticed() {
        if which("abidiff").is_none() {
            eprintln!("SKIP: the snapshot of the interface: there is no abidiff");
            return;
        }
        let replaced = |from: &'static str, to: &'static str| {
            after(move |header, text| {
                if header == "hipfile.h" {
                    assert!(text.contains(from), "{from}");
                    text.replacen(from, to, 1)
                } else {
                    text
                }
            })
        };
        assert_eq!(after(|_, text| text), Change::None);
        let open = "HIPFILE_API hipFileError_t hipFileDriverOpen(void);";
        assert_eq!(replaced(open, "HIPFILE_API hipFileError_t hipFileDriverOpen(int);"), Change::Broken);
        assert_eq!(replaced(open, ""), Change::Broken);
        assert_eq!(
            replaced(
                open,
                "HIPFILE_API hipFileError_t hipFileDriverOpen(void); HIPFILE_API int hipFileNew(void);"
            ),
            Change::Added
        );
    }
}
