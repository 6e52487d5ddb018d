//! The direct path: what it carries, what it leaves to others, and that each staged byte has its reason.

use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hipfile::{Buffer, Driver, ErrorKind, Fallback, File, Reason, Stats};

use crate::support::gpu::is_emulated_hip;
use crate::support::{Random, Storage, driver_with, operations};

/// A driver, a file of `size` bytes on ext4, and device memory of as many bytes and some more.
pub(super) struct Bench {
    driver: Driver,
    file: File,
    buffer: Buffer,
    content: Vec<u8>,
    storage: Storage,
}

pub(super) fn bench(size: usize, fallback: Fallback) -> Option<Bench> {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return None;
    }
    let storage = Storage::ext4(&[])?;
    let driver = driver_with(&["p2p", "bounce"], |c| c.fallback = fallback);
    let content: Vec<u8> = (0..size).map(|n| ((n / 3) ^ (n >> 9)) as u8).collect();
    std::fs::write(storage.path("f"), &content).unwrap();
    let open = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    let file = File::register(&driver, open).unwrap();
    let buffer = Buffer::alloc(&driver, 0, size + 65536).unwrap();
    Some(Bench { driver, file, buffer, content, storage })
}

impl Bench {
    /// Reads and compares; (direct, staged) bytes of this read.
    pub(super) fn read(&mut self, at: usize, len: usize, offset: usize) -> (u64, u64) {
        let before = self.moved();
        let n = self.file.read_at(&mut self.buffer, at..at + len, offset as u64).unwrap();
        assert_eq!(n, self.content.len().saturating_sub(offset).min(len));
        let mut bytes = vec![0; n];
        self.buffer.download(at, &mut bytes).unwrap();
        assert!(bytes == self.content[offset.min(self.content.len())..][..n], "wrong bytes");
        let after = self.moved();
        (after.0 - before.0, after.1 - before.1)
    }

    fn moved(&self) -> (u64, u64) {
        let stats = self.driver.stats();
        let of = |name| stats.read.iter().find(|e| e.engine == name).map_or(0, |e| e.bytes);
        (of("p2p"), of("bounce"))
    }
}

fn reasons(stats: &Stats) -> Vec<(Reason, u64)> {
    stats.read_staged.iter().map(|r| (r.reason, r.operations)).collect()
}

pub(super) fn fail_reads(when: When, status: i32) {
    fault::add(Rule { function: Function::hipAmdFileRead, when, fault: Fault::Status(status) });
}

#[test]
fn behaviour_07_only_ragged_ends_leave_the_direct_path() {
    const MIB: usize = 1 << 20;
    let Some(mut bench) = bench(64 * MIB + 1, Fallback::Allow) else { return };
    assert_eq!(bench.read(0, 64 * MIB + 1, 0), (64 << 20, 1));
    // Offset 1 into memory at 1: congruent, so the body is direct.
    assert_eq!(bench.read(1, 8 * MIB, 1), (8 * MIB as u64 - 4096, 4096));
    // Offset 1 into memory at 0: not congruent, so all of it is staged.
    assert_eq!(bench.read(0, 8 * MIB, 1), (0, 8 * MIB as u64));
}

#[test]
fn behaviour_17_reads_that_start_anywhere_are_direct_but_for_their_ends() {
    const SIZE: usize = 64 << 20;
    let Some(mut bench) = bench(SIZE, Fallback::Allow) else { return };
    let mut random = Random::new();
    let (mut direct, mut staged) = (0, 0);
    for _ in 0..operations(50).min(1000) {
        // 100 KB to 40 MB, each magnitude as often as the others.
        let len = ((100_000 << random.below(9)) * (64 + random.below(64)) / 64).min(40_000_000);
        let offset = random.below(SIZE - len) | 1;
        let at = offset % 4096 + 4096 * random.below(8);
        let moved = bench.read(at, len, offset);
        (direct, staged) = (direct + moved.0, staged + moved.1);
    }
    assert!(direct * 100 >= (direct + staged) * 95, "{direct} direct, {staged} staged");
}

#[test]
fn with_staging_forbidden_what_whole_blocks_hold_is_read_and_the_rest_says_why() {
    let Some(mut bench) = bench(10_000, Fallback::Forbid) else { return };
    assert_eq!(bench.file.read_at(&mut bench.buffer, 0..16384, 0).unwrap(), 8192);
    let error = bench.file.read_at(&mut bench.buffer, 0..4096, 8192).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EIO), "{error}");
    assert_eq!(bench.file.read_at(&mut bench.buffer, 0..4096, 12288).unwrap(), 0, "past the end is no error");
    // A driver that moves nothing and calls it success.
    for function in [Function::hipAmdFileRead, Function::hipAmdFileWrite] {
        fault::add(Rule { function, when: When::Every, fault: Fault::Short(0) });
    }
    let errors = [
        bench.file.read_at(&mut bench.buffer, 0..4096, 0).unwrap_err(),
        bench.file.write_at(&bench.buffer, 0..4096, 0).unwrap_err(),
    ];
    for error in errors {
        assert!(error.os_error() == Some(libc::EIO) && error.to_string().contains("no reason"), "{error}");
    }
    assert_eq!(bench.moved().1, 0);
}

#[test]
fn behaviour_06_one_unaligned_request_changes_the_path_of_that_request_only() {
    let Some(mut bench) = bench(65536, Fallback::Allow) else { return };
    bench.read(0, 8192, 0);
    bench.read(1, 100, 8192);
    bench.read(0, 8192, 16384);
    let stats = bench.file.info().unwrap().stats;
    let operations: Vec<_> = stats.read.iter().map(|e| (e.engine, e.operations)).collect();
    assert_eq!(operations, [("p2p", 2), ("bounce", 1)]);
    assert_eq!(reasons(&stats), [(Reason::Alignment, 1)]);
}

#[test]
fn behaviour_08_the_end_of_the_file_inside_the_last_block_is_exact() {
    let Some(mut bench) = bench(10_000, Fallback::Allow) else { return };
    assert_eq!(bench.read(0, 16384, 0), (8192, 1808));
    assert_eq!(bench.read(0, 4096, 8192), (0, 1808));
    assert_eq!(bench.read(0, 4096, 12288), (0, 0));
    assert_eq!(bench.read(0, 1, 10_000), (0, 0));
    assert!(reasons(&bench.driver.stats()).iter().any(|(r, _)| *r == Reason::EndOfFile));
}

#[test]
fn behaviour_78_errors_of_the_path_are_the_paths_own() {
    let Some(mut bench) = bench(65536, Fallback::Allow) else { return };
    for (status, reason) in [
        (libc::ENODEV, Reason::NoStorageDevice),
        (libc::EREMOTEIO, Reason::RemoteIo),
        (libc::ENOTTY, Reason::NoKernelSupport),
        (libc::ENOMEM, Reason::NoMemory),
    ] {
        fail_reads(When::Every, status);
        assert_eq!(bench.read(0, 65536, 0), (0, 65536));
        fault::clear();
        assert!(reasons(&bench.driver.stats()).contains(&(reason, 1)), "{reason:?}");
        assert_eq!(bench.read(0, 65536, 0), (65536, 0), "the next transfer is direct again");
    }
    // A path that breaks in the middle: the rest goes the other way, nothing twice.
    fault::add(Rule { function: Function::hipAmdFileRead, when: When::Nth(1), fault: Fault::Short(8192) });
    fail_reads(When::Nth(2), libc::ENODEV);
    assert_eq!(bench.read(0, 65536, 0), (8192, 65536 - 8192));
}

#[test]
fn behaviour_90_errors_of_the_data_are_the_answer() {
    let Some(mut bench) = bench(65536, Fallback::Allow) else { return };
    fail_reads(When::Every, libc::EIO);
    let error = bench.file.read_at(&mut bench.buffer, 0..65536, 0).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::EIO));
    assert!(error.to_string().contains("engine p2p"), "{error}");
    fault::clear();
    fault::inject("hipAmdFileRead", When::Every, gpu_sys::hip::HipError::INVALID_CONTEXT).unwrap();
    let error = bench.file.read_at(&mut bench.buffer, 0..65536, 0).unwrap_err();
    assert_eq!((error.kind(), error.device_code()), (ErrorKind::HipDriverError, Some(201)));
}

#[test]
fn behaviour_04_the_first_refusal_demotes_that_kind_of_range() {
    let Some(mut bench) = bench(1 << 20, Fallback::Allow) else { return };
    let calls = || fault::calls("hipAmdFileRead");
    fail_reads(When::Nth(1), libc::EINVAL);
    assert_eq!(bench.read(0, 4096, 4096), (0, 4096));
    let tried = calls();
    assert_eq!(bench.read(0, 4096, 12288), (0, 4096), "the same kind is not tried again");
    assert_eq!(calls(), tried);
    let aligned = bench.buffer.ptr().0.wrapping_neg() % 65536;
    assert_eq!(bench.read(aligned, 65536, 65536), (65536, 0), "another kind is");
    assert!(reasons(&bench.driver.stats()).contains(&(Reason::Demoted, 2)));
}

#[test]
fn a_path_that_fails_again_and_again_rests() {
    let Some(mut bench) = bench(65536, Fallback::Allow) else { return };
    fail_reads(When::Every, libc::ENODEV);
    for _ in 0..20 {
        assert_eq!(bench.read(0, 65536, 0), (0, 65536));
    }
    assert_eq!(fault::calls("hipAmdFileRead"), 8);
    fault::clear();
    assert_eq!(bench.read(0, 65536, 0), (0, 65536), "it rests for a second");
    let stats = bench.driver.stats();
    assert_eq!(reasons(&stats), [(Reason::Backoff, 13), (Reason::NoStorageDevice, 8)]);
    let staged: u64 = stats.read_staged.iter().map(|r| r.bytes).sum();
    assert_eq!(staged, bench.moved().1, "each staged byte has one reason");
}

#[test]
fn behaviour_94_with_staging_forbidden_nothing_is_staged() {
    let Some(mut bench) = bench(65536, Fallback::Forbid) else { return };
    assert_eq!(bench.read(0, 65536, 0), (65536, 0));
    bench.buffer.upload(0, &[0xee; 65536]).unwrap();
    for (at, len, offset) in [(0, 4097, 0), (0, 4096, 1), (1, 4096, 0), (0, 100, 0)] {
        let error = bench.file.read_at(&mut bench.buffer, at..at + len, offset).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IONotSupported, "{error}");
        assert!(error.to_string().contains("aligned"), "{error}");
    }
    let mut bytes = vec![0; 65536];
    bench.buffer.download(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 0xee), "nothing moved");
    // A direct path that fails answers with its own error, or with what it moved.
    fail_reads(When::Every, libc::ENODEV);
    let error = bench.file.read_at(&mut bench.buffer, 0..65536, 0).unwrap_err();
    assert_eq!(error.os_error(), Some(libc::ENODEV));
    fault::clear();
    fault::add(Rule { function: Function::hipAmdFileRead, when: When::Nth(1), fault: Fault::Short(8192) });
    fail_reads(When::Nth(2), libc::ENODEV);
    assert_eq!(bench.file.read_at(&mut bench.buffer, 0..65536, 0).unwrap(), 8192);
    assert_eq!(bench.moved().1, 0);
}

#[test]
fn behaviour_18_neighbours_in_a_block_survive_unaligned_writes() {
    let Some(bench) = bench(16384, Fallback::Allow) else { return };
    let before = bench.content.clone();
    for (at, len, offset) in [(1, 9000, 4097), (4095, 8194, 4095)] {
        let n = bench.file.write_at(&bench.buffer, at..at + len, offset).unwrap();
        assert_eq!(n, len);
        let mut expected = before.clone();
        let mut written = vec![0; len];
        bench.buffer.download(at, &mut written).unwrap();
        expected[offset as usize..offset as usize + len].copy_from_slice(&written);
        assert!(std::fs::read(bench.storage.path("f")).unwrap() == expected);
        std::fs::write(bench.storage.path("f"), &before).unwrap();
    }
}

#[test]
fn behaviour_29_the_callers_o_direct_flag_does_not_decide_the_path() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(bench) = bench(65536, Fallback::Allow) else { return };
    for flags in [0, libc::O_DIRECT] {
        let open =
            std::fs::File::options().read(true).custom_flags(flags).open(bench.storage.path("f")).unwrap();
        let file = File::register(&bench.driver, open).unwrap();
        let info = file.info().unwrap();
        assert_eq!((info.engine, info.reason), ("p2p", None));
        let mut buffer = Buffer::alloc(&bench.driver, 0, 65536).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0..65536, 0).unwrap(), 65536);
        assert_eq!(file.read_at(&mut buffer, 0..100, 7).unwrap(), 100);
        let moved: Vec<_> = file.info().unwrap().stats.read.iter().map(|e| (e.engine, e.bytes)).collect();
        assert_eq!(moved, [("p2p", 65536), ("bounce", 100)]);
    }
}

#[test]
fn behaviour_92_every_handle_says_why_it_is_staged() {
    if !is_emulated_hip("it needs a runtime that moves files past the host") {
        return;
    }
    let Some(tmpfs) = Storage::tmpfs() else { return };
    std::fs::write(tmpfs.path("f"), vec![1; 65536]).unwrap();
    let open = || std::fs::File::open(tmpfs.path("f")).unwrap();
    let driver = driver_with(&["p2p", "bounce"], |_| {});
    let info = File::register(&driver, open()).unwrap().info().unwrap();
    assert_eq!((info.engine, info.reason), ("bounce", Some(Reason::FileSystem)));
    let driver = driver_with(&["bounce"], |_| {});
    let info = File::register(&driver, open()).unwrap().info().unwrap();
    assert_eq!((info.engine, info.reason), ("bounce", Some(Reason::Configuration)));
}

#[test]
fn behaviour_125_the_reasons_sum_up_to_what_was_staged() {
    let Some(mut bench) = bench(100_000, Fallback::Allow) else { return };
    for (at, len, offset) in
        [(0, 65536, 0), (1, 5000, 0), (0, 100_000, 0), (0, 4096, 98_304), (3, 9000, 70_000)]
    {
        bench.read(at, len, offset);
    }
    fail_reads(When::Every, libc::ENODEV);
    bench.read(0, 65536, 0);
    let stats = bench.file.info().unwrap().stats;
    assert!(stats.read_staged.len() >= 3, "{stats:?}");
    let by_reason: u64 = stats.read_staged.iter().map(|r| r.bytes).sum();
    let staged: u64 = stats.read.iter().filter(|e| e.engine != "p2p").map(|e| e.bytes).sum();
    assert_eq!(by_reason, staged);
}
