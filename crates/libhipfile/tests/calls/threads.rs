//! First use by many threads at once, and closing under their hands.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const THREADS: usize = 64;

/// Runs `body` in 64 threads that start together.
fn together(body: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let (barrier, body) = (&barrier, &body);
            scope.spawn(move || {
                barrier.wait();
                body(n);
            });
        }
    });
}

#[test]
fn first_registrations_of_files_open_once() {
    start();
    let files: Vec<_> = (0..THREADS).map(|_| file(b"x")).collect();
    together(|n| assert!(register(files[n].as_raw_fd()).is_ok()));
    assert_eq!(hipFileUseCount(), 1);
}

#[test]
fn first_registrations_of_memory_open_once() {
    start();
    let device = Device::new(THREADS * 4096, 0);
    let start = device.start.addr();
    together(|n| ok(register_memory(core::ptr::without_provenance(start + n * 4096), 4096)));
    assert_eq!(hipFileUseCount(), 1);
}

#[test]
fn behaviour_49_first_calls_of_all_kinds_open_once_and_count_right() {
    start();
    let files: Vec<_> = (0..THREADS).map(|_| file(b"0123456789")).collect();
    let device = Device::new(THREADS * 4096, 0);
    let start = device.start.addr();
    let opened = AtomicUsize::new(0);
    together(|n| {
        let memory = core::ptr::without_provenance_mut(start + n * 4096);
        match n % 4 {
            0 => {
                ok(hipFileDriverOpen());
                opened.fetch_add(1, Ordering::Relaxed);
            }
            1 => assert!(register(files[n].as_raw_fd()).is_ok()),
            2 => ok(register_memory(memory, 4096)),
            // Before or after the driver is open: never anything else.
            _ => {
                let (n, _) = read(core::ptr::null_mut(), memory, 1, 0, 0);
                assert!([-1, -5027].contains(&n), "{n}");
            }
        }
    });
    // An implicit opening counts only if it came first.
    let (count, opened) = (hipFileUseCount(), opened.into_inner() as i64);
    assert!([opened, opened + 1].contains(&count), "{count} after {opened} calls of DriverOpen");
    for _ in 0..count {
        ok(hipFileDriverClose());
    }
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
}

#[test]
fn opens_and_closes_in_many_threads_balance() {
    start();
    ok(hipFileDriverOpen());
    together(|n| {
        for round in 0..50 {
            ok(hipFileDriverOpen());
            assert!(hipFileUseCount() >= 1);
            if (n + round) % 3 == 0 {
                std::thread::yield_now();
            }
            ok(hipFileDriverClose());
        }
    });
    assert_eq!(hipFileUseCount(), 1);
    ok(hipFileDriverClose());
}

#[test]
fn closing_races_with_reads() {
    start();
    let device = Device::new(THREADS * 4096, 0);
    let start = device.start.addr();
    let files: Vec<_> = (0..THREADS).map(|_| file(b"0123456789")).collect();
    together(|n| {
        let to = core::ptr::without_provenance_mut(start + n * 4096);
        for _ in 0..50 {
            if n % 8 == 0 {
                ok(hipFileDriverOpen());
                // Another thread may have closed it: the count is the process's.
                let closed = code(hipFileDriverClose());
                assert!([hipFileSuccess, hipFileDriverNotInitialized].contains(&closed));
                continue;
            }
            // Registered already if nobody closed since the last round.
            let Ok(handle) = register(files[n].as_raw_fd()) else { continue };
            let (n, errno) = read(handle, to, 10, 0, 0);
            assert!(n == 10 || n == -5027 || (n == -1 && errno == libc::EINVAL), "{n}");
            if n % 2 == 0 {
                hipFileHandleDeregister(handle);
            }
        }
    });
    while hipFileUseCount() > 0 {
        ok(hipFileDriverClose());
    }
}
