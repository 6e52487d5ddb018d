//! Every kind of memory: overlapping registrations, memory in pieces, memory that was freed, memory of the host.

use std::os::fd::AsRawFd;
use std::time::Duration;

use hip_emu::fault;
use hipfile::{Buffer, Config, DevPtr, Driver, ErrorKind, File, FileId, Op, PageCache};

use crate::support::doors::{Ask, Door, Doors};
use crate::support::gpu::is_emulated_hip;
use crate::support::memory::{Kind, Memory, map, unmap};
use crate::support::{Storage, driver, driver_with};

const ALL: &[&str] = &["p2p", "uring", "bounce"];

fn register(driver: &Driver, ptr: usize, len: usize) -> Result<(), ErrorKind> {
    // SAFETY: the tests keep the memory, or have freed it knowingly: then nothing is transferred before the library is told.
    unsafe { driver.register_buffer(DevPtr(ptr), len, 0) }.map_err(|e| e.kind())
}

fn read(driver: &Driver, file: FileId, ptr: usize, len: usize, offset: usize) -> Result<usize, ErrorKind> {
    // SAFETY: the range is memory of the test, or refused.
    unsafe { driver.read(file, DevPtr(ptr), len, offset as i64, 0) }.map_err(|e| e.kind())
}

fn malloc(len: usize) -> usize {
    let mut at = std::ptr::null_mut();
    // SAFETY: `at` is writable.
    assert_eq!(unsafe { (hip_emu::api().hipMalloc)(&raw mut at, len) }, gpu_sys::hip::HipError::SUCCESS);
    at.addr()
}

fn free(at: usize) {
    let at = std::ptr::without_provenance_mut(at);
    // SAFETY: allocated by `malloc`, and nothing is under way.
    assert_eq!(unsafe { (hip_emu::api().hipFree)(at) }, gpu_sys::hip::HipError::SUCCESS);
}

#[test]
fn behaviour_33_overlapping_registrations_are_accepted_and_told_apart() {
    let (driver, storage) = (driver(), Storage::here());
    let (file, content) = storage.random_file(12 << 20);
    let file = File::register(&driver, file).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 12 << 20).unwrap();
    driver.deregister_buffer(buffer.ptr()).unwrap();
    let (base, mib) = (buffer.ptr().0, 1 << 20);
    register(&driver, base, 8 * mib).unwrap();
    register(&driver, base + 4 * mib, 8 * mib).unwrap();
    register(&driver, base + 5 * mib, mib).unwrap();
    let serving = |at: usize, len| driver.buffer_info(DevPtr(base + at), len).map(|i| i.start.0 - base).ok();
    assert_eq!(serving(0, 8 * mib), Some(0));
    assert_eq!(serving(3 * mib, 2 * mib), Some(0));
    assert_eq!(serving(4 * mib + 1, 100), Some(4 * mib), "the one that begins last");
    assert_eq!(serving(5 * mib + 1, 100), Some(5 * mib));
    assert_eq!(serving(5 * mib + 1, 2 * mib), Some(4 * mib));
    assert_eq!(serving(3 * mib, 6 * mib), None, "no single one holds it");
    let info = driver.buffer_info(DevPtr(base + 4 * mib), 1).unwrap();
    assert_eq!((info.len, info.gpu, info.pieces, info.current), (8 * mib, Some(0), 1, true));
    // What crosses from one to the other works by the bounds of the allocation.
    assert_eq!(read(&driver, file.id(), base + 3 * mib, 6 * mib, 7), Ok(6 * mib));
    let mut bytes = vec![0; 6 * mib];
    buffer.download(3 * mib, &mut bytes).unwrap();
    assert!(bytes == content[7..7 + 6 * mib]);
    driver.deregister_buffer(DevPtr(base + 4 * mib)).unwrap();
    assert_eq!(serving(5 * mib + 1, 2 * mib), Some(0), "as far as the first one reaches");
    assert_eq!(serving(8 * mib, 1), None);
    assert_eq!(serving(0, 8 * mib), Some(0));
}

#[test]
fn behaviour_34_three_tensors_of_one_allocation_keep_apart() {
    for engines in [&["bounce"][..], ALL] {
        let (driver, storage) = (driver_with(engines, |_| {}), Storage::here());
        let (file, content) = storage.random_file(300_000);
        let file = File::register(&driver, file).unwrap();
        let buffer = Buffer::alloc(&driver, 0, 1 << 20).unwrap();
        driver.deregister_buffer(buffer.ptr()).unwrap();
        let base = buffer.ptr().0;
        let tensors = [(512, 90_000), (90_512, 110_001), (200_513, 65_536)];
        tensors.iter().for_each(|(at, len)| register(&driver, base + at, *len).unwrap());
        for (n, (at, len)) in tensors.iter().enumerate() {
            assert_eq!(read(&driver, file.id(), base + at, *len, n * 4096), Ok(*len));
            assert_eq!(read(&driver, file.id(), base + at, len + 1, 0), Err(ErrorKind::InvalidValue));
        }
        for (n, (at, len)) in tensors.iter().enumerate() {
            let mut bytes = vec![0; *len];
            buffer.download(*at, &mut bytes).unwrap();
            assert!(bytes == content[n * 4096..][..*len], "tensor {n} by {engines:?}");
        }
    }
}

#[test]
fn behaviour_35_memory_mapped_in_pieces_is_served_across_its_borders() {
    if !is_emulated_hip("it maps memory by HIP's functions") {
        return;
    }
    const PIECE: usize = 2 << 20;
    for engines in [&["bounce"][..], &["uring", "bounce"], ALL] {
        let driver = driver_with(engines, |c| c.direct_min = 4096);
        for storage in [Some(Storage::here()), Storage::ext4(&[])].into_iter().flatten() {
            let (file, content) = storage.random_file(3 * PIECE);
            let id = driver.register_file(file.as_raw_fd()).unwrap();
            for registered in [true, false] {
                let mut memory = Memory::new(Kind::Mapped, 2 * PIECE + 16_384, 3);
                let ptr = memory.ptr().0;
                if registered {
                    register(&driver, ptr, 2 * PIECE + 16_384).unwrap();
                    assert_eq!(driver.buffer_info(memory.ptr(), 1).unwrap().pieces, 4);
                }
                // Across both borders, aligned as the file is and not.
                for (at, len, offset) in [(5000 - 4096, 2 * PIECE + 8192, 0), (7, 2 * PIECE + 8001, 4096 + 3)]
                {
                    assert_eq!(read(&driver, id, ptr + at, len, offset), Ok(len));
                    memory.expect(at, &content[offset..offset + len]);
                    memory.check(&format!("{engines:?} on {}", storage.name));
                    // SAFETY: the range lies in the memory.
                    let written = unsafe { driver.write(id, DevPtr(ptr), len, offset as i64, at as i64) };
                    assert_eq!(written.unwrap(), len);
                    assert!(std::fs::read(storage.path("f")).unwrap() == content);
                }
                if registered {
                    driver.deregister_buffer(memory.ptr()).unwrap();
                }
            }
            driver.deregister_file(id).unwrap();
        }
    }
    let driver = driver();
    let at = map(2 * PIECE);
    // Another mapping behind a gap, and an allocation that is none, do not go on.
    assert_eq!(register(&driver, at, 2 * PIECE + 1), Err(ErrorKind::HipPointerRangeError));
    assert_eq!(register(&driver, at + 1, 2 * PIECE - 1), Ok(()));
    driver.deregister_buffer(DevPtr(at + 1)).unwrap();
    assert_eq!(unmap(at, 2 * PIECE), gpu_sys::hip::HipError::SUCCESS);
    assert_eq!(register(&driver, at, PIECE), Err(ErrorKind::HipMemoryTypeInvalid));
}

#[test]
fn behaviour_43_a_registration_never_outlives_its_allocation() {
    if !is_emulated_hip("it counts on addresses coming back") {
        return;
    }
    for engines in [&["bounce"][..], ALL] {
        let (driver, storage) = (driver_with(engines, |_| {}), Storage::here());
        let (file, content) = storage.random_file(1 << 20);
        let file = File::register(&driver, file).unwrap();
        let at = malloc(64 << 10);
        register(&driver, at, 64 << 10).unwrap();
        assert_eq!(read(&driver, file.id(), at, 64 << 10, 0), Ok(64 << 10));
        free(at);
        assert!(!driver.buffer_info(DevPtr(at), 1).unwrap().current);
        assert_eq!(read(&driver, file.id(), at, 100, 0), Err(ErrorKind::HipMemoryTypeInvalid), "freed");
        // Less memory at the same address: its own bounds count.
        assert_eq!(malloc(4096), at, "addresses come back");
        assert_eq!(read(&driver, file.id(), at, 4096, 4096), Ok(4096));
        assert_eq!(read(&driver, file.id(), at, 4097, 0), Err(ErrorKind::InvalidValue));
        let mut bytes = vec![0_u8; 4096];
        let (to, from) = (bytes.as_mut_ptr().cast(), std::ptr::without_provenance(at));
        // SAFETY: both ends have 4096 bytes.
        let copied = unsafe { (hip_emu::api().hipMemcpy)(to, from, 4096, gpu_sys::hip::MEMCPY_DEFAULT) };
        assert_eq!(copied, gpu_sys::hip::HipError::SUCCESS);
        assert!(bytes == content[4096..8192]);
        // The registration is still the caller's to end, and can then be made anew.
        assert_eq!(register(&driver, at, 4096), Err(ErrorKind::MemoryAlreadyRegistered));
        driver.deregister_buffer(DevPtr(at)).unwrap();
        register(&driver, at, 4096).unwrap();
        assert!(driver.buffer_info(DevPtr(at), 1).unwrap().current);
        free(at);
        driver.deregister_buffer(DevPtr(at)).unwrap();
    }
}

/// What hands memory on to other devices does it by whole pages or more: none of the callers has to know. Whole pages that lie in
/// memory as they lie in the file go past the host.
#[test]
fn behaviour_36_memory_that_begins_and_ends_within_pages_is_served() {
    const LEN: usize = (1 << 20) - 512;
    if !is_emulated_hip("it reads what lies around the memory") {
        return;
    }
    for engines in [&["p2p", "bounce"][..], &["bounce"], ALL] {
        let (driver, storage) = (driver_with(engines, |_| {}), Storage::here());
        let (file, content) = storage.random_file(2 << 20);
        let file = File::register(&driver, file).unwrap();
        let goes_direct = driver.file_info(file.id()).unwrap().engine == "p2p";
        let mut memory = Memory::new(Kind::Device, (1 << 20) + 512, 3);
        let inside = DevPtr(memory.ptr().0 + 512);
        register(&driver, inside.0, LEN).unwrap();
        let mut whole = 0;
        // All of it, one that begins within a page of the registration, and parts that lie as in the file.
        for (len, at, offset) in [
            (LEN, 0, 0),
            (700_001, 77, 4097),
            (64 << 10, 4096, 3584),
            (700_001, 512, 0),
            (8191, 77, 4096 - 512 + 77),
        ] {
            if (512 + offset as i64 - at) % 4096 == 0 {
                let (start, end) = (at as usize, at as usize + len);
                whole += end / 4096 * 4096 - start.next_multiple_of(4096);
            }
            // SAFETY: the memory is kept.
            let n = unsafe { driver.read(file.id(), inside, len, at, offset as i64) }.unwrap();
            assert_eq!(n, len);
            memory.expect(512 + offset, &content[at as usize..][..len]);
            memory.check(&format!("{engines:?} {len} at {at} to {offset}"));
            // SAFETY: as above.
            assert_eq!(unsafe { driver.write(file.id(), inside, len, at, offset as i64) }.unwrap(), len);
        }
        assert!(std::fs::read(storage.path("f")).unwrap() == content, "what was read was written again");
        let stats = driver.stats();
        for side in [&stats.read, &stats.write] {
            let direct = side.iter().find(|e| e.engine == "p2p").map_or(0, |e| e.bytes);
            assert_eq!(direct, if goes_direct { whole as u64 } else { 0 }, "{engines:?}");
        }
        driver.deregister_buffer(inside).unwrap();
    }
}

#[test]
fn behaviour_58_only_the_gpu_that_owns_the_memory_is_used() {
    if !is_emulated_hip("it makes eight emulated GPUs") {
        return;
    }
    // SAFETY: set before the emulation reads it, while this process has one thread of interest.
    unsafe { std::env::set_var("HIP_EMU_DEVICES", "8") };
    let used = |device| {
        let (mut free, mut total) = (0, 0);
        // SAFETY: a plain call.
        assert_eq!(unsafe { (hip_emu::api().hipSetDevice)(device) }, gpu_sys::hip::HipError::SUCCESS);
        // SAFETY: both are writable.
        let code = unsafe { hip_emu::memory::hipMemGetInfo(&raw mut free, &raw mut total) };
        assert_eq!(code, gpu_sys::hip::HipError::SUCCESS);
        total - free
    };
    let before: Vec<usize> = (0..8).map(used).collect();
    let (driver, storage) = (driver_with(ALL, |_| {}), Storage::here());
    let (file, _) = storage.random_file(3 << 20);
    let file = File::register(&driver, file).unwrap();
    let mut buffer = Buffer::alloc(&driver, 3, 3 << 20).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0..3 << 20, 0).unwrap(), 3 << 20);
    assert_eq!(file.write_at(&buffer, 0..3 << 20, 0).unwrap(), 3 << 20);
    // A caller's own stream is of its GPU; who asks from another keeps that one current.
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipSetDevice)(3) }, gpu_sys::hip::HipError::SUCCESS);
    let doors = Doors::new(driver);
    // SAFETY: a plain call.
    assert_eq!(unsafe { (hip_emu::api().hipSetDevice)(5) }, gpu_sys::hip::HipError::SUCCESS);
    for door in Door::ALL {
        for op in [Op::Read, Op::Write] {
            let ask = Ask { ptr: buffer.ptr(), len: 3 << 20, at: 0, offset: 0 };
            assert_eq!(doors.transfer(door, op, file.id(), ask).unwrap(), 3 << 20, "{door:?}");
            let mut current = -1;
            // SAFETY: `current` is writable.
            let code = unsafe { (hip_emu::api().hipGetDevice)(&raw mut current) };
            assert_eq!((code, current), (gpu_sys::hip::HipError::SUCCESS, 5), "{door:?}");
        }
    }
    for (device, before) in before.iter().enumerate() {
        assert_eq!(used(device as i32) > *before, device == 3, "GPU {device}");
    }
}

#[test]
fn a_hundred_thousand_registrations_stay_fast() {
    const MANY: usize = 100_000;
    const EACH: usize = 512;
    let driver = driver_with(&["null"], |_| {});
    let storage = Storage::here();
    let (file, _) = storage.random_file(4096);
    let file = File::register(&driver, file).unwrap();
    let buffer = Buffer::alloc(&driver, 0, MANY * EACH).unwrap();
    driver.deregister_buffer(buffer.ptr()).unwrap();
    let base = buffer.ptr().0;
    // One around all, which is what a search falls back on.
    register(&driver, base, MANY * EACH).unwrap();
    // What this thread works; what else runs here takes its time, but not its work.
    let worked = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let time = |work: &mut dyn FnMut(usize), from: usize, count: usize| {
        let start = worked();
        (from..from + count).for_each(work);
        (worked() - start) / count as u32
    };
    // Of many the least: caches and other threads only add.
    let least = |work: &mut dyn FnMut(usize), from: usize| {
        (0..10).map(|part| time(work, from + part * 100, 100)).min().unwrap()
    };
    let mut add = |n: usize| register(&driver, base + n * EACH + 1, EACH - 1).unwrap();
    let few = least(&mut add, 0);
    let reads = |registered: usize| {
        let mut read = |n: usize| {
            let at = n.wrapping_mul(7919) % registered * EACH;
            assert_eq!(read(&driver, file.id(), base + at + 2, EACH - 2, 0), Ok(EACH - 2));
            assert_eq!(driver.buffer_info(DevPtr(base + at + 2), EACH).unwrap().start.0, base, "crosses two");
        };
        (0..25).map(|_| time(&mut read, 0, 2000)).min().unwrap()
    };
    let read_few = reads(1000);
    time(&mut add, 1000, MANY - 2000);
    let many = least(&mut add, MANY - 1000);
    let read_many = reads(MANY);
    eprintln!("registering {few:?} then {many:?}; read and query {read_few:?} then {read_many:?}");
    assert!(read_many < 20 * read_few, "{read_few:?} with 1000, {read_many:?} with {MANY}");
    assert!(many < 100 * few, "{few:?} with 1000, {many:?} with {MANY}");
}

#[test]
fn behaviour_42_host_memory_is_read_and_written_in_place_around_the_cache() {
    if !is_emulated_hip("it allocates by HIP's functions") {
        return;
    }
    const LEN: usize = 1 << 20;
    let change = |c: &mut Config| {
        c.allow_system_memory = true;
        c.page_cache = PageCache::Direct;
    };
    let driver = driver_with(ALL, change);
    let all = [Some(Storage::here()), Storage::ext4(&[]), Storage::xfs(), Storage::tmpfs()];
    for storage in all.into_iter().flatten() {
        let (file, mut content) = storage.random_file(LEN + 777);
        let id = driver.register_file(file.as_raw_fd()).unwrap();
        for kind in [Kind::Managed, Kind::Pinned, Kind::Plain, Kind::Odd, Kind::Shared] {
            let mut memory = Memory::new(kind, LEN + 8192, 9);
            register(&driver, memory.ptr().0, LEN + 8192).unwrap();
            assert_eq!(driver.buffer_info(memory.ptr(), 1).unwrap().gpu, None);
            let copies = fault::calls("hipMemcpy");
            for (at, len, offset) in
                [(0, LEN, 0), (4096, LEN + 777, 0), (3, 100_001, 4099), (8, 0, 0), (0, 10_000, LEN)]
            {
                let there = (LEN + 777 - offset).min(len);
                assert_eq!(read(&driver, id, memory.ptr().0 + at, len, offset), Ok(there));
                memory.expect(at, &content[offset..offset + there]);
            }
            for (at, len, offset) in [(0, LEN, 0), (5000, 5000, 904), (3, 70_000, 5)] {
                // SAFETY: the range lies in the memory.
                let written = unsafe { driver.write(id, memory.ptr(), len, offset as i64, at as i64) };
                assert_eq!(written.unwrap(), len);
                content[offset..offset + len].copy_from_slice(memory.known(at, len));
            }
            assert_eq!(fault::calls("hipMemcpy"), copies, "no GPU copies");
            memory.check(&format!("{kind:?} on {}", storage.name));
            assert!(std::fs::read(storage.path("f")).unwrap() == content, "{kind:?} on {}", storage.name);
            driver.deregister_buffer(memory.ptr()).unwrap();
        }
        let stats = driver.file_info(id).unwrap().stats;
        assert!(
            stats.read_staged.is_empty() && stats.write_staged.is_empty(),
            "nothing was staged: {stats:?}"
        );
        driver.deregister_file(id).unwrap();
    }
}
