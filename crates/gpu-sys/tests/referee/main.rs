//! The referee: our HIP table, and the emulated runtime, against bindings that the crate `cubecl-hip-sys` generated
//! from ROCm's own headers. What has a type is compared by the compiler, the rest by tests; then the bindings drive
//! the emulation, as a client that knows nothing of us.
//!
//! A build sees the bindings of one ROCm version, the newest unless `hipconfig` says otherwise; see
//! `tests/fake-rocm-6.2/hipconfig` for the oldest.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test program, helpers included"
)]

mod bindings;
mod client;
mod constants;
mod functions;
#[path = "../support/packages.rs"]
mod packages;
mod same;
mod types;
mod versions;
