//! Direct and buffered transfers, plain readers and writers and mapped readers of one file: always the bytes a POSIX
//! file would have.

use std::os::unix::fs::FileExt;

use hipfile::{Buffer, File, PageCache};

use crate::support::{Random, Storage, driver_with, operations};

const SIZE: usize = 1 << 20;

fn mix(storage: Storage) {
    let driver = driver_with(&["uring", "bounce"], |c| {
        c.direct_min = 20_000;
        c.uring_min = 100_000;
        c.parallel_min = 130_000;
        c.io_threads = 2;
    });
    let plain =
        std::fs::File::options().read(true).write(true).create_new(true).open(storage.path("f")).unwrap();
    plain.set_len(SIZE as u64).unwrap();
    // SAFETY: a shared, read-only mapping of a file that keeps its size.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            std::os::fd::AsRawFd::as_raw_fd(&plain),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    let mapped = |at: usize, len: usize| -> Vec<u8> {
        let byte = |i: usize| map.cast::<u8>().wrapping_add(i);
        // SAFETY: the byte lies inside the mapping; a volatile read sees whatever the file holds now.
        (at..at + len).map(|i| unsafe { byte(i).read_volatile() }).collect()
    };
    let file = File::register(&driver, plain.try_clone().unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, SIZE).unwrap();
    let mut model = vec![0; SIZE];
    let mut random = Random::new();
    for step in 0..operations(1500) {
        let at = random.below(SIZE - 1);
        let (at, len) = if random.below(2) == 0 {
            (at & !4095, 1 + random.below(200_000))
        } else {
            (at, 1 + random.below(30_000))
        };
        let len = len.min(SIZE - at);
        let policies = [None, Some(PageCache::Direct), Some(PageCache::Buffered), Some(PageCache::NoCache)];
        file.set_page_cache(policies[random.below(4)]).unwrap();
        let mut bytes = vec![0; len];
        match random.below(5) {
            0 | 1 => {
                random.fill(&mut bytes);
                buffer.upload(0, &bytes).unwrap();
                assert_eq!(file.write_at(&buffer, 0..len, at as u64).unwrap(), len);
                model[at..at + len].copy_from_slice(&bytes);
            }
            2 => {
                random.fill(&mut bytes);
                plain.write_all_at(&bytes, at as u64).unwrap();
                model[at..at + len].copy_from_slice(&bytes);
            }
            3 => {
                assert_eq!(file.read_at(&mut buffer, 0..len, at as u64).unwrap(), len);
                buffer.download(0, &mut bytes).unwrap();
                assert!(bytes == model[at..at + len], "step {step}: a read through the library is stale");
            }
            _ => {
                plain.read_exact_at(&mut bytes, at as u64).unwrap();
                assert!(bytes == model[at..at + len], "step {step}: a plain read is stale");
            }
        }
        let around = at.saturating_sub(100)..(at + len + 100).min(SIZE);
        assert!(mapped(around.start, around.len()) == model[around], "step {step}: a mapped page is stale");
    }
    // SAFETY: the mapping is not used any more.
    unsafe { libc::munmap(map, SIZE) };
}

#[test]
fn all_views_of_a_file_agree_here() {
    mix(Storage::here());
}

#[test]
fn all_views_of_a_file_agree_on_xfs() {
    if let Some(xfs) = Storage::xfs() {
        mix(xfs);
    }
}
