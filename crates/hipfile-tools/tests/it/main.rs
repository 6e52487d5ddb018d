//! The built `hipfile` command in a folder of its own, on the emulated GPU: what it writes, says and returns. Nothing is called
//! inside the process.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says on standard error what it skips; so do the helpers"
)]

mod attributes;
mod bench;
mod check;
mod command_line;
mod device;
mod endurance;
mod failures;
mod generate;
mod in_place;
mod names;
mod objects;
mod signals;
mod sizes;
mod stats;
mod support;
mod sweeps;
mod terminal;
