//! The duty to say once how a piece of queued work ended. It knows nothing of what the work is.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// How queued work ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It ran.
    Done(Result<usize>),
    /// It never started.
    Canceled,
    /// It had not started when its time was over.
    TimedOut,
}

/// Who is told.
pub(crate) trait Complete: Send + Sync {
    /// Work ended; called exactly once for each ticket, from any thread. `tag` is the ticket's.
    fn complete(&self, tag: u64, ending: Ending);

    /// An engine was given the work, or a part of it.
    fn reached(&self, tag: u64, engine: u8) {
        let _ = (tag, engine);
    }
}

/// One piece of work's duty to tell. Dropped without having told, it tells of an internal error: nobody waits for
/// ever for work that was lost.
pub(crate) struct Ticket {
    told: Option<Arc<dyn Complete>>,
    tag: u64,
}

impl Ticket {
    pub(crate) fn new(told: Arc<dyn Complete>, tag: u64) -> Ticket {
        Ticket { told: Some(told), tag }
    }

    /// Tells that an engine was given the work.
    pub(crate) fn reached(&self, engine: u8) {
        if let Some(told) = &self.told {
            told.reached(self.tag, engine);
        }
    }

    /// Tells how the work ended.
    pub(crate) fn complete(mut self, ending: Ending) {
        if let Some(told) = self.told.take() {
            told.complete(self.tag, ending);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(told) = self.told.take() {
            let lost = Error::message(ErrorKind::InternalError, "queued work", "it was given up unfinished");
            told.complete(self.tag, Ending::Done(Err(lost)));
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("tag", &self.tag).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[derive(Default)]
    struct Ledger(Mutex<Vec<(u64, Ending)>>);

    impl Complete for Ledger {
        fn complete(&self, tag: u64, ending: Ending) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((tag, ending));
        }
    }

    #[test]
    fn each_ticket_tells_exactly_once() {
        let ledger = Arc::new(Ledger::default());
        let ticket = |tag| Ticket::new(Arc::clone(&ledger) as Arc<dyn Complete>, tag);
        ticket(1).complete(Ending::Done(Ok(7)));
        ticket(2).complete(Ending::Canceled);
        drop(ticket(3));
        let lost = ticket(4);
        let unwound = std::panic::AssertUnwindSafe(move || {
            let _lost = lost;
            panic!("the work fails");
        });
        assert!(std::panic::catch_unwind(unwound).is_err());
        let told = ledger.0.lock().unwrap();
        assert_eq!(told.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(matches!(told[0].1, Ending::Done(Ok(7))));
        assert!(matches!(told[1].1, Ending::Canceled));
        for (_, ending) in &told[2..] {
            assert!(matches!(ending, Ending::Done(Err(e)) if e.kind() == ErrorKind::InternalError));
        }
    }
}
