//! Batches: entries that are submitted, carried, lost, canceled, collected and given up, all at the same time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::desk::{Desk, Event, EventStatus, Offer, Serving, Side, Stall, Work};
use crate::explore;
use crate::slots::Refused;
use crate::sync::{Arc, thread};
use crate::ticket::{self, Ending, Ticket};
use crate::workers::{Came, Workers};

/// What becomes of an entry that is carried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Read,
    Write,
    /// Its carrier drops it.
    Lost,
}

/// Steps of the scenario that are no steps of the modules, so that the scheduler need not know of them.
#[derive(Default)]
struct World {
    running: AtomicUsize,
    ended: AtomicUsize,
}

struct Piece {
    fate: Fate,
    world: Arc<World>,
    ticket: Ticket,
}

impl Work for Piece {
    type Home = Arc<Workers>;
    type Note = ();

    fn tag(&self) -> u64 {
        self.ticket.tag()
    }

    fn home(&self) -> Arc<Workers> {
        unreachable!("nothing here takes so long")
    }

    fn is_for_threads(&self) -> bool {
        self.fate == Fate::Write
    }

    fn side(&self) -> Side {
        if self.fate == Fate::Lost { Side::Far } else { Side::Near }
    }

    fn end(self, ending: Ending) {
        self.world.ended.fetch_add(1, Ordering::Relaxed);
        self.ticket.complete(ending);
    }

    fn send(home: &Arc<Workers>, desk: &Arc<Desk<Piece>>, side: Side) {
        let (desk, last) = (Arc::clone(desk), Arc::clone(home));
        home.push(Box::new(move || {
            match serve(&Serving { desk: &desk, side, last }, None, usize::MAX, false) {
                0 => Came::ForNothing,
                _ => Came::ForWork,
            }
        }));
    }

    fn stalled(_: &Stall<()>) {
        unreachable!("nothing here takes so long");
    }
}

fn serve(serving: &Serving<'_, Piece>, first: Option<Piece>, most: usize, reads_only: bool) -> usize {
    let (mut first, mut ahead, mut done, mut carried) = (first, VecDeque::new(), Vec::new(), 0);
    while carried < most {
        if first.is_none() && ahead.is_empty() {
            serving.desk.start_some(serving.side, reads_only, 2.min(most - carried), &mut ahead);
        }
        let next = first.take().or_else(|| ahead.pop_front());
        let Some(piece) = next else { break };
        if piece.fate != Fate::Read {
            // It may take its time: what was started with it is anybody's again.
            serving.desk.put_back(&mut ahead);
            serving.desk.invite(&serving.last, serving.side, 2);
        }
        carried += 1;
        let world = Arc::clone(&piece.world);
        world.running.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
        world.running.fetch_sub(1, Ordering::Relaxed);
        match piece.fate {
            Fate::Lost => {
                world.ended.fetch_add(1, Ordering::Relaxed);
                drop(piece);
            }
            Fate::Write => piece.end(Ending::Done(Ok(1))),
            Fate::Read => {
                world.ended.fetch_add(1, Ordering::Relaxed);
                done.push((piece.ticket, 1));
            }
        }
        if ahead.is_empty() {
            ticket::complete_all(&mut done);
        }
    }
    carried
}

/// A batch, and threads for it.
#[derive(Clone)]
struct Batch {
    desk: Arc<Desk<Piece>>,
    home: Arc<Workers>,
    world: Arc<World>,
}

impl Batch {
    fn new(capacity: usize, threads: usize) -> Batch {
        let desk = Desk::new(capacity, None).expect("memory");
        let home = Arc::new(Workers::new("model", threads));
        Batch { desk: Arc::new(desk), home, world: Arc::default() }
    }

    /// Submits entries with cookies from `first` on.
    fn submit(&self, first: u64, fates: &[Fate]) -> Result<(), Refused> {
        self.hand_in(first, fates, 2)
    }

    /// The same, for so many threads.
    fn hand_in(&self, first: u64, fates: &[Fate], threads: usize) -> Result<(), Refused> {
        let offers = fates.iter().enumerate();
        let offers = offers.map(|(at, fate)| Offer { cookie: first + at as u64, note: (), piece: *fate });
        let world = &self.world;
        let make = |fate, ticket| Piece { fate, world: Arc::clone(world), ticket };
        self.desk.submit(&self.home, offers, make, [threads; 2], None)
    }

    /// Waits as a call without a time limit does: first it works itself.
    fn poll(&self, min: usize, most: usize) -> Vec<Event> {
        while let Some((piece, missing)) = self.desk.help(min) {
            let serving = Serving { desk: &self.desk, side: piece.side(), last: Arc::clone(&self.home) };
            serve(&serving, Some(piece), missing, true);
        }
        self.desk.collect(min, most, None).expect("memory")
    }

    fn rest(&self) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            let events = self.poll(1, 3);
            if events.is_empty() {
                return all;
            }
            all.extend(events);
        }
    }
}

/// Each cookie once, with an ending that its fate allows.
fn check(events: &[Event], fates: &[Fate]) {
    let by_cookie: HashMap<u64, &Event> = events.iter().map(|event| (event.cookie, event)).collect();
    assert_eq!((by_cookie.len(), events.len()), (fates.len(), fates.len()), "one event each: {events:?}");
    for (fate, cookie) in fates.iter().zip(0..) {
        match (fate, &by_cookie[&cookie].status) {
            (_, EventStatus::Canceled)
            | (Fate::Read | Fate::Write, EventStatus::Complete(1))
            | (Fate::Lost, EventStatus::Failed(_)) => {}
            (_, status) => panic!("entry {cookie} ended as {status:?}"),
        }
    }
}

/// Two submissions, a call that waits, one that cancels, a lost entry: every accepted entry gives exactly one event.
pub fn every_accepted_entry_gives_one_event(runs: usize) {
    explore(runs, || {
        const FATES: [Fate; 4] = [Fate::Read, Fate::Write, Fate::Lost, Fate::Read];
        let batch = Batch::new(4, 2);
        batch.submit(0, &FATES[..2]).expect("room");
        let waiter = {
            let batch = batch.clone();
            thread::spawn(move || batch.poll(2, 2))
        };
        let canceler = {
            let batch = batch.clone();
            thread::spawn(move || batch.desk.cancel())
        };
        batch.submit(2, &FATES[2..]).expect("room");
        let mut events = batch.rest();
        canceler.join().expect("no panic");
        events.extend(waiter.join().expect("no panic"));
        check(&events, &FATES);
        assert_eq!(batch.world.running.load(Ordering::Relaxed), 0);
    });
}

/// Calls that wait for different numbers of events all return, also when the one takes what the other waits for.
pub fn all_who_wait_return(runs: usize) {
    explore(runs, || {
        const FATES: [Fate; 3] = [Fate::Write, Fate::Read, Fate::Write];
        let batch = Batch::new(3, 1);
        batch.submit(0, &FATES).expect("room");
        let waiters = [(1, 1), (2, 3), (3, 3)].map(|(min, most)| {
            let batch = batch.clone();
            thread::spawn(move || batch.poll(min, most))
        });
        let mut events = Vec::new();
        for waiter in waiters {
            events.extend(waiter.join().expect("no panic"));
        }
        events.extend(batch.rest());
        check(&events, &FATES);
    });
}

/// Room comes free exactly when an event is collected.
pub fn places_are_given_again(runs: usize) {
    explore(runs, || {
        let batch = Batch::new(2, 2);
        let other = {
            let batch = batch.clone();
            thread::spawn(move || {
                let accepted = batch.submit(100, &[Fate::Read]);
                (usize::from(accepted.is_ok()), batch.poll(0, 1).len())
            })
        };
        let (mut accepted, mut collected) = (0, 0);
        for n in 0..3 {
            match batch.submit(n, &[Fate::Write]) {
                Ok(()) => accepted += 1,
                Err(refused) => assert_eq!(refused, Refused::Full { free: 0 }),
            }
            collected += batch.poll(1, 1).len();
        }
        let (theirs, taken) = other.join().expect("no panic");
        collected += taken + batch.rest().len();
        assert_eq!(accepted + theirs, collected);
        batch.submit(0, &[Fate::Read, Fate::Read]).expect("all places are free");
        assert_eq!(batch.rest().len(), 2);
    });
}

/// A batch that is destroyed while entries run and wait, a call waits for them, and another submits more. When it is
/// destroyed nothing runs, and what was accepted has ended.
pub fn destroying_waits_for_what_runs_and_releases_who_waits(runs: usize) {
    explore(runs, || {
        let batch = Batch::new(4, 2);
        batch.submit(0, &[Fate::Read, Fate::Write, Fate::Lost]).expect("room");
        let waiter = {
            let batch = batch.clone();
            thread::spawn(move || batch.poll(3, 4).len())
        };
        let late = {
            let batch = batch.clone();
            thread::spawn(move || usize::from(batch.submit(3, &[Fate::Read]).is_ok()))
        };
        batch.desk.close();
        assert_eq!(batch.world.running.load(Ordering::Relaxed), 0, "nothing runs any more");
        let accepted = 3 + late.join().expect("no panic");
        assert_eq!(batch.world.ended.load(Ordering::Relaxed), accepted, "what was accepted has ended");
        assert!(waiter.join().expect("no panic") <= 4);
        assert_eq!(batch.submit(9, &[Fate::Read]), Err(Refused::Closed));
        assert!(batch.poll(1, 4).is_empty());
        // Once more, by another owner of the handle.
        batch.desk.close();
    });
}

/// A wait ends with the event that makes it enough, whatever others wait for and however long the rest takes.
pub fn a_wait_ends_with_the_event_it_waits_for(runs: usize) {
    explore(runs, || {
        let batch = Batch::new(2, 1);
        // Nobody carries them but this thread.
        batch.hand_in(0, &[Fate::Write, Fate::Write], 0).expect("room");
        let one = {
            let batch = batch.clone();
            thread::spawn(move || batch.poll(1, 1).len())
        };
        let both = {
            let batch = batch.clone();
            thread::spawn(move || batch.poll(2, 2).len())
        };
        let (first, second) = (batch.desk.start(Side::Near, false), batch.desk.start(Side::Near, false));
        first.expect("it waits").end(Ending::Done(Ok(1)));
        assert_eq!(one.join().expect("no panic"), 1);
        second.expect("it waits").end(Ending::Done(Ok(1)));
        assert_eq!(both.join().expect("no panic"), 1);
    });
}

/// Destroying releases who waits for events at once, and itself waits for what runs.
pub fn destroying_releases_before_it_waits(runs: usize) {
    explore(runs, || {
        let batch = Batch::new(2, 1);
        batch.hand_in(0, &[Fate::Write, Fate::Write], 0).expect("room");
        let running = batch.desk.start(Side::Near, false).expect("it waits");
        let waiter = {
            let batch = batch.clone();
            thread::spawn(move || batch.poll(2, 2).len())
        };
        let destroyer = {
            let batch = batch.clone();
            thread::spawn(move || {
                batch.desk.close();
                batch.world.ended.load(Ordering::Relaxed)
            })
        };
        assert_eq!(waiter.join().expect("no panic"), 0);
        running.end(Ending::Done(Ok(1)));
        assert_eq!(destroyer.join().expect("no panic"), 2);
    });
}
