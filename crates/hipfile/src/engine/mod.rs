//! What carries a transfer, and the list of those that can. An engine checks no request and names no other engine.
//!
//! To add an engine: copy `null.rs`, add one line to [`ENGINES`] and its name to the configuration's list, one row to
//! the behaviour suite, one section to `docs/engines.md`.

mod bounce;
mod null;

use std::sync::Arc;

use crate::block::BlockPool;
use crate::config::Config;
use crate::error::Error;
use crate::transfer::Transfer;

/// Moves bytes between a file and memory. One transfer is independent of every other.
pub(crate) trait Engine: Send + Sync + std::fmt::Debug {
    /// Its name, after its mechanism.
    fn name(&self) -> &'static str;

    /// How well it suits this transfer; `None` when it cannot carry it.
    fn rank(&self, transfer: &Transfer<'_>) -> Option<u8>;

    /// Carries the transfer out on this thread.
    fn run(&self, transfer: &Transfer<'_>) -> Outcome;
}

/// Engines below this rank stage through host memory; from it on they are direct.
pub(crate) const DIRECT_RANK: u8 = 100;

/// What a run came to: the bytes of the unbroken prefix that moved, and the error that stopped it, if one did. Fewer
/// bytes than asked for and no error means end of file.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) moved: usize,
    pub(crate) error: Option<Error>,
}

impl Outcome {
    pub(crate) fn done(moved: usize) -> Outcome {
        Outcome { moved, error: None }
    }

    pub(crate) fn stopped(moved: usize, error: Error) -> Outcome {
        Outcome {
            moved,
            error: Some(error),
        }
    }
}

/// What engines are made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) blocks: Arc<BlockPool>,
    pub(crate) config: Config,
}

type Constructor = fn(&Parts) -> Box<dyn Engine>;

/// Every engine, by name. The place in this list is the engine's index in counters.
pub(crate) const ENGINES: &[(&str, Constructor)] = &[("bounce", bounce::new), ("null", null::new)];

/// The engines' names, in order of their index.
pub(crate) const NAMES: [&str; ENGINES.len()] = {
    let mut names = [""; ENGINES.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = ENGINES[i].0;
        i += 1;
    }
    names
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_agrees_with_configuration_and_counters() {
        assert_eq!(NAMES.as_slice(), crate::config::ENGINE_NAMES);
        assert!(ENGINES.len() <= crate::stats::MAX_ENGINES);
        let parts = Parts {
            blocks: BlockPool::new(1 << 16, 1 << 16),
            config: Config::default(),
        };
        for (name, new) in ENGINES {
            assert_eq!(new(&parts).name(), *name);
        }
    }
}
