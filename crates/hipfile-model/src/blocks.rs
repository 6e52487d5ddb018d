//! The pool of staging Blocks: nobody has what another has, and everybody who waits is served.

use shuttle::sync::Barrier;

use crate::block::BlockPool;
use crate::explore;
use crate::sync::{Arc, thread};

const LEN: usize = 4096;

/// Takes a Block, uses it while others run, and returns it.
fn use_one(pool: &BlockPool, mark: u8) {
    let mut block = pool.take(None).expect("memory");
    let byte = &mut block.bytes_mut()[0];
    *byte = mark;
    thread::yield_now();
    assert_eq!(block.bytes()[0], mark, "nobody else has this Block");
}

fn contend(blocks: usize, takers: u8, trim: bool) {
    let pool = BlockPool::new(LEN, blocks * LEN, None);
    let threads: Vec<_> = (0..takers)
        .map(|taker| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || (0..2).for_each(|round| use_one(&pool, 10 * taker + round)))
        })
        .collect();
    if trim {
        pool.trim(0);
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let all: Vec<_> = std::iter::from_fn(|| pool.try_take(None)).collect();
    assert!(all.len() <= blocks, "{} of {blocks} Blocks", all.len());
    drop(all);
    let again: Vec<_> =
        (0..blocks).map_while(|_| pool.try_take(None).or_else(|| pool.take(None).ok())).collect();
    assert_eq!(again.len(), blocks, "every Block came back");
}

/// More takers than Blocks.
pub fn all_takers_are_served(runs: usize) {
    explore(runs, || contend(1, 3, false));
    // Enough that two wait while two Blocks come back.
    explore(runs, || contend(2, 4, false));
}

/// The same, while memory is given back.
pub fn trimming_takes_nobody_s_block(runs: usize) {
    explore(runs, || contend(2, 3, true));
}

/// Blocks that are lost while others wait for them: each who waits gets another, and nobody a lost one.
pub fn a_lost_block_leaves_nobody_waiting(runs: usize) {
    explore(runs, || {
        let pool = BlockPool::new(LEN, LEN, None);
        let threads = [true, false, true].map(|loses| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let mut block = pool.take(None).expect("memory");
                block.bytes_mut()[0] = 1;
                thread::yield_now();
                if loses {
                    block.lose();
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(pool.take(None).is_ok());
    });
}

/// Two Blocks that come back serve two who wait, also if neither of them is quick to return his.
pub fn a_free_block_waits_for_nobody(runs: usize) {
    explore(runs, || {
        let pool = BlockPool::new(LEN, 2 * LEN, None);
        let held = [pool.take(None).expect("memory"), pool.take(None).expect("memory")];
        let both = Arc::new(Barrier::new(2));
        let takers = [(); 2].map(|()| {
            let (pool, both) = (Arc::clone(&pool), Arc::clone(&both));
            thread::spawn(move || {
                let _block = pool.take(None).expect("memory");
                both.wait();
            })
        });
        drop(held);
        takers.into_iter().for_each(|taker| taker.join().expect("no panic"));
    });
}
