//! How the shared library is linked. What it exports needs no script: a Rust cdylib exports the `no_mangle` functions
//! and nothing else (tests/symbols.rs holds that).

#[expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts by environment")]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for argument in [
        // The name that programs built against hipFile ask for.
        "-soname,libhipfile.so.0",
        // Threads of ours, and a fork handler, outlive a dlclose: their code must stay mapped.
        "-z,nodelete",
        "-z,relro",
        "-z,now",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
    // A symbol left open must fail this link, not the program that loads the library. The fuzzer's are in its programs.
    if std::env::var_os("CARGO_CFG_FUZZING").is_none() {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,defs");
    }
}
