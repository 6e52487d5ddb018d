//! Where those who hand entries of a batch in, the threads that carry them and those who wait for events meet: the
//! entries' states behind one lock. It carries nothing and knows no file.

#[path = "desk/crew.rs"]
mod crew;

use std::collections::{TryReserveError, VecDeque};
use std::time::{Duration, Instant};

use self::crew::Crew;
pub(crate) use self::crew::Side;
use crate::error::Error;
use crate::slots::{Canceled, Refused, SIDES, Slots};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, linger, thread};
use crate::ticket::{Complete, Ending, Ticket};

/// How an entry ended.
#[derive(Clone, Debug)]
pub struct Event {
    /// The entry's own.
    pub cookie: u64,
    /// How it ended.
    pub status: EventStatus,
}

/// How an entry ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventStatus {
    /// So many bytes moved; fewer than asked for as [`Driver::read`](crate::Driver::read) says.
    Complete(usize),
    /// Nothing moved.
    Failed(Error),
    /// It was canceled before it started.
    Canceled,
    /// It had not started when its time was over: [`Config::batch_timeout`](crate::Config::batch_timeout).
    TimedOut,
}

/// An entry that is ready to be carried.
pub(crate) trait Work: Send + Sized + 'static {
    /// Where its threads come from.
    type Home: Clone + Send + 'static;
    /// What can be told of it while it is under way.
    type Note: Copy + Send + 'static;

    /// Whether one of the threads must carry it, and no caller who waits for events: it may raise a signal.
    fn is_for_threads(&self) -> bool;

    /// Which threads carry it.
    fn side(&self) -> Side;

    /// The tag of its ticket.
    fn tag(&self) -> u64;

    fn home(&self) -> Self::Home;

    /// Has its ticket tell.
    fn end(self, ending: Ending);

    /// Sends a thread, counted already, that serves that side of the desk.
    fn send(home: &Self::Home, desk: &Arc<Desk<Self>>, side: Side);

    /// Tells people what a call has waited for.
    fn stalled(stall: &Stall<Self::Note>);
}

/// A wait without progress.
#[derive(Debug)]
pub(crate) struct Stall<N> {
    pub(crate) waited: Duration,
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Of the entries that run, the one that was handed in first.
    pub(crate) oldest: Option<Oldest<N>>,
}

/// An entry under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oldest<N> {
    pub(crate) note: N,
    /// Since it was handed in.
    pub(crate) age: Duration,
    /// The engine that has it, if one has.
    pub(crate) engine: Option<u8>,
}

/// The desk of one batch.
pub(crate) struct Desk<W: Work> {
    state: Mutex<State<W>>,
    changed: Condvar,
    /// Whether entries may have a time within which they must start.
    limited: AtomicBool,
    /// Whether those who wait for events look again and again instead of sleeping.
    polling: AtomicBool,
    /// As `State::events`, to look at without the lock.
    ended: AtomicU64,
    /// The engine that was given the entry of each place last; [`NO_ENGINE`] before that.
    engines: Box<[AtomicU8]>,
}

const NO_ENGINE: u8 = u8::MAX;
/// How long is looked for the end of an entry before the rest is looked at.
const LOOK: Duration = Duration::from_millis(1);

struct State<W: Work> {
    /// Entries that wait, with their places.
    slots: Slots<(usize, W), Event>,
    /// What belongs to the entries that have not ended; an entry's ticket has its place for a tag.
    places: Vec<Option<Place<W::Note>>>,
    free: Vec<usize>,
    /// By side.
    crews: [Crew; SIDES],
    /// The fewest events that a waiting call wants.
    wanted: usize,
    /// Events so far, to tell progress from none.
    events: u64,
    /// After how long without an event a waiting call says so.
    patience: Option<Duration>,
    /// How long entries that are handed in from now on may wait.
    limit: Option<Duration>,
}

struct Place<N> {
    cookie: u64,
    note: N,
    since: Instant,
    /// When it ends if it has not started by then.
    expires: Option<Instant>,
    side: Side,
    /// Its number, once it is started.
    started: Option<i64>,
}

/// An entry to be handed in.
pub(crate) struct Offer<P, N> {
    pub(crate) cookie: u64,
    pub(crate) note: N,
    pub(crate) piece: P,
}

impl<W: Work> std::fmt::Debug for Desk<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("capacity", &self.engines.len()).finish_non_exhaustive()
    }
}

impl<W: Work> State<W> {
    fn crew(&mut self, side: Side) -> &mut Crew {
        &mut self.crews[side as usize]
    }

    /// Starts the entry of a side that has waited longest; for a caller none that is for threads.
    fn start(&mut self, side: Side, by_caller: bool) -> Option<(usize, W)> {
        let first = self.slots.first(side as usize)?;
        if by_caller && first.1.is_for_threads() {
            return None;
        }
        let (number, (place, work)) = self.slots.start(side as usize)?;
        if let Some(place) = &mut self.places[place] {
            place.started = Some(number);
        }
        Some((place, work))
    }

    /// How long a side must still wait without an event before whatever serves it is taken to be at storage that hangs.
    fn until_stuck(&self, side: Side, now: Instant) -> Option<Duration> {
        self.slots.first(side as usize).map(|_| self.crews[side as usize].until_stuck(now))
    }

    /// Takes an entry that ended out of its place.
    fn end(&mut self, place: usize, status: EventStatus, now: Instant) {
        let Some(Place { cookie, side, started, .. }) = self.places[place].take() else {
            unreachable!("a ticket tells once, and until then nobody has its place");
        };
        if started.is_some() {
            self.crew(side).answered(now);
        }
        self.free.push(place);
        self.slots.finish(Event { cookie, status });
        self.events += 1;
    }

    /// When the entry that has waited longest on a side is to end.
    fn next_to_expire(&self, side: Side) -> Option<Instant> {
        let (place, _) = self.slots.first(side as usize)?;
        self.places[*place].as_ref()?.expires
    }

    /// Whether one more thread should serve a side; it is counted already.
    fn invite(&mut self, side: Side, most: usize) -> bool {
        let waiting = self.slots.waiting_on(side as usize);
        self.crew(side).invite(waiting, most)
    }
}

/// More than a desk takes by itself.
const ROOM: usize = 8 << 10;

impl<W: Work> Desk<W> {
    /// A desk with room for so many entries. What it needs for itself it has from now on.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn new(capacity: usize, patience: Option<Duration>) -> Result<Desk<W>, TryReserveError> {
        let (mut places, mut free, mut engines) = (Vec::new(), Vec::new(), Vec::new());
        places.try_reserve_exact(capacity)?;
        free.try_reserve_exact(capacity)?;
        engines.try_reserve_exact(capacity)?;
        engines.resize_with(capacity, || AtomicU8::new(NO_ENGINE));
        let slots = Slots::new(capacity)?;
        // What is made of it next, and the words of a refusal, cannot be asked for: that there is room is seen to here.
        Vec::<u8>::new().try_reserve_exact(ROOM)?;
        let state = State {
            slots,
            places,
            free,
            crews: [Crew::new(); SIDES],
            wanted: usize::MAX,
            events: 0,
            patience,
            limit: None,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (limited, polling, ended) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        Ok(Desk { state, changed, limited, polling, ended, engines: engines.into_boxed_slice() })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.engines.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands entries in, all or none, and sees to it that up to `threads` threads serve each side. Each gets a ticket,
    /// which tells this desk.
    pub(crate) fn submit<P>(
        self: &Arc<Self>,
        home: &W::Home,
        offers: impl ExactSizeIterator<Item = Offer<P, W::Note>>,
        make: impl Fn(P, Ticket) -> W,
        threads: [usize; SIDES],
        patience: Option<Duration>,
    ) -> Result<(), Refused> {
        let told = Arc::clone(self) as Arc<dyn Complete>;
        let since = Instant::now();
        let mut state = self.lock();
        let State { slots, places, free, limit, .. } = &mut *state;
        let waited = Side::ALL.map(|side| slots.waiting_on(side as usize) > 0);
        let expires = limit.and_then(|limit| since.checked_add(limit));
        let entered = offers.map(|Offer { cookie, note, piece }| {
            let place = free.pop().unwrap_or_else(|| {
                places.push(None);
                places.len() - 1
            });
            let work = make(piece, Ticket::new(Arc::clone(&told), place as u64));
            let side = work.side();
            places[place] = Some(Place { cookie, note, since, expires, side, started: None });
            (place, work)
        });
        slots.submit(entered, |(_, work)| work.side() as usize)?;
        state.patience = patience;
        let mut invited = [0; SIDES];
        for side in Side::ALL {
            // To be given more is no progress.
            if !waited[side as usize] {
                state.crew(side).moved = since;
            }
            let most = threads[side as usize];
            invited[side as usize] = (0..most).take_while(|_| state.invite(side, most)).count();
        }
        drop(state);
        for side in Side::ALL {
            (0..invited[side as usize]).for_each(|_| W::send(home, self, side));
        }
        Ok(())
    }

    /// Sets how long entries that are handed in from now on may wait before they start.
    pub(crate) fn limit_waiting(&self, limit: Option<Duration>) {
        if limit.is_some() {
            self.limited.store(true, Ordering::SeqCst);
        }
        if self.limited.load(Ordering::SeqCst) {
            self.lock().limit = limit;
        }
    }

    /// Sets whether those who wait from now on look again and again instead of sleeping.
    pub(crate) fn set_polling(&self, polling: bool) {
        self.polling.store(polling, Ordering::Relaxed);
    }

    /// Looks for the events that a call wants for about as long as a wake-up takes: what it waits for runs already.
    pub(crate) fn linger(&self, wanted: usize) {
        let state = self.lock();
        let missing = wanted.saturating_sub(state.slots.finished()).min(state.slots.in_flight());
        let enough = state.events + missing as u64;
        drop(state);
        linger(|| self.ended.load(Ordering::Relaxed) >= enough);
    }

    /// Looks again and again whether an entry has ended, for as long as that.
    fn look(&self, events: u64, slice: Duration) {
        let began = Instant::now();
        while self.ended.load(Ordering::Relaxed) == events && began.elapsed() < slice {
            // On few processors those who work need this one.
            thread::yield_now();
        }
    }

    /// Ends the entries that have waited too long. They are looked at in order, so one that may wait longer keeps those
    /// behind it.
    fn expire(&self) {
        if !self.limited.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let mut late = Vec::new();
        let mut state = self.lock();
        for side in Side::ALL {
            while state.next_to_expire(side).is_some_and(|at| at <= now) {
                late.extend(state.slots.start(side as usize));
            }
        }
        drop(state);
        late.into_iter().for_each(|(_, (_, work))| work.end(Ending::TimedOut));
    }

    /// Starts the entry of a side that has waited longest; for a caller none that is for threads.
    pub(crate) fn start(&self, side: Side, by_caller: bool) -> Option<W> {
        self.expire();
        let (place, work) = self.lock().start(side, by_caller)?;
        self.engines[place].store(NO_ENGINE, Ordering::Relaxed);
        Some(work)
    }

    /// As [`Desk::start`], several at once: no more than `most`, and few when others would find none then.
    pub(crate) fn start_some(&self, side: Side, by_caller: bool, most: usize, into: &mut VecDeque<W>) {
        self.expire();
        let mut state = self.lock();
        let share = state.slots.waiting_on(side as usize) / (2 * state.crew(side).serving.max(1));
        for _ in 0..share.clamp(1, most) {
            let Some((place, work)) = state.start(side, by_caller) else { break };
            self.engines[place].store(NO_ENGINE, Ordering::Relaxed);
            into.push_back(work);
        }
    }

    /// Takes back what was started and not begun. Some stay if memory is lacking.
    pub(crate) fn put_back(&self, from: &mut VecDeque<W>) {
        if from.is_empty() {
            return;
        }
        let mut state = self.lock();
        let State { slots, places, .. } = &mut *state;
        while let Some(work) = from.pop_back() {
            let (place, side) = (work.tag() as usize, work.side() as usize);
            let Some(number) = places[place].as_mut().and_then(|place| place.started.take()) else {
                continue;
            };
            if let Err((place, work)) = slots.put_back(side, number, (place, work)) {
                if let Some(place) = &mut places[place] {
                    place.started = Some(number);
                }
                from.push_back(work);
                return;
            }
        }
    }

    /// Starts a near read for a caller who waits for `wanted` events, and counts him as serving; how many he lacks.
    pub(crate) fn help(&self, wanted: usize) -> Option<(W, usize)> {
        self.expire();
        let mut state = self.lock();
        let missing = wanted.saturating_sub(state.slots.finished());
        if missing == 0 {
            return None;
        }
        let (place, work) = state.start(Side::Near, true)?;
        state.crew(Side::Near).serving += 1;
        drop(state);
        self.engines[place].store(NO_ENGINE, Ordering::Relaxed);
        Some((work, missing))
    }

    /// Sends a side one more thread if there is work for it and fewer than `most` serve.
    pub(crate) fn invite(self: &Arc<Self>, home: &W::Home, side: Side, most: usize) {
        let invited = self.lock().invite(side, most);
        if invited {
            W::send(home, self, side);
        }
    }

    /// Sends sides other threads if those that serve them are stuck.
    fn relieve(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.slots.waiting() == 0 {
            return;
        }
        let now = Instant::now();
        let sent = Side::ALL.map(|side| {
            state.until_stuck(side, now).filter(Duration::is_zero)?;
            let home = state.slots.first(side as usize).map(|(_, work)| work.home())?;
            let waiting = state.slots.waiting_on(side as usize);
            Some((side, home, state.crew(side).replace_stuck(waiting, now)))
        });
        drop(state);
        for (side, home, sent) in sent.into_iter().flatten() {
            (0..sent).for_each(|_| W::send(&home, self, side));
        }
    }

    /// Collects up to `most` events, once there are `min`, or nothing is in flight, or the time is over, or the desk is
    /// closed.
    ///
    /// # Errors
    /// There is no memory for the list; the events stay.
    pub(crate) fn collect(
        self: &Arc<Self>,
        min: usize,
        most: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<Event>, TryReserveError> {
        self.expire();
        self.relieve();
        let mut state = self.wait(timeout, |state| {
            let enough = state.slots.finished() >= min || state.slots.in_flight() == 0;
            if !enough {
                state.wanted = state.wanted.min(min);
            }
            enough || state.slots.is_closed()
        });
        state.slots.collect(most)
    }

    /// Cancels what has not started.
    pub(crate) fn cancel(&self) {
        let canceled = self.lock().slots.cancel();
        end_all(canceled);
    }

    /// Accepts and collects nothing from now on, cancels what has not started, and waits for what has.
    pub(crate) fn close(self: &Arc<Self>) {
        let canceled = {
            let mut state = self.lock();
            self.changed.notify_all();
            state.slots.close()
        };
        end_all(canceled);
        drop(self.wait(None, |state| state.slots.in_flight() == 0));
    }

    /// Waits until `done` or until the time is over.
    fn wait(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        mut done: impl FnMut(&mut State<W>) -> bool,
    ) -> MutexGuard<'_, State<W>> {
        let mut state = self.lock();
        if done(&mut state) {
            return state;
        }
        let began = Instant::now();
        let deadline = timeout.and_then(|timeout| began.checked_add(timeout));
        let (mut events, mut quiet, mut said) = (state.events, began, false);
        while !done(&mut state) {
            let now = Instant::now();
            let left = deadline.map(|at| at.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            if state.events != events {
                (events, quiet) = (state.events, now);
            }
            let patience = state.patience.filter(|_| !said);
            let patience = patience.map(|patience| patience.saturating_sub(now - quiet));
            if patience.is_some_and(|patience| patience.is_zero()) {
                said = true;
                let stall = self.stall(&state, now - began, now);
                drop(state);
                W::stalled(&stall);
                state = self.lock();
                continue;
            }
            let expires = Side::ALL.iter().filter_map(|side| state.next_to_expire(*side)).min();
            let expires = expires.map(|at| at.saturating_duration_since(now));
            if expires.is_some_and(|left| left.is_zero()) {
                drop(state);
                self.expire();
                state = self.lock();
                continue;
            }
            let stuck = Side::ALL.map(|side| state.until_stuck(side, now));
            if stuck.iter().flatten().any(Duration::is_zero) {
                drop(state);
                self.relieve();
                state = self.lock();
                continue;
            }
            let slice = [left, patience, expires].into_iter().chain(stuck).flatten().min();
            if self.polling.load(Ordering::Relaxed) {
                let events = state.events;
                drop(state);
                self.look(events, slice.map_or(LOOK, |slice| slice.min(LOOK)));
                state = self.lock();
                continue;
            }
            state = match slice {
                Some(slice) => {
                    self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state
    }

    /// Tells those who wait, if there is what they want.
    fn tell(&self, mut state: MutexGuard<'_, State<W>>) {
        self.ended.store(state.events, Ordering::Relaxed);
        if state.slots.finished() >= state.wanted || state.slots.in_flight() == 0 {
            state.wanted = usize::MAX;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn stall(&self, state: &State<W>, waited: Duration, now: Instant) -> Stall<W::Note> {
        let running = state.places.iter().zip(&self.engines);
        let running = running.filter_map(|(place, engine)| Some((place.as_ref()?, engine)));
        let oldest =
            running.filter(|(place, _)| place.started.is_some()).min_by_key(|(place, _)| place.since);
        let oldest = oldest.map(|(place, engine)| {
            let engine = Some(engine.load(Ordering::Relaxed)).filter(|engine| *engine != NO_ENGINE);
            Oldest { note: place.note, age: now.saturating_duration_since(place.since), engine }
        });
        Stall { waited, running: state.slots.running(), waiting: state.slots.waiting(), oldest }
    }
}

fn end_all<W: Work>(canceled: Canceled<(usize, W)>) {
    canceled.for_each(|(_, work)| work.end(Ending::Canceled));
}

impl<W: Work> Complete for Desk<W> {
    fn complete(&self, tag: u64, ending: Ending) {
        let status = match ending {
            Ending::Done(Ok(moved)) => EventStatus::Complete(moved),
            Ending::Done(Err(error)) => EventStatus::Failed(error),
            Ending::Canceled => EventStatus::Canceled,
            Ending::TimedOut => EventStatus::TimedOut,
        };
        let now = Instant::now();
        let mut state = self.lock();
        state.end(tag as usize, status, now);
        self.tell(state);
    }

    fn complete_all(&self, moved: &mut dyn Iterator<Item = (u64, usize)>) {
        let now = Instant::now();
        let mut state = self.lock();
        for (tag, moved) in moved {
            state.end(tag as usize, EventStatus::Complete(moved), now);
        }
        self.tell(state);
    }

    fn reached(&self, tag: u64, engine: u8) {
        self.engines[tag as usize].store(engine, Ordering::Relaxed);
    }
}

/// A thread's service. Ends the count also when the work panics, and sends another thread if there is more.
pub(crate) struct Serving<'a, W: Work> {
    pub(crate) desk: &'a Arc<Desk<W>>,
    pub(crate) side: Side,
    /// The home of the entry that was carried last.
    pub(crate) last: W::Home,
}

impl<W: Work> Drop for Serving<'_, W> {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.crew(self.side).leave();
        let invited = state.invite(self.side, 1);
        drop(state);
        if invited {
            W::send(&self.last, self.desk, self.side);
        }
    }
}

#[cfg(test)]
#[path = "desk/tests.rs"]
mod tests;
