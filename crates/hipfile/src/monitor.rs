//! Statistics beyond the driver that counts them: who else may see them. It counts nothing itself.

use std::sync::Arc;

use crate::engine;
use crate::stats::{self, Ledger, Snapshot};

/// Where drivers count. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Statistics {
    ledger: Option<Arc<Ledger>>,
}

impl Statistics {
    /// Nothing counted yet. Without memory for it nothing will be.
    pub fn new() -> Statistics {
        Statistics { ledger: Ledger::new(&engine::NAMES).ok().map(Arc::new) }
    }

    /// Where nothing is counted.
    pub fn none() -> Statistics {
        Statistics { ledger: None }
    }

    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.ledger.as_ref()
    }

    /// What is counted so far. May be called from any thread at any time; takes some microseconds.
    pub fn snapshot(&self) -> Snapshot {
        let page = self.ledger.as_ref().map(|ledger| Snapshot::of(ledger.page().words(), stats::now()));
        match page {
            Some(Ok(snapshot)) => snapshot,
            _ => Snapshot { sampled: 1, ..Snapshot::default() },
        }
    }
}

impl Default for Statistics {
    fn default() -> Statistics {
        Statistics::new()
    }
}
