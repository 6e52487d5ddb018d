//! The staged path as its users see it: what it leaves in the page cache, what it takes from there, what it costs in system
//! calls. Speed is measured by the benchmark table, not here.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

use hipfile::{Buffer, Driver, File, PageCache};

use crate::support::{Random, Storage, driver_with, refuse_flushes, skip};

const MIB: usize = 1 << 20;
/// Windows of 4 MiB are asked about, so less than a few of them would not tell much.
const SIZE: usize = 16 * MIB;

fn staged(page_cache: PageCache) -> Driver {
    driver_with(&["uring", "bounce"], |c| {
        c.block_len = MIB;
        c.pool_len = 16 * MIB;
        c.page_cache = page_cache;
    })
}

/// A file of [`SIZE`] random bytes that lies on the disk.
fn file(storage: &Storage) -> (std::fs::File, Vec<u8>) {
    let mut bytes = vec![0; SIZE];
    Random::new().fill(&mut bytes);
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(storage.path("f"));
    let file = file.unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    (file, bytes)
}

/// Drops the file's pages; bytes of it that are in the page cache.
fn chill(file: &std::fs::File) -> usize {
    // SAFETY: plain calls on an open descriptor.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    cached(file).expect("the owner may ask")
}

/// Bytes of a file that are in the page cache; the errno where the kernel does not tell.
fn cached(file: &std::fs::File) -> Result<usize, i32> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let (range, mut stat) = ([0_u64, 0], [0_u64; 5]);
    // SAFETY: the range is two 64-bit words and the answer five, as the kernel's structs of that call are.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0_u32) };
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap();
    if result == 0 { Ok(stat[0] as usize * 4096) } else { Err(errno()) }
}

/// Bytes that this process has had the storage read.
fn fetched() -> usize {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap();
    line.trim().parse().unwrap()
}

/// Reads the whole file in calls of `block` and checks each byte.
fn read_all(driver: &Driver, plain: &std::fs::File, bytes: &[u8], block: usize) -> File {
    let file = File::register(driver, plain.try_clone().unwrap()).unwrap();
    let mut buffer = Buffer::alloc(driver, 0, block).unwrap();
    let mut got = vec![0; block];
    for (n, want) in bytes.chunks(block).enumerate() {
        let offset = (n * block) as u64;
        assert_eq!(file.read_at(&mut buffer, 0..want.len(), offset).unwrap(), want.len());
        buffer.download(0, &mut got[..want.len()]).unwrap();
        assert!(got[..want.len()] == *want, "the bytes at {offset}");
    }
    file
}

/// The cases here ask the kernel what is cached.
fn can_ask(storage: &Storage) -> bool {
    let (file, _) = file(storage);
    let told = cached(&file);
    std::fs::remove_file(storage.path("f")).unwrap();
    if let Err(errno) = told {
        skip("page cache", &format!("cachestat answers errno {errno}"));
    }
    told.is_ok()
}

#[test]
fn behaviour_113_each_policy_does_what_it_says() {
    let storage = Storage::here();
    if !can_ask(&storage) {
        return;
    }
    let (plain, bytes) = file(&storage);
    // How much of the file is in the page cache after cold reads, at least and at most.
    for (policy, block, least, most) in [
        (PageCache::Auto, 8 * MIB, 0, 0),
        (PageCache::Auto, 64 << 10, SIZE, SIZE),
        (PageCache::Direct, 8 * MIB, 0, 0),
        (PageCache::Direct, 64 << 10, 0, 0),
        (PageCache::Buffered, 8 * MIB, SIZE, SIZE),
        (PageCache::NoCache, 8 * MIB, 0, 0),
    ] {
        // By the driver's setting, and by the file's own against another one of the driver's.
        for own in [false, true] {
            let usual = if own { PageCache::Buffered } else { policy };
            let driver = staged(usual);
            let file = File::register(&driver, plain.try_clone().unwrap()).unwrap();
            file.set_page_cache(own.then_some(policy)).unwrap();
            assert_eq!(chill(&plain), 0, "the kernel keeps pages");
            let mut buffer = Buffer::alloc(&driver, 0, block).unwrap();
            let mut got = vec![0; block];
            for at in (0..SIZE).step_by(block) {
                assert_eq!(file.read_at(&mut buffer, 0..block, at as u64).unwrap(), block);
                buffer.download(0, &mut got).unwrap();
                assert!(got == bytes[at..at + block], "{policy:?}, calls of {block}, at {at}");
            }
            let left = cached(&plain).unwrap();
            assert!(
                (least..=most).contains(&left),
                "{policy:?} ({}), calls of {block}: {left} of {SIZE} bytes are left in the page cache",
                if own { "the file's own" } else { "the driver's" }
            );
        }
    }
}

#[test]
fn behaviour_111_what_is_cached_is_not_read_from_the_disk_again() {
    let storage = Storage::here();
    if !can_ask(&storage) {
        return;
    }
    let (mut plain, bytes) = file(&storage);
    let driver = staged(PageCache::Auto);
    // Warm.
    std::io::copy(&mut plain, &mut std::io::sink()).unwrap();
    let before = fetched();
    read_all(&driver, &plain, &bytes, 8 * MIB);
    assert_eq!(fetched() - before, 0, "a cached file was read from the disk");
    // The second half warm.
    chill(&plain);
    let mut half = vec![0; SIZE / 2];
    plain.read_exact_at(&mut half, (SIZE / 2) as u64).unwrap();
    // The kernel may have read ahead, or not all of it stayed.
    let missing = SIZE - cached(&plain).unwrap();
    let before = fetched();
    read_all(&driver, &plain, &bytes, SIZE);
    let read = fetched() - before;
    // Windows of 4 MiB are decided by samples; one at the edge may go either way.
    assert!(read.abs_diff(missing) <= 4 * MIB, "{read} bytes were read, {missing} were missing");
    // A dirty range: what is in memory only is what must be read.
    let dirty = vec![0x5a; 4 * MIB];
    plain.write_all_at(&dirty, 4 * MIB as u64).unwrap();
    let mut bytes = bytes;
    bytes[4 * MIB..8 * MIB].copy_from_slice(&dirty);
    read_all(&driver, &plain, &bytes, SIZE);
}

/// A model server reads files that it neither owns nor may write: there the kernel does not tell what is cached.
#[test]
fn behaviour_111_another_user_s_cached_file_is_read_from_the_cache_too() {
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return skip("another user's file", "only root can become another user");
    }
    let storage = Storage::here();
    if !can_ask(&storage) {
        return;
    }
    let (mut plain, bytes) = file(&storage);
    plain.set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
    let theirs = std::fs::File::open(storage.path("f")).unwrap();
    let driver = staged(PageCache::Auto);
    // The GPU and the staging memory are made ready while we may.
    drop(Buffer::alloc(&driver, 0, 4096).unwrap());
    std::io::copy(&mut plain, &mut std::io::sink()).unwrap();
    let before = fetched();
    // SAFETY: plain calls; the test has a process of its own.
    assert_eq!(unsafe { libc::setresuid(65_534, 65_534, 0) }, 0);
    let told = cached(&theirs);
    read_all(&driver, &theirs, &bytes, 8 * MIB);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setresuid(0, 0, 0) }, 0);
    if told.is_ok() {
        skip("another user's file: the second way to ask", "this kernel tells every reader what is cached");
    }
    assert_eq!(fetched() - before, 0, "a cached file was read from the disk");
}

#[test]
fn behaviour_115_small_writes_flush_nothing_and_are_seen_by_direct_readers() {
    let storage = Storage::here();
    let driver = staged(PageCache::Auto);
    let (plain, mut bytes) = file(&storage);
    let file = File::register(&driver, plain.try_clone().unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, MIB).unwrap();
    // The first write and read open what they need; from there on a flush would be refused, and show.
    buffer.upload(0, &[bytes[1]]).unwrap();
    file.write_at(&buffer, 0..1, 1).unwrap();
    refuse_flushes();
    let mut part = vec![0; 4096];
    let mut random = Random::new();
    for n in 0..1000 {
        random.fill(&mut part);
        buffer.upload(0, &part).unwrap();
        let at = 4096 * 3 * n + 77;
        assert_eq!(file.write_at(&buffer, 0..4096, at as u64).unwrap(), 4096);
        bytes[at..at + 4096].copy_from_slice(&part);
    }
    file.set_page_cache(Some(PageCache::Direct)).unwrap();
    let mut got = vec![0; MIB];
    for at in (0..SIZE).step_by(MIB) {
        assert_eq!(file.read_at(&mut buffer, 0..MIB, at as u64).unwrap(), MIB);
        buffer.download(0, &mut got).unwrap();
        assert!(got == bytes[at..at + MIB], "a direct read at {at} is stale");
    }
}

#[test]
fn behaviour_116_no_cache_leaves_nothing_however_small_the_calls() {
    let storage = Storage::here();
    if !can_ask(&storage) {
        return;
    }
    let (plain, bytes) = file(&storage);
    for block in [MIB + 1, 4096 - 5, 100_000] {
        chill(&plain);
        read_all(&staged(PageCache::NoCache), &plain, &bytes, block);
        let left = cached(&plain).unwrap();
        assert!(left <= MIB, "calls of {block}: {left} bytes are left in the page cache");
    }
}

#[test]
fn behaviour_117_no_runtime_is_loaded_before_gpu_memory_is_seen() {
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.contains("libamdhip64") || line.contains("libcuda"))
    };
    let storage = Storage::here();
    let (plain, _) = file(&storage);
    assert!(!mapped());
    let driver = Driver::open(hipfile::Config::from_env()).unwrap();
    let file = File::register(&driver, plain).unwrap();
    let _ = driver.stats();
    drop(file);
    driver.close();
    assert!(!mapped(), "a GPU runtime was loaded with no GPU memory in sight");
    assert_eq!(driver.staging_bytes(), 0, "staging memory was taken with no GPU memory in sight");
}

#[test]
fn behaviour_119_requests_wait_in_turn_when_staging_memory_is_used_up() {
    let storage = Storage::here();
    let (plain, bytes) = file(&storage);
    let driver = driver_with(&["uring", "bounce"], |c| c.pool_len = c.block_len);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..32)
            .map(|n| {
                let (driver, plain, bytes) = (&driver, &plain, &bytes);
                scope.spawn(move || {
                    let file = File::register(driver, plain.try_clone().unwrap()).unwrap();
                    let mut buffer = Buffer::alloc(driver, 0, MIB).unwrap();
                    let mut got = vec![0; MIB];
                    let at = (n % 16) * MIB;
                    assert_eq!(file.read_at(&mut buffer, 0..MIB, at as u64).unwrap(), MIB);
                    buffer.download(0, &mut got).unwrap();
                    assert!(got == bytes[at..at + MIB]);
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("no request fails"));
    });
    assert_eq!(driver.stats().read.iter().map(|e| (e.bytes, e.errors)).max(), Some((32 * MIB as u64, 0)));
}

/// 1000 reads more cost 1000 system calls more, and a few of the process around them: no mapping, no lock.
#[test]
fn a_small_warm_read_is_one_system_call() {
    let run = |reads: usize| {
        let own = std::env::current_exe().unwrap();
        let child = ["--exact", "suite::staged::child_reads", "--ignored", "--nocapture"];
        Command::new("strace")
            .args(["-f", "-c", "-U", "calls,name"])
            .arg(own)
            .args(child)
            .env("CHILD_READS", reads.to_string())
            .output()
    };
    let counts = |output: std::process::Output| -> std::collections::HashMap<String, usize> {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let table = String::from_utf8_lossy(&output.stderr).into_owned();
        let rows = table.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let calls = words.next()?.parse().ok()?;
            Some((words.next()?.to_owned(), calls))
        });
        rows.collect()
    };
    let mut seen = Vec::new();
    // The process around the reads, its threads that start and end, makes some calls more or less from run to run.
    for _ in 0..5 {
        let (few, many) = match (run(1000), run(2000)) {
            (Ok(few), Ok(many)) => (few, many),
            (Err(error), _) | (_, Err(error)) => return skip("system calls", &format!("strace: {error}")),
        };
        if String::from_utf8_lossy(&few.stderr).contains("Operation not permitted") {
            return skip("system calls", "strace may not trace here");
        }
        let (few, many) = (counts(few), counts(many));
        let more = |name: &str| {
            many.get(name).copied().unwrap_or(0) as i64 - few.get(name).copied().unwrap_or(0) as i64
        };
        assert_eq!(more("pread64"), 1000);
        if more("total") <= 1020 && ["mmap", "munmap", "madvise", "futex"].iter().all(|name| more(name) <= 2)
        {
            return;
        }
        seen.push((few, many));
    }
    panic!("1000 reads more are more than 1000 system calls more: {seen:?}");
}

/// What the test above counts the system calls of.
#[test]
#[ignore = "a part: run by a_small_warm_read_is_one_system_call"]
fn child_reads() {
    let Ok(reads) = std::env::var("CHILD_READS") else { return };
    let storage = Storage::here();
    let (plain, _) = file(&storage);
    let driver = staged(PageCache::Auto);
    let file = File::register(&driver, plain).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 4096).unwrap();
    for n in 0..reads.parse().unwrap() {
        file.read_at(&mut buffer, 0..4096, (n * 4096 % SIZE) as u64).unwrap();
    }
}

#[test]
fn helpers_have_a_share_of_large_cached_reads() {
    let storage = Storage::here();
    std::fs::write(storage.path("f"), vec![7; 64 * MIB]).unwrap();
    let driver = driver_with(&["bounce"], |c| {
        (c.block_len, c.pool_len, c.io_threads, c.parallel_min) = (MIB, 64 * MIB, 2, MIB);
        c.page_cache = PageCache::Buffered;
    });
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 64 * MIB).unwrap();
    // Nanoseconds that a thread has run, the first number of its schedstat: what it did, not how long it took.
    let ran = |name: &str| {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
        let known =
            tasks.filter(|t| std::fs::read_to_string(t.join("comm")).is_ok_and(|c| c.starts_with(name)));
        let stat = known.filter_map(|task| std::fs::read_to_string(task.join("schedstat")).ok());
        stat.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    let own = || {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        stat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    let before = own();
    for _ in 0..20 {
        assert_eq!(file.read_at(&mut buffer, 0..64 * MIB, 0).unwrap(), 64 * MIB);
    }
    let (mine, helper) = (own() - before, ran("hipfile-io"));
    if mine == 0 {
        return skip("shares of threads", "the kernel keeps no schedstat");
    }
    assert!(helper > mine / 20, "the helper ran for {helper} ns, the caller for {mine} ns");
}

#[test]
fn large_cached_reads_arrive_whatever_blocks_there_are() {
    const LEN: usize = 17 * MIB + 12_345;
    let storage = Storage::here();
    let mut bytes = vec![0; LEN];
    Random::new().fill(&mut bytes);
    std::fs::write(storage.path("f"), &bytes).unwrap();
    // Where copies run beside reads: one range of adjacent Blocks, two for one thread, four.
    for pool_len in [3 * MIB, 4 * MIB, 16 * MIB] {
        let driver = driver_with(&["bounce"], |c| {
            (c.block_len, c.pool_len, c.io_threads) = (64 << 10, pool_len, 2);
            c.page_cache = PageCache::Buffered;
        });
        let file = std::fs::File::open(storage.path("f")).unwrap();
        let file = File::register(&driver, file).unwrap();
        let mut buffer = Buffer::alloc(&driver, 0, 18 * MIB).unwrap();
        for offset in [0, 1, 4097] {
            buffer.upload(0, &vec![7; 18 * MIB]).unwrap();
            assert_eq!(file.read_at(&mut buffer, 3..18 * MIB, offset as u64).unwrap(), LEN - offset);
            let mut back = vec![0; 18 * MIB];
            buffer.download(0, &mut back).unwrap();
            assert!(
                back[..3] == [7; 3] && back[3..3 + LEN - offset] == bytes[offset..],
                "{pool_len} {offset}"
            );
            assert!(back[3 + LEN - offset..].iter().all(|byte| *byte == 7));
        }
    }
}
