//! What is looked up while others change it: registrations by id and by address, and what files have taught about paths.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::explore;
use crate::health::{Breaker, Demoted};
use crate::notice_turn::Turn;
use crate::op::Op;
use crate::pace::{FROM, Pace};
use crate::rangemap::{RangeMap, Ranged, Removal};
use crate::registry::Registry;
use crate::sync::{Arc, thread};

/// An id gives what it was given out for or nothing, also when its place has another by then; and one of several who remove it
/// has it.
pub fn an_id_means_one_thing(runs: usize) {
    explore(runs, || {
        let registry = Arc::new(Registry::new());
        let first = registry.insert(Arc::new(1)).expect("room");
        let removers = [(); 2].map(|()| {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                let had = registry.remove(first).is_some();
                // Its place is taken again at once.
                let id = registry.insert(Arc::new(2)).expect("room");
                assert_ne!(id, first);
                assert_eq!(registry.get(id).as_deref(), Some(&2));
                (usize::from(had), id)
            })
        });
        for _ in 0..3 {
            assert!(registry.get(first).is_none_or(|found| *found == 1));
        }
        let ended = removers.map(|remover| remover.join().expect("no panic"));
        assert_eq!(ended[0].0 + ended[1].0, 1, "one has removed it");
        assert_ne!(ended[0].1, ended[1].1);
        assert!(registry.get(first).is_none());
        let mut rest: Vec<i32> = registry.drain().iter().map(|value| **value).collect();
        rest.sort_unstable();
        assert_eq!(rest, [2, 2]);
        assert!(ended.iter().all(|(_, id)| registry.get(*id).is_none() && registry.remove(*id).is_none()));
    });
}

struct Range(usize, usize);

impl Ranged for Range {
    fn base(&self) -> usize {
        self.0
    }

    fn len(&self) -> usize {
        self.1
    }
}

/// Of two who register one base one is refused, of two who remove it one does; who looks sees the registrations of one moment.
pub fn registrations_are_seen_as_they_were_at_one_moment(runs: usize) {
    explore(runs, || {
        let map = Arc::new(RangeMap::new());
        // One around all is there always; of the two inside the lower one comes first and goes last.
        map.insert(Arc::new(Range(1000, 1000))).map_err(drop).expect("a fresh base");
        let changes = {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                map.insert(Arc::new(Range(1100, 200))).map_err(drop).expect("a fresh base");
                map.insert(Arc::new(Range(1200, 100))).map_err(drop).expect("a fresh base");
                assert!(matches!(map.remove(1200, |_| true), Removal::Done(_)));
                assert!(matches!(map.remove(1100, |_| true), Removal::Done(_)));
            })
        };
        let rivals = [(); 2].map(|()| {
            let map = Arc::clone(&map);
            thread::spawn(move || {
                let added = map.insert(Arc::new(Range(1500, 10))).is_ok();
                (added, matches!(map.remove(1500, |_| true), Removal::Done(_)))
            })
        });
        for _ in 0..2 {
            let view = map.view();
            let of = |start, len| view.holding(start, len).map(|range| range.0);
            assert_eq!(of(1000, 1000), Some(1000));
            let (upper, lower) = (view.exact(1200).is_some(), view.exact(1100).is_some());
            assert!(lower || !upper, "the upper one is never there without the lower");
            let innermost = if upper {
                1200
            } else if lower {
                1100
            } else {
                1000
            };
            assert_eq!(of(1250, 10), Some(innermost));
            assert_eq!(view.exact(1500).is_some(), of(1500, 10) == Some(1500));
        }
        changes.join().expect("no panic");
        let ended = rivals.map(|rival| rival.join().expect("no panic"));
        let count = |which: fn(&(bool, bool)) -> bool| ended.iter().filter(|one| which(one)).count();
        assert!(count(|one| one.0) >= 1 && count(|one| one.0) == count(|one| one.1), "{ended:?}");
        assert_eq!(map.drain().len(), 1, "the one around all");
    });
}

/// Failures of several threads begin one rest, and after a success that nothing comes after there is none.
pub fn a_path_rests_once_and_is_forgiven(runs: usize) {
    explore(runs, || {
        let breaker = Arc::new(Breaker::default());
        let fail = |times: usize| {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || (0..times).filter_map(|_| breaker.failed(libc::ENODEV)).collect::<Vec<_>>())
        };
        let rests: Vec<Duration> =
            [fail(5), fail(5)].into_iter().flat_map(|t| t.join().expect("no panic")).collect();
        assert_eq!(rests, [Duration::from_secs(1)], "one rest, and the shortest");
        assert!(!breaker.is_open());
        let (late, success) = (fail(1), {
            let breaker = Arc::clone(&breaker);
            thread::spawn(move || breaker.succeeded())
        });
        success.join().expect("no panic");
        late.join().expect("no panic");
        breaker.succeeded();
        assert!(breaker.is_open());
        assert!(fail(7).join().expect("no panic").is_empty() && breaker.is_open(), "the row begins anew");
        assert_eq!(fail(1).join().expect("no panic"), [Duration::from_secs(1)]);
    });
}

/// What one thread has learnt of a kind of ranges is not lost to what another learns.
pub fn all_that_is_refused_is_remembered(runs: usize) {
    explore(runs, || {
        let demoted = Arc::new(Demoted::default());
        let learners = [(Op::Read, 9), (Op::Read, 12), (Op::Write, 9)].map(|(op, class)| {
            let demoted = Arc::clone(&demoted);
            thread::spawn(move || {
                demoted.insert(op, class);
                assert!(demoted.contains(op, class));
            })
        });
        learners.into_iter().for_each(|learner| learner.join().expect("no panic"));
        assert!(
            demoted.contains(Op::Read, 9) && demoted.contains(Op::Read, 12) && demoted.contains(Op::Write, 9)
        );
        assert!(!demoted.contains(Op::Write, 12));
    });
}

/// However threads take turns, half of the first transfers try each way, and both ways get a rate.
pub fn both_ways_are_tried(runs: usize) {
    explore(runs, || {
        let pace = Arc::new(Pace::default());
        let threads = [(); 2].map(|()| {
            let pace = Arc::clone(&pace);
            thread::spawn(move || {
                let one = |_| {
                    let staged = pace.turn(Op::Read).is_some();
                    let took = Duration::from_millis(if staged { 1 } else { 6 });
                    pace.measured(Op::Read, !staged, FROM, took);
                    usize::from(staged)
                };
                (0..4).map(one).sum::<usize>()
            })
        });
        let staged: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!(staged, 4, "every other of eight");
        let rates = pace.rates(Op::Read);
        assert!(
            rates.direct > 0 && rates.staged > rates.direct && !pace.prefers_direct(Op::Read),
            "{rates:?}"
        );
        assert!(pace.turn(Op::Read).is_some());
    });
}

/// Nobody has a turn while another has it, also after one that a fork left behind; and who does not get one is told.
pub fn a_turn_is_one_thread_s(runs: usize) {
    explore(runs, || {
        let (turn, busy, had) =
            (Arc::new(Turn::new()), Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = [(); 3].map(|()| {
            let (turn, busy, had) = (Arc::clone(&turn), Arc::clone(&busy), Arc::clone(&had));
            thread::spawn(move || {
                let done = turn.take(|| {
                    assert!(!busy.swap(true, Ordering::Relaxed), "one at a time");
                    thread::yield_now();
                    busy.store(false, Ordering::Relaxed);
                    had.fetch_add(1, Ordering::Relaxed);
                });
                usize::from(done.is_some())
            })
        });
        let done: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
        assert_eq!(done, had.load(Ordering::Relaxed));
        assert!(turn.take(|| ()).is_some(), "it was given back");
    });
}
