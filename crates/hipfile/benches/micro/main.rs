//! `cargo bench -p hipfile --features bench-hooks`: what the library costs where nothing is moved, or hardly anything. Nanoseconds
//! on this machine, for comparing lines of one run; whole transfers are measured by `hipfile bench`.
//!
//! Without `--bench` among the arguments, as when a test runner starts it, every case runs for a moment only. Any other argument
//! selects the cases whose names hold it.
#![allow(clippy::print_stdout, reason = "a benchmark's output")]

mod cases;
mod timing;

use timing::Plan;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = match arguments.iter().any(|argument| argument == "--bench") {
        true => Plan::full(),
        false => Plan::moment(),
    };
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    let selected = |name: &str| filter.is_none_or(|filter| name.contains(filter.as_str()));
    cases::all(&plan, &selected)
}
