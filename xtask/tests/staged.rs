//! The staged tree, used as its receivers use it: by gcc, pkg-config, CMake and dlopen. What the library does is
//! tested elsewhere. Needs `HIPFILE_TEST_DIST`, the folder that `cargo xtask dist` filled.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests read the environment of the build and say what they skip"
)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that knows hipFile only.
const VERSION_C: &str = r#"
#include <hipfile.h>
#include <stdio.h>
int main(void)
{
    unsigned major = 9, minor = 9, patch = 9;
    hipFileError_t status = hipFileGetVersion(&major, &minor, &patch);
    printf("%d %u.%u.%u\n", status.err, major, minor, patch);
    return 0;
}
"#;

/// A program that allocates device memory with HIP, and sends it through a file with hipFile.
const ROUND_TRIP_C: &str = r#"
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <hipfile.h>
#include <stdio.h>
#include <string.h>
#define SIZE 70001
int main(int argc, char **argv)
{
    static char out[SIZE], in[SIZE];
    void *device = NULL;
    hipFileHandle_t file;
    hipFileDescr_t descr;
    int fd = open(argv[argc - 1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < SIZE; i++)
        out[i] = (char)(i * 31 + i / 251);
    memset(&descr, 0, sizeof descr);
    descr.type = hipFileHandleTypeOpaqueFD;
    descr.handle.fd = fd;
    if (fd < 0 || hipMalloc(&device, SIZE) != hipSuccess)
        return 2;
    if (hipMemcpy(device, out, SIZE, hipMemcpyHostToDevice) != hipSuccess)
        return 3;
    if (hipFileHandleRegister(&file, &descr).err != hipFileSuccess)
        return 4;
    if (hipFileWrite(file, device, SIZE, 3, 0) != SIZE)
        return 5;
    if (hipMemset(device, 0, SIZE) != hipSuccess || hipFileRead(file, device, SIZE, 3, 0) != SIZE)
        return 6;
    if (hipMemcpy(in, device, SIZE, hipMemcpyDeviceToHost) != hipSuccess || memcmp(in, out, SIZE) != 0)
        return 7;
    hipFileHandleDeregister(file);
    puts("every byte came back");
    return hipFree(device) == hipSuccess ? 0 : 8;
}
"#;

/// A program that knows only the name of the library.
const DLOPEN_C: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
    void *library = dlopen("libhipfile.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return puts(dlerror()), 2;
    long (*count)(void) = (long (*)(void))dlsym(library, "hipFileUseCount");
    if (!count)
        return puts(dlerror()), 3;
    printf("count %ld\n", count());
    return 0;
}
"#;

/// The staged tree; None, and a line that says so, when there is none. The profiles of `cargo xtask` always name one: there it
/// is a defect, and not what a machine lacks.
fn dist(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("HIPFILE_TEST_DIST").map(PathBuf::from);
    if dir.is_none() {
        let profile = std::env::var("NEXTEST_PROFILE").unwrap_or_default();
        assert!(profile != "ci", "cargo xtask ci has not staged a tree for its tests");
        eprintln!("SKIP: {test}: HIPFILE_TEST_DIST names no staged tree; cargo xtask ci stages one");
    }
    dir
}

fn has(test: &str, program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIP: {test}: {program} is not installed");
    }
    there
}

/// Runs a program that must succeed, and gives what it printed.
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}\n{text}\n{errors}", out.status);
    text
}

fn cc(dir: &Path, source: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> PathBuf {
    let (file, program) = (dir.join("x.c"), dir.join("x"));
    fs::write(&file, source).expect("the source is written");
    run(Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror"])
        .arg(&file)
        .args(args)
        .arg("-o")
        .arg(&program));
    program
}

/// The program's output with these folders on the library path and the emulated GPU asked for.
fn run_with(program: &Path, libraries: &[PathBuf], args: &[&Path]) -> String {
    let path = std::env::join_paths(libraries).expect("folders without colons");
    run(Command::new(program)
        .args(args)
        .current_dir(program.parent().expect("a folder"))
        .env("LD_LIBRARY_PATH", path)
        .env("HIPFILE_DEVICE", "emulated"))
}

fn library_path(dist: &Path) -> [PathBuf; 2] {
    [dist.join("lib"), dist.join("lib/hip-emu")]
}

/// All files and links of a tree; links with what they point to.
fn tree(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![dir.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(dir).expect("below the folder").display().to_string();
            match fs::read_link(&path) {
                Ok(to) => _ = found.insert(format!("{name} -> {}", to.display())),
                Err(_) if path.is_dir() => open.push(path),
                Err(_) => _ = found.insert(name),
            }
        }
    }
    found
}

#[test]
fn the_tree_is_complete_and_holds_nothing_else() {
    let Some(dist) = dist("the staged tree") else {
        return;
    };
    let found = tree(&dist);
    let (documents, rest): (BTreeSet<&str>, BTreeSet<&str>) =
        found.iter().map(String::as_str).partition(|name| name.starts_with("share/doc/hipfile/"));
    let expected = BTreeSet::from([
        "bin/ais-check -> hipfile",
        "bin/ais-stats -> hipfile",
        "bin/aiscp -> hipfile",
        "bin/hipfile",
        "include/hip-emu/hip/hip_emu_types.h",
        "include/hip-emu/hip/hip_runtime.h",
        "include/hip-emu/hip/hip_runtime_api.h",
        "include/hip-emu/hip/hip_version.h",
        "include/hip-emu/hip/hiprtc.h",
        "include/hipfile-stats.h",
        "include/hipfile.h",
        "include/hipfile_ext.h",
        "lib/cmake/hipfile/hipfile-config-version.cmake",
        "lib/cmake/hipfile/hipfile-config.cmake",
        "lib/hip-emu/libamdhip64.so -> libamdhip64.so.7",
        "lib/hip-emu/libamdhip64.so.6 -> libamdhip64.so.7",
        "lib/hip-emu/libamdhip64.so.7",
        "lib/hip-emu/libhiprtc.so",
        "lib/libhipfile.a",
        "lib/libhipfile.so -> libhipfile.so.0",
        "lib/libhipfile.so.0 -> libhipfile.so.0.5.0",
        "lib/libhipfile.so.0.5.0",
        "lib/pkgconfig/hipfile.pc",
        "share/bash-completion/completions/hipfile",
        "share/fish/vendor_completions.d/hipfile.fish",
        "share/man/man1/ais-check.1",
        "share/man/man1/ais-stats.1",
        "share/man/man1/aiscp.1",
        "share/man/man1/hipfile-bench.1",
        "share/man/man1/hipfile-check.1",
        "share/man/man1/hipfile-copy.1",
        "share/man/man1/hipfile-stats.1",
        "share/man/man1/hipfile-tune.1",
        "share/man/man1/hipfile.1",
        "share/zsh/site-functions/_hipfile",
    ]);
    assert_eq!(rest, expected);
    let examples = ["examples/c/roundtrip_verify.c", "examples/cuda/roundtrip.c"];
    for name in ["README.md", "CHANGELOG.md", "LICENSE"].into_iter().chain(examples) {
        assert!(documents.contains(format!("share/doc/hipfile/{name}").as_str()), "{name}: {documents:?}");
    }
}

#[test]
fn what_the_documents_of_the_tree_refer_to_is_in_the_tree() {
    let Some(dist) = dist("the links of the documents") else { return };
    let documents = dist.join("share/doc/hipfile");
    let (mut count, mut dead) = (0, Vec::new());
    for name in tree(&documents).iter().filter(|name| name.ends_with(".md")) {
        let page = documents.join(name);
        let text = fs::read_to_string(&page).expect("a page");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://") && !link.contains(' ')) {
            count += 1;
            if !page.parent().expect("a folder").join(link).exists() {
                dead.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(count > 50, "{count} links are not all");
    assert_eq!(dead, [""; 0]);
}

#[test]
fn the_libraries_carry_their_sonames_and_need_the_system_only() {
    let Some(dist) = dist("sonames") else { return };
    for (file, soname) in
        [("lib/libhipfile.so.0.5.0", "libhipfile.so.0"), ("lib/hip-emu/libamdhip64.so.7", "libamdhip64.so.7")]
    {
        let dynamic = run(Command::new("readelf").arg("-dW").arg(dist.join(file)));
        assert!(dynamic.contains(&format!("Library soname: [{soname}]")), "{file}:\n{dynamic}");
        for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
            let allowed = ["[libc.so.", "[libm.so.", "[libgcc_s.so.", "[ld-linux"];
            assert!(allowed.iter().any(|library| line.contains(library)), "{file}: {line}");
        }
    }
}

/// What the documentation says after `gcc x.c`, word for word.
fn documented_flags(dist: &Path) -> Vec<String> {
    let line = "-D__HIP_PLATFORM_AMD__ -I target/dist/include -I target/dist/include/hip-emu \
                -L target/dist/lib -lhipfile -L target/dist/lib/hip-emu -lamdhip64";
    line.split(' ').map(|word| word.replace("target/dist", &dist.display().to_string())).collect()
}

#[test]
fn gcc_builds_a_program_against_the_tree_and_it_runs() {
    let Some(dist) = dist("gcc") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let program = cc(dir.path(), ROUND_TRIP_C, documented_flags(&dist));
    let text = run_with(&program, &library_path(&dist), &[&dir.path().join("file")]);
    assert_eq!(text, "every byte came back\n");
}

#[test]
fn the_c_program_in_the_readme_builds_and_runs() {
    let Some(dist) = dist("the C program in README.md") else {
        return;
    };
    let readme = fs::read_to_string(dist.join("share/doc/hipfile/README.md")).expect("README.md");
    let source =
        readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a C program");
    let line = documented_flags(Path::new("target/dist")).join(" ");
    let spread = readme.replace("\\\n", "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        spread.contains(&format!("gcc -D__HIP_PLATFORM_AMD__ start.c -o start {}", &line[23..])),
        "{line}"
    );
    let dir = tempfile::tempdir().expect("a folder");
    let program = cc(dir.path(), source, documented_flags(&dist));
    let text = run_with(&program, &library_path(&dist), &[]);
    assert_eq!(text, "1048576 bytes written, 1048576 bytes read\n");
}

#[test]
fn a_program_that_only_dlopens_the_library_runs() {
    let Some(dist) = dist("dlopen") else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let program = cc(dir.path(), DLOPEN_C, ["-ldl"]);
    assert_eq!(run_with(&program, &library_path(&dist), &[]), "count 0\n");
    // Also without any HIP beside it.
    assert_eq!(run_with(&program, &[dist.join("lib")], &[]), "count 0\n");
}

/// The words that pkg-config prints for the tree at `prefix`.
fn pkg_config(prefix: &Path, options: &[&str]) -> Vec<String> {
    let flags = run(Command::new("pkg-config")
        .args(options)
        .args(["--cflags", "--libs", "hipfile"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    flags.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_flags_of_pkg_config_link_the_shared_library() {
    let Some(dist) = dist("pkg-config") else { return };
    if !has("pkg-config, shared", "pkg-config") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let program = cc(dir.path(), VERSION_C, pkg_config(&dist, &[]));
    assert_eq!(run_with(&program, &[dist.join("lib")], &[]), "0 0.5.0\n");
    let dynamic = run(Command::new("readelf").arg("-dW").arg(&program));
    assert!(dynamic.contains("[libhipfile.so.0]"), "{dynamic}");
}

/// The tree was moved here, and its shared library left behind, as in a package for static linking.
#[test]
fn behaviour_148_the_flags_of_pkg_config_link_the_static_library() {
    let Some(dist) = dist("pkg-config --static") else {
        return;
    };
    if !has("pkg-config, static", "pkg-config") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let prefix = dir.path().join("moved");
    for file in ["include/hipfile.h", "lib/libhipfile.a", "lib/pkgconfig/hipfile.pc"] {
        let to = prefix.join(file);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(dist.join(file), to).expect("copied");
    }
    let program = cc(dir.path(), VERSION_C, pkg_config(&prefix, &["--static"]));
    assert_eq!(run_with(&program, &[], &[]), "0 0.5.0\n");
    let dynamic = run(Command::new("readelf").arg("-dW").arg(&program));
    assert!(!dynamic.contains("libhipfile") && !dynamic.contains("libstdc++"), "{dynamic}");
}

#[test]
fn cmake_finds_the_package_and_both_targets_link() {
    let Some(dist) = dist("cmake") else { return };
    if !has("the CMake package", "cmake") {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let lists = "cmake_minimum_required(VERSION 3.16)\n\
                 project(user C)\n\
                 find_package(hipfile 0.3 REQUIRED CONFIG)\n\
                 add_executable(shared x.c)\n\
                 target_link_libraries(shared PRIVATE hip::hipfile)\n\
                 add_executable(static x.c)\n\
                 target_link_libraries(static PRIVATE hip::hipfile_static)\n\
                 find_package(hipfile 9.0 QUIET CONFIG)\n\
                 message(STATUS \"a newer one: ${hipfile_FOUND}\")\n";
    fs::write(dir.path().join("CMakeLists.txt"), lists).expect("written");
    fs::write(dir.path().join("x.c"), VERSION_C).expect("written");
    let build = dir.path().join("build");
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", dist.display());
    let text = run(Command::new("cmake").arg("-S").arg(dir.path()).arg("-B").arg(&build).arg(prefix));
    assert!(text.contains("a newer one: 0") || text.contains("a newer one: FALSE"), "{text}");
    run(Command::new("cmake").arg("--build").arg(&build));
    // CMake writes the folder of the shared library into what it builds, so neither needs a library path.
    assert_eq!(run_with(&build.join("shared"), &[], &[]), "0 0.5.0\n");
    assert_eq!(run_with(&build.join("static"), &[], &[]), "0 0.5.0\n");
}

#[test]
fn the_tool_starts_by_each_of_its_names() {
    let Some(dist) = dist("the tool") else { return };
    let text = run(Command::new(dist.join("bin/hipfile")).arg("--version"));
    assert_eq!(text.trim_end(), "hipfile 0.5.0");
    let dir = tempfile::tempdir().expect("a folder");
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::write(&from, "0123456789".repeat(1000)).expect("written");
    run(Command::new(dist.join("bin/aiscp")).arg(&from).arg(&to));
    assert_eq!(fs::read(&to).expect("the copy"), fs::read(&from).expect("the source"));
}

/// What the linker can do against a fault that is used: tables that are written once are read only from then on, no stack is
/// executable, no code is written to, and the program lies at no fixed address.
#[test]
fn libraries_and_program_are_hardened() {
    let test = "hardening";
    let Some(dist) = dist(test) else { return };
    if !has(test, "readelf") {
        return;
    }
    for (name, is_program) in [("lib/libhipfile.so", false), ("bin/hipfile", true)] {
        let file = dist.join(name);
        let segments = run(Command::new("readelf").arg("-lW").arg(&file));
        let dynamic = run(Command::new("readelf").arg("-dW").arg(&file));
        assert!(segments.contains("GNU_RELRO"), "{name}: no RELRO:\n{segments}");
        assert!(dynamic.contains("BIND_NOW") || dynamic.contains(" NOW"), "{name}: lazy binding:\n{dynamic}");
        assert!(!dynamic.contains("TEXTREL"), "{name}: code that is written to");
        let rights = |line: &str| line.split_whitespace().rev().nth(1).unwrap_or_default().to_owned();
        let stack = segments.lines().find(|line| line.contains("GNU_STACK")).expect("a stack segment");
        assert_eq!(rights(stack), "RW", "{name}: {stack}");
        let writable_code = segments.lines().find(|line| line.contains("LOAD") && line.contains("RWE"));
        assert_eq!(writable_code, None, "{name}");
        let header = run(Command::new("readelf").arg("-hW").arg(&file));
        assert!(header.contains("DYN"), "{name}: a fixed address:\n{header}");
        assert!(
            !is_program || dynamic.contains("PIE"),
            "{name}: no position-independent program:\n{dynamic}"
        );
    }
}
