//! The packages, unpacked and used as their receivers use them. Needs `HIPFILE_TEST_PACKAGES`, the folder that `cargo xtask package`
//! filled. That packages install on a system is dpkg's and rpm's business; nothing is installed here.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests read the environment of the build and say what they skip"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEBS: [&str; 4] = ["libhipfile0", "libhipfile-dev", "hipfile-tools", "hipfile-emulation"];

fn packages(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("HIPFILE_TEST_PACKAGES").map(PathBuf::from);
    if dir.is_none() {
        eprintln!("SKIP: {test}: HIPFILE_TEST_PACKAGES names no packages; cargo xtask ci package makes them");
    }
    dir
}

fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{command:?}: {}\n{text}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

fn has(test: &str, program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIP: {test}: {program} is not installed");
    }
    there
}

fn one(dir: &Path, start: &str, end: &str) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(end)
    };
    let found: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).filter(named).collect();
    assert_eq!(found.len(), 1, "{start}*{end}: {found:?}");
    found[0].clone()
}

/// A root with all Debian packages unpacked.
fn root(packages: &Path) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for name in DEBS {
        run(Command::new("dpkg-deb")
            .arg("-x")
            .arg(one(packages, &format!("{name}_"), ".deb"))
            .arg(root.path()));
    }
    root
}

const PROGRAM: &str = "#include <hipfile.h>\n#include <stdio.h>\nint main(void)\n{\n    unsigned a, b, c;\n    \
    hipFileGetVersion(&a, &b, &c);\n    printf(\"%u.%u.%u\\n\", a, b, c);\n    return 0;\n}\n";

#[test]
fn a_program_is_built_against_the_debian_packages_by_pkg_config_and_cmake() {
    let Some(packages) = packages("Debian packages") else { return };
    if !has("Debian packages", "dpkg-deb") {
        return;
    }
    let root = root(&packages);
    let lib = root.path().join("usr/lib/x86_64-linux-gnu");
    let work = tempfile::tempdir().expect("a folder");
    fs::write(work.path().join("x.c"), PROGRAM).expect("written");
    let answer = |program: &Path| run(Command::new(program).env("LD_LIBRARY_PATH", &lib));
    if has("pkg-config", "pkg-config") {
        let pkg_config = || {
            let mut command = Command::new("pkg-config");
            command.args(["--cflags", "--libs", "hipfile"]).env("PKG_CONFIG_PATH", lib.join("pkgconfig"));
            command
        };
        let flags = run(&mut pkg_config());
        let program = work.path().join("x");
        run(Command::new("gcc")
            .arg(work.path().join("x.c"))
            .args(flags.split_whitespace())
            .arg("-o")
            .arg(&program));
        assert_eq!(answer(&program), "0.5.0\n");
    }
    if has("CMake", "cmake") {
        let lists = "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(hipfile REQUIRED)\n\
                     add_executable(x x.c)\ntarget_link_libraries(x PRIVATE hip::hipfile)\n\
                     add_executable(s x.c)\ntarget_link_libraries(s PRIVATE hip::hipfile_static)\n";
        fs::write(work.path().join("CMakeLists.txt"), lists).expect("written");
        let build = work.path().join("build");
        let place = format!("-Dhipfile_DIR={}", lib.join("cmake/hipfile").display());
        run(Command::new("cmake").arg("-S").arg(work.path()).arg("-B").arg(&build).arg(place));
        run(Command::new("cmake").arg("--build").arg(&build));
        assert_eq!(
            (answer(&build.join("x")), answer(&build.join("s"))),
            ("0.5.0\n".into(), "0.5.0\n".into())
        );
    }
}

#[test]
fn the_command_of_the_debian_package_runs_and_its_page_is_there() {
    let Some(packages) = packages("hipfile-tools") else { return };
    if !has("hipfile-tools", "dpkg-deb") {
        return;
    }
    let root = root(&packages);
    let bin = root.path().join("usr/bin");
    assert_eq!(run(Command::new(bin.join("hipfile")).arg("--version")), "hipfile 0.5.0\n");
    let work = tempfile::tempdir().expect("a folder");
    fs::write(work.path().join("a"), vec![7; 100_001]).expect("written");
    run(Command::new(bin.join("aiscp"))
        .args(["a", "b"])
        .current_dir(work.path())
        .env("HIPFILE_DEVICE", "emulated"));
    assert_eq!(fs::read(work.path().join("b")).expect("the copy"), vec![7; 100_001]);
    let page =
        run(Command::new("gzip").arg("-dc").arg(root.path().join("usr/share/man/man1/hipfile-copy.1.gz")));
    assert!(page.contains("Copy a file"), "{page}");
}

#[test]
fn behaviour_146_the_packages_depend_on_the_c_library_alone() {
    let Some(packages) = packages("dependencies") else { return };
    if has("Debian packages", "dpkg-deb") {
        for name in DEBS {
            let deb = one(&packages, &format!("{name}_"), ".deb");
            let depends = run(Command::new("dpkg-deb").arg("-f").arg(&deb).arg("Depends"));
            let expected = match name {
                "libhipfile-dev" => "libhipfile0 (= 0.5.0)",
                _ => "libc6 (>= 2.28), libgcc-s1 | libgcc1",
            };
            assert_eq!(depends.trim(), expected, "{name}");
            let sums = run(Command::new("dpkg-deb").arg("--info").arg(&deb).arg("md5sums"));
            assert!(sums.contains("usr/share/doc/") && sums.contains("THIRD-PARTY.txt"), "{sums}");
        }
    }
    let rpms = packages.join("rpm/RPMS/x86_64");
    if !rpms.is_dir() {
        eprintln!("SKIP: RPMs: none was made");
        return;
    }
    for name in ["hipfile-libs", "hipfile-tools", "hipfile-devel"] {
        let rpm = one(&rpms, &format!("{name}-"), ".rpm");
        for need in run(Command::new("rpm").args(["-qp", "--requires"]).arg(&rpm)).lines() {
            let allowed = [
                "rpmlib(",
                "libc.so",
                "libm.so",
                "libgcc_s.so",
                "ld-linux",
                "rtld(",
                "hipfile-libs",
                "libhipfile.so.0",
                "/usr/bin/pkg-config",
                "libdl.so",
                "libpthread.so",
            ];
            assert!(allowed.iter().any(|start| need.starts_with(start)), "{name} needs {need}");
        }
    }
}

#[test]
fn behaviour_147_what_is_shipped_finds_all_that_it_needs() {
    let Some(packages) = packages("ldd") else { return };
    let tree = one(&packages, "hipfile-", "-linux-x86_64");
    for file in
        ["lib/libhipfile.so.0", "bin/hipfile", "lib/hip-emu/libamdhip64.so", "lib/hip-emu/libhiprtc.so"]
    {
        let out = Command::new("ldd").arg("-r").arg(tree.join(file)).output().expect("ldd");
        let text =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(
            out.status.success() && !text.contains("not found") && !text.contains("undefined"),
            "{file}: {text}"
        );
    }
    let sbom = fs::read_to_string(tree.join("share/doc/hipfile/sbom.cdx.json")).expect("a bill of materials");
    assert!(sbom.contains("\"CycloneDX\"") && sbom.contains("pkg:cargo/rustix@"), "{sbom}");
}

#[test]
fn symbols_are_found_by_the_identity_of_what_is_shipped() {
    let Some(packages) = packages("symbols") else { return };
    let tree = one(&packages, "hipfile-", "-linux-x86_64");
    let debug = one(&packages, "hipfile-", "-linux-x86_64-debug");
    for file in ["lib/libhipfile.so.0", "bin/hipfile"] {
        let notes = run(Command::new("readelf").arg("-nW").arg(tree.join(file)));
        let id = notes
            .split("Build ID: ")
            .nth(1)
            .and_then(|rest| rest.lines().next())
            .expect("an identity")
            .trim();
        assert!(id.bytes().any(|digit| digit != b'0'), "{file}: {id}");
        let path = debug.join(format!("lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
        let sections = run(Command::new("readelf").arg("-SW").arg(&path));
        assert!(sections.contains(".debug_info"), "{}", path.display());
        let sections = run(Command::new("readelf").arg("-SW").arg(tree.join(file)));
        assert!(!sections.contains(".debug_info"), "{file} is shipped without");
    }
}
