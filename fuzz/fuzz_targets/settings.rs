//! Configuration files and environments: whatever stands in them, there is a configuration, and a driver opens with it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let (file, variables) = input.split_at(input.len() / 2);
    hipfile::fuzz_hooks::settings(file, variables);
});
