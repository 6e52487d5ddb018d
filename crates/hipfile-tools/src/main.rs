//! The `hipfile` command: finds the tool, runs it, prints its one line of error. What a tool does is in the tool's own file.
//!
//! A tool is one file with a type of arguments that implements [`Tool`], and one line in [`TOOLS`]. Exit status: 0 done,
//! 1 failed (one line on standard error says what and why), 2 the command line was wrong. Called by the name of one of
//! AMD's tools (`aiscp`), it is that tool, and answers a wrong command line with 1 as they do.
#![deny(unsafe_code)]

mod bench;
mod check;
mod copy;
mod device;
mod extents;
mod failure;
mod generate;
mod occupied;
mod progress;
mod scratch;
mod standard;
mod stats;
mod units;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{ArgMatches, Command};
use failure::Failure;

/// One subcommand: arguments that can be run. The first line of its documentation is its line in `hipfile --help`.
trait Tool: clap::Args {
    /// Whether it prints something on success. Then it is not begun where that would be lost.
    fn prints(&self) -> bool {
        true
    }

    /// Does the work. Everything it has to say on success it has said when it returns.
    fn run(self) -> Result<(), Failure>;
}

/// A row of the list of tools.
struct Entry {
    /// The subcommand.
    name: &'static str,
    /// The name of AMD's tool that it also answers to; empty if there is none.
    amd_name: &'static str,
    arguments: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<(), Failure>,
    /// Whether it is left out of `hipfile --help`: it is for who packages, not for users.
    hidden: bool,
}

impl Entry {
    fn command(&self, name: &'static str) -> Command {
        (self.arguments)(Command::new(name)).hide(self.hidden)
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

const TOOLS: &[Entry] = &[
    entry::<copy::Copy>("copy", "aiscp"),
    entry::<check::Check>("check", "ais-check"),
    entry::<stats::Stats>("stats", "ais-stats"),
    entry::<bench::Bench>("bench", ""),
    entry::<bench::Tune>("tune", ""),
    Entry { hidden: true, ..entry::<generate::Generate>("generate", "") },
];

const fn entry<T: Tool>(name: &'static str, amd_name: &'static str) -> Entry {
    Entry { name, amd_name, arguments: T::augment_args, run: run_tool::<T>, hidden: false }
}

fn run_tool<T: Tool>(matches: &ArgMatches) -> Result<(), Failure> {
    // The matches come from T's own definition, so this fails only if clap contradicts itself.
    let tool = T::from_arg_matches(matches).map_err(|error| Failure::new("arguments", error))?;
    if tool.prints() {
        standard::check()?;
    }
    tool.run()
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_name);
    let amd = TOOLS.iter().find(|tool| called == Some(OsStr::new(tool.amd_name)));
    let (command, usage_status) = match amd {
        Some(tool) => (tool.command(tool.amd_name).version(VERSION), 1),
        None => (command_line(TOOLS), 2),
    };
    let matches = match command.try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => return usage(&error, usage_status),
    };
    if let Some(tool) = amd {
        return finish(tool.amd_name.to_owned(), tool, &matches);
    }
    for tool in TOOLS {
        if let Some(matches) = matches.subcommand_matches(tool.name) {
            return finish(format!("hipfile: {}", tool.name), tool, matches);
        }
    }
    // A subcommand is required and only tools are subcommands.
    ExitCode::from(usage_status)
}

fn command_line<'a>(tools: impl IntoIterator<Item = &'a Entry>) -> Command {
    let root = Command::new("hipfile")
        .version(VERSION)
        .about("Moves data between files and the memory of a GPU")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true);
    tools.into_iter().fold(root, |root, tool| root.subcommand(tool.command(tool.name)))
}

/// Runs a tool; `prefix` begins each line that it writes to standard error.
fn finish(prefix: String, tool: &Entry, matches: &ArgMatches) -> ExitCode {
    failure::set_prefix(prefix);
    let outcome = scratch::watch_signals()
        .map_err(|error| Failure::new("signal handlers", error))
        .and_then(|()| (tool.run)(matches));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                failure::note(&failure);
            }
            ExitCode::FAILURE
        }
    }
}

/// Prints help, the version, or what is wrong with the command line. Only the last is an error, if the others can be printed.
fn usage(error: &clap::Error, status: u8) -> ExitCode {
    if error.use_stderr() {
        // Nobody is left to tell when even this cannot be written.
        let _ = error.print();
        return ExitCode::from(status);
    }
    let print = || error.print().map_err(|error| Failure::new("standard output", error));
    match standard::check().and_then(|()| print()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure::note(failure);
            ExitCode::FAILURE
        }
    }
}
