//! The states of a batch's entries, as a plain state machine: waiting, running, finished, collected. It runs nothing,
//! waits for nothing and has no lock.

use std::collections::{TryReserveError, VecDeque};

/// Entries wait on one of so many sides, each with an order of its own.
pub(crate) const SIDES: usize = 2;

/// Entries of type `W` on their way to events of type `E`.
#[derive(Debug)]
pub(crate) struct Slots<W, E> {
    capacity: usize,
    /// Not started, those of each side apart, in the order in which they came, with numbers that say it.
    waiting: [VecDeque<(i64, W)>; SIDES],
    /// The number of the next.
    next: i64,
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
        let (mut waiting, mut finished) = ([const { VecDeque::new() }; SIDES], VecDeque::new());
        // The first side is the usual one; there is room on the other once it is asked for.
        waiting[0].try_reserve_exact(capacity)?;
        finished.try_reserve_exact(capacity)?;
        Ok(Slots { capacity, waiting, next: 0, running: 0, finished, closed: false })
    }

    /// Entries accepted whose event was not collected.
    pub(crate) fn occupied(&self) -> usize {
        self.in_flight() + self.finished.len()
    }

    /// Entries accepted and not finished.
    pub(crate) fn in_flight(&self) -> usize {
        self.waiting() + self.running
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn waiting_on(&self, side: usize) -> usize {
        self.waiting[side].len()
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

    /// Accepts all entries, or none; `side` says where one waits.
    pub(crate) fn submit(
        &mut self,
        entries: impl ExactSizeIterator<Item = W>,
        side: impl Fn(&W) -> usize,
    ) -> Result<(), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let free = self.capacity - self.occupied();
        if entries.len() > free {
            return Err(Refused::Full { free });
        }
        // Canceling hands the list out, so that its memory may have to be got anew.
        for waiting in &mut self.waiting {
            waiting.try_reserve(entries.len()).map_err(|_| Refused::NoMemory)?;
        }
        for entry in entries {
            self.waiting[side(&entry)].push_back((self.next, entry));
            self.next += 1;
        }
        Ok(())
    }

    /// The entry of a side that has waited longest.
    pub(crate) fn first(&self, side: usize) -> Option<&W> {
        self.waiting[side].front().map(|(_, entry)| entry)
    }

    /// Starts the entry of a side that has waited longest. With its number, which says when it came.
    pub(crate) fn start(&mut self, side: usize) -> Option<(i64, W)> {
        let first = self.waiting[side].pop_front()?;
        self.running += 1;
        Some(first)
    }

    /// An entry was started and not begun: it waits again, before all others of its side. Whether there is memory for it.
    pub(crate) fn put_back(&mut self, side: usize, number: i64, entry: W) -> Result<(), W> {
        debug_assert!(self.running > 0, "only what was started is put back");
        let waiting = &mut self.waiting[side];
        // Canceling hands the list out.
        if waiting.try_reserve(1).is_err() {
            return Err(entry);
        }
        self.running -= 1;
        waiting.push_front((number, entry));
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
    pub(crate) fn cancel(&mut self) -> Canceled<W> {
        self.running += self.waiting();
        Canceled { lists: std::mem::take(&mut self.waiting) }
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
    pub(crate) fn close(&mut self) -> Canceled<W> {
        self.closed = true;
        self.finished.clear();
        self.cancel()
    }
}

/// Entries that never started, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Canceled<W> {
    lists: [VecDeque<(i64, W)>; SIDES],
}

impl<W> Iterator for Canceled<W> {
    type Item = W;

    fn next(&mut self) -> Option<W> {
        let number = |list: &VecDeque<(i64, W)>| list.front().map_or(i64::MAX, |(number, _)| *number);
        let first = self.lists.iter_mut().min_by_key(|list| number(list))?;
        first.pop_front().map(|(_, entry)| entry)
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
        let side = |entry: &usize| usize::from(entry.is_multiple_of(3));
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
                        match slots.submit(entries, side) {
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
                    1 => {
                        let of = random(SIDES);
                        let mut waiting =
                            (0..model.len()).filter(|n| side(n) == of && model[*n] == At::Waiting);
                        let first = waiting.next();
                        assert_eq!(
                            (slots.waiting_on(of) == 0, slots.first(of)),
                            (first.is_none(), first.as_ref())
                        );
                        assert_eq!(slots.start(of).map(|(_, entry)| entry), first, "in order");
                        if let Some(entry) = first {
                            model[entry] = At::Running;
                            running.push(entry);
                        }
                    }
                    2 if !running.is_empty() => {
                        let entry = running.swap_remove(random(running.len()));
                        slots.finish(entry);
                        model[entry] = At::Finished;
                        finished.push_back(entry);
                    }
                    3 if random(10) == 0 => {
                        let canceled: Vec<_> = slots.cancel().collect();
                        assert!(canceled.is_sorted(), "in order");
                        for entry in canceled {
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
                        let of = random(SIDES);
                        let mine = running.iter().enumerate().filter(|(_, entry)| side(entry) == of);
                        let last = mine.max_by_key(|(_, entry)| **entry);
                        let before = |entry: &usize| slots.first(of).is_none_or(|first| entry < first);
                        if let Some((at, _)) = last.filter(|(_, entry)| before(entry)) {
                            let entry = running.swap_remove(at);
                            assert_eq!(slots.put_back(of, entry as i64, entry), Ok(()));
                            model[entry] = At::Waiting;
                        }
                    }
                    6 => {
                        let dropped: Vec<_> = slots.close().collect();
                        assert_eq!(dropped.len(), count(&model, At::Waiting));
                        dropped.into_iter().for_each(|entry| slots.finish(entry));
                        running.drain(..).for_each(|entry| slots.finish(entry));
                        assert_eq!((slots.occupied(), slots.in_flight()), (0, 0));
                        assert_eq!(slots.submit(0..1, side), Err(Refused::Closed));
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
