//! The `hipfile` command.
fn main() {}
