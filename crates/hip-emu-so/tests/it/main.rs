//! The emulated runtime as C programs meet it: its headers against the Rust side and HIP's own numbers, its exported
//! names, and C programs that run on it.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test program, helpers included")]

#[path = "../../../gpu-sys/tests/referee/bindings.rs"]
#[allow(dead_code, reason = "the referee uses all of it")]
mod bindings;
mod cc;
mod header;
mod layout;
mod numbers;
#[path = "../../../gpu-sys/tests/support/packages.rs"]
mod packages;
mod programs;
mod prototypes;
mod symbols;
