//! The behaviour suite: what the library does, stamped over devices and engines. Unit tests stand beside the code.
//!
//! The emulated GPU and the driver's settings are process-wide, so the suite relies on a runner that gives each test a
//! process of its own (cargo-nextest).
#![allow(clippy::disallowed_methods, reason = "tests read and set the environment")]

mod support;

/// One module of behaviours per row: which engines serve, and whether the model test meets faults.
macro_rules! over_engines {
    ($($row:ident: $engines:expr, $faults:expr;)*) => { $(
        mod $row {
            use crate::support::{Storage, model};
            #[test]
            fn here() { model::run(&$engines, $faults, Storage::here()); }
            #[test]
            fn on_ext4() { Storage::ext4(&[]).map(|s| model::run(&$engines, $faults, s)); }
            #[test]
            fn on_xfs() { Storage::xfs().map(|s| model::run(&$engines, $faults, s)); }
            #[test]
            fn on_tmpfs() { Storage::tmpfs().map(|s| model::run(&$engines, $faults, s)); }
        }
    )* };
}

over_engines! {
    model_bounce: ["bounce"], false;
    model_p2p: ["p2p", "bounce"], false;
    model_p2p_with_faults: ["p2p", "bounce"], true;
}

mod suite {
    mod buffers;
    mod direct;
    mod documents;
    mod faults;
    mod files;
    mod lifecycle;
}
