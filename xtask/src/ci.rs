//! `cargo xtask ci`: everything that must hold before a change lands, in order, stopping at the first failure. Each
//! step can be run alone by its name. What a step checks is in the tests and tools that it starts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cmd::{cargo, cmd};
use crate::nextest::Nextest;
use crate::steps::{self, Step};
use crate::{abi, beside, clients, dist, layout, objects, package, python, site, tidy, tools};

/// In this order. What needs a nightly toolchain (Miri, the thread sanitizer) is in `deep`.
const STEPS: &[Step] = &[
    Step {
        name: "tools",
        what: "what the other steps need beyond the toolchain",
        fast: false,
        run: tools::ensure_all,
    },
    Step { name: "fmt", what: "formatting", fast: true, run: fmt },
    Step { name: "tidy", what: "the source rules", fast: true, run: tidy::main },
    Step { name: "clippy", what: "lints, none allowed", fast: true, run: clippy },
    Step { name: "build", what: "everything, unoptimized", fast: false, run: build },
    Step { name: "dist-debug", what: "the staged tree that tests use", fast: true, run: dist_debug },
    Step { name: "micro", what: "the micro-benchmarks, for a moment each", fast: false, run: micro },
    Step { name: "doctest", what: "examples in the documentation", fast: false, run: doctest },
    Step { name: "doc", what: "the documentation builds without a warning", fast: false, run: doc },
    Step {
        name: "site",
        what: "the documentation as a site: its links, and the code in it",
        fast: false,
        run: site::run,
    },
    Step { name: "deny", what: "licences, sources and duplicates of dependencies", fast: false, run: deny },
    Step { name: "test", what: "the tests, but those of the next steps", fast: true, run: test },
    Step {
        name: "objects",
        what: "object stores: against an S3 server, and in none of the usual builds",
        fast: false,
        run: objects::run,
    },
    Step {
        name: "cuda",
        what: "the behaviour suite on the emulated GPU under CUDA's functions",
        fast: false,
        run: cuda,
    },
    Step { name: "abi", what: "the C headers against Rust and the symbol table", fast: true, run: abi::run },
    Step {
        name: "c",
        what: "C programs: plain, under valgrind, with the address sanitizer",
        fast: false,
        run: c_tests,
    },
    Step {
        name: "python",
        what: "the Python package from its wheel, by the oldest and the newest Python",
        fast: false,
        run: python::run,
    },
    Step {
        name: "clients",
        what: "other people's programs on our library: fastsafetensors, AMD's bindings",
        fast: false,
        run: clients::run,
    },
    Step {
        name: "beside",
        what: "starts what runs beside the steps that follow, which compile",
        fast: false,
        run: beside::start,
    },
    Step { name: "referee", what: "the HIP table against the oldest bindings", fast: false, run: referee },
    Step { name: "publish", what: "the crates as they would be published", fast: false, run: publish },
    Step { name: "package", what: "what others install", fast: false, run: packages },
    Step { name: "readme", what: "the first command of README.md", fast: false, run: readme },
    Step { name: "examples", what: "the example programs, built and run", fast: false, run: examples },
    Step {
        name: "soak",
        what: "what ran beside: two minutes of mixed work, ten seconds of hostile input for each reader",
        fast: false,
        run: beside::collect,
    },
];

/// The command line of `cargo xtask ci`.
///
/// # Errors
/// A wrong argument, or the first step that failed.
pub(crate) fn main(args: &[&str]) -> Result<(), String> {
    steps::main("ci", STEPS, args)
}

fn fmt() -> Result<(), String> {
    cargo().words("fmt --all --check").run()
}

fn clippy() -> Result<(), String> {
    cargo()
        .words("clippy --locked --workspace --all-targets --features hipfile/bench-hooks -- -D warnings")
        .run()
}

/// Without `--bench` they only show that they run.
fn micro() -> Result<(), String> {
    cargo().words("test --locked -p hipfile --features bench-hooks --bench micro").run()
}

fn build() -> Result<(), String> {
    cargo().words("build --locked --workspace --all-targets").run()
}

fn dist_debug() -> Result<(), String> {
    dist::stage(true, None).map(|_| ())
}

/// What can be published, in any order: cargo finds the right one. Nothing is sent, and nothing built again.
fn publish() -> Result<(), String> {
    let crates =
        ["gpu-sys", "hip-emu", "hipfile", "libhipfile", "bench-support", "hipfile-object", "hipfile-tools"];
    let dry = cargo().words("publish --dry-run --no-verify --locked --allow-dirty");
    crates.iter().fold(dry, |dry, name| dry.arg("--package").arg(name)).run()
}

fn packages() -> Result<(), String> {
    let made = package::run()?;
    Nextest::new()
        .test_binary("xtask", "packages")
        .env("HIPFILE_TEST_PACKAGES", &made.to_string_lossy())
        .run()
}

fn doctest() -> Result<(), String> {
    cargo().words("test --locked --workspace --doc").run()
}

fn doc() -> Result<(), String> {
    cargo().words("doc --locked --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings").run()
}

const C_PROGRAMS: &str = "package(libhipfile) and binary(=c_programs)";

fn test() -> Result<(), String> {
    let elsewhere = format!("({}) or ({C_PROGRAMS}) or ({})", abi::FILTER, objects::FILTER);
    Nextest::new().filter(&format!("not ({elsewhere})")).staged().run()
}

/// Whatever a device has a part in; of the models those that differ by it, on one file system.
const ON_CUDA: &str = "package(hipfile) and binary(=it) and not test(/^suite::(documents|files|lifecycle)/) and \
    (not test(/^model_/) or test(/^model_(bounce|uring_auto|uring_direct|streams|streams_staged|batch_direct)::here/))";

fn cuda() -> Result<(), String> {
    Nextest::new().filter(ON_CUDA).staged().env("HIPFILE_TEST_DEVICE", "emulated-cuda").run()
}

fn c_tests() -> Result<(), String> {
    Nextest::new().filter(C_PROGRAMS).staged().run()
}

/// The bindings crate picks its ROCm version when it is built, by asking the `hipconfig` it finds on `PATH`. A build
/// folder of its own keeps the two answers apart.
fn referee() -> Result<(), String> {
    let fake = layout::root().join("crates/gpu-sys/tests/fake-rocm-6.2");
    let mut path = vec![fake];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path).map_err(|e| format!("PATH: {e}"))?;
    Nextest::new()
        .test_binary("gpu-sys", "referee")
        .target(layout::target().join("referee-6.2"))
        .staged()
        .env("PATH", &path.to_string_lossy())
        .run()
}

/// The database of known faults is not part of the checkout, and machines that build may not reach it: it is used
/// where somebody fetched it (`cargo deny fetch db`), and never fetched here.
fn deny() -> Result<(), String> {
    tools::tool("deny")?.words("--locked check bans licenses sources").run()?;
    if tools::has_advisories() {
        tools::tool("deny")?.words("--offline check advisories").run()
    } else {
        println!(
            "SKIP: known faults of dependencies: the database is not on this machine (cargo deny fetch db)"
        );
        Ok(())
    }
}

/// A folder under the build folder, empty.
fn scratch(name: &str) -> Result<PathBuf, String> {
    let dir = layout::target().join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

fn readme() -> Result<(), String> {
    // Of the build that users make; clippy looks at the other one.
    let told = cargo().words("build --locked --release --message-format json").output()?;
    if told.contains(r#""level":"warning""#) {
        return Err("the release build warns".to_owned());
    }
    let dir = scratch("readme")?;
    let (source, copy) = (dir.join("source"), dir.join("copy"));
    // Above one chunk, and no multiple of any block size.
    let bytes: Vec<u8> = (0..33_333_333_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&source, &bytes).map_err(|e| format!("{}: {e}", source.display()))?;
    cargo().words("run --locked --release -- copy").arg(&source).arg(&copy).run()?;
    let copied = fs::read(&copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    if copied == bytes {
        Ok(())
    } else {
        Err(format!("{} is no copy of {}", copy.display(), source.display()))
    }
}

fn examples() -> Result<(), String> {
    let dist = package::tree()?;
    let dir = scratch("examples")?;
    // At their place in the tree, they find the rest of it by themselves.
    let examples = Path::new("share/doc/hipfile/examples/c");
    let home = dir.join("tree").join(examples);
    cmd("mkdir").arg("-p").arg(&home).run()?;
    cmd("cp").arg("-R").arg(dist.join(examples).join(".")).arg(&home).run()?;
    cmd("ln").arg("-s").arg(dist.join("include")).arg(dist.join("lib")).arg(dir.join("tree")).run()?;
    cmd("make").arg("-C").arg(&home).arg("CFLAGS=-O2 -g -Wall -Wextra -Werror").arg("check").run()?;
    let rust = |name: &str, files: &[&str]| {
        let run = cargo().env("HIPFILE_DEVICE", "emulated");
        let run = run.words("run --locked --release --package hipfile --example").arg(name).arg("--");
        files.iter().fold(run, |run, file| run.arg(dir.join(file))).run()
    };
    rust("roundtrip", &["created", "copied"])?;
    rust("batch", &["batch"])?;
    rust("stream", &["stream"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_chosen_by_name() {
        steps::tests::check("ci", STEPS);
    }
}
