//! C and C++ programs on the emulation: plain, under valgrind and with the address sanitizer; and the accesses that
//! must end a program.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::cc::{program, run, succeeded};

/// Programs that end well and say so.
const GOOD: &[&str] = &["basic.c", "rtc.c", "overloads.cpp"];

#[track_caller]
fn passed(output: &Output) {
    succeeded(output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "passed\n");
}

#[test]
fn programs_run() {
    let folder = tempfile::tempdir().unwrap();
    for file in GOOD {
        passed(&run(&mut Command::new(program(folder.path(), file, &[]))));
    }
}

#[test]
fn programs_run_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIP: the emulation under valgrind: there is no valgrind (apt-get install valgrind)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for file in GOOD {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--leak-check=no"]);
        passed(&run(command.arg(program(folder.path(), file, &[]))));
    }
}

#[test]
fn programs_run_with_the_address_sanitizer() {
    let folder = tempfile::tempdir().unwrap();
    for file in GOOD {
        let built = program(folder.path(), file, &["-fsanitize=address"]);
        has_sanitizer(&built);
        passed(&run(Command::new(built).env("ASAN_OPTIONS", "detect_leaks=0")));
    }
}

/// Without this, a compiler that ignores the flag would make the test above pass for nothing.
fn has_sanitizer(program: &Path) {
    let symbols = Command::new("nm").args(["-D"]).arg(program).output().unwrap();
    assert!(String::from_utf8_lossy(&symbols.stdout).contains("__asan_init"), "no sanitizer in {program:?}");
}

/// The program was about to touch memory, and that ended it.
#[track_caller]
fn faulted(output: &Output, how: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stdout), "touching\n", "{how}");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{how}: {}", output.status);
}

#[test]
fn device_memory_is_out_of_the_cpus_reach() {
    let folder = tempfile::tempdir().unwrap();
    let deref = program(folder.path(), "deref.c", &[]);
    for how in ["read", "read-inside", "write", "after-free"] {
        faulted(&run(Command::new(&deref).arg(how)), how);
    }
    passed(&run(Command::new(&deref).arg("syscall")));
}

#[test]
fn pinned_memory_ends_where_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    faulted(&run(&mut Command::new(program(folder.path(), "overrun.c", &[]))), "overrun");
}

#[test]
fn a_program_may_leave_everything_open() {
    let folder = tempfile::tempdir().unwrap();
    let leave = program(folder.path(), "leave.c", &[]);
    for how in ["return", "exit"] {
        let begin = Instant::now();
        let output = run(Command::new(&leave).arg(how));
        succeeded(&output);
        assert!(begin.elapsed() < Duration::from_secs(20), "{how}: {:?}", begin.elapsed());
    }
}

#[test]
fn the_runtime_is_found_by_each_of_its_names_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/loads.c");
    let loads = folder.path().join("loads");
    // Not linked to the runtime, unlike the others.
    let done = Command::new("cc").arg(&source).arg("-o").arg(&loads).arg("-ldl").output().unwrap();
    succeeded(&done);
    for name in ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"] {
        let output = run(Command::new(&loads).arg(name));
        succeeded(&output);
        assert!(output.stdout.starts_with(b"hip-emu "), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
