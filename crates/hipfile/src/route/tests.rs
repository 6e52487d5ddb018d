//! Transfers on files of which the kernel says what a test wants it to say, and on storage that is not here.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use test_support::fake_root::FakeRoot;

use super::*;
use crate::buffer::BufferRecord;
use crate::config::{DeviceChoice, PageCache};
use crate::device::{Device, passed_off_as_real};
use crate::driver::Driver;
use crate::handle::Buffer;
use crate::storage::{Roots, StorageFacts};
use crate::sys;
use crate::transfer;

/// A driver, a file with a pattern, and memory.
struct Bench {
    driver: Driver,
    file: std::fs::File,
    content: Vec<u8>,
    buffer: Buffer,
}

const SIZE: usize = 1 << 20;

fn bench(engines: &[&str], change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config {
        device: DeviceChoice::Emulated,
        engines: Some(engines.iter().map(|name| (*name).to_owned()).collect()),
        block_len: 64 << 10,
        pool_len: 1 << 20,
        ..Config::default()
    };
    change(&mut config);
    let driver = Driver::open(config).unwrap();
    // Not where temporary files are, which may be memory.
    let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let content: Vec<u8> = (0..SIZE).map(|n| ((n / 7) ^ (n >> 10)) as u8).collect();
    std::io::Write::write_all(&mut file, &content).unwrap();
    file.sync_all().unwrap();
    let buffer = Buffer::alloc(&driver, 0, SIZE).unwrap();
    Bench { driver, file, content, buffer }
}

impl Bench {
    fn record(&self) -> FileRecord {
        FileRecord::inspect(self.file.as_raw_fd()).unwrap()
    }

    fn memory(&self) -> BufferRecord {
        let device = self.driver.inner.devices().first().unwrap();
        self.buffer.record(Place::of(device, 0))
    }

    fn carry(
        &self,
        op: Op,
        file: &FileRecord,
        memory: &BufferRecord,
        at: usize,
        len: usize,
        offset: usize,
    ) -> Result<usize> {
        let base = self.buffer.ptr().0;
        let transfer = transfer::check(op, file, memory, base, len, offset as i64, at as i64)?;
        self.driver.inner.carry(&transfer)
    }

    /// Reads and writes a range both ways through the library; the counts and the bytes are right.
    fn both_ways(&mut self, file: &FileRecord, at: usize, len: usize, offset: usize) {
        let memory = self.memory();
        assert_eq!(self.carry(Op::Read, file, &memory, at, len, offset).unwrap(), len, "{len} at {offset}");
        let mut bytes = vec![0; len];
        self.buffer.download(at, &mut bytes).unwrap();
        assert!(bytes == self.content[offset..offset + len], "read {len} at {offset}");
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
        self.buffer.upload(at, &bytes).unwrap();
        self.content[offset..offset + len].copy_from_slice(&bytes);
        assert_eq!(self.carry(Op::Write, file, &memory, at, len, offset).unwrap(), len, "{len} at {offset}");
        let mut all = vec![0; SIZE];
        self.file.read_exact_at(&mut all, 0).unwrap();
        assert!(all == self.content, "write {len} at {offset}");
    }

    /// How the first step of a transfer treats the page cache, and how long it is.
    fn first_step(&self, op: Op, file: &FileRecord, len: usize, offset: usize) -> (Cache, usize) {
        let memory = self.memory();
        let base = self.buffer.ptr().0;
        let transfer = transfer::check(op, file, &memory, base, len, offset as i64, 0).unwrap();
        let step = self.driver.inner.router().next_step(&transfer, 0, true).unwrap();
        (step.part.cache, step.part.len())
    }

    /// What the kernel really demands of direct I/O here; `None` when it has none, and the case is skipped.
    fn real_align(&self, what: &str) -> Option<u32> {
        let align = self.record().direct_align().map(|align| align.offset);
        if align.is_none() || self.record().direct().is_none() {
            eprintln!("SKIP: {what}: the build folder's file system has no O_DIRECT");
            return None;
        }
        align
    }
}

fn is_cached(file: &std::fs::File, offset: u64, len: u64) -> Option<bool> {
    sys::cachestat(file.as_fd(), offset, len).ok().map(|stat| stat.cached > 0)
}

#[test]
fn behaviour_01_alignments_are_those_that_the_kernel_states_for_the_file() {
    let mut bench = bench(&["p2p", "uring", "bounce"], |c| c.page_cache = PageCache::Direct);
    if bench.real_align("reads in units of 512").is_none_or(|align| align > 512) {
        return;
    }
    let file = bench.record().pretend(Some((4, 4096)), Some(512));
    let align = file.direct_align().unwrap();
    assert_eq!((align.mem, align.offset, align.read_offset), (4, 4096, 512));
    assert_eq!(bench.first_step(Op::Read, &file, 512, 512), (Cache::Around, 512), "direct");
    assert_eq!(bench.first_step(Op::Write, &file, 512, 512), (Cache::Through, 512), "as unaligned");
    rustix::fs::fadvise(&bench.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let memory = bench.memory();
    assert_eq!(bench.carry(Op::Read, &file, &memory, 0, 512, 512).unwrap(), 512);
    assert_ne!(is_cached(&bench.file, 0, 4096), Some(true), "it went around the page cache");
    bench.both_ways(&file, 512, 512, 512);
    // What a kernel before 6.1 leaves unsaid is assumed to be what every device takes.
    let silent = bench.record().pretend(None, None);
    assert_eq!(silent.direct_align().map(|a| (a.mem, a.offset, a.read_offset)), Some((4096, 4096, 4096)));
    bench.both_ways(&silent, 512, 512, 512);
}

#[test]
fn behaviour_02_large_units_of_direct_access_are_no_error() {
    for page_cache in [PageCache::Auto, PageCache::Direct, PageCache::NoCache] {
        let mut bench = bench(&["p2p", "uring", "bounce"], |c| {
            c.page_cache = page_cache;
            c.uring_min = 0;
            c.direct_min = 0;
            // No multiple of 16384.
            c.block_len = 68 << 10;
        });
        for unit in [16384, 65536] {
            for mem in [4, 512, unit] {
                let file = bench.record().pretend(Some((mem, unit)), None);
                bench.both_ways(&file, 0, 4096, 4096);
                bench.both_ways(&file, 1, 200_000, 4097);
                bench.both_ways(&file, 0, 262_144, 65536);
            }
        }
    }
}

/// Nothing has such units; a driver's defect might claim them, and they must not reach past a Block.
#[test]
fn units_larger_than_a_block_and_nonsense_are_no_direct_access() {
    let mut bench = bench(&["p2p", "uring", "bounce"], |c| c.page_cache = PageCache::Direct);
    for claim in [(4, 1 << 20), (1 << 17, 4096), (3, 512), (512, 1 << 31), (0, 0), (4, 0)] {
        let file = bench.record().pretend(Some(claim), None);
        assert_eq!(file.direct_align(), None, "{claim:?}");
        bench.both_ways(&file, 0, 200_000, 4096);
    }
    // A read alignment that makes no sense counts as not stated.
    let file = bench.record().pretend(Some((4, 512)), Some(3));
    assert_eq!(file.direct_align().map(|align| align.read_offset), Some(512));
}

#[test]
fn behaviour_05_direct_access_that_open_accepts_and_read_refuses_is_left() {
    for engines in [&["bounce"][..], &["uring", "bounce"]] {
        let mut bench = bench(engines, |c| {
            c.page_cache = PageCache::Direct;
            c.uring_min = 0;
        });
        if bench.real_align("an O_DIRECT read that fails").is_none_or(|align| align == 1) {
            return;
        }
        // No device takes single bytes: each attempt ends with EINVAL, as on a file system that only pretends.
        let file = bench.record().pretend(Some((1, 1)), None);
        assert_eq!(bench.first_step(Op::Read, &file, 1000, 3).0, Cache::Around);
        bench.both_ways(&file, 0, 1000, 3);
        assert_ne!(bench.first_step(Op::Read, &file, 1000, 3).0, Cache::Around, "tried once, not again");
        bench.both_ways(&file, 0, 70_000, 3);
        assert!(
            bench.driver.stats().read.iter().all(|engine| engine.bytes == 0 || engine.engine == "bounce")
        );
    }
}

/// Storage that has a file system of AMD's list, and something below it.
fn on_made_up(make: impl FnOnce(&FakeRoot) -> (String, &'static str)) -> StorageFacts {
    let mut root = FakeRoot::new();
    let (_, number) = make(&root);
    root.mount(number, "/data", "ext4", "/dev/x", "rw");
    let (major, minor) = number.split_once(':').unwrap();
    let dev = (major.parse().unwrap(), minor.parse().unwrap());
    let statx = sys::Statx { mode: (libc::S_IFREG | 0o644) as u16, dev, ..sys::Statx::default() };
    StorageFacts::of_file(&statx, Some(0xEF53), &Roots::under(root.path()))
}

#[test]
fn behaviour_91_strict_mode_names_the_check_that_failed() {
    const AT: &str = "pci0000:00/0000:00:01.1/0000:01:00.0";
    type Make = fn(&FakeRoot) -> (String, &'static str);
    let cases: [(Make, Reason, &str); 5] = [
        (
            |root| (root.md(0, "raid1", &[&root.nvme(0, "259:0", AT)]), "9:0"),
            Reason::BlockStackMd,
            "RAID (md)",
        ),
        (
            |root| (root.dm(0, "luks", "CRYPT-LUKS2-1-luks", &[&root.nvme(0, "259:0", AT)]), "252:0"),
            Reason::BlockStackCrypt,
            "dm-crypt",
        ),
        (
            |root| (root.lvm(0, "vg", "lv", 17, &[&root.nvme(0, "259:0", AT)]), "252:0"),
            Reason::LvmExtents,
            "16 extents",
        ),
        (|root| (root.nvme_fabric(0, "259:0", "tcp"), "259:0"), Reason::NvmeTcp, "TCP"),
        (|root| (root.disk("sda", "8:0", "scsi"), "8:0"), Reason::NotNvme, "not NVMe"),
    ];
    for fallback in [Fallback::Forbid, Fallback::Allow] {
        let bench = bench(&["p2p", "uring", "bounce"], |c| c.fallback = fallback);
        let real: Arc<dyn Device> = passed_off_as_real();
        let memory = bench.buffer.record(Place::of(&real, 0));
        for (make, reason, words) in cases {
            let file = bench.record().on(on_made_up(make));
            let result = bench.carry(Op::Read, &file, &memory, 0, 8192, 0);
            if fallback == Fallback::Forbid {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), crate::ErrorKind::IONotSupported);
                assert!(error.to_string().contains(words), "{error}");
                assert!(file.counters.sum(&engine::NAMES).read.iter().all(|engine| engine.operations == 0));
            } else {
                assert_eq!(result.unwrap(), 8192);
                let staged = file.counters.sum(&engine::NAMES).read_staged;
                assert_eq!(staged.iter().map(|r| (r.reason, r.bytes)).collect::<Vec<_>>(), [(reason, 8192)]);
            }
        }
    }
}

/// A compose file that ships the unsafe switch as its default must not go unnoticed, and it changes nothing below a file system.
#[test]
fn behaviour_91_the_unsafe_switch_is_off_by_default_and_never_silent() {
    assert!(!Config::default().unsupported_file_systems);
    let warnings = |value: Option<&str>| {
        let (config, warnings) = Config::from_lookup(|name| {
            value.filter(|_| name == "HIPFILE_UNSUPPORTED_FILE_SYSTEMS").map(Into::into)
        });
        (config.unsupported_file_systems, warnings)
    };
    assert_eq!(warnings(None), (false, Vec::new()));
    let (on, said) = warnings(Some("true"));
    assert!(on && said.len() == 1 && said[0].contains("HIPFILE_UNSUPPORTED_FILE_SYSTEMS"), "{said:?}");
    let md = on_made_up(|root| (root.md(0, "raid1", &[]), "9:0"));
    assert_eq!(md.direct(true, false), Err(Reason::BlockStackMd));
}

#[test]
fn behaviour_102_by_default_nothing_is_measured_and_network_means_network() {
    let nfs = || {
        let mut root = FakeRoot::new();
        root.mount("0:50", "/data", "nfs4", "server:/x", "rw,proto=rdma");
        let statx =
            sys::Statx { mode: (libc::S_IFREG | 0o644) as u16, dev: (0, 50), ..sys::Statx::default() };
        StorageFacts::of_file(&statx, Some(0x6969), &Roots::under(root.path()))
    };
    for (adaptive, on_nfs, staged) in [
        (Adaptive::Off, true, 0),
        (Adaptive::Network, true, 1),
        (Adaptive::Network, false, 0),
        (Adaptive::All, false, 1),
    ] {
        let bench = bench(&["p2p", "uring", "bounce"], |c| {
            c.adaptive = adaptive;
            c.unsupported_file_systems = true;
        });
        let file = if on_nfs { bench.record().on(nfs()) } else { bench.record() };
        let memory = bench.memory();
        if bench.real_align("direct transfers").is_none() {
            return;
        }
        for _ in 0..2 {
            assert_eq!(bench.carry(Op::Read, &file, &memory, 0, SIZE, 0).unwrap(), SIZE);
        }
        let trials = file.counters.sum(&engine::NAMES).read_staged;
        assert_eq!(trials.iter().map(|r| r.operations).sum::<u64>(), staged, "{adaptive:?} {trials:?}");
        assert!(trials.iter().all(|r| r.reason == Reason::Trial));
    }
}
