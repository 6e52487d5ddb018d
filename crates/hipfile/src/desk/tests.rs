//! Random steps of one thread against a model that keeps what became of every entry. Orders of several threads are tried
//! in the crate `hipfile-model`.

use std::sync::atomic::AtomicUsize;

use super::crew::{MOST_STUCK, SENT};
use super::*;
use crate::error::ErrorKind;
use crate::sync::STUCK;

/// Where the model says an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    Waiting,
    Running,
    /// It ended so; its event was not collected.
    Ended(End),
    Collected,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Moved(usize),
    Refused,
    Lost,
    Canceled,
}

/// Of an entry, by its cookie.
fn side(cookie: usize) -> Side {
    if cookie.is_multiple_of(3) { Side::Far } else { Side::Near }
}

struct Piece {
    cookie: usize,
    write: bool,
    home: Sent,
    ticket: Ticket,
}

/// Threads that were sent: here they only count, and serve when the test says.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicUsize>);

impl Work for Piece {
    type Home = Sent;
    type Note = usize;

    fn tag(&self) -> u64 {
        self.ticket.tag()
    }

    fn home(&self) -> Self::Home {
        self.home.clone()
    }

    fn is_for_threads(&self) -> bool {
        self.write
    }

    fn side(&self) -> Side {
        side(self.cookie)
    }

    fn end(self, ending: Ending) {
        self.ticket.complete(ending);
    }

    fn send(home: &Sent, _: &Arc<Desk<Piece>>, _: Side) {
        home.0.fetch_add(1, Ordering::Relaxed);
    }

    fn stalled(_: &Stall<usize>) {}
}

struct Model {
    desk: Arc<Desk<Piece>>,
    capacity: usize,
    entries: Vec<(At, bool)>,
    running: Vec<Piece>,
    /// Cookies in the order in which they ended.
    ended: VecDeque<usize>,
    sent: Sent,
    seed: u64,
}

impl Model {
    fn new(capacity: usize, seed: u64) -> Model {
        Model {
            desk: Arc::new(Desk::new(capacity, None).unwrap()),
            capacity,
            entries: Vec::new(),
            running: Vec::new(),
            ended: VecDeque::new(),
            sent: Sent::default(),
            seed,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed % below as u64) as usize
    }

    fn count(&self, at: At) -> usize {
        self.entries.iter().filter(|(entry, _)| *entry == at).count()
    }

    fn occupied(&self) -> usize {
        self.entries.len() - self.count(At::Collected)
    }

    fn submit(&mut self) {
        let (wanted, threads, first) = (1 + self.random(6), self.random(4), self.entries.len());
        let writes: Vec<bool> = (0..wanted).map(|_| self.random(3) == 0).collect();
        let offers = writes.iter().enumerate();
        let offers = offers.map(|(n, write)| Offer {
            cookie: (first + n) as u64,
            note: first + n,
            piece: (first + n, *write),
        });
        let make = |(cookie, write), ticket| Piece { cookie, write, home: self.sent.clone(), ticket };
        let before = self.sent.0.load(Ordering::Relaxed);
        let free = self.capacity - self.occupied();
        let result = self.desk.submit(&self.sent, offers, make, [threads; 2], None);
        let sent = self.sent.0.load(Ordering::Relaxed) - before;
        if wanted > free {
            assert_eq!((result, sent), (Err(Refused::Full { free }), 0));
        } else {
            assert_eq!(result, Ok(()));
            assert!(sent <= 2 * threads);
            self.entries.extend(writes.into_iter().map(|write| (At::Waiting, write)));
        }
    }

    fn start(&mut self) {
        let (reads_only, of) = (self.random(3) == 0, Side::ALL[self.random(2)]);
        let mut waiting =
            (0..self.entries.len()).filter(|n| side(*n) == of && self.entries[*n].0 == At::Waiting);
        let first = waiting.next().filter(|first| !(reads_only && self.entries[*first].1));
        let started = self.desk.start(of, reads_only);
        assert_eq!(started.as_ref().map(|piece| piece.cookie), first, "in the order in which they came");
        if let Some(piece) = started {
            self.entries[piece.cookie].0 = At::Running;
            self.running.push(piece);
        }
    }

    fn start_some(&mut self) {
        let (reads_only, most, of) = (self.random(3) == 0, 1 + self.random(5), Side::ALL[self.random(2)]);
        let waiting = self.entries.iter().enumerate();
        let waiting = waiting.filter(|(n, (at, _))| side(*n) == of && *at == At::Waiting);
        let waiting = waiting.take_while(|(_, (_, write))| !(reads_only && *write));
        let waiting: Vec<_> = waiting.map(|(cookie, _)| cookie).collect();
        let mut started = VecDeque::new();
        self.desk.start_some(of, reads_only, most, &mut started);
        let keep = self.random(started.len() + 1);
        let mut rest = started.split_off(keep);
        assert!(
            started.len() + rest.len() <= most && (started.len() + rest.len() == 0) == waiting.is_empty()
        );
        self.desk.put_back(&mut rest);
        assert!(rest.is_empty());
        let started = started.into_iter();
        for (piece, first) in started.zip(waiting) {
            assert_eq!(piece.cookie, first, "in the order in which they came");
            self.entries[first].0 = At::Running;
            self.running.push(piece);
        }
    }

    fn end_together(&mut self) {
        let count = self.random(self.running.len() + 1);
        let pieces: Vec<_> = self.running.drain(..count).collect();
        let cookies: Vec<_> = pieces.iter().map(|piece| piece.cookie).collect();
        let mut tickets = pieces.into_iter().map(|piece| (piece.ticket, piece.cookie)).collect();
        crate::ticket::complete_all(&mut tickets);
        cookies.into_iter().for_each(|cookie| self.ended(cookie, End::Moved(cookie)));
    }

    fn ended(&mut self, cookie: usize, end: End) {
        self.entries[cookie].0 = At::Ended(end);
        self.ended.push_back(cookie);
    }

    fn end(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random(self.running.len());
        let piece = self.running.swap_remove(at);
        let cookie = piece.cookie;
        let end = [End::Moved(cookie), End::Refused, End::Lost][self.random(3)];
        match end {
            End::Moved(count) => piece.end(Ending::Done(Ok(count))),
            End::Refused => piece.end(Ending::Done(Err(Error::os("read", libc::EIO)))),
            _ => drop(piece),
        }
        self.ended(cookie, end);
    }

    fn cancel(&mut self) {
        self.desk.cancel();
        for cookie in 0..self.entries.len() {
            if self.entries[cookie].0 == At::Waiting {
                self.ended(cookie, End::Canceled);
            }
        }
    }

    fn collect(&mut self) {
        let (min, most) = (self.random(4), self.random(8));
        for event in self.desk.collect(min.min(most), most, Some(Duration::ZERO)).unwrap() {
            let cookie = event.cookie as usize;
            assert_eq!(self.ended.pop_front(), Some(cookie), "in the order in which they ended");
            let end = match &event.status {
                EventStatus::Complete(moved) => End::Moved(*moved),
                EventStatus::Failed(error) if error.kind() == ErrorKind::Io => End::Refused,
                EventStatus::Failed(_) => End::Lost,
                EventStatus::Canceled => End::Canceled,
                EventStatus::TimedOut => panic!("no entry has a time"),
            };
            assert_eq!(self.entries[cookie].0, At::Ended(end));
            self.entries[cookie].0 = At::Collected;
        }
    }

    /// Nothing comes out of a closed desk, and nothing goes in.
    fn close(mut self) {
        self.running.drain(..).for_each(drop);
        self.desk.close();
        assert!(self.desk.collect(1, 8, None).unwrap().is_empty());
        let none = [Offer { cookie: 0, note: 0, piece: () }].into_iter();
        let make = |(), _: Ticket| unreachable!("a closed desk accepts nothing");
        assert_eq!(self.desk.submit(&self.sent, none, make, [1; 2], None), Err(Refused::Closed));
        assert!(Side::ALL.iter().all(|side| self.desk.start(*side, false).is_none()));
    }

    fn check(&self) {
        let state = self.desk.lock();
        assert_eq!(state.slots.waiting(), self.count(At::Waiting));
        assert_eq!(state.slots.running(), self.running.len());
        assert_eq!(state.slots.finished(), self.ended.len());
        assert_eq!(state.slots.occupied(), self.occupied());
        // Exactly the entries under way have a place, each one of its own.
        let mut notes: Vec<_> = state.places.iter().flatten().map(|place| place.note).collect();
        notes.sort_unstable();
        let under_way = |at: &At| matches!(at, At::Waiting | At::Running);
        let expected = self.entries.iter().enumerate().filter(|(_, (at, _))| under_way(at));
        assert!(notes.into_iter().eq(expected.map(|(cookie, _)| cookie)));
        assert_eq!(state.free.len() + state.slots.in_flight(), state.places.len());
        assert!(state.places.len() <= self.capacity);
    }
}

/// Where nothing comes back others serve, of each side apart, but not everybody; and to be given more is no progress.
#[test]
fn what_hangs_is_left_to_few_threads_and_keeps_nobody_of_the_other_side() {
    let desk = Arc::new(Desk::new(300, None).unwrap());
    let sent = Sent::default();
    let far = |n: usize| 3 * n;
    let submit = |cookies: &[usize], threads| {
        let offers = cookies.iter().map(|cookie| Offer { cookie: 0, note: *cookie, piece: *cookie });
        let make = |cookie, ticket| Piece { cookie, write: false, home: sent.clone(), ticket };
        desk.submit(&sent, offers, make, threads, None).unwrap();
        sent.0.swap(0, Ordering::Relaxed)
    };
    let look = || {
        assert!(desk.collect(0, 1, Some(Duration::ZERO)).unwrap().is_empty());
        sent.0.swap(0, Ordering::Relaxed)
    };
    let stuck = || {
        desk.lock().crews.iter_mut().for_each(|crew| crew.moved -= STUCK);
        look()
    };
    let end = |piece: Piece| {
        piece.end(Ending::Done(Ok(1)));
        assert_eq!(desk.collect(1, 1, None).unwrap().len(), 1);
    };
    let next = |side| desk.start(side, false).unwrap();

    assert_eq!(submit(&(0..200).map(far).collect::<Vec<_>>(), [4, 4]), 4);
    assert_eq!(submit(&[1, 2], [1, 4]), 1, "near entries have threads of their own");
    let mut hung = vec![next(Side::Far), next(Side::Far)];
    assert_eq!(next(Side::Near).cookie, 1, "and wait for none of the others");
    assert_eq!(desk.collect(1, 1, None).unwrap().len(), 1, "it was lost");
    // Submitting goes on meanwhile.
    desk.lock().crews[Side::Far as usize].moved -= STUCK;
    assert_eq!(submit(&[far(200)], [0, 0]), 0);
    assert_eq!(look(), SENT);
    end(next(Side::Near));
    assert_eq!([stuck(), stuck(), stuck()], [12, 0, 0], "these are enough at storage that hangs");
    // What is near gets its threads at once.
    assert_eq!(submit(&[4, far(201)], [2, 4]), 1);
    end(next(Side::Near));
    // The storage answers: who serves may do the rest.
    end(hung.remove(0));
    let crew = desk.lock().crews[Side::Far as usize];
    assert_eq!((crew.stuck, crew.serving), (0, MOST_STUCK));
    assert_eq!(submit(&[far(202)], [2, 2]), 0);
    assert_eq!(next(Side::Far).cookie, far(2), "in the order in which they came");
    drop(hung);
    // What waits has the desk.
    desk.close();
    assert_eq!(Arc::strong_count(&desk), 1, "nothing has it any more");
}

#[test]
fn behaviour_77_a_hundred_thousand_random_steps_give_one_event_for_each_entry() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    // Miri is a thousand times slower.
    for _ in 0..if cfg!(miri) { 2 } else { 500 } {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d) | 1;
        let mut model = Model::new(1 + (seed >> 40) as usize % 20, seed);
        for _ in 0..200 {
            match model.random(25) {
                0..5 => model.submit(),
                5..10 => model.start(),
                10..12 => model.start_some(),
                12..17 => model.end(),
                17..19 => model.end_together(),
                19..24 => model.collect(),
                _ => model.cancel(),
            }
            model.check();
        }
        model.close();
    }
}
