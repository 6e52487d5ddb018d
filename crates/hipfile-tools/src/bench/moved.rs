//! How the library moved the bytes of a run: by engine, and why some were staged. Differences of its counters, nothing else.

use hipfile::Stats;
use serde::Serialize;

use super::contender::Ready;

/// Bytes and operations under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Share {
    pub(super) name: String,
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

/// What the driver counted; empty for contenders that have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Moved {
    /// By engine.
    pub(super) engines: Vec<Share>,
    /// Staged through host memory, by reason.
    pub(super) staged: Vec<Share>,
}

impl Moved {
    /// The counters of a contender up to now.
    pub(super) fn of(ready: &Ready) -> Moved {
        match ready {
            Ready::Calls { driver: Some(driver), .. }
            | Ready::Batch { driver, .. }
            | Ready::Streams { driver, .. } => Moved::from(&driver.stats()),
            _ => Moved::default(),
        }
    }

    /// What was added to an earlier state.
    pub(super) fn since(&self, before: &Moved) -> Moved {
        Moved {
            engines: difference(&self.engines, &before.engines),
            staged: difference(&self.staged, &before.staged),
        }
    }

    /// Both together.
    pub(super) fn add(&mut self, other: &Moved) {
        add(&mut self.engines, &other.engines);
        add(&mut self.staged, &other.staged);
    }
}

impl From<&Stats> for Moved {
    fn from(stats: &Stats) -> Moved {
        let engine = |stats: &hipfile::EngineStats| Share {
            name: stats.engine.to_owned(),
            operations: stats.operations,
            bytes: stats.bytes,
        };
        let reason = |stats: &hipfile::ReasonStats| Share {
            name: stats.reason.word().to_owned(),
            operations: stats.operations,
            bytes: stats.bytes,
        };
        let mut moved = Moved::default();
        add(&mut moved.engines, &stats.read.iter().chain(&stats.write).map(engine).collect::<Vec<_>>());
        add(
            &mut moved.staged,
            &stats.read_staged.iter().chain(&stats.write_staged).map(reason).collect::<Vec<_>>(),
        );
        moved
    }
}

fn difference(now: &[Share], before: &[Share]) -> Vec<Share> {
    let old = |name: &str| {
        before.iter().find(|share| share.name == name).map_or((0, 0), |s| (s.operations, s.bytes))
    };
    now.iter()
        .map(|share| {
            let (operations, bytes) = old(&share.name);
            Share {
                name: share.name.clone(),
                operations: share.operations - operations,
                bytes: share.bytes - bytes,
            }
        })
        .filter(|share| (share.operations, share.bytes) != (0, 0))
        .collect()
}

fn add(to: &mut Vec<Share>, more: &[Share]) {
    for share in more {
        match to.iter_mut().find(|known| known.name == share.name) {
            Some(known) => {
                known.operations += share.operations;
                known.bytes += share.bytes;
            }
            None => to.push(share.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &str, operations: u64, bytes: u64) -> Share {
        Share { name: name.to_owned(), operations, bytes }
    }

    #[test]
    fn a_difference_leaves_out_what_did_not_move() {
        let before = Moved { engines: vec![share("a", 1, 10), share("b", 2, 20)], staged: vec![] };
        let now = Moved {
            engines: vec![share("a", 1, 10), share("b", 3, 25), share("c", 1, 1)],
            staged: vec![share("r", 1, 2)],
        };
        let since = now.since(&before);
        assert_eq!(since.engines, [share("b", 1, 5), share("c", 1, 1)]);
        let mut sum = since.clone();
        sum.add(&since);
        assert_eq!(sum.engines, [share("b", 2, 10), share("c", 2, 2)]);
        assert_eq!(sum.staged, [share("r", 2, 4)]);
    }
}
