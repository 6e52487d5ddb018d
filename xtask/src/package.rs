//! `cargo xtask package`: what others install. An archive, Debian packages, a source for RPMs and a wheel, built against a glibc old
//! enough for the systems in use and the same byte for byte from one commit. What is in them is staged by `dist`.

pub(crate) mod again;
mod bill;
mod build;
mod debian;

pub(crate) use build::{flags, path_with_zig};

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{cmd, which};
use crate::dist::{Layout, Stage};
use crate::{layout, python};

/// Where packages and what they are made from are put.
fn home() -> PathBuf {
    layout::target().join("package")
}

/// The command line of `cargo xtask package`.
///
/// # Errors
/// A wrong option, or as [`run`].
pub(crate) fn main(args: &[&str]) -> Result<(), String> {
    match args.first() {
        Some(unknown) => Err(format!("package: unknown option {unknown}; there is none")),
        None => run().map(|home| println!("packages are in {}", home.display())),
    }
}

/// Makes all packages; the folder where they are.
///
/// # Errors
/// A build or a tool failed; or a library needs more of its system than it may.
pub(crate) fn run() -> Result<PathBuf, String> {
    let home = home();
    clean(&home)?;
    let epoch = epoch()?;
    let built = build::all(&epoch)?;
    let bill = bill::Bill::new(bill::PROGRAMS)?;
    let version = layout::version()?;
    let name = name(&version);
    let symbols = home.join(format!("{name}-debug"));
    let stripped = build::split_symbols(&built, &home.join("stripped"), &symbols)?;
    build::check(&stripped)?;

    let tree = home.join(&name);
    let stage = Stage::new(stripped.clone(), tree.clone(), Layout::MOVABLE)?;
    stage.all()?;
    bill.write(&stage, "share/doc/hipfile")?;
    archive(&tree, &epoch)?;
    archive(&symbols, &epoch)?;
    let debs = debian::all(&stripped, &home, &bill, &epoch)?;
    rpm_spec(&home, &version, &epoch)?;
    let others = bill::Bill::new(bill::WHEEL)?.save(&home.join("wheel-others"))?;
    let wheel = python::portable_wheel(&home.join("wheel"), build::GLIBC, &epoch, &others)?;
    for path in debs.iter().chain(wheel.as_ref()) {
        println!("{}", path.display());
    }
    Ok(home)
}

/// The tree that the archive is packed from, as it is used.
///
/// # Errors
/// The version cannot be found.
pub(crate) fn tree() -> Result<PathBuf, String> {
    Ok(home().join(name(&layout::version()?)))
}

fn name(version: &str) -> String {
    format!("hipfile-{version}-linux-x86_64")
}

/// When the commit was made, in seconds: the time that all files get.
fn epoch() -> Result<String, String> {
    if let Some(given) = std::env::var_os("SOURCE_DATE_EPOCH") {
        return given.into_string().map_err(|text| format!("SOURCE_DATE_EPOCH: {}", text.display()));
    }
    cmd("git").words("log -1 --format=%ct").output().map(|text| text.trim().to_owned())
}

fn clean(home: &Path) -> Result<(), String> {
    if home.exists() {
        fs::remove_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))?;
    }
    fs::create_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))
}

/// Packs a folder into `FOLDER.tar.gz` beside it.
fn archive(tree: &Path, epoch: &str) -> Result<(), String> {
    let (Some(parent), Some(name)) = (tree.parent(), tree.file_name()) else {
        return Err(format!("{}: no folder to pack", tree.display()));
    };
    let packed = tree.with_file_name(format!("{}.tar.gz", name.display()));
    cmd("tar")
        .words("--sort=name --owner=0 --group=0 --numeric-owner --mode=go-w,a+rX --use-compress-program")
        .arg("gzip -n -9")
        .arg(format!("--mtime=@{epoch}"))
        .arg("-cf")
        .arg(&packed)
        .arg("-C")
        .arg(parent)
        .arg(name)
        .run()
}

/// The source for RPMs, and the RPMs where there is who makes them.
fn rpm_spec(home: &Path, version: &str, epoch: &str) -> Result<(), String> {
    let spec = include_str!("../dist/hipfile.spec.in").replace("@VERSION@", version);
    let path = home.join("hipfile.spec");
    fs::write(&path, spec).map_err(|e| format!("{}: {e}", path.display()))?;
    if which("rpmbuild").is_none() {
        println!("SKIP: RPMs: there is no rpmbuild; {} is what it would be given", path.display());
        return Ok(());
    }
    let top = home.join("rpm");
    cmd("rpmbuild")
        .words("--quiet -bb --define")
        .arg(format!("_topdir {}", top.display()))
        .arg("--define")
        .arg(format!("_sourcedir {}", home.display()))
        .words("--define")
        .arg("_buildhost localhost")
        .words("--define")
        .arg("use_source_date_epoch_as_buildtime 1")
        .env("SOURCE_DATE_EPOCH", epoch)
        .arg(&path)
        .run()
}
