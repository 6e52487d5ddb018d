//! Small reads of streams around the page cache, which the kernel does by itself: that it does, which bytes come, and that what it
//! does not do comes all the same.

use std::sync::atomic::Ordering;

use hipfile::PageCache;
use hipfile::faults::{self, Site, What, When};

use crate::support::streams::{Bench, Stream, Variables, Watchdog, word};

const KIB: usize = 1 << 10;
const LEN: usize = 300 * KIB + 123;

/// `None` where such reads are not to be had: the file system has no direct access, or the kernel no such calls.
fn bench() -> Option<Bench> {
    let bench = Bench::new(&["uring", "bounce"], LEN, |c| c.page_cache = PageCache::Direct);
    bench.file.sync_all().unwrap();
    let variables = Variables::new(4096, 0, 0);
    let before = faults::hits(Site::AsideEnd);
    let stream = Stream::free();
    bench.read(stream, 7, &variables).unwrap();
    stream.wait();
    assert_eq!(variables.result().unwrap(), 4096);
    if faults::hits(Site::AsideEnd) == before {
        crate::support::skip("reads that no thread waits for", "not on this file system or kernel");
        return None;
    }
    Some(bench)
}

#[test]
fn the_bytes_are_those_that_were_asked_for() {
    let _watchdog = Watchdog::new(60);
    let Some(bench) = bench() else { return };
    let stream = Stream::free();
    let engines = |name: &str| {
        let stats = bench.driver.stats();
        stats.read.iter().filter(|engine| engine.engine == name).map(|engine| engine.bytes).sum::<u64>()
    };
    let before = engines("bounce");
    let (mut bytes, mut started) = (0, faults::hits(Site::AsideRead));
    for flags in [0, 7] {
        for (len, at, to) in
            [(4096, 0, 0), (1, 4095, 7), (5000, 4097, 100), (40 * KIB, 512, 1), (4096, LEN - 4096, 0)]
        {
            let variables = Variables::new(len, at as i64, to as i64);
            bench.read(stream, flags, &variables).unwrap();
            stream.wait();
            assert_eq!(variables.result().unwrap(), len);
            assert!(bench.memory(to, len) == bench.data[at..at + len], "{len} bytes at {at}");
            bytes += len as u64;
            started += 1;
        }
    }
    assert_eq!((faults::hits(Site::AsideRead), engines("bounce") - before), (started, bytes));
    // What ends where the file does, and what lies behind it.
    for (len, at) in [(4096, LEN - 100), (4096, LEN), (4096, LEN + 5000)] {
        let variables = Variables::new(len, at as i64, 0);
        bench.read(stream, 7, &variables).unwrap();
        stream.wait();
        assert_eq!(variables.result().unwrap(), LEN.saturating_sub(at).min(len));
    }
}

/// Parameters are taken when the stream gets there, and wrong ones are refused then, as of every read.
#[test]
fn parameters_are_bound_late() {
    let _watchdog = Watchdog::new(60);
    let Some(bench) = bench() else { return };
    let stream = Stream::free();
    for (then, expected) in [((100, 8192, 50), Some(100)), ((8192, 0, 0), None), ((10, -1, 0), None)] {
        let held = word();
        stream.hold(held);
        let variables = Variables::new(4096, 0, 0);
        bench.read(stream, 0, &variables).unwrap();
        variables.set(then.0, then.1, then.2);
        held.store(1, Ordering::SeqCst);
        stream.wait();
        assert_eq!(variables.result().ok(), expected, "{then:?}");
    }
    assert!(bench.memory(50, 100) == bench.data[8192..8292]);
}

/// Whatever the kernel says, the bytes come; and it is not asked again at once.
#[test]
fn what_the_kernel_does_not_do_a_thread_does() {
    let _watchdog = Watchdog::new(60);
    let Some(bench) = bench() else { return };
    let stream = Stream::free();
    let refusals = [
        (Site::AsideRead, What::Errno(libc::EAGAIN)),
        (Site::AsideRead, What::Errno(libc::ENOSYS)),
        (Site::AsideEnd, What::Errno(libc::EAGAIN)),
        (Site::AsideEnd, What::Errno(libc::EIO)),
        (Site::AsideEnd, What::Short),
        (Site::AsideWait, What::Errno(libc::EPERM)),
        (Site::AsideWait, What::Errno(libc::EINTR)),
    ];
    for (site, what) in refusals {
        let before = faults::hits(Site::AsideRead);
        for n in 0..40 {
            // Until the next it may be let alone for some.
            faults::inject(site, When::Nth(1), what);
            let variables = Variables::new(5000, n * 4096 + 3, 0);
            bench.read(stream, 7, &variables).unwrap();
            stream.wait();
            assert_eq!(variables.result().unwrap(), 5000, "{site:?} {what:?}");
            assert!(
                bench.memory(0, 5000) == bench.data[n as usize * 4096 + 3..][..5000],
                "{site:?} {what:?}"
            );
        }
        faults::clear();
        let asked = faults::hits(Site::AsideRead) - before;
        // One that failed was carried out all the same.
        let would_not = site == Site::AsideRead || what == What::Errno(libc::EAGAIN);
        assert_eq!(asked <= 4, would_not, "{site:?} {what:?}: {asked} of 40");
    }
}

/// More than can be under way.
#[test]
fn a_thousand_at_once_all_come() {
    let _watchdog = Watchdog::new(60);
    let Some(bench) = bench() else { return };
    let streams: Vec<_> = (0..32).map(|_| Stream::free()).collect();
    let all: Vec<_> = (0..1024)
        .map(|n| {
            let at = n % 64 * 4096;
            let variables = Variables::new(4096, at, at);
            bench.read(streams[n as usize % 32], 7, &variables).unwrap();
            variables
        })
        .collect();
    streams.iter().for_each(|stream| stream.wait());
    assert!(all.iter().all(|variables| matches!(variables.take(), Some(Ok(4096)))));
    assert!(bench.memory(0, 64 * 4096) == bench.data[..64 * 4096]);
}
