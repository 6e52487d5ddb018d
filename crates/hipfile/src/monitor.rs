//! Statistics for others to see: where drivers count, who is shown it, and how to look at another process. It counts nothing
//! itself. The pages and how they are handed out are described in docs/statistics.md.

mod report;
mod server;
mod target;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::engine;
use crate::stats::{self, AMD_WORDS, Event, Ledger, Region, Snapshot};
use crate::sys;
pub use report::report;
use server::Server;
pub use target::{Children, Target, Unreachable};

/// Where drivers count. Cheap to clone; all clones are one. With the last one ends the thread that shows it to others.
#[derive(Clone, Debug)]
pub struct Statistics {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    board: Arc<Board>,
    /// Started with the first driver; `None` where it could not be.
    server: OnceLock<Option<Server>>,
    forks: u32,
}

/// What is shown: the page that is counted on, and the one in AMD's layout.
#[derive(Debug)]
struct Board {
    ledger: Arc<Ledger>,
    amd: Option<Region>,
    /// One at a time writes AMD's page.
    turn: Mutex<()>,
    /// Whether anyone may be looking at it.
    looked_at: AtomicBool,
}

impl Board {
    fn snapshot(&self) -> Option<Snapshot> {
        Snapshot::of(self.ledger.page().words(), stats::now()).ok()
    }

    /// Brings AMD's page up to date. The transfers that are on it.
    fn publish(&self) -> u64 {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(amd), Some(snapshot)) = (&self.amd, self.snapshot()) else { return 0 };
        stats::write_amd(amd.words(), &snapshot);
        let sides = snapshot.gpus.iter().flat_map(|gpu| [&gpu.read, &gpu.write]);
        sides.map(|side| side.operations() + side.errors()).sum()
    }

    fn page(&self) -> Option<BorrowedFd<'_>> {
        self.ledger.page().file()
    }

    fn amd_page(&self) -> Option<BorrowedFd<'_>> {
        self.amd.as_ref()?.file()
    }
}

impl Statistics {
    /// Nothing counted yet. Without memory for it nothing will be.
    pub fn new() -> Statistics {
        let shared = Ledger::new(&engine::NAMES).ok().map(|ledger| {
            let amd = Region::new("AISSTATS", AMD_WORDS).ok();
            let board = Board {
                ledger: Arc::new(ledger),
                amd,
                turn: Mutex::new(()),
                looked_at: AtomicBool::new(false),
            };
            Arc::new(Shared { board: Arc::new(board), server: OnceLock::new(), forks: sys::forks() })
        });
        Statistics { shared }
    }

    /// Where nothing is counted.
    pub fn none() -> Statistics {
        Statistics { shared: None }
    }

    /// What it is made of; none in the child of a fork, where the pages are the parent's.
    fn own(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref().filter(|shared| shared.forks == sys::forks())
    }

    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.own().map(|shared| &shared.board.ledger)
    }

    /// Lets others of the same user, and root, look at it from now on. What hinders that costs only that. A driver that is
    /// opened alone does so by itself.
    pub fn serve(&self) {
        if let Some(shared) = self.own() {
            shared.server.get_or_init(|| Server::start(&shared.board));
        }
    }

    /// Brings the page in AMD's layout up to date now, if anyone looks at it; else that happens a few times per second.
    pub fn publish(&self) {
        if let Some(shared) = self.own().filter(|shared| shared.board.looked_at.load(Ordering::Relaxed)) {
            shared.board.publish();
        }
    }

    /// Counts a call about a batch, for those who keep batches by themselves.
    pub fn count_batch(&self, call: BatchCall, ok: bool) {
        let event = match (call, ok) {
            (BatchCall::SetUp, true) => Event::BatchSetUpOk,
            (BatchCall::SetUp, false) => Event::BatchSetUpErr,
            (BatchCall::Cancel, true) => Event::BatchCancelOk,
            (BatchCall::Cancel, false) => Event::BatchCancelErr,
            (BatchCall::Destroy, _) => Event::BatchDestroyOk,
        };
        if let Some(ledger) = self.ledger() {
            ledger.count(event, 1);
        }
    }

    /// What is counted so far; nothing in the child of a fork. May be called from any thread at any time; takes some
    /// microseconds.
    pub fn snapshot(&self) -> Snapshot {
        let snapshot = self.own().and_then(|shared| shared.board.snapshot());
        snapshot.unwrap_or_else(|| Snapshot { sampled: 1, ..Snapshot::default() })
    }
}

/// A call about a batch for which no driver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchCall {
    /// One is made.
    SetUp,
    /// What has not started is canceled.
    Cancel,
    /// One is destroyed.
    Destroy,
}

impl Default for Statistics {
    fn default() -> Statistics {
        Statistics::new()
    }
}
