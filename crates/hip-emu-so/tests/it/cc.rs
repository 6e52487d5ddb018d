//! Compiles C and C++ against the emulation's headers and libraries, and runs the result.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use test_support::emulation;

/// The text of one of the emulation's headers.
pub(crate) fn header(name: &str) -> String {
    let path = emulation().include.join("hip").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Header text without comments and preprocessor lines, each continued over its backslashes.
pub(crate) fn code_of(header: &str) -> String {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let lines = code.replace("\\\n", " ");
    lines.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// A compiler call with all that programs for the emulation need, but for the source and the output.
pub(crate) fn compiler(name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D__HIP_PLATFORM_AMD__"]);
    command.arg("-I").arg(&emulation().include);
    command
}

/// Compiles a program from a file of `tests/c`, or from text that a test has written.
pub(crate) fn build(source: &Path, output: &Path, flags: &[&str]) -> PathBuf {
    let is_cxx = source.extension().is_some_and(|extension| extension == "cpp");
    let mut command = compiler(if is_cxx { "c++" } else { "cc" });
    command.arg(if is_cxx { "-std=c++11" } else { "-std=c99" }).args(["-g", "-O1"]).args(flags);
    command.arg(source).arg("-o").arg(output);
    command.arg("-L").arg(&emulation().lib).args(["-lamdhip64", "-lhiprtc", "-pthread"]);
    let done = command.output().expect("a C compiler runs");
    assert!(done.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&done.stderr));
    output.to_owned()
}

/// A program of `tests/c`, compiled.
pub(crate) fn program(folder: &Path, file: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(file);
    build(&source, &folder.join(file.replace('.', "-")), flags)
}

/// Runs a program on the emulation, with a small device so that valgrind has room.
pub(crate) fn run(program: &mut Command) -> Output {
    emulation().serve(program);
    program.env("HIP_EMU_MEMORY", "256M");
    program.output().unwrap_or_else(|error| panic!("{}: {error}", program.get_program().display()))
}

/// Asserts that a program ended well, and shows what it said if not.
#[track_caller]
pub(crate) fn succeeded(output: &Output) {
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}
