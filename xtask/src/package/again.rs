//! What takes two builds to see: that packages come out the same from another folder, and that everything builds without a network.
//! Both work on a clone of the last commit.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{cargo, cmd};
use crate::layout;

/// A fresh clone under the build folder.
fn clone(name: &str) -> Result<PathBuf, String> {
    let place = layout::target().join(name);
    if place.exists() {
        fs::remove_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    }
    cmd("git").words("clone --quiet").arg(layout::root()).arg(&place).run()?;
    Ok(place)
}

/// Packages of two clones, which lie in folders of different names, are the same byte for byte. Symbols are not compared: zig's start
/// files name the folder.
///
/// # Errors
/// They differ, or are not made.
pub(crate) fn reproduce() -> Result<(), String> {
    let sums = ["again/a", "again/another"].map(|name| {
        let place = clone(name)?;
        let target = place.join("target");
        // The fetched tools are the same for both.
        fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        std::os::unix::fs::symlink(crate::python::tools(), target.join("tools"))
            .map_err(|e| e.to_string())?;
        cargo()
            .words("run --quiet --locked --package xtask --manifest-path")
            .arg(place.join("Cargo.toml"))
            .words("-- package")
            .env("CARGO_TARGET_DIR", &target)
            .run()?;
        sums(&target.join("package"))
    });
    let [first, second] = sums;
    let (first, second) = (first?, second?);
    if first == second { Ok(()) } else { Err(format!("the packages differ:\n{first}\n{second}")) }
}

/// The checksums of all packages in a folder.
fn sums(packages: &Path) -> Result<String, String> {
    const LIST: &str = "cd \"$1\" && find . -maxdepth 4 \\( -name '*.deb' -o -name '*.whl' -o -name '*x86_64.tar.gz' \\) \
                        ! -name '*debug*' -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";
    let sums = cmd("sh").arg("-c").arg(LIST).arg("sh").arg(packages).output()?;
    if sums.lines().count() < 2 {
        Err(format!("too few packages in {}", packages.display()))
    } else {
        Ok(sums)
    }
}

/// With what `cargo vendor` fetched, everything that is shipped compiles with the network forbidden to cargo, and nothing taken from
/// where cargo keeps what it fetched before.
///
/// # Errors
/// It does not.
pub(crate) fn offline() -> Result<(), String> {
    let place = clone("offline")?;
    let home = place.join("cargo-home");
    let settings = cargo()
        .words("vendor --locked --versioned-dirs --manifest-path")
        .arg(place.join("Cargo.toml"))
        .arg(place.join("vendor"))
        .output()?;
    let config = place.join(".cargo/config.toml");
    let mut text = layout::read(&config)?;
    text.push('\n');
    text.push_str(&settings);
    fs::write(&config, text).map_err(|e| format!("{}: {e}", config.display()))?;
    cmd("sh")
        .arg("-c")
        .arg("cd \"$1\" && exec cargo check --locked --offline -p libhipfile -p hipfile-tools -p hip-emu-so -p hip-emu-rtc-so")
        .arg("sh")
        .arg(&place)
        .env("CARGO_HOME", &home)
        .env("CARGO_TARGET_DIR", place.join("target"))
        .run()
}
