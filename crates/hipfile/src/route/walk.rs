//! The state of one transfer on its way from engine to engine. It decides nothing.

use crate::error::Error;
use crate::reason::Reason;

/// How far a transfer has got, and what was learnt on the way.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(super) done: usize,
    /// Engines that are not asked any more.
    pub(super) excluded: u8,
    /// Engines that have counted this transfer as an operation of theirs.
    pub(super) counted: u8,
    /// Whether the page cache may no longer be gone around.
    pub(super) through_cache: bool,
    /// Why the rest is no longer carried direct, once that is so.
    pub(super) given_up: Option<Reason>,
    pub(super) failure: Option<(&'static str, Error)>,
    /// Whether it takes part in the comparison of the two ways; `None` before that was asked.
    pub(super) paced: Option<bool>,
    /// Whether all of it is staged, whatever direct engines say by now.
    pub(super) staged_only: bool,
}

impl Walk {
    /// Of a transfer for which everything was made ready to be staged, because no direct engine could have a part in it.
    pub(crate) fn staged() -> Walk {
        Walk { staged_only: true, ..Walk::default() }
    }

    /// The rest is staged.
    pub(crate) fn goes_on_staged(&mut self) {
        self.staged_only = true;
    }

    /// Whether it went direct, if it is one to be compared and went one way as it was to.
    pub(super) fn went(&self) -> Option<bool> {
        match (self.paced, &self.failure, self.given_up) {
            (Some(true), None, None) => Some(true),
            (Some(true), None, Some(Reason::Trial | Reason::Slower)) => Some(false),
            _ => None,
        }
    }

    /// The walk of a part of a transfer, whose first part counts it.
    pub(crate) fn of_part(first: bool) -> Walk {
        Walk { counted: if first { 0 } else { u8::MAX }, ..Walk::staged() }
    }

    /// Whether nothing was tried yet.
    pub(crate) fn is_new(&self) -> bool {
        self.paced.is_none()
    }

    /// Bytes of the unbroken prefix that moved.
    pub(crate) fn done(&self) -> usize {
        self.done
    }
}
