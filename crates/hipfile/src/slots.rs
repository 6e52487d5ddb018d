//! The states of a batch's entries, as a plain state machine: waiting, running, finished, collected. It runs nothing,
//! waits for nothing and has no lock.

use std::collections::{TryReserveError, VecDeque};

/// Entries of type `W` on their way to events of type `E`.
#[derive(Debug)]
pub(crate) struct Slots<W, E> {
    capacity: usize,
    /// Not started, in the order in which they came.
    waiting: VecDeque<W>,
    /// Started and not finished.
    running: usize,
    /// Finished and not collected, in the order in which they finished.
    finished: VecDeque<E>,
    closed: bool,
}

/// Why entries were not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There are fewer free places than entries.
    Full {
        /// The free places.
        free: usize,
    },
    /// The batch is closed.
    Closed,
    /// There is no memory for the list.
    NoMemory,
}

impl<W, E> Slots<W, E> {
    /// No entries, and room for the events of all there may be.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn new(capacity: usize) -> Result<Slots<W, E>, TryReserveError> {
        let (mut waiting, mut finished) = (VecDeque::new(), VecDeque::new());
        waiting.try_reserve_exact(capacity)?;
        finished.try_reserve_exact(capacity)?;
        Ok(Slots { capacity, waiting, running: 0, finished, closed: false })
    }

    /// Entries accepted whose event was not collected.
    pub(crate) fn occupied(&self) -> usize {
        self.in_flight() + self.finished.len()
    }

    /// Entries accepted and not finished.
    pub(crate) fn in_flight(&self) -> usize {
        self.waiting.len() + self.running
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn finished(&self) -> usize {
        self.finished.len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Accepts all entries, or none.
    pub(crate) fn submit(&mut self, entries: impl ExactSizeIterator<Item = W>) -> Result<(), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let free = self.capacity - self.occupied();
        if entries.len() > free {
            return Err(Refused::Full { free });
        }
        // Canceling hands the list out, so that its memory may have to be got anew.
        self.waiting.try_reserve(entries.len()).map_err(|_| Refused::NoMemory)?;
        self.waiting.extend(entries);
        Ok(())
    }

    /// The entry that has waited longest.
    pub(crate) fn first(&self) -> Option<&W> {
        self.waiting.front()
    }

    /// Entries that have not started, the one that has waited longest first.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = &W> {
        self.waiting.iter()
    }

    /// Starts the entry that has waited longest.
    pub(crate) fn start(&mut self) -> Option<W> {
        self.start_at(0)
    }

    /// Starts the entry that `at` others have waited longer than.
    pub(crate) fn start_at(&mut self, at: usize) -> Option<W> {
        let entry = self.waiting.remove(at)?;
        self.running += 1;
        Some(entry)
    }

    /// An entry was started and not begun: it waits again, before all others. Whether there is memory for it.
    pub(crate) fn put_back(&mut self, entry: W) -> Result<(), W> {
        debug_assert!(self.running > 0, "only what was started is put back");
        // Canceling hands the list out.
        if self.waiting.try_reserve(1).is_err() {
            return Err(entry);
        }
        self.running -= 1;
        self.waiting.push_front(entry);
        Ok(())
    }

    /// A started entry finished. Of a closed batch nobody collects events.
    pub(crate) fn finish(&mut self, event: E) {
        debug_assert!(self.running > 0, "only what was started finishes");
        self.running -= 1;
        if !self.closed {
            self.finished.push_back(event);
        }
    }

    /// Takes out what has not started. Each is to be [`finish`](Slots::finish)ed, as if it had run.
    pub(crate) fn cancel(&mut self) -> VecDeque<W> {
        self.running += self.waiting.len();
        std::mem::take(&mut self.waiting)
    }

    /// Collects up to `most` events.
    ///
    /// # Errors
    /// There is no memory for the list; nothing was collected.
    pub(crate) fn collect(&mut self, most: usize) -> Result<Vec<E>, TryReserveError> {
        let count = most.min(self.finished.len());
        let mut events = Vec::new();
        events.try_reserve_exact(count)?;
        events.extend(self.finished.drain(..count));
        Ok(events)
    }

    /// Accepts and collects nothing from now on; what has not started is handed out as by [`cancel`](Slots::cancel).
    pub(crate) fn close(&mut self) -> VecDeque<W> {
        self.closed = true;
        self.finished.clear();
        self.cancel()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a model says an entry is.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum At {
        Waiting,
        Running,
        Finished,
        Collected,
    }

    /// 100,000 random steps against a model that keeps the state of every entry ever made.
    #[test]
    fn behaviour_77_every_accepted_entry_gives_exactly_one_event() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        let count = |model: &[At], at: At| model.iter().filter(|a| **a == at).count();
        let mut step = 0;
        // Miri is a thousand times slower.
        while step < if cfg!(miri) { 1000 } else { 100_000 } {
            let capacity = 1 + random(20);
            let mut slots: Slots<usize, usize> = Slots::new(capacity).unwrap();
            let mut model: Vec<At> = Vec::new();
            let (mut running, mut finished) = (Vec::new(), VecDeque::new());
            for _ in 0..500 {
                step += 1;
                match random(if step % 500 == 499 { 7 } else { 6 }) {
                    0 => {
                        let wanted = 1 + random(6);
                        let entries = model.len()..model.len() + wanted;
                        let uncollected = model.len() - count(&model, At::Collected);
                        match slots.submit(entries) {
                            Ok(()) => {
                                assert!(uncollected + wanted <= capacity);
                                model.resize(model.len() + wanted, At::Waiting);
                            }
                            Err(refused) => {
                                assert_eq!(refused, Refused::Full { free: capacity - uncollected });
                                assert!(uncollected + wanted > capacity);
                            }
                        }
                    }
                    1 => match slots.start() {
                        Some(entry) => {
                            let first = model.iter().position(|at| *at == At::Waiting);
                            assert_eq!(Some(entry), first, "in order");
                            assert!(slots.first() > Some(&entry) || slots.waiting() == 0);
                            model[entry] = At::Running;
                            running.push(entry);
                        }
                        None => assert_eq!(count(&model, At::Waiting), 0),
                    },
                    2 if !running.is_empty() => {
                        let entry = running.swap_remove(random(running.len()));
                        slots.finish(entry);
                        model[entry] = At::Finished;
                        finished.push_back(entry);
                    }
                    3 if random(10) == 0 => {
                        for entry in slots.cancel() {
                            assert_eq!(model[entry], At::Waiting);
                            slots.finish(entry);
                            model[entry] = At::Finished;
                            finished.push_back(entry);
                        }
                        assert_eq!((slots.waiting(), count(&model, At::Waiting)), (0, 0));
                    }
                    4 => {
                        for entry in slots.collect(random(8)).unwrap() {
                            assert_eq!((model[entry], finished.pop_front()), (At::Finished, Some(entry)));
                            model[entry] = At::Collected;
                        }
                    }
                    5 => {
                        let oldest = running.iter().enumerate().min_by_key(|(_, entry)| **entry);
                        let before = |entry: &usize| slots.first().is_none_or(|first| entry < first);
                        if let Some((at, _)) = oldest.filter(|(_, entry)| before(entry)) {
                            let entry = running.swap_remove(at);
                            assert_eq!(slots.put_back(entry), Ok(()));
                            model[entry] = At::Waiting;
                        }
                    }
                    6 => {
                        let dropped = slots.close();
                        assert_eq!(dropped.len(), count(&model, At::Waiting));
                        dropped.into_iter().for_each(|entry| slots.finish(entry));
                        running.drain(..).for_each(|entry| slots.finish(entry));
                        assert_eq!((slots.occupied(), slots.in_flight()), (0, 0));
                        assert_eq!(slots.submit(0..1), Err(Refused::Closed));
                        break;
                    }
                    _ => {}
                }
                assert_eq!(slots.running(), running.len());
                assert_eq!(slots.waiting(), count(&model, At::Waiting));
                assert_eq!(slots.finished(), finished.len());
                assert_eq!(slots.in_flight(), slots.waiting() + slots.running());
                assert_eq!(slots.occupied(), model.len() - count(&model, At::Collected));
            }
        }
    }
}
