//! Who serves one side of a desk: how many threads do, and how many more are to be sent. It knows no entry, and sends nobody.

use std::time::{Duration, Instant};

use crate::slots::SIDES;
use crate::sync::STUCK;

/// How many threads are sent when those that serve do not come back.
pub(super) const SENT: usize = 16;
/// How many there may be then.
pub(super) const MOST_STUCK: usize = 32;

/// Entries of near storage, which nothing but a broken device keeps waiting, have threads of their own: those of other storage
/// may be kept for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Near,
    Far,
}

impl Side {
    pub(super) const ALL: [Side; SIDES] = [Side::Near, Side::Far];
}

/// Those who serve one side.
#[derive(Clone, Copy)]
pub(super) struct Crew {
    /// Threads that serve, or will.
    pub(super) serving: usize,
    /// Those of them that are at storage that hangs, as far as is known.
    pub(super) stuck: usize,
    /// When the last event of this side came, or entries when none waited, or threads were sent for lack of events.
    pub(super) moved: Instant,
}

impl Crew {
    pub(super) fn new() -> Crew {
        Crew { serving: 0, stuck: 0, moved: Instant::now() }
    }

    /// How long those who wait must still do so without an event before whatever serves is taken to be at storage that hangs.
    pub(super) fn until_stuck(&self, now: Instant) -> Duration {
        STUCK.saturating_sub(now.saturating_duration_since(self.moved))
    }

    /// Takes whatever serves to be at storage that hangs. How many threads are to serve instead; they are counted already.
    pub(super) fn replace_stuck(&mut self, waiting: usize, now: Instant) -> usize {
        let sent = waiting.min(SENT).min(MOST_STUCK.saturating_sub(self.serving));
        (self.stuck, self.moved) = (self.serving, now);
        self.serving += sent;
        sent
    }

    /// An entry ended: the storage answers.
    pub(super) fn answered(&mut self, now: Instant) {
        (self.stuck, self.moved) = (0, now);
    }

    /// Whether one more thread should serve so that up to `most` do; it is counted already.
    pub(super) fn invite(&mut self, waiting: usize, most: usize) -> bool {
        let few = self.stuck == 0 || self.serving < MOST_STUCK;
        let invited = waiting > 0 && few && self.serving - self.stuck < most;
        self.serving += usize::from(invited);
        invited
    }

    /// A thread serves no more.
    pub(super) fn leave(&mut self) {
        self.serving -= 1;
        self.stuck = self.stuck.min(self.serving);
    }
}
