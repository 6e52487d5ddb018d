//! `cargo xtask deep`: what takes longer than `ci` has time for, in steps like its own. What a step checks is in the tests
//! that it starts.

use crate::cmd::{cargo, cmd};
use crate::nextest::Nextest;
use crate::steps::{self, Step};
use crate::{layout, nightly, objects, package};

const STEPS: &[Step] = &[
    Step { name: "random", what: "tests that draw operations, a million each", fast: false, run: random },
    Step { name: "orders", what: "threads in half a million orders of steps", fast: false, run: orders },
    Step {
        name: "faults",
        what: "every system call and every GPU call failing in turn",
        fast: false,
        run: faults,
    },
    Step {
        name: "soak",
        what: "half an hour of mixed work, every byte checked, with faults",
        fast: false,
        run: soak,
    },
    Step {
        name: "objects",
        what: "an object of 1 GiB through a network that loses requests",
        fast: false,
        run: objects::large,
    },
    Step {
        name: "reproduce",
        what: "packages of two clones, the same byte for byte",
        fast: false,
        run: package::again::reproduce,
    },
    Step {
        name: "offline",
        what: "what is shipped, built without a network",
        fast: false,
        run: package::again::offline,
    },
    Step { name: "fuzz", what: "hostile input, an hour for each reader of it", fast: false, run: fuzz },
    Step { name: "aarch64", what: "that everything shipped compiles for aarch64", fast: false, run: aarch64 },
    Step { name: "tsan", what: "tests of threads under the thread sanitizer", fast: false, run: tsan },
    Step { name: "miri", what: "the modules that call no system, under Miri", fast: false, run: miri },
];

/// The command line of `cargo xtask deep`.
///
/// # Errors
/// A wrong argument, or the first step that failed.
pub(crate) fn main(args: &[&str]) -> Result<(), String> {
    steps::main("deep", STEPS, args)
}

fn setting(variable: &str, usual: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| usual.to_owned())
}

/// Every test whose name says that it draws operations or compares with a model.
fn random() -> Result<(), String> {
    let operations = setting("HIPFILE_TEST_OPS", "1000000");
    crate::dist::stage(true, None)?;
    let tests = Nextest::new().profile("deep").filter("test(/random|model/)").staged();
    tests.env("HIPFILE_TEST_OPS", &operations).run()
}

fn orders() -> Result<(), String> {
    let orders = setting("HIPFILE_TEST_ORDERS", "500000");
    let tests = Nextest::new().profile("deep").test_binary("hipfile-model", "it");
    tests.env("HIPFILE_TEST_ORDERS", &orders).run()
}

/// The whole table of which `ci` runs a sample; or one part of it after the other, by `HIPFILE_TEST_FAULTS=1/8` and so on.
fn faults() -> Result<(), String> {
    Nextest::new()
        .profile("deep")
        .test_binary("hipfile", "it")
        .filter("test(suite::fault_matrix)")
        .env("HIPFILE_TEST_FAULTS", &setting("HIPFILE_TEST_FAULTS", "all"))
        .run()
}

/// Nobody has run it there; that it compiles is all that is said of it.
fn aarch64() -> Result<(), String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    if let Err(why) = cmd("rustup").words("target add").arg(TARGET).run() {
        println!("SKIP: aarch64: the compiler has no library for it: {why}");
        return Ok(());
    }
    cargo()
        .words("check --locked -p libhipfile -p hipfile-tools -p hip-emu-so -p hip-emu-rtc-so --target")
        .arg(TARGET)
        .run()
}

fn soak() -> Result<(), String> {
    let seconds = setting("HIPFILE_TEST_SOAK", "1800");
    let tests = Nextest::new().profile("deep").test_binary("hipfile-tools", "it");
    tests
        .filter("test(soak) or test(killed_at_any_moment)")
        .env("HIPFILE_TEST_SOAK", &seconds)
        .env("HIPFILE_TEST_KILLS", "1000")
        .run()?;
    // As many processes and threads as users had, for a minute.
    let crowd = Nextest::new().profile("deep").test_binary("hipfile", "it").filter("test(behaviour_65_)");
    crowd.env("HIPFILE_TEST_OPS", "1000").run()
}

fn fuzz() -> Result<(), String> {
    let seconds = setting("HIPFILE_TEST_FUZZ", "3600");
    let seconds = seconds.parse().map_err(|_| format!("HIPFILE_TEST_FUZZ={seconds}: seconds are needed"));
    crate::fuzz::run(seconds?)
}

/// Tests in which threads meet. Left out are those that fork or forbid system calls, which the sanitizer does not survive,
/// those of one thread, which it has nothing to say about, and the one that shows what happens without an order.
const THREADS: &str = "(binary(it) and (test(/suite::(batches|batch_rules|streams|streams_ahead|streams_aside|streams_many|stream_rules|lifecycle|statistics|statistics_shown)::/) \
                       or test(/model_(uring_auto|batch|streams)::here/)) and not test(/fork|other_users|memory_a_batch|large_as_one|behaviour_61/)) \
                       or (kind(lib) and test(/^(aside|block|pool|workers|turns|usage|ticket|desk|registry|rangemap|stats|health)::/))";

/// The standard library too is built with the sanitizer, or its locks would not be understood. Nothing is suppressed.
fn tsan() -> Result<(), String> {
    let Some(nightly) = nightly::with_component("thread sanitizer", "rust-src") else { return Ok(()) };
    Nextest::new()
        .profile("deep")
        .with(nightly, "-Zbuild-std --target", "--package hipfile --lib --test it")
        .target(layout::target().join("tsan"))
        .filter(THREADS)
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("TSAN_OPTIONS", "halt_on_error=1 second_deadlock_stack=1")
        .env("HIPFILE_TEST_OPS", &setting("HIPFILE_TEST_OPS", "1000"))
        .run()
}

/// Miri knows neither the emulated GPU's memory tricks nor io_uring: what it can run is what computes.
fn miri() -> Result<(), String> {
    let Some(nightly) = nightly::with_component("Miri", "miri") else { return Ok(()) };
    nightly
        .cargo()
        .env("CARGO_TARGET_DIR", layout::target().join("miri"))
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .words("miri test --locked --package hipfile --lib --")
        .words("desk:: slots:: ticket:: usage:: rangemap:: registry:: error::")
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name() {
        steps::tests::check("deep", STEPS);
    }
}
