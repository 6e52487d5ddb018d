//! Debian packages: the library, what programs are built with, the command, and the emulated GPU. Made by `dpkg-deb` from trees
//! that `dist` stages; no Debian source package is made.

use std::fs;
use std::path::{Path, PathBuf};

use super::bill::Bill;
use crate::cmd::{cmd, which};
use crate::dist::{Layout, Stage};
use crate::layout;

struct Package {
    name: &'static str,
    section: &'static str,
    summary: &'static str,
    /// Paragraphs of the long description, each line indented as the format wants it.
    about: &'static str,
    depends: &'static str,
    /// Further fields of the control file.
    more: &'static str,
    fill: fn(&Stage) -> Result<(), String>,
    /// Whether it has libraries where the loader looks for them.
    libraries: bool,
}

const LIBC: &str = "libc6 (>= 2.28), libgcc-s1 | libgcc1";

const PACKAGES: [Package; 4] = [
    Package {
        name: "libhipfile0",
        section: "libs",
        summary: "moves data between files and GPU memory",
        about: " The library libhipfile.so.0 with the C interface of hipFile, for AMD GPUs,\n NVIDIA GPUs and machines with none. \
                HIP and CUDA are looked for when a GPU\n is first used; neither is needed to install or load it.",
        depends: LIBC,
        more: "Multi-Arch: same\n",
        fill: Stage::library,
        libraries: true,
    },
    Package {
        name: "libhipfile-dev",
        section: "libdevel",
        summary: "headers and static library of hipfile",
        about: " The headers, the static library, and the files for pkg-config and CMake.",
        depends: "libhipfile0 (= @VERSION@)",
        more: "Multi-Arch: same\n",
        fill: |stage| {
            stage.development()?;
            stage.documents()
        },
        libraries: false,
    },
    Package {
        name: "hipfile-tools",
        section: "utils",
        summary: "copies, checks, watches and measures files and GPU memory",
        about: " The command hipfile with its tools copy, check, stats and bench, and the\n names of AMD's tools: aiscp, ais-check, \
                ais-stats.",
        depends: LIBC,
        more: "",
        fill: Stage::tools,
        libraries: false,
    },
    Package {
        name: "hipfile-emulation",
        section: "devel",
        summary: "emulated GPU for tests of programs that use HIP",
        about: " A libamdhip64.so whose GPU is emulated, in a folder of its own that no loader\n looks into by itself, and headers. \
                For tests on machines with no GPU.",
        depends: LIBC,
        more: "",
        fill: Stage::emulation,
        libraries: false,
    },
];

/// Makes them all. Their files; none where there is no `dpkg-deb`.
pub(super) fn all(built: &Path, home: &Path, bill: &Bill, epoch: &str) -> Result<Vec<PathBuf>, String> {
    if which("dpkg-deb").is_none() {
        println!("SKIP: Debian packages: there is no dpkg-deb");
        return Ok(Vec::new());
    }
    PACKAGES.iter().map(|package| package.make(built, home, bill, epoch)).collect()
}

impl Package {
    fn make(&self, built: &Path, home: &Path, bill: &Bill, epoch: &str) -> Result<PathBuf, String> {
        let version = layout::version()?;
        let tree = home.join("deb").join(self.name);
        let stage = Stage::new(built.to_owned(), tree.clone(), Layout::DEBIAN)?;
        (self.fill)(&stage)?;
        let documents = format!("usr/share/doc/{}", self.name);
        stage.write(&format!("{documents}/copyright"), copyright()?.as_bytes(), 0o644)?;
        bill.write(&stage, &documents)?;
        self.pages(&tree)?;
        stage.write("DEBIAN/control", self.control(&version, kib(&tree)?).as_bytes(), 0o644)?;
        if self.libraries {
            stage.write("DEBIAN/triggers", b"activate-noawait ldconfig\n", 0o644)?;
            let shlibs = format!("libhipfile 0 {} (>= {version})\n", self.name);
            stage.write("DEBIAN/shlibs", shlibs.as_bytes(), 0o644)?;
        }
        let sums = cmd("sh").arg("-c").arg(SUMS).arg("sh").arg(&tree).output()?;
        stage.write("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
        let deb = home.join(format!("{}_{version}_amd64.deb", self.name));
        cmd("dpkg-deb")
            .words("--root-owner-group -Zxz --build")
            .arg(&tree)
            .arg(&deb)
            .env("SOURCE_DATE_EPOCH", epoch)
            .run()?;
        Ok(deb)
    }

    fn control(&self, version: &str, kib: u64) -> String {
        let Package { name, section, summary, about, depends, more, .. } = self;
        let depends = depends.replace("@VERSION@", version);
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: The hipfile authors <hipfile@localhost>\n\
             Installed-Size: {kib}\nDepends: {depends}\n{more}Section: {section}\nPriority: optional\n\
             Description: {summary}\n{about}\n"
        )
    }

    /// Manual pages are packed.
    fn pages(&self, tree: &Path) -> Result<(), String> {
        let pages = tree.join("usr/share/man/man1");
        if pages.is_dir() {
            let entries = fs::read_dir(&pages).map_err(|e| format!("{}: {e}", pages.display()))?;
            let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            files.sort();
            files.iter().fold(cmd("gzip").words("-n -9"), |gzip, file| gzip.arg(file)).run()?;
        }
        Ok(())
    }
}

/// The checksums of all files of a tree but those about the package.
const SUMS: &str = "cd \"$1\" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum";

fn copyright() -> Result<String, String> {
    let read = |name: &str| layout::read(&layout::root().join(name));
    Ok(format!("{}\n{}\n{}", read("LICENSE")?, read("LICENSE-MIT")?, read("LICENSE-APACHE")?))
}

fn kib(tree: &Path) -> Result<u64, String> {
    let text = cmd("du").words("-sk --apparent-size").arg(tree).output()?;
    let size = text.split_whitespace().next().and_then(|word| word.parse().ok());
    size.ok_or_else(|| format!("du says {text:?}"))
}
