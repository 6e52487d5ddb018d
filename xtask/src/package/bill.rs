//! What of others is in the packages: a bill of materials for programs (CycloneDX), and the licences for people. It reads what
//! cargo resolved and judges no licence; `cargo deny` does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cmd::cargo;
use crate::dist::Stage;
use crate::layout;

/// The packages of ours that archives and Debian packages are made of; what they need is shipped with them.
pub(super) const PROGRAMS: &[&str] = &["libhipfile", "hipfile-tools", "hip-emu-so", "hip-emu-rtc-so"];

/// The same of the wheel.
pub(super) const WHEEL: &[&str] = &["hipfile-python"];

const BILL: &str = "sbom.cdx.json";
const LICENCES: &str = "THIRD-PARTY.txt";

/// A package of somebody else's.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    name: String,
    version: String,
    license: String,
    folder: PathBuf,
}

/// All of them.
pub(super) struct Bill {
    parts: BTreeSet<Part>,
    checksums: BTreeMap<(String, String), String>,
}

impl Bill {
    /// # Errors
    /// Cargo cannot say what is needed.
    pub(super) fn new(shipped: &[&str]) -> Result<Bill, String> {
        let text = cargo()
            .words("metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu")
            .output()?;
        let metadata: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
        let lock = layout::read(&layout::root().join("Cargo.lock"))?;
        Ok(Bill { parts: parts(&metadata, shipped)?, checksums: checksums(&lock) })
    }

    /// Writes `sbom.cdx.json` and `THIRD-PARTY.txt` into a folder of a tree.
    ///
    /// # Errors
    /// A licence cannot be read, or a file not written.
    pub(super) fn write(&self, stage: &Stage, folder: &str) -> Result<(), String> {
        let [bill, licences] = self.texts()?;
        stage.write(&format!("{folder}/{BILL}"), bill.as_bytes(), 0o644)?;
        stage.write(&format!("{folder}/{LICENCES}"), licences.as_bytes(), 0o644)
    }

    /// Writes the same two files into a folder, which is made; their paths.
    ///
    /// # Errors
    /// As [`Bill::write`].
    pub(super) fn save(&self, folder: &Path) -> Result<[PathBuf; 2], String> {
        let [bill, licences] = self.texts()?;
        let paths = [BILL, LICENCES].map(|name| folder.join(name));
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for (path, text) in paths.iter().zip([bill, licences]) {
            fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(paths)
    }

    fn texts(&self) -> Result<[String; 2], String> {
        let bill = serde_json::to_string_pretty(&self.cyclone()?).map_err(|e| e.to_string())?;
        Ok([bill, self.licences()?])
    }

    fn cyclone(&self) -> Result<Value, String> {
        let components: Vec<Value> = self
            .parts
            .iter()
            .map(|part| {
                let Part { name, version, license, .. } = part;
                let checksum = self.checksums.get(&(name.clone(), version.clone()));
                json!({
                    "type": "library",
                    "name": name,
                    "version": version,
                    "purl": format!("pkg:cargo/{name}@{version}"),
                    "licenses": [{"expression": license}],
                    "hashes": checksum.map(|sum| json!([{"alg": "SHA-256", "content": sum}])).unwrap_or(json!([])),
                })
            })
            .collect();
        Ok(json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": {
                "type": "application",
                "name": "hipfile",
                "version": layout::version()?,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            }},
            "components": components,
        }))
    }

    /// Each text once, with the packages that are under it.
    fn licences(&self) -> Result<String, String> {
        let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut out = "The binaries contain these packages of others, each under its licence.\n\n".to_owned();
        for part in &self.parts {
            let Part { name, version, license, folder } = part;
            let _ = writeln!(out, "{name} {version}: {license}");
            for file in licence_files(folder)? {
                texts.entry(layout::read(&file)?).or_default().push(format!("{name} {version}"));
            }
        }
        for (text, packages) in texts {
            let _ = write!(out, "\n{}\n{}\n\n{}\n", "-".repeat(72), packages.join(", "), text.trim_end());
        }
        Ok(out)
    }
}

fn licence_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"]
            .iter()
            .any(|start| name.starts_with(start))
            && entry.path().is_file()
        {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The packages of others that the shipped ones need at run time, wherever in the graph.
fn parts(metadata: &Value, shipped: &[&str]) -> Result<BTreeSet<Part>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (word(&package["id"]), package)).collect();
    let needs: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let used = |dep: &&Value| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let deps = list(&node["deps"]);
            (word(&node["id"]), deps.iter().filter(used).map(|dep| word(&dep["pkg"])).collect())
        })
        .collect();
    let mut open: Vec<String> = packages
        .iter()
        .filter(|(_, package)| shipped.contains(&word(&package["name"]).as_str()))
        .map(|(id, _)| id.clone())
        .collect();
    if open.len() != shipped.len() {
        return Err(format!("cargo knows {} of the packages {shipped:?}", open.len()));
    }
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(id) = open.pop() {
        let next = needs.get(&id).into_iter().flatten();
        open.extend(next.filter(|id| seen.insert((*id).clone())).cloned());
    }
    let theirs = seen.iter().filter_map(|id| packages.get(id)).filter(|package| !package["source"].is_null());
    theirs
        .map(|package| {
            let name = word(&package["name"]);
            let folder = Path::new(package["manifest_path"].as_str().unwrap_or_default()).parent();
            Ok(Part {
                version: word(&package["version"]),
                license: package["license"]
                    .as_str()
                    .ok_or(format!("{name} names no licence"))?
                    .replace('/', " OR "),
                folder: folder.ok_or(format!("{name} has no folder"))?.to_owned(),
                name,
            })
        })
        .collect()
}

/// The checksums in Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let start = format!("{key} = \"");
        let line = block.lines().find_map(|line| line.strip_prefix(&start));
        line.map(|rest| rest.trim_end_matches('"').to_owned())
    };
    lock.split("[[package]]")
        .filter_map(|block| {
            Some(((value(block, "name")?, value(block, "version")?), value(block, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_names_what_is_linked_and_nothing_else() {
        let bill = Bill::new(PROGRAMS).expect("cargo answers");
        let names: BTreeSet<&str> = bill.parts.iter().map(|part| part.name.as_str()).collect();
        for linked in ["clap", "io-uring", "libc", "rustix"] {
            assert!(names.contains(linked), "{linked}: {names:?}");
        }
        for not in ["hipfile", "cudarc", "cubecl-hip-sys", "loom"] {
            assert!(!names.contains(not), "{not}");
        }
        let wheel = Bill::new(WHEEL).expect("cargo answers");
        assert!(wheel.parts.iter().any(|part| part.name == "pyo3"));
        let json = bill.cyclone().expect("a version");
        for part in json["components"].as_array().expect("a list") {
            assert_eq!(part["hashes"][0]["content"].as_str().map(str::len), Some(64), "{part}");
            assert_ne!(part["licenses"][0]["expression"], "");
        }
        let text = bill.licences().expect("texts");
        assert!(text.contains("Permission is hereby granted") && text.contains("Apache License"), "{text}");
    }

    #[test]
    fn checksums_are_found_by_name_and_version() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1\"\nchecksum = \"cd\"\n\n[[package]]\nname = \"b\"\nversion = \"2\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(("a".to_owned(), "1".to_owned()), "cd".to_owned())]));
    }
}
