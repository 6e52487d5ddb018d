//! `cargo xtask dist`: builds the libraries and the tool and stages them as they are installed. The tree can be moved:
//! nothing in it holds its own path. The emulated GPU stands apart, under `hip-emu`, so that it is never found by
//! accident.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::cmd::{cargo, cmd};
use crate::layout;

/// What libhipfile.a needs of the system when it is linked into a program.
const STATIC_LIBS: &[&str] = &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// The other names of the `hipfile` program.
const TOOL_LINKS: &[&str] = &["aiscp", "ais-check", "ais-stats"];

/// The command line of `cargo xtask dist`.
///
/// # Errors
/// A wrong option, or as [`stage`].
pub(crate) fn main(args: &[&str]) -> Result<(), String> {
    let mut debug = false;
    let mut out = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "--debug" => debug = true,
            "--out" => {
                let dir = args.next().ok_or("--out needs a folder")?;
                let here = std::env::current_dir().map_err(|e| format!("the current folder: {e}"))?;
                out = Some(here.join(dir));
            }
            other => return Err(format!("dist: unknown option {other}; known: --debug, --out DIR")),
        }
    }
    let dir = stage(debug, out)?;
    println!("staged in {}", dir.display());
    Ok(())
}

/// Builds and stages. Without `out` the usual folder is made anew; a folder named by `out` is added to, and files
/// there that do not belong to us stay.
///
/// # Errors
/// The build failed, or a file could not be written; the text names it.
pub(crate) fn stage(debug: bool, out: Option<PathBuf>) -> Result<PathBuf, String> {
    let target = layout::target();
    let mut build = cargo()
        .words("build --locked --package libhipfile --package hipfile-tools")
        .words("--package hip-emu-so --package hip-emu-rtc-so --target-dir")
        .arg(&target);
    if !debug {
        build = build.arg("--release");
    }
    build.run()?;

    let dir = match out {
        Some(dir) => dir,
        None => {
            let dir = layout::dist(debug);
            absent(fs::remove_dir_all(&dir)).map_err(|e| format!("{}: {e}", dir.display()))?;
            dir
        }
    };
    let built = target.join(if debug { "debug" } else { "release" });
    Stage::new(built, dir.clone(), Layout::MOVABLE)?.all()?;
    Ok(dir)
}

/// Where things lie below the root of a tree.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// What everything is below: nothing, or a path that ends in a slash.
    prefix: &'static str,
    /// The folder of libraries, below the prefix.
    libdir: &'static str,
    /// From there to the prefix.
    up: &'static str,
}

impl Layout {
    /// A tree that is used as it stands.
    pub(crate) const MOVABLE: Layout = Layout { prefix: "", libdir: "lib", up: ".." };
    /// Debian's, for x86-64.
    pub(crate) const DEBIAN: Layout = Layout { prefix: "usr/", libdir: "lib/x86_64-linux-gnu", up: "../.." };
}

/// A tree that is being filled from a folder of what cargo built.
pub(crate) struct Stage {
    built: PathBuf,
    dir: PathBuf,
    version: String,
    layout: Layout,
}

/// What example programs consist of.
const EXAMPLES: &[&str] = &[".c", ".h", "Makefile", ".rs", ".py", "requirements.txt"];

impl Stage {
    /// # Errors
    /// The version cannot be found.
    pub(crate) fn new(built: PathBuf, dir: PathBuf, layout: Layout) -> Result<Stage, String> {
        Ok(Stage { built, dir, version: layout::version()?, layout })
    }

    /// # Errors
    /// A file could not be read or written; the text names it. So are those of the parts below.
    pub(crate) fn all(&self) -> Result<(), String> {
        self.library()?;
        self.development()?;
        self.tools()?;
        self.documents()?;
        self.emulation()
    }

    /// The library that programs load.
    pub(crate) fn library(&self) -> Result<(), String> {
        let real = self.real();
        self.program("libhipfile_c.so", &self.lib(&real))?;
        self.link(&real, &self.lib(&self.soname()))
    }

    /// What programs are built with.
    pub(crate) fn development(&self) -> Result<(), String> {
        self.link(&self.soname(), &self.lib("libhipfile.so"))?;
        self.file(&self.built.join("libhipfile_c.a"), &self.lib("libhipfile.a"), 0o644)?;
        self.tree(&layout::root().join("include"), &self.below("include"), &[".h"])?;
        self.template(include_str!("../dist/hipfile.pc.in"), "pkgconfig/hipfile.pc")?;
        let cmake = "cmake/hipfile/hipfile-config";
        self.template(include_str!("../dist/hipfile-config.cmake.in"), &format!("{cmake}.cmake"))?;
        self.template(
            include_str!("../dist/hipfile-config-version.cmake.in"),
            &format!("{cmake}-version.cmake"),
        )
    }

    /// The command, under all its names, with its manual pages and completions.
    pub(crate) fn tools(&self) -> Result<(), String> {
        self.program("hipfile", &self.below("bin/hipfile"))?;
        for link in TOOL_LINKS {
            self.link("hipfile", &self.below(&format!("bin/{link}")))?;
        }
        let to = self.dir.join(self.layout.prefix);
        cmd(self.built.join("hipfile")).arg("generate").arg(to).run()
    }

    pub(crate) fn documents(&self) -> Result<(), String> {
        let root = layout::root();
        let to = self.below("share/doc/hipfile");
        let pages = ["README.md", "CHANGELOG.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];
        for name in pages.into_iter().chain(["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"]) {
            self.file(&root.join(name), &format!("{to}/{name}"), 0o644)?;
        }
        // As in the checkout, so that what one page says of another's place holds.
        self.tree(&root.join("docs"), &format!("{to}/docs"), &[".md", ".svg"])?;
        self.tree(&root.join("examples"), &format!("{to}/examples"), EXAMPLES)?;
        self.link("../../../include", &format!("{to}/include"))
    }

    /// The emulated GPU, apart from everything else.
    pub(crate) fn emulation(&self) -> Result<(), String> {
        self.program("libamdhip64.so", &self.lib("hip-emu/libamdhip64.so.7"))?;
        self.link("libamdhip64.so.7", &self.lib("hip-emu/libamdhip64.so.6"))?;
        self.link("libamdhip64.so.7", &self.lib("hip-emu/libamdhip64.so"))?;
        self.program("libhiprtc.so", &self.lib("hip-emu/libhiprtc.so"))?;
        let headers = layout::root().join("crates/hip-emu-so/include");
        self.tree(&headers, &self.below("include/hip-emu"), &[".h"])
    }

    fn below(&self, path: &str) -> String {
        format!("{}{path}", self.layout.prefix)
    }

    fn lib(&self, path: &str) -> String {
        format!("{}{}/{path}", self.layout.prefix, self.layout.libdir)
    }

    fn real(&self) -> String {
        format!("libhipfile.so.{}", self.version)
    }

    fn soname(&self) -> String {
        format!("libhipfile.so.{}", self.major())
    }

    fn major(&self) -> &str {
        self.version.split('.').next().unwrap_or_default()
    }

    fn program(&self, built: &str, to: &str) -> Result<(), String> {
        self.file(&self.built.join(built), to, 0o755)
    }

    /// Copies one file. It gets its name only when it is whole: a process that runs the old one keeps it.
    fn file(&self, from: &Path, to: &str, mode: u32) -> Result<(), String> {
        let bytes = fs::read(from).map_err(|e| format!("{}: {e}", from.display()))?;
        self.write(to, &bytes, mode)
    }

    /// Writes one file of the tree.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, to: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
        let path = self.dir.join(to);
        let new = self.dir.join(format!("{to}.new"));
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(&self.dir))?;
            fs::write(&new, bytes)?;
            fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }

    fn link(&self, points_to: &str, at: &str) -> Result<(), String> {
        let path = self.dir.join(at);
        let link = || {
            fs::create_dir_all(path.parent().unwrap_or(&self.dir))?;
            absent(fs::remove_file(&path))?;
            symlink(points_to, &path)
        };
        link().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Copies the files below `from` whose names end in one of `endings`, with their folders. There must be some.
    fn tree(&self, from: &Path, to: &str, endings: &[&str]) -> Result<(), String> {
        match self.copy_tree(from, to, endings)? {
            0 => Err(format!("{} holds nothing that ends in {}", from.display(), endings.join(" or "))),
            _ => Ok(()),
        }
    }

    fn copy_tree(&self, from: &Path, to: &str, endings: &[&str]) -> Result<usize, String> {
        let at = |e: std::io::Error| format!("{}: {e}", from.display());
        let mut count = 0;
        for entry in fs::read_dir(from).map_err(at)? {
            let entry = entry.map_err(at)?;
            let name = entry.file_name().into_string().map_err(|n| format!("{}: not UTF-8", n.display()))?;
            let target = format!("{to}/{name}");
            if entry.path().is_dir() {
                count += self.copy_tree(&entry.path(), &target, endings)?;
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                self.file(&entry.path(), &target, 0o644)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn template(&self, text: &str, to: &str) -> Result<(), String> {
        self.write(&self.lib(to), self.filled(text).as_bytes(), 0o644)
    }

    fn filled(&self, template: &str) -> String {
        template
            .replace("@VERSION@", &self.version)
            .replace("@MAJOR@", self.major())
            .replace("@LIBDIR@", self.layout.libdir)
            .replace("@UP@", self.layout.up)
            .replace("@STATIC_LIBS@", &STATIC_LIBS.join(" "))
            .replace("@STATIC_LIBS_CMAKE@", &STATIC_LIBS.join(";"))
    }
}

/// Success also when what was to be removed is not there.
fn absent(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage_in(dir: &Path) -> Stage {
        Stage::new(dir.join("built"), dir.join("out"), Layout::MOVABLE).expect("a version")
    }

    #[test]
    fn templates_are_filled_completely() {
        for template in [
            include_str!("../dist/hipfile.pc.in"),
            include_str!("../dist/hipfile-config.cmake.in"),
            include_str!("../dist/hipfile-config-version.cmake.in"),
        ] {
            let stage = stage_in(Path::new("/"));
            assert!(!stage.filled(template).contains('@'));
        }
    }

    #[test]
    fn staging_into_a_folder_keeps_what_others_have_there() {
        let tmp = tempfile::tempdir().expect("a folder");
        let stage = stage_in(tmp.path());
        let lib = tmp.path().join("out/lib");
        fs::create_dir_all(&lib).expect("a folder");
        fs::write(lib.join("theirs"), "x").expect("a file");
        fs::write(lib.join("ours"), "old").expect("a file");
        stage.write("lib/ours", b"new", 0o755).expect("written");
        stage.link("ours", "lib/link").expect("linked");
        stage.link("ours", "lib/link").expect("linked again");
        assert_eq!(fs::read(lib.join("theirs")).expect("theirs"), b"x");
        assert_eq!(fs::read(lib.join("link")).expect("ours"), b"new");
        assert_eq!(lib.join("ours").metadata().expect("ours").permissions().mode() & 0o777, 0o755);
        assert!(!lib.join("ours.new").exists());
    }

    #[test]
    fn a_missing_build_output_is_an_error_that_names_it() {
        let tmp = tempfile::tempdir().expect("a folder");
        let error = stage_in(tmp.path()).program("libx.so", "lib/libx.so").expect_err("not built");
        assert!(error.contains("built/libx.so"), "{error}");
        fs::create_dir_all(tmp.path().join("empty")).expect("a folder");
        let error =
            stage_in(tmp.path()).tree(&tmp.path().join("empty"), "include", &[".h"]).expect_err("empty");
        assert!(error.contains("holds nothing"), "{error}");
    }

    #[test]
    fn options_are_checked() {
        assert!(main(&["--frob"]).is_err_and(|e| e.contains("--frob")));
        assert!(main(&["--out"]).is_err_and(|e| e.contains("--out")));
    }
}
