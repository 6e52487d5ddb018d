//! The C interface, tested by C: each program of `tests/c` and `examples/c` is compiled against the staged tree and run
//! as a process, plainly, under valgrind and with gcc's address sanitizer. What is checked stands in the programs; here
//! stands how they are run.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "tests read the environment of the build")]

mod harness;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use harness::{Program, Variant};
use hip_emu::function::Function;

/// Tests that run a program in one way.
macro_rules! plainly {
    ($($name:ident: $program:expr;)*) => {
        $(#[test] fn $name() { $program.run(Variant::Plain); })*
    };
}

/// Tests that run a program in all three ways: `name`, `valgrind::name` and `asan::name`.
macro_rules! three_ways {
    ($($name:ident: $program:expr;)*) => {
        $(#[test] fn $name() { $program.run(Variant::Plain); })*
        mod valgrind {
            use super::*;
            $(#[test] fn $name() { $program.run(Variant::Valgrind); })*
        }
        mod asan {
            use super::*;
            $(#[test] fn $name() { $program.run(Variant::Asan); })*
        }
    };
}

/// Tests that compile and run an example as C and as C++.
macro_rules! examples {
    ($($name:ident: $program:expr;)*) => {
        mod example {
            use super::*;
            $(#[test] fn $name() { $program.run(Variant::Plain); })*
        }
        mod example_cpp {
            use super::*;
            $(#[test] fn $name() { $program.run(Variant::Cpp); })*
        }
        mod example_valgrind {
            use super::*;
            $(#[test] fn $name() { $program.run(Variant::Valgrind); })*
        }
        mod example_asan {
            use super::*;
            $(#[test] fn $name() { $program.run(Variant::Asan); })*
        }
    };
}

fn devices(count: &str) -> Program {
    Program::test("devices").arg(count).env("HIP_EMU_DEVICES", count).env("HIP_EMU_MEMORY", "64M")
}

fn threads(mode: &str) -> Program {
    Program::test("threads").arg(mode)
}

/// Exit status 42 is the program's own choice.
fn exit(mode: &str) -> Program {
    Program::test("exit").arg(mode).ends_with(42).silent()
}

/// With a trap on every function that the emulation knows.
fn trapped(mode: &str) -> Program {
    let names: Vec<_> = Function::ALL.iter().map(|function| function.name()).collect();
    Program::test("exit").arg(mode).arg(names.join(" "))
}

fn hip_errors(mode: &str, fault: &str) -> Program {
    Program::test("hip_errors").arg(mode).env("HIP_EMU_FAULT", fault)
}

three_ways! {
    behaviour_87_errors: Program::test("errors");
    driver: Program::test("driver");
    handles: Program::test("handles");
    reopen_refused: Program::test("reopen_refused");
    buffers: Program::test("buffers");
    io: Program::test("io");
    io_staged: Program::test("io").env("HIPFILE_FORCE_COMPAT_MODE", "true");
    io_direct_on_any_file_system: Program::test("io")
        .env("HIP_EMU_KNOWN_FS", "all")
        .env("HIPFILE_UNSUPPORTED_FILE_SYSTEMS", "true");
    io_checks: Program::test("io_checks");
    behaviour_88_last_error: Program::test("last_error");
    behaviour_123_handle_info: Program::test("handle_info");
    stats: Program::test("stats");
    userspace_threads: Program::test("userspace_threads").arg("1000").env("HIPFILE_LOG_LEVEL", "off");
    userspace: Program::test("userspace").arg("1000").env("HIPFILE_LOG_LEVEL", "off");
    behaviour_34_and_behaviour_36_rdma: Program::test("rdma").beside("ibverbs.c", "libibverbs.so.1").env("HIPFILE_LOG_LEVEL", "off");
    behaviour_69_batch: Program::test("batch");
    streams: Program::test("streams");
    streams_staged: Program::test("streams").env("HIPFILE_FORCE_COMPAT_MODE", "true");
    streams_parked: Program::test("streams").env("HIP_EMU_HIDE", "hipStreamWaitValue64");
    streams_of_one_queue_and_one_block: Program::test("streams")
        .env("HIP_EMU_QUEUES", "1")
        .env("HIPFILE_STREAM_MEMORY", "6M");
    threads_files: threads("files");
    threads_buffers: threads("buffers");
    threads_mixed: threads("mixed");
    threads_fresh: threads("fresh");
    threads_counting: threads("counting");
    threads_closing: threads("closing");
    threads_same: threads("same");
    behaviour_68_threads_disjoint: threads("disjoint");
    behaviour_57_devices_2: devices("2");
    behaviour_57_devices_8: devices("8");
    behaviour_46_and_behaviour_56_exit_from_main_without_a_close: exit("main");
    behaviour_46_exit_in_a_thread: exit("exit");
    behaviour_46_exit_at_once: exit("_exit");
    behaviour_46_exit_quick: exit("quick_exit");
    behaviour_46_exit_handler: exit("atexit");
    // What is queued behind a gate that never opens must fit into the queues, or submitting it waits.
    behaviour_46_exit_with_held_streams: exit("held").env("HIP_EMU_QUEUE_LIMIT", "10000");
    behaviour_46_exit_with_streams_running: exit("streams");
    behaviour_46_exit_with_a_batch_in_flight: Program::test("lifecycle").arg("batch");
    behaviour_46_exit_in_a_signal_handler: Program::test("lifecycle").arg("signal").ends_with(42).silent();
    // In a child valgrind would look for leaks, a word at a time, in memory that the child does not have.
    fork_with_everything_open: Program::test("lifecycle").arg("fork").without_a_search_for_leaks();
    two_copies_in_one_process: Program::test("copies").arg("two").finds_libraries();
    loaded_for_everybody: Program::test("copies").arg("global").finds_libraries();
    dlopen_use: Program::test("dlopen").arg("use").finds_libraries();
    behaviour_53_dlopen_cycle: Program::test("dlopen").arg("cycle").finds_libraries();
    behaviour_51_no_runtime: Program::test("no_runtime").arg("none").without_runtime();
    behaviour_51_no_runtime_but_a_text_file: Program::test("no_runtime").arg("bad").without_runtime()
        .env("HIPFILE_HIP_LIBRARY", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    hip_knows_no_pointer: hip_errors("unknown", "hipPointerGetAttributes:1+:hipErrorInvalidValue");
    hip_fails_on_pointers: hip_errors("attributes", "hipPointerGetAttributes:1+:hipErrorUnknown");
    hip_finds_no_allocation: hip_errors("no_range", "hipMemGetAddressRange:1+:hipErrorNotFound");
    hip_fails_on_allocations: hip_errors("range", "hipMemGetAddressRange:1+:hipErrorLaunchFailure");
    hip_fails_to_copy: hip_errors("copy", "hipMemcpy:1:hipErrorLaunchFailure").env("HIPFILE_FORCE_COMPAT_MODE", "true");
    hip_has_no_device: Program::test("hip_errors").arg("no_device").env("HIP_EMU_DEVICES", "0");
    // More device memory than the others; the file is sparse.
    behaviour_10_big: Program::test("big").env("HIP_EMU_MEMORY", "2080M");
}

plainly! {
    // They start programs and children, which the tools would watch too.
    fork_and_exec_inherits_nothing: Program::test("lifecycle").arg("exec");
    vfork_and_spawn_inherit_nothing: Program::test("lifecycle").arg("vfork");
    threads_that_fork_beside_reads: Program::test("lifecycle").arg("forking");
    behaviour_49_the_driver_is_closed_while_64_threads_read: Program::test("lifecycle").arg("close_64");
    open_and_close_storm_beside_reads: Program::test("lifecycle").arg("storm");
    preloaded_into_a_program_that_does_not_know_it: Program::test("copies").arg("preload").finds_libraries().preloads_it();
    behaviour_57_devices_3: devices("3");
    behaviour_57_devices_4: devices("4");
    behaviour_57_devices_5: devices("5");
    behaviour_57_devices_6: devices("6");
    behaviour_57_devices_7: devices("7");
    behaviour_68_two_threads_ten_thousand_times: threads("disjoint_long");
    behaviour_68_two_threads_ten_thousand_times_past_the_host: threads("disjoint_long")
        .env("HIP_EMU_KNOWN_FS", "all")
        .env("HIPFILE_UNSUPPORTED_FILE_SYSTEMS", "true");
    userspace_threads_ten_thousand: Program::test("userspace_threads").arg("10000").env("HIPFILE_LOG_LEVEL", "off");
    userspace_ten_thousand: Program::test("userspace").arg("10000").env("HIPFILE_LOG_LEVEL", "off");
    // Breaks the rules on purpose, so a tool that watches for broken rules would object.
    strictness: Program::test("strictness");
    // Changes the code of a library that is in use; valgrind would not notice.
    behaviour_46_and_behaviour_47_no_hip_call_at_exit: trapped("trap").ends_with(42).silent();
    behaviour_47_no_hip_call_at_exit_in_a_thread: trapped("trap_thread").ends_with(42).silent();
}

examples! {
    get_version: Program::example("get_version");
    bufregister_write: Program::example("bufregister_write").arg("out");
    no_bufregister_write: Program::example("no_bufregister_write").arg("out");
    no_odirect_write: Program::example("no_odirect_write").arg("out");
    iterative_read: Program::example("iterative_read").arg("input").input(3_000_001);
    devmem_offset_read: Program::example("devmem_offset_read").arg("input").input(3_000_001);
    subregion_write: Program::example("subregion_write").arg("out");
    roundtrip_verify: Program::example("roundtrip_verify").arg("created").arg("copied");
    error_handling: Program::example("error_handling").arg("out");
    batch_roundtrip: Program::example("batch_roundtrip").arg("out");
    async_roundtrip: Program::example("async_roundtrip").arg("out");
}

/// A tool that finds nothing proves something only if it would have found it.
#[test]
fn valgrind_sees_a_stray_access() {
    Program::test("control").arg("heap").must_be_caught(Variant::Valgrind, "Invalid read of size 1");
}

#[test]
fn valgrind_sees_an_uninitialised_byte() {
    Program::test("control").arg("undefined").must_be_caught(Variant::Valgrind, "uninitialised");
}

#[test]
fn valgrind_sees_a_leak() {
    Program::test("control").arg("leak").must_be_caught(Variant::Valgrind, "definitely lost");
}

#[test]
fn asan_sees_a_stray_access() {
    Program::test("control").arg("heap").must_be_caught(Variant::Asan, "heap-buffer-overflow");
}

#[test]
fn asan_sees_a_stray_access_on_the_stack() {
    Program::test("control").arg("stack").must_be_caught(Variant::Asan, "stack-buffer-overflow");
}

#[test]
fn asan_sees_a_leak() {
    Program::test("control").arg("leak").must_be_caught(Variant::Asan, "detected memory leaks");
}

/// The control of `behaviour_46_and_behaviour_47_no_hip_call_at_exit`.
#[test]
fn a_hip_call_at_exit_would_be_seen() {
    const SIGTRAP: i32 = 5;
    let outcome = trapped("trap_works").outcome(Variant::Plain);
    assert!(outcome.status.signal() == Some(SIGTRAP), "{outcome}");
}

#[test]
fn a_signal_that_ends_the_process_ends_it() {
    const SIGTERM: i32 = 15;
    let outcome = Program::test("lifecycle").arg("killed").outcome(Variant::Plain);
    assert!(outcome.status.signal() == Some(SIGTERM) && outcome.stdout.contains("OK"), "{outcome}");
}

/// The last ROCm that numbers memory types in another way, as Debian packages it.
#[test]
fn a_runtime_older_than_rocm_6_is_refused() {
    const OLD: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5";
    if !Path::new(OLD).exists() {
        return harness::skip(
            "runtime from before ROCm 6",
            "no libamdhip64.so.5 here; Debian has it as libamdhip64-5",
        );
    }
    Program::test("no_runtime")
        .arg("old")
        .without_runtime()
        .env("HIPFILE_HIP_LIBRARY", OLD)
        .run(Variant::Plain);
}

/// Everything at once, with numbers that are right and wrong, ended at a moment of its own, in each way a process ends. In a long
/// run a thousand of them.
#[test]
fn random_calls_by_threads_end_with_their_process() {
    const ENDS: [&str; 5] = ["main", "_exit", "quick_exit", "exit", "signal"];
    const ENGINES: [&str; 4] = ["p2p,uring,bounce", "uring,bounce", "bounce", "p2p"];
    let long = std::env::var("HIPFILE_TEST_OPS").ok().and_then(|n| n.parse::<u64>().ok());
    let rounds = long.map_or(10, |operations| (operations / 1000).clamp(10, 1000));
    let first = u64::from(std::process::id()) * 1000;
    for round in 0..rounds {
        let (seed, milliseconds) = (first + round, 20 + round * 97 % 400);
        let program = Program::test("chaos")
            .arg(seed.to_string())
            .arg(milliseconds.to_string())
            .arg(ENDS[(round % 5) as usize])
            .env("HIPFILE_ENGINES", ENGINES[(round % 4) as usize])
            .env("HIPFILE_LOG_LEVEL", "off")
            .ends_with(42);
        program.run(Variant::Plain);
    }
}

/// Without the arguments it needs, an example explains them and fails.
#[test]
fn examples_explain_their_arguments() {
    for name in ["bufregister_write", "iterative_read", "roundtrip_verify", "error_handling"] {
        let outcome = Program::example(name).outcome(Variant::Plain);
        assert!(outcome.status.code() == Some(2) && outcome.stderr.starts_with("usage: "), "{outcome}");
    }
}
