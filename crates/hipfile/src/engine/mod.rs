//! What carries a transfer, and the list of those that can. An engine checks no request and names no other engine.
//!
//! To add an engine: copy `null.rs`, add one line to [`ENGINES`] and its name to the configuration's list, one row to
//! the behaviour suite, one section to `docs/engines.md`.

mod bounce;
mod chunks;
mod cufile;
mod null;
mod p2p;
mod rdma;
mod uring;
mod userspace;

use std::ops::Range;
use std::sync::Arc;

use crate::block::BlockPool;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::pool::Helpers;
use crate::queued::Source;
use crate::reason::Reason;
use crate::transfer::{Cache, Transfer};

/// Engines below this rank stage through host memory; from it on they are direct.
pub(crate) const DIRECT_RANK: u8 = 100;

/// Moves bytes between a file and memory. One transfer is independent of every other.
pub(crate) trait Engine: Send + Sync + std::fmt::Debug {
    /// Its name, after its mechanism.
    fn name(&self) -> &'static str;

    /// Whether it is an engine that never stages, for whatever it carries.
    fn is_direct(&self) -> bool {
        false
    }

    /// How well it suits this transfer and which part of it it would carry, or why none. Cheap; no system call after
    /// the first on a file.
    fn fit(&self, transfer: &Transfer<'_>) -> Result<Fit, Reason>;

    /// Carries the transfer out on this thread.
    fn run(&self, transfer: &Transfer<'_>) -> Outcome;

    /// Carries a transfer of at most one Block out with the least ado, whole or up to the end of the file. `None` when
    /// it is not that simple; then nothing counts as done, and [`Engine::run`] does it all. An error is the GPU's.
    fn run_small(&self, _transfer: &Transfer<'_>, _cache: Cache) -> Option<Result<usize>> {
        None
    }

    /// Its way to work in a Block that it is given, if it has one.
    fn staging(&self) -> Option<&dyn Staging> {
        None
    }

    /// Its queue for many small transfers at once, if it has one.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }
}

/// The power to stage in memory that it is given, for streams: it takes no Block, waits for no turn, and touches no GPU.
pub(crate) trait Staging {
    /// Reads the transfer's file range into `bytes`, or writes it from there. `bytes` stand for the file from offset
    /// `from` on, which is aligned at least as the file wants; the span is not looked at.
    fn stage(&self, transfer: &Transfer<'_>, bytes: &mut [u8], from: u64) -> Outcome;
}

/// The power to carry many small transfers at once.
pub(crate) trait Queue {
    /// Whether it takes this transfer, treated as its `cache` says.
    fn takes(&self, transfer: &Transfer<'_>) -> bool;

    /// Carries out what the source hands out, on this thread, until it hands out nothing and all is done. Each piece is
    /// given back once.
    fn run(&self, source: &mut dyn Source);
}

/// An engine's offer for a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The highest serves.
    pub(crate) rank: u8,
    /// The part it can carry, never empty; the router gives what is before and after to others.
    pub(crate) body: Range<usize>,
}

impl Fit {
    /// The offer to carry all of it as the last resort: memory of a GPU in stages, the host's in place.
    pub(crate) fn last_resort(transfer: &Transfer<'_>) -> Fit {
        let rank = match transfer.span.place() {
            place if place.is_reached() => DIRECT_RANK,
            _ => 1,
        };
        Fit::whole(rank, transfer)
    }

    /// The offer to carry all of it.
    pub(crate) fn whole(rank: u8, transfer: &Transfer<'_>) -> Fit {
        Fit { rank, body: 0..transfer.len() }
    }
}

/// What a run came to: the bytes of the unbroken prefix that moved, and why it stopped there.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) moved: usize,
    pub(crate) stop: Stop,
}

/// Why a run stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// All is moved, or the file ends here.
    Done,
    /// An error at this place.
    Failed(Error),
    /// The engine cannot go on at this place, and another should.
    Yielded(Reason),
    /// The engine cannot go on at this place, or the file ends here: another, with the same standing, will know.
    Short,
}

impl Outcome {
    pub(crate) fn done(moved: usize) -> Outcome {
        Outcome { moved, stop: Stop::Done }
    }

    pub(crate) fn failed(moved: usize, error: Error) -> Outcome {
        Outcome { moved, stop: Stop::Failed(error) }
    }

    pub(crate) fn short(moved: usize) -> Outcome {
        Outcome { moved, stop: Stop::Short }
    }

    pub(crate) fn yielded(moved: usize, reason: Reason) -> Outcome {
        Outcome { moved, stop: Stop::Yielded(reason) }
    }
}

/// What engines are made from.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) blocks: Arc<BlockPool>,
    pub(crate) helpers: Arc<Helpers>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) config: Config,
}

type Constructor = fn(&Parts) -> Box<dyn Engine>;

/// Every engine, by name. The place in this list is the engine's index in counters.
pub(crate) const ENGINES: &[(&str, Constructor)] = &[
    ("p2p", p2p::new),
    ("uring", uring::new),
    ("bounce", bounce::new),
    ("null", null::new),
    ("userspace", userspace::new),
    ("cufile", cufile::new),
    ("rdma", rdma::new),
];

/// The part of a transfer between multiples of `unit`, in the file and in memory.
///
/// # Errors
/// That there is none.
fn aligned_body(transfer: &Transfer<'_>, unit: u64) -> Result<Range<usize>, Reason> {
    let start = transfer.file_offset;
    let end = start + transfer.len() as u64;
    let (first, last) = (start.next_multiple_of(unit), end - end % unit);
    let congruent = (transfer.span.start() as u64 ^ start).is_multiple_of(unit);
    if first >= last || !congruent {
        return Err(Reason::Alignment);
    }
    Ok((first - start) as usize..(last - start) as usize)
}

/// The kind of a range: the largest power of two that divides all its parts.
fn class(transfer: &Transfer<'_>, body: &Range<usize>) -> u32 {
    let start = body.start as u64;
    let (offset, address) = (transfer.file_offset + start, transfer.span.start() as u64 + start);
    (offset | address | body.len() as u64).trailing_zeros()
}

/// The index of the engine that serves GPUs whose runtime moves files itself.
pub(crate) const P2P: usize = 0;

/// The index of the engine that carries everything.
pub(crate) const LAST_RESORT: usize = 2;

/// The index of the engine that serves files of the program's own file systems, and no others.
pub(crate) const USERSPACE: usize = 4;

/// The index of the engine that serves such files without staging.
pub(crate) const RDMA: usize = 6;

/// The index of the engine that stages by io_uring.
pub(crate) const URING: usize = 1;

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
        assert_eq!((NAMES[LAST_RESORT], NAMES[URING], NAMES[USERSPACE]), ("bounce", "uring", "userspace"));
        assert_eq!(NAMES[P2P], "p2p");
        assert_eq!(NAMES[RDMA], "rdma");
        let parts = Parts {
            blocks: BlockPool::new(1 << 16, 1 << 16, None),
            helpers: Arc::new(Helpers::new(0)),
            limits: Arc::new(Limits::new(&Config::default())),
            config: Config::default(),
        };
        for (name, new) in ENGINES {
            assert_eq!(new(&parts).name(), *name);
        }
    }
}
