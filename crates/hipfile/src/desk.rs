//! Where those who hand entries of a batch in, the threads that carry them and those who wait for events meet: the
//! entries' states behind one lock. It carries nothing and knows no file.

use std::collections::{TryReserveError, VecDeque};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::slots::{Refused, Slots};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, STUCK, linger, thread};
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

    /// Whether one of the threads must carry it, and no caller who waits for events: it may raise a signal, or take very long.
    fn is_for_threads(&self) -> bool;

    /// Whether its storage may never answer.
    fn may_hang(&self) -> bool;

    /// The tag of its ticket.
    fn tag(&self) -> u64;

    fn home(&self) -> Self::Home;

    /// Has its ticket tell.
    fn end(self, ending: Ending);

    /// Sends a thread, counted already, that serves the desk.
    fn send(home: &Self::Home, desk: &Arc<Desk<Self>>);

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
/// How many threads are sent when those that serve do not come back.
const SENT: usize = 16;
/// How many of them there may be where all that waits may hang too.
const MOST_STUCK: usize = 32;
/// How long is looked for the end of an entry before the rest is looked at.
const LOOK: Duration = Duration::from_millis(1);

struct State<W: Work> {
    /// Entries that wait, with their places.
    slots: Slots<(usize, W), Event>,
    /// What belongs to the entries that have not ended; an entry's ticket has its place for a tag.
    places: Vec<Option<Place<W::Note>>>,
    free: Vec<usize>,
    /// Threads that serve, or will.
    serving: usize,
    /// Those of them that are at storage that hangs, as far as is known. While there are some, entries that may hang too
    /// start after all others.
    stuck: usize,
    /// The fewest events that a waiting call wants.
    wanted: usize,
    /// Events so far, to tell progress from none.
    events: u64,
    /// When the last of them came, or entries were handed in, or threads were sent for lack of events.
    moved: Instant,
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
    /// Once it is started; whether it may hang.
    runs: Option<bool>,
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
    /// Starts the entry that has waited longest; for a caller none that is for threads.
    fn start(&mut self, by_caller: bool) -> Option<(usize, W)> {
        let near = if self.stuck == 0 { None } else { self.near().next() };
        let at = near.unwrap_or_default();
        if by_caller && self.slots.all_waiting().nth(at).is_some_and(|(_, next)| next.is_for_threads()) {
            return None;
        }
        let (place, work) = self.slots.start_at(at)?;
        if let Some(place) = &mut self.places[place] {
            place.runs = Some(work.may_hang());
        }
        Some((place, work))
    }

    /// Where entries wait that do not hang.
    fn near(&self) -> impl Iterator<Item = usize> {
        self.slots.all_waiting().enumerate().filter(|(_, (_, work))| !work.may_hang()).map(|(at, _)| at)
    }

    /// How long something must still wait without an event before whatever serves is taken to be at storage that hangs.
    fn until_stuck(&self, now: Instant) -> Option<Duration> {
        self.slots.first().map(|_| STUCK.saturating_sub(now.saturating_duration_since(self.moved)))
    }

    /// Takes whatever serves to be at storage that hangs. How many threads are to serve instead; they are counted already.
    fn replace_stuck(&mut self, now: Instant) -> usize {
        self.stuck = self.serving;
        let sent = match self.near().take(SENT).count() {
            0 if self.serving >= MOST_STUCK => 0,
            0 => self.slots.waiting().min(SENT),
            near => near,
        };
        (self.moved, self.serving) = (now, self.serving + sent);
        sent
    }

    /// Takes an entry that ended out of its place.
    fn end(&mut self, place: usize, status: EventStatus) {
        let Some(Place { cookie, runs, .. }) = self.places[place].take() else {
            unreachable!("a ticket tells once, and until then nobody has its place");
        };
        if runs == Some(true) {
            // It answers again.
            self.stuck = 0;
        }
        self.free.push(place);
        self.slots.finish(Event { cookie, status });
        self.events += 1;
    }

    /// When the entry that has waited longest is to end.
    fn next_to_expire(&self) -> Option<Instant> {
        let (place, _) = self.slots.first()?;
        self.places[*place].as_ref()?.expires
    }

    /// Whether one more thread should serve; it is counted already.
    fn invite(&mut self, most: usize) -> bool {
        let idle = self.serving - self.stuck < most && self.slots.waiting() > 0;
        let invited = idle && (self.stuck == 0 || self.serving < MOST_STUCK || self.near().next().is_some());
        self.serving += usize::from(invited);
        invited
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
            serving: 0,
            stuck: 0,
            wanted: usize::MAX,
            events: 0,
            moved: Instant::now(),
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

    /// Hands entries in, all or none, and sees to it that up to `threads` threads serve them. Each gets a ticket, which
    /// tells this desk.
    pub(crate) fn submit<P>(
        self: &Arc<Self>,
        home: &W::Home,
        offers: impl ExactSizeIterator<Item = Offer<P, W::Note>>,
        make: impl Fn(P, Ticket) -> W,
        threads: usize,
        patience: Option<Duration>,
    ) -> Result<(), Refused> {
        let told = Arc::clone(self) as Arc<dyn Complete>;
        let since = Instant::now();
        let mut state = self.lock();
        let State { slots, places, free, limit, .. } = &mut *state;
        let expires = limit.and_then(|limit| since.checked_add(limit));
        slots.submit(offers.map(|Offer { cookie, note, piece }| {
            let entered = Some(Place { cookie, note, since, expires, runs: None });
            let place = match free.pop() {
                Some(place) => {
                    places[place] = entered;
                    place
                }
                None => {
                    places.push(entered);
                    places.len() - 1
                }
            };
            (place, make(piece, Ticket::new(Arc::clone(&told), place as u64)))
        }))?;
        (state.patience, state.moved) = (patience, since);
        let invited = (0..threads).take_while(|_| state.invite(threads)).count();
        drop(state);
        (0..invited).for_each(|_| W::send(home, self));
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
        while state.next_to_expire().is_some_and(|at| at <= now) {
            late.extend(state.slots.start());
        }
        drop(state);
        late.into_iter().for_each(|(_, work)| work.end(Ending::TimedOut));
    }

    /// Starts the entry that has waited longest; for a caller none that is for threads.
    pub(crate) fn start(&self, by_caller: bool) -> Option<W> {
        self.expire();
        let (place, work) = self.lock().start(by_caller)?;
        self.engines[place].store(NO_ENGINE, Ordering::Relaxed);
        Some(work)
    }

    /// As [`Desk::start`], several at once: no more than `most`, and few when others would find none then.
    pub(crate) fn start_some(&self, by_caller: bool, most: usize, into: &mut VecDeque<W>) {
        self.expire();
        let mut state = self.lock();
        let share = state.slots.waiting() / (2 * state.serving.max(1));
        for _ in 0..share.clamp(1, most) {
            let Some((place, work)) = state.start(by_caller) else { break };
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
            let place = work.tag() as usize;
            if let Err((_, work)) = slots.put_back((place, work)) {
                from.push_back(work);
                return;
            }
            if let Some(place) = &mut places[place] {
                place.runs = None;
            }
        }
    }

    /// Starts a read for a caller who waits for `wanted` events, and counts him as serving; how many he lacks.
    pub(crate) fn help(&self, wanted: usize) -> Option<(W, usize)> {
        self.expire();
        let mut state = self.lock();
        let missing = wanted.saturating_sub(state.slots.finished());
        if missing == 0 {
            return None;
        }
        let (place, work) = state.start(true)?;
        state.serving += 1;
        drop(state);
        self.engines[place].store(NO_ENGINE, Ordering::Relaxed);
        Some((work, missing))
    }

    /// Sends one more thread if there is work for it and fewer than `most` serve.
    pub(crate) fn invite(self: &Arc<Self>, home: &W::Home, most: usize) {
        let invited = self.lock().invite(most);
        if invited {
            W::send(home, self);
        }
    }

    /// Sends other threads if those that serve are stuck.
    fn relieve(self: &Arc<Self>, mut state: MutexGuard<'_, State<W>>) {
        let now = Instant::now();
        if state.until_stuck(now).is_none_or(|left| !left.is_zero()) {
            return;
        }
        let home = state.slots.first().map(|(_, work)| work.home());
        let sent = state.replace_stuck(now);
        drop(state);
        home.iter().for_each(|home| (0..sent).for_each(|_| W::send(home, self)));
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
        self.relieve(self.lock());
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
            let expires = state.next_to_expire().map(|at| at.saturating_duration_since(now));
            if expires.is_some_and(|left| left.is_zero()) {
                drop(state);
                self.expire();
                state = self.lock();
                continue;
            }
            let stuck = state.until_stuck(now);
            if stuck.is_some_and(|left| left.is_zero()) {
                self.relieve(state);
                state = self.lock();
                continue;
            }
            let slice = [left, patience, expires, stuck].into_iter().flatten().min();
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
        state.moved = Instant::now();
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
        let oldest = running.filter(|(place, _)| place.runs.is_some()).min_by_key(|(place, _)| place.since);
        let oldest = oldest.map(|(place, engine)| {
            let engine = Some(engine.load(Ordering::Relaxed)).filter(|engine| *engine != NO_ENGINE);
            Oldest { note: place.note, age: now.saturating_duration_since(place.since), engine }
        });
        Stall { waited, running: state.slots.running(), waiting: state.slots.waiting(), oldest }
    }
}

fn end_all<W: Work>(canceled: VecDeque<(usize, W)>) {
    canceled.into_iter().for_each(|(_, work)| work.end(Ending::Canceled));
}

impl<W: Work> Complete for Desk<W> {
    fn complete(&self, tag: u64, ending: Ending) {
        let status = match ending {
            Ending::Done(Ok(moved)) => EventStatus::Complete(moved),
            Ending::Done(Err(error)) => EventStatus::Failed(error),
            Ending::Canceled => EventStatus::Canceled,
            Ending::TimedOut => EventStatus::TimedOut,
        };
        let mut state = self.lock();
        state.end(tag as usize, status);
        self.tell(state);
    }

    fn complete_all(&self, moved: &mut dyn Iterator<Item = (u64, usize)>) {
        let mut state = self.lock();
        for (tag, moved) in moved {
            state.end(tag as usize, EventStatus::Complete(moved));
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
    /// The home of the entry that was carried last.
    pub(crate) last: W::Home,
}

impl<W: Work> Drop for Serving<'_, W> {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.serving -= 1;
        state.stuck = state.stuck.min(state.serving);
        let invited = state.invite(1);
        drop(state);
        if invited {
            W::send(&self.last, self.desk);
        }
    }
}

#[cfg(test)]
#[path = "desk/tests.rs"]
mod tests;
