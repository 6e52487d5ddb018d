//! The loader against real shared libraries, made by `cc` for each case. Every case runs in a process of its own,
//! because what a process has loaded stays loaded.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test program, helpers included"
)]

mod amd_file;
mod debian;
mod emulated;
mod load;
mod probe;
mod stub;
