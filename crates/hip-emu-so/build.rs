//! Names the library as AMD's runtime is named, so that programs linked to either run with both.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.7");
    // The emulation's threads run its code until the process ends: unloading it would pull the code away.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
