//! Queues that wait for words in memory. A GPU looks at them by itself; here one queue's thread looks for all that wait, so
//! that few processors are left to those who set them. It runs nothing.

use core::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::lock::lock;
use crate::op::WaitValue;
use crate::sys;

/// Who waits besides the one that looks.
#[derive(Debug)]
struct Waiting {
    wait: WaitValue,
    /// What it is told.
    told: AtomicU8,
    thread: Thread,
}

const NOTHING: u8 = 0;
/// Its word is there.
const PASSED: u8 = 1;
/// It is the one that looks from now on.
const LOOKS: u8 = 2;

impl Waiting {
    fn tell(&self, what: u8) {
        self.told.store(what, Ordering::Release);
        self.thread.unpark();
    }
}

#[derive(Debug)]
struct Board {
    /// Whether somebody looks.
    looks: bool,
    others: Vec<Arc<Waiting>>,
}

static BOARD: Mutex<Board> = Mutex::new(Board { looks: false, others: Vec::new() });

/// Returns once the word is there.
pub(crate) fn wait_for(wait: WaitValue) {
    if wait.holds() {
        return;
    }
    let mut board = lock(&BOARD);
    if board.looks {
        let told = AtomicU8::new(NOTHING);
        let me = Arc::new(Waiting { wait, told, thread: thread::current() });
        board.others.push(Arc::clone(&me));
        drop(board);
        loop {
            match me.told.load(Ordering::Acquire) {
                NOTHING => thread::park(),
                PASSED => return,
                _ => break,
            }
        }
    } else {
        board.looks = true;
        drop(board);
    }
    look(wait);
}

/// Looks until the word is there, also for all others. Then another does.
fn look(wait: WaitValue) {
    let mut quiet_since = sys::now();
    loop {
        let passed = wait.holds();
        let mut board = lock(&BOARD);
        let before = board.others.len();
        board.others.retain(|other| {
            let waits = !other.wait.holds();
            if !waits {
                other.tell(PASSED);
            }
            waits
        });
        if passed {
            match board.others.pop() {
                Some(other) => other.tell(LOOKS),
                None => board.looks = false,
            }
            return;
        }
        let came = board.others.len() < before;
        drop(board);
        let now = sys::now();
        if came {
            quiet_since = now;
        }
        match now - quiet_since {
            0..100_000 => thread::yield_now(),
            100_000..5_000_000 => thread::sleep(Duration::from_micros(10)),
            _ => thread::sleep(Duration::from_micros(100)),
        }
    }
}
