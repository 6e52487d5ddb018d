//! Threads that carry queued work, threads that help a call, and the count of uses that says what may be deregistered.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::sync::mpsc;

use crate::explore;
use crate::pool::Helpers;
use crate::sync::{Arc, thread};
use crate::usage::{Hold, Usage, Used};
use crate::watch::Watch;
use crate::workers::{Came, Workers};

/// Every job runs once, also those queued just before the workers are dropped.
pub fn every_job_runs(runs: usize) {
    explore(runs, || {
        let workers = Arc::new(Workers::new("model", 2));
        let (done, ended) = mpsc::channel();
        let pushers: Vec<_> = (0..2)
            .map(|pusher| {
                let (workers, done) = (Arc::clone(&workers), done.clone());
                thread::spawn(move || {
                    for job in 0..3 {
                        let done = done.clone();
                        workers.push(Box::new(move || {
                            done.send(3 * pusher + job).expect("somebody counts");
                            if job == 1 { Came::ForNothing } else { Came::ForWork }
                        }));
                    }
                })
            })
            .collect();
        drop((workers, done));
        pushers.into_iter().for_each(|pusher| pusher.join().expect("no panic"));
        let mut seen: Vec<i32> = ended.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    });
}

/// What is to be looked at is looked at until that is done, also what is added last, and the thread ends.
pub fn all_that_is_watched_comes_about(runs: usize) {
    explore(runs, || {
        let watch = Watch::new("model");
        assert!(watch.start() && watch.start());
        let (told, ended) = mpsc::channel();
        let word = Arc::new(AtomicUsize::new(0));
        for wanted in 1..=2 {
            let (word, told) = (Arc::clone(&word), told.clone());
            let mut done = false;
            watch.add(Box::new(move || {
                assert!(!done, "done is done");
                done = word.load(Ordering::Relaxed) >= wanted;
                if done {
                    told.send(wanted).expect("somebody counts");
                }
                done
            }));
            thread::yield_now();
        }
        drop((watch, told));
        for _ in 0..2 {
            word.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
        }
        let mut seen: Vec<_> = ended.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

/// When a shared call returns, all of it is done and no helper is in it any more.
pub fn helpers_are_gone_when_the_call_returns(runs: usize) {
    explore(runs, || {
        let helpers = Arc::new(Helpers::new(2));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let helpers = Arc::clone(&helpers);
                thread::spawn(move || {
                    let (next, inside, done) =
                        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
                    helpers.share(2, &|| {
                        inside.fetch_add(1, Ordering::Relaxed);
                        while next.fetch_add(1, Ordering::Relaxed) < 3 {
                            thread::yield_now();
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        inside.fetch_sub(1, Ordering::Relaxed);
                    });
                    assert_eq!((done.into_inner(), inside.into_inner()), (3, 0));
                })
            })
            .collect();
        drop(helpers);
        callers.into_iter().for_each(|caller| caller.join().expect("no panic"));
    });
}

#[derive(Default)]
struct Object {
    usage: Usage,
    gone: AtomicBool,
}

impl Used for Object {
    fn usage(&self) -> &Usage {
        &self.usage
    }
}

/// No more have a turn at a time than there are turns, and everybody gets one.
pub fn everybody_gets_a_turn(runs: usize) {
    explore(runs, || {
        let (turns, now) = (Arc::new(crate::turns::Turns::new(2)), Arc::new(AtomicUsize::new(0)));
        let threads = [(); 4].map(|()| {
            let (turns, now) = (Arc::clone(&turns), Arc::clone(&now));
            thread::spawn(move || {
                let _turn = turns.take();
                assert!(now.fetch_add(1, Ordering::SeqCst) < 2);
                thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

/// What is deregistered is in nobody's use, and nobody begins to use it.
pub fn nothing_in_use_is_retired(runs: usize) {
    explore(runs, || {
        let object = Arc::new(Object::default());
        let users: Vec<_> = (0..2)
            .map(|_| {
                let object = Arc::clone(&object);
                thread::spawn(move || {
                    for _ in 0..2 {
                        let Some(hold) = Hold::new(Arc::clone(&object)) else { continue };
                        assert!(!hold.gone.load(Ordering::Relaxed));
                        thread::yield_now();
                        assert!(!hold.gone.load(Ordering::Relaxed));
                    }
                })
            })
            .collect();
        if object.usage.retire() {
            object.gone.store(true, Ordering::Relaxed);
        }
        users.into_iter().for_each(|user| user.join().expect("no panic"));
        assert!(object.gone.load(Ordering::Relaxed) || object.usage.retire(), "unused in the end");
        assert!(Hold::new(object).is_none());
    });
}
