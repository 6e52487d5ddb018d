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

    /// Several pieces of work ended well, by their tags and how much each moved.
    fn complete_all(&self, moved: &mut dyn Iterator<Item = (u64, usize)>) {
        moved.for_each(|(tag, moved)| self.complete(tag, Ending::Done(Ok(moved))));
    }

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

    /// What tells it from the others of whom it tells.
    pub(crate) fn tag(&self) -> u64 {
        self.tag
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

/// Has tickets of one desk tell together how much their work moved. Of tickets of several desks each tells its own.
pub(crate) fn complete_all(tickets: &mut Vec<(Ticket, usize)>) {
    while let Some(told) = tickets.first_mut().and_then(|(first, _)| first.told.take()) {
        let same = tickets
            .iter()
            .position(|(ticket, _)| ticket.told.as_ref().is_some_and(|other| !Arc::ptr_eq(other, &told)));
        let mut mine = tickets.drain(..same.unwrap_or(tickets.len()));
        told.complete_all(&mut mine.by_ref().map(|(mut ticket, moved)| {
            ticket.told = None;
            (ticket.tag, moved)
        }));
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
    fn tickets_of_several_desks_each_tell_their_own() {
        let ledgers = [Arc::new(Ledger::default()), Arc::new(Ledger::default())];
        let ticket = |of: usize, tag| (Ticket::new(Arc::clone(&ledgers[of]) as Arc<dyn Complete>, tag), 10);
        let mut tickets = vec![ticket(0, 1), ticket(0, 2), ticket(1, 3), ticket(0, 4)];
        complete_all(&mut tickets);
        assert!(tickets.is_empty());
        let told = ledgers.map(|ledger| {
            let told = ledger.0.lock().unwrap();
            assert!(told.iter().all(|(_, ending)| matches!(ending, Ending::Done(Ok(10)))));
            told.iter().map(|(tag, _)| *tag).collect::<Vec<_>>()
        });
        assert_eq!(told, [vec![1, 2, 4], vec![3]]);
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
