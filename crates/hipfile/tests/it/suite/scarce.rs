//! Transfers where the system gives little: none fails for lack of staging memory.

use hipfile::{Buffer, File, PageCache};

use crate::support::{Random, Storage, driver_with};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The address space that the process uses, in bytes.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

/// Does it with so many bytes of address space beyond what is in use.
fn with_room(bytes: usize, body: impl FnOnce()) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a limit to be filled.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) }, 0);
    let scarce = libc::rlimit { rlim_cur: address_space() + bytes as u64, ..limit };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const scarce) }, 0);
    body();
    // SAFETY: the limit there was.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

#[test]
fn a_small_address_space_makes_staging_slower_and_nothing_else() {
    const SIZE: usize = 3 * MIB;
    let storage = Storage::here();
    let mut content = vec![0; SIZE];
    Random::new().fill(&mut content);
    // From here on the GPU's runtime needs nothing more.
    let (first, mut seen) = (driver_with(&["bounce"], |_| {}), vec![0; SIZE]);
    let mut buffer = Buffer::alloc(&first, 0, SIZE).unwrap();
    buffer.upload(0, &content).unwrap();
    // For a slab of 4 MiB and what it takes to align it; for a slab; for two Blocks; for one; for none.
    let mut block = MIB;
    for (room, some) in [(7, true), (5, true), (3, true), (2, true), (1, false)] {
        for cache in [PageCache::Buffered, PageCache::Direct] {
            std::fs::write(storage.path("f"), &content).unwrap();
            let open = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
            // Another size each time, so that the memory of a driver that is gone is of no use.
            block += 4096;
            let driver = driver_with(&["uring", "bounce"], |c| {
                (c.block_len, c.pool_len, c.io_threads, c.page_cache) = (block, 8 * MIB, 1, cache);
            });
            let file = File::register(&driver, open).unwrap();
            let ptr = buffer.ptr();
            with_room(room * MIB - 200 * KIB, || {
                // SAFETY: the memory is the buffer's.
                let read = unsafe { driver.read(file.id(), ptr, SIZE - 100, 7, 0) };
                assert_eq!(read.unwrap(), SIZE - 100, "{room} {cache:?}");
                // SAFETY: as above.
                let written = unsafe { driver.write(file.id(), ptr, SIZE - 100, 5000, 0) };
                assert_eq!(written.unwrap(), SIZE - 100, "{room} {cache:?}");
            });
            assert_eq!(driver.staging_bytes() > 0, some, "{room} {cache:?}");
            buffer.download(0, &mut seen).unwrap();
            assert!(seen[..SIZE - 100] == content[7..SIZE - 93], "{room} {cache:?}");
            let there = std::fs::read(storage.path("f")).unwrap();
            assert!(there[..5000] == content[..5000], "{room} {cache:?}");
            assert!(there[5000..] == seen[..SIZE - 100], "{room} {cache:?}");
        }
    }
}
