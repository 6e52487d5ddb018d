//! The project's automation behind one command, `cargo xtask`. It runs tools and copies files; what the project
//! promises is checked by the tests that it starts, not here (the source rules of `tidy` excepted).
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program for developers: it talks on the terminal and reads the environment of the build"
)]

mod abi;
mod beside;
mod ci;
mod clients;
mod cmd;
mod deep;
mod dist;
mod fuzz;
mod layout;
mod nextest;
mod nightly;
mod objects;
mod package;
mod python;
mod site;
mod steps;
mod tidy;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [--fast] [--list] [STEP...]  check everything, or the named steps; --fast: fmt, tidy, clippy and the tests
  dist [--debug] [--out DIR]      stage the libraries, headers and tools under target/dist (target/dist-debug)
  package                         what others install: an archive, Debian packages, RPMs, a wheel, under target/package
  abi [--bless]                   compare include/*.h with the Rust definitions, the symbol table and the snapshot of the
                                  interface; --bless: take into the snapshot what was added
  clients                         other people's programs on our library and the emulated GPU
  site [--bless]                  the documentation as a site, under target/site; --bless: make docs/reference.md from the headers
  tidy                            the source rules: unsafe list, layers, file sizes, words, links
  deep [--list] [STEP...]         what takes too long for ci: many more random operations (HIPFILE_TEST_OPS), many more
                                  orders of threads (HIPFILE_TEST_ORDERS), every call failing in turn, a soak, a fuzzer, the thread
                                  sanitizer, Miri
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.split_first() {
        Some((&"ci", rest)) => ci::main(rest),
        Some((&"dist", rest)) => dist::main(rest),
        Some((&"package", rest)) => package::main(rest),
        Some((&"abi", rest)) => abi::main(rest),
        Some((&"clients", [])) => clients::run(),
        Some((&"site", rest)) => site::main(rest),
        Some((&"tidy", [])) => tidy::main(),
        Some((&"deep", rest)) => deep::main(rest),
        Some((&("help" | "-h" | "--help"), _)) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
