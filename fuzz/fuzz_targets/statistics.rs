//! See `crates/hipfile-hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    hipfile_hostile::target("statistics").expect("a target of this name")(input);
});
