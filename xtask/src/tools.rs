//! The programs that the checks need beyond the toolchain, gcc and python3: finds them, and installs what is missing.
//! Cargo tools go to `target/tools/NAME-VERSION`; Debian packages are installed when we may (as root, with apt-get).

use std::path::{Path, PathBuf};

use crate::cmd::{Cmd, cargo, cmd, which};
use crate::layout;

struct CargoTool {
    /// The name after `cargo`; of one that is no part of cargo its own.
    name: &'static str,
    /// Whether it is a part of cargo.
    cargo: bool,
    /// Whether `ci` uses it; the others are built when `deep` does.
    ci: bool,
    /// What of it is built, if not all.
    features: &'static str,
    /// What is built from source when the machine has none.
    version: &'static str,
    /// The oldest that does: major, minor, patch.
    oldest: [u32; 3],
}

const CARGO_TOOLS: &[CargoTool] = &[
    CargoTool {
        name: "nextest",
        cargo: true,
        ci: true,
        features: "",
        version: "0.9.143",
        oldest: [0, 9, 100],
    },
    CargoTool { name: "fuzz", cargo: true, ci: false, features: "", version: "0.13.1", oldest: [0, 12, 0] },
    CargoTool { name: "deny", cargo: true, ci: true, features: "", version: "0.20.2", oldest: [0, 18, 0] },
    CargoTool {
        name: "mdbook",
        cargo: false,
        ci: true,
        features: "--no-default-features --features search",
        version: "0.5.4",
        oldest: [0, 5, 0],
    },
];

/// A Debian package, the program or library that shows it to be there, and what it is for.
struct Package {
    name: &'static str,
    proof: Proof,
    purpose: &'static str,
}

enum Proof {
    Program(&'static str),
    Library(&'static str),
}

const PACKAGES: &[Package] = &[
    Package { name: "valgrind", proof: Proof::Program("valgrind"), purpose: "C programs under valgrind" },
    Package { name: "strace", proof: Proof::Program("strace"), purpose: "the count of system calls" },
    Package { name: "e2fsprogs", proof: Proof::Program("mkfs.ext4"), purpose: "tests on ext4" },
    Package { name: "xfsprogs", proof: Proof::Program("mkfs.xfs"), purpose: "tests on xfs" },
    Package { name: "btrfs-progs", proof: Proof::Program("mkfs.btrfs"), purpose: "tests on btrfs" },
    Package { name: "pkg-config", proof: Proof::Program("pkg-config"), purpose: "tests of hipfile.pc" },
    Package {
        name: "abigail-tools",
        proof: Proof::Program("abidiff"),
        purpose: "the snapshot of the interface",
    },
    Package { name: "rpm", proof: Proof::Program("rpmbuild"), purpose: "RPMs" },
    Package { name: "groff-base", proof: Proof::Program("groff"), purpose: "tests of the manual pages" },
    Package { name: "cmake", proof: Proof::Program("cmake"), purpose: "tests of the CMake package" },
    Package {
        name: "libamdhip64-5",
        proof: Proof::Library("libamdhip64.so.5"),
        purpose: "the test that a HIP runtime too old for us is refused",
    },
];

/// Makes everything available that can be, and says what cannot.
///
/// # Errors
/// A program without which nothing works is missing; a cargo tool does not build; or a package did not install
/// although we may install packages.
pub(crate) fn ensure_all() -> Result<(), String> {
    for program in ["gcc", "ar", "readelf", "make", "python3"] {
        if which(program).is_none() {
            return Err(format!("{program} is missing: gcc, binutils, make and python3 are required"));
        }
    }
    for tool in CARGO_TOOLS.iter().filter(|tool| tool.ci) {
        tool.command()?;
    }
    ensure_packages()
}

/// `cargo NAME`, or a program that is no part of cargo, or the same tool built under the target folder when the machine has none.
///
/// # Errors
/// It is none that we know, or it does not build.
pub(crate) fn tool(name: &str) -> Result<Cmd, String> {
    let known = CARGO_TOOLS.iter().find(|tool| tool.name == name);
    known.ok_or_else(|| format!("cargo-{name} is not among the known tools"))?.command()
}

impl CargoTool {
    fn command(&self) -> Result<Cmd, String> {
        let program = if self.cargo { format!("cargo-{}", self.name) } else { self.name.to_owned() };
        let called = |path: PathBuf| if self.cargo { cmd(path).arg(self.name) } else { cmd(path) };
        if let Some(path) = which(&program)
            && self.will_do(&path)
        {
            // Not through cargo: that would make it work with the same cargo, which it takes from the environment.
            return Ok(called(path));
        }
        let root = layout::target().join("tools").join(format!("{program}-{}", self.version));
        let path = root.join("bin").join(&program);
        if !path.is_file() {
            println!("{program}: none, or one older than {}; building {}", dotted(self.oldest), self.version);
            // Unoptimized: it runs for seconds, and an optimized build takes minutes longer.
            cargo()
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .words("install --locked --debug --root")
                .arg(&root)
                .arg(format!("{program}@{}", self.version))
                .words(self.features)
                .run()?;
        }
        Ok(called(path))
    }

    fn will_do(&self, path: &Path) -> bool {
        let asked = if self.cargo { cmd(path).arg(self.name) } else { cmd(path) };
        let answer = asked.arg("--version").output();
        answer.is_ok_and(|text| version_in(&text).is_some_and(|version| version >= self.oldest))
    }
}

/// Whether cargo-deny's database of known faults is on this machine.
pub(crate) fn has_advisories() -> bool {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let databases = home.and_then(|home| home.join("advisory-dbs").read_dir().ok());
    databases.is_some_and(|mut entries| entries.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir())))
}

fn dotted(version: [u32; 3]) -> String {
    version.map(|part| part.to_string()).join(".")
}

/// The first word of the form `1.2.3` in what a program says about itself.
fn version_in(text: &str) -> Option<[u32; 3]> {
    text.split_whitespace().find_map(|word| {
        let parts: Vec<u32> =
            word.trim_start_matches('v').split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
        parts.try_into().ok()
    })
}

fn ensure_packages() -> Result<(), String> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| !package.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(reason) = may_not_install() {
        for package in missing {
            println!("SKIP: {}: {} is not installed, and {reason}", package.purpose, package.name);
        }
        return Ok(());
    }
    let apt = || {
        cmd("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .words("-qq -y --no-install-recommends -o DPkg::Lock::Timeout=300")
    };
    apt().arg("update").run()?;
    apt().arg("install").words(&missing.iter().map(|p| p.name).collect::<Vec<_>>().join(" ")).run()?;
    match missing.iter().find(|package| !package.is_there()) {
        None => Ok(()),
        Some(package) => {
            Err(format!("{} was installed, but what it is for is still not there", package.name))
        }
    }
}

impl Package {
    fn is_there(&self) -> bool {
        match self.proof {
            Proof::Program(name) => which(name).is_some(),
            Proof::Library(name) => library_dirs().iter().any(|dir| dir.join(name).exists()),
        }
    }
}

fn library_dirs() -> Vec<PathBuf> {
    let arch = std::env::consts::ARCH;
    vec![format!("/usr/lib/{arch}-linux-gnu").into(), "/usr/lib".into(), "/usr/lib64".into()]
}

/// Why packages cannot be installed here, if so.
fn may_not_install() -> Option<&'static str> {
    if which("apt-get").is_none() {
        return Some("there is no apt-get");
    }
    let user = cmd("id").arg("-u").output();
    (user.as_deref().map(str::trim) != Ok("0")).then_some("only root may install it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        assert_eq!(version_in("cargo-nextest 0.9.143 (60fa45f63 2026-08-04)"), Some([0, 9, 143]));
        assert_eq!(version_in("mdbook v0.5.4"), Some([0, 5, 4]));
        assert_eq!(version_in("release: none"), None);
        assert!(version_in("cargo-deny 0.18.0") >= Some([0, 18, 0]));
        assert!(version_in("cargo-deny 0.9.9") < Some([0, 18, 0]));
    }

    #[test]
    fn a_tool_that_is_unknown_is_an_error() {
        assert!(tool("frobnicate").is_err_and(|e| e.contains("cargo-frobnicate")));
    }
}
