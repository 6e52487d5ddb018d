//! Tests of the pool of Blocks.

use super::*;

#[test]
fn blocks_are_distinct_aligned_and_come_back() {
    let pool = BlockPool::new(64 << 10, 100 << 16, None);
    let mut taken: Vec<_> = (0..100).map(|_| pool.take(None).unwrap()).collect();
    let mut starts: Vec<_> = taken.iter().map(|b| b.start.addr().get()).collect();
    for (n, block) in taken.iter_mut().enumerate() {
        block.bytes_mut().fill(n as u8);
    }
    for (n, block) in taken.iter().enumerate() {
        assert!(block.bytes().iter().all(|b| *b == n as u8));
        assert_eq!(block.bytes().len(), 64 << 10);
    }
    starts.sort_unstable();
    assert!(starts.windows(2).all(|w| w[1] - w[0] >= 64 << 10));
    assert!(starts.iter().all(|s| s % 4096 == 0));
    assert_eq!(pool.resident(), 100 << 16);
    drop(taken);
    let again = pool.take(None).unwrap();
    assert!(starts.contains(&again.start.addr().get()));
}

#[test]
fn a_large_transfer_has_more_blocks_than_the_pool_began_with() {
    let pool = BlockPool::new(1 << 20, 10 << 20, None);
    let first = pool.take(None).unwrap();
    let began = pool.resident() / pool.block_len();
    assert!(began < 10);
    let ready: Vec<_> = std::iter::from_fn(|| pool.try_take(None)).collect();
    assert_eq!(ready.len() + 1, began);
    let more: Vec<_> = std::iter::from_fn(|| pool.try_take_more(None)).collect();
    assert_eq!(ready.len() + more.len() + 1, 10, "up to the limit");
    drop((first, ready, more));
}

#[test]
fn adjacent_blocks_are_one_range_and_come_back_one_by_one() {
    let pool = BlockPool::new(1 << 20, 8 << 20, None);
    assert_eq!([1, 2 << 20, 64 << 20].map(|len| pool.adjacent(len)), [1, 2, 4]);
    let one = pool.take(None).unwrap();
    let mut pairs: Vec<_> = std::iter::from_fn(|| pool.try_take_wide(None, 2)).collect();
    assert_eq!(pairs.len(), 3, "one slab has an odd Block, the other two pairs");
    for (n, pair) in pairs.iter_mut().enumerate() {
        assert_eq!(pair.bytes().len(), 2 << 20);
        pair.bytes_mut().fill(n as u8);
    }
    assert!(pairs.iter().enumerate().all(|(n, pair)| pair.bytes().iter().all(|b| *b == n as u8)));
    let odd = pool.try_take(None).unwrap();
    assert!(pool.try_take(None).is_none() && pool.try_take_wide(None, 2).is_none());
    // Of a pair that comes back when the limit is between its Blocks, one may be used.
    pool.limit(7 << 20);
    drop((pairs, one, odd));
    let singles: Vec<_> = std::iter::from_fn(|| pool.try_take_more(None)).collect();
    assert_eq!(singles.len(), 7);
    drop(singles);
    let whole = pool.try_take_wide(None, 4).unwrap();
    assert_eq!(whole.bytes().len(), 4 << 20);
}

#[test]
fn takers_wait_in_turn_and_all_are_served() {
    let pool = BlockPool::new(64 << 10, 2 << 16, None);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let mut block = pool.take(None).unwrap();
                    let mine = served.fetch_add(1, Ordering::Relaxed) as u8;
                    block.bytes_mut()[..64].fill(mine);
                    std::hint::spin_loop();
                    assert!(block.bytes()[..64].iter().all(|b| *b == mine));
                }
            });
        }
    });
    assert_eq!(served.into_inner(), 8000);
    assert_eq!(pool.waiting.load(Ordering::SeqCst), 0);
    assert_eq!(pool.resident(), 2 << 16);
}

#[test]
fn takers_are_served_in_the_order_in_which_they_came() {
    let pool = BlockPool::new(64 << 10, 1, None);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let held = pool.take(None).unwrap();
        for n in 0..16 {
            let (pool, order) = (&pool, &order);
            scope.spawn(move || {
                let _block = pool.take(None).unwrap();
                order.lock().unwrap().push(n);
            });
            while pool.lock().queue.len() <= n {
                std::thread::yield_now();
            }
        }
        drop(held);
    });
    assert_eq!(order.into_inner().unwrap(), (0..16).collect::<Vec<_>>());
}

#[test]
fn a_pool_of_one_block_serves_everyone() {
    let pool = BlockPool::new(1 << 20, 1, None);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..200).for_each(|_| drop(pool.take(None).unwrap())));
        }
    });
    assert_eq!(pool.resident(), 1 << 20);
}

#[test]
fn pins_what_is_there_and_what_comes() {
    let pool = BlockPool::new(4 << 20, 12 << 20, None);
    let pinned = Arc::new(Mutex::new(0));
    let one = pool.take(None).unwrap();
    let (up, down) = (Arc::clone(&pinned), Arc::clone(&pinned));
    pool.pin_with(Pin {
        runtime: "what_comes",
        pin: Box::new(move |_, len| *up.lock().unwrap() += len),
        unpin: Box::new(move |_| *down.lock().unwrap() -= 4 << 20),
    });
    assert_eq!(*pinned.lock().unwrap(), 4 << 20);
    let two = pool.take(None).unwrap();
    assert_eq!(*pinned.lock().unwrap(), 8 << 20);
    assert_eq!(pool.trim(0), 0, "Blocks in use keep their slabs");
    drop((one, two));
    assert_eq!(pool.trim(1), 4 << 20);
    assert_eq!((*pinned.lock().unwrap(), pool.resident()), (4 << 20, 4 << 20));
    let again: Vec<_> = (0..3).map(|_| pool.take(None).unwrap()).collect();
    assert_eq!((*pinned.lock().unwrap(), pool.resident()), (12 << 20, 12 << 20));
    assert!(again.iter().all(|b| b.bytes().len() == 4 << 20));
}

#[test]
fn an_idle_pool_keeps_one_slab() {
    let pool = BlockPool::new(4 << 20, 16 << 20, Some(Duration::from_millis(20)));
    drop((0..4).map(|_| pool.take(None).unwrap()).collect::<Vec<_>>());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while pool.resident() > 4 << 20 {
        assert!(std::time::Instant::now() < deadline, "{} bytes are kept", pool.resident());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((0..4).map(|_| pool.take(None).unwrap()).collect::<Vec<_>>());
    assert_eq!(pool.resident(), 16 << 20);
}

/// Nothing of a pool that is gone is left, however long it would have waited to be idle.
#[test]
fn the_thread_of_a_pool_ends_with_it() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter(|task| std::fs::read(task.path().join("comm")).is_ok_and(|c| c == b"hipfile-trim\n"))
            .count()
    };
    // Those of the tests beside this one end soon.
    let within = |what: &str, is_so: &dyn Fn(usize) -> bool| {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        while !is_so(threads()) {
            assert!(std::time::Instant::now() < deadline, "{what}: {} threads", threads());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for _ in 0..50 {
        let pool = BlockPool::new(4 << 20, 8 << 20, Some(Duration::from_secs(3600)));
        drop((0..2).map(|_| pool.take(None).unwrap()).collect::<Vec<_>>());
        within("there is one", &|n| n > 0);
    }
    within("they have ended", &|n| n == 0);
}

fn counting(count: impl Fn(usize) + Send + Sync + 'static, runtime: &'static str) -> Pin {
    Pin { runtime, pin: Box::new(move |_, len| count(len)), unpin: Box::new(|_| {}) }
}

#[test]
fn pinned_memory_goes_to_the_next_pool() {
    // A length that no other test uses: they run beside this one.
    const LEN: usize = 5 << 20;
    let times = Arc::new(AtomicUsize::new(0));
    let mut starts = Vec::new();
    for _ in 0..5 {
        let pool = BlockPool::new(LEN, LEN, None);
        let seen = Arc::clone(&times);
        let count = move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        };
        pool.pin_with(counting(count, "next_pool"));
        starts.push(pool.take(None).unwrap().start);
    }
    assert!(starts.iter().all(|start| *start == starts[0]));
    assert_eq!(times.load(Ordering::Relaxed), 1);

    // A pool that pins nothing must not unmap what is pinned.
    let pool = BlockPool::new(LEN, LEN, None);
    assert_eq!(pool.take(None).unwrap().start, starts[0]);
    drop(pool);
    assert_eq!(left::take(LEN).unwrap(), (starts[0], vec!["next_pool"]));
}

#[test]
fn a_lost_block_is_replaced_and_never_given_out_again() {
    for (len, most) in [(64 << 10, 1), (64 << 10, 70), (1 << 20, 5), (8 << 20, 2)] {
        let pool = BlockPool::new(len, most * len, None);
        let before = pool.most();
        let lost: Vec<_> = (0..most)
            .map(|_| {
                let block = pool.take(None).unwrap();
                let start = block.start;
                block.lose();
                start
            })
            .collect();
        // Without others in their place this would wait for ever.
        let mut taken = vec![pool.take(None).unwrap()];
        taken.extend(std::iter::from_fn(|| pool.try_take_more(None)).take(most - 1));
        assert_eq!(taken.len(), most, "as many as before, of {len} bytes");
        assert!(taken.iter().all(|block| !lost.contains(&block.start)));
        assert_eq!(pool.most(), before, "what is lost is not counted");
        drop(taken);
        drop(pool);
        // Whoever has lost Blocks in mind may still write to them: their memory is still there.
        for start in lost {
            // SAFETY: it was left mapped.
            unsafe { start.as_ptr().write(1) };
        }
    }
}

#[test]
fn who_never_gives_a_block_back_keeps_nobody_waiting() {
    let pool = BlockPool::new(64 << 10, 2 << 16, None);
    let (first, second) = (pool.take(None).unwrap(), pool.take(None).unwrap());
    assert_eq!(pool.take(None).err(), Some(libc::ENOMEM));
    assert!(pool.stuck.load(Ordering::SeqCst), "the next need not wait to know");
    assert_eq!(pool.take(None).err(), Some(libc::ENOMEM));
    drop(first);
    let third = pool.take(None).unwrap();
    // Now somebody gives one back, if late.
    std::thread::scope(|scope| {
        let fourth = scope.spawn(|| pool.take(None).map(drop));
        while pool.waiting.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(third);
        assert!(fourth.join().unwrap().is_ok());
    });
    drop(second);
    assert_eq!(pool.waiting.load(Ordering::SeqCst), 0);
}
