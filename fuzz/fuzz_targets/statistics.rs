//! Pages of statistics from another process: each is understood or refused, and nobody reads beside it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let [kind, page @ ..] = input {
        hipfile::fuzz_hooks::statistics(page, kind & 1 == 1);
    }
});
