//! The behaviour suite: what the library does, stamped over devices and engines. Unit tests stand beside the code.
//!
//! The emulated GPU and the driver's settings are process-wide, so the suite relies on a runner that gives each test a
//! process of its own (cargo-nextest).
#![allow(clippy::disallowed_methods, reason = "tests read and set the environment")]

mod support;

/// One module of behaviours per engine; the engines are the rows.
macro_rules! over_engines {
    ($($row:ident),* $(,)?) => { $(
        mod $row {
            const ENGINES: &[&str] = &[stringify!($row)];
            mod model {
                use crate::support::{Storage, model};
                #[test]
                fn here() { model::run(super::ENGINES, Storage::here()); }
                #[test]
                fn on_ext4() { Storage::ext4(&[]).map(|s| model::run(super::ENGINES, s)); }
                #[test]
                fn on_xfs() { Storage::xfs().map(|s| model::run(super::ENGINES, s)); }
                #[test]
                fn on_tmpfs() { Storage::tmpfs().map(|s| model::run(super::ENGINES, s)); }
            }
        }
    )* };
}

over_engines!(bounce);

mod suite {
    mod buffers;
    mod documents;
    mod faults;
    mod files;
    mod lifecycle;
}
