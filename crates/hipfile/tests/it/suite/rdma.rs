//! GPU memory that RDMA devices reach, under HIP's functions and under CUDA's, with an emulated library of devices: memory in
//! pieces, imported memory, memory that was freed, and how often a device is told of it.

use std::ffi::{CString, c_char, c_int};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use gpu_sys::library::Library;
use hipfile::{Buffer, DevPtr, DeviceChoice, Driver, File, Op, Reason, RemoteMemory, UserFs};

use crate::support::memory::{GRANULARITY, Kind, Memory, close, import};
use crate::support::{Storage, driver_with, skip};

const ENGINES: &[&str] = &["rdma", "userspace"];
const SIZE: usize = 6 << 20;

type Copy = unsafe extern "C" fn(*const c_char, u32, u64, *mut c_char, usize, c_int) -> c_int;

/// The emulated library's copy, as a device would make it, and its counters.
#[derive(Clone, Copy, Debug)]
struct Verbs {
    copy: Copy,
    registered: &'static AtomicI32,
    open: &'static AtomicI32,
}

/// The emulated library, of which a process has one.
fn verbs() -> Option<Verbs> {
    static VERBS: OnceLock<Option<Verbs>> = OnceLock::new();
    *VERBS.get_or_init(|| load(&Storage::here()))
}

/// Builds it and loads it. `None`, said aloud, where it cannot be built.
fn load(storage: &Storage) -> Option<Verbs> {
    let (source, library) = (storage.path("ibverbs.c"), storage.path("libibverbs.so.1"));
    std::fs::write(&source, include_str!("../../../../libhipfile/tests/c/ibverbs.c")).unwrap();
    let flags = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libibverbs.so.1", "-o"];
    match Command::new("cc").args(flags).arg(&library).arg(&source).status() {
        Ok(status) => assert!(status.success(), "the emulated libibverbs compiles"),
        Err(error) => {
            skip("libibverbs", &format!("no C compiler for what stands in for it: {error}"));
            return None;
        }
    }
    let library = Library::open_path(&library).unwrap();
    let counter = |name| {
        let counter: *const AtomicI32 = library.symbol(name).cast();
        // SAFETY: the variables of these names are ints that the library changes atomically; it is never closed.
        unsafe { &*counter }
    };
    let copy = library.symbol(c"emu_rdma");
    assert!(!copy.is_null());
    // SAFETY: the function of that name has this prototype.
    let copy = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Copy>(copy) };
    Some(Verbs { copy, registered: counter(c"emu_registered"), open: counter(c"emu_open") })
}

/// A file in memory whose server writes into GPU memory and reads from it.
#[derive(Debug)]
struct Server {
    verbs: Verbs,
    content: Mutex<Vec<u8>>,
    by_rdma: AtomicUsize,
    by_host: AtomicUsize,
}

impl Server {
    fn reach(&self, op: Op, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        self.by_rdma.fetch_add(1, Ordering::SeqCst);
        let word = |name: &str| {
            let mut words = memory.description.split(' ');
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_owned)).unwrap()
        };
        let hex = |name: &str| u64::from_str_radix(word(name).strip_prefix("0x").unwrap(), 16).unwrap();
        let (device, key, at) = (CString::new(word("device")).unwrap(), hex("rkey") as u32, hex("addr"));
        assert!(word("len").parse::<usize>().unwrap() >= len);
        let mut content = self.content.lock().unwrap();
        let there = content.len().saturating_sub(offset as usize).min(len);
        let host = content[offset as usize..][..there].as_mut_ptr().cast();
        // SAFETY: the bytes are the file's; the library checks what is the GPU's.
        let code =
            unsafe { (self.verbs.copy)(device.as_ptr(), key, at, host, there, i32::from(op == Op::Read)) };
        if code == 0 { Ok(there) } else { Err(code) }
    }
}

impl UserFs for Server {
    fn name(&self) -> String {
        "rdmafs".into()
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, i32> {
        self.by_host.fetch_add(1, Ordering::SeqCst);
        let content = self.content.lock().unwrap();
        let there = content.len().saturating_sub(offset as usize).min(into.len());
        into[..there].copy_from_slice(&content[offset as usize..][..there]);
        Ok(there)
    }

    fn write(&self, from: &[u8], offset: u64) -> Result<usize, i32> {
        self.by_host.fetch_add(1, Ordering::SeqCst);
        self.content.lock().unwrap()[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(from.len())
    }

    fn rdma_devices(&self) -> Vec<IpAddr> {
        vec!["fd00::9:7".parse().unwrap(), "fd00::1:7".parse().unwrap(), "10.0.2.7".parse().unwrap()]
    }

    fn read_by_rdma(&self, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        self.reach(Op::Read, len, offset, memory)
    }

    fn write_by_rdma(&self, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        self.reach(Op::Write, len, offset, memory)
    }
}

struct Bench {
    driver: Driver,
    file: File,
    server: Arc<Server>,
    content: Vec<u8>,
}

impl Bench {
    /// With the emulated GPU under one of the two APIs.
    fn new(device: DeviceChoice) -> Option<Bench> {
        let verbs = verbs()?;
        let driver = driver_with(ENGINES, |config| {
            config.device = device;
            config.allow_system_memory = true;
        });
        // CUDA knows memory by contexts, and has none before.
        drop(Buffer::alloc(&driver, 0, 4096).unwrap());
        let content: Vec<u8> = (0..SIZE).map(|n| ((n / 3) ^ (n >> 9)) as u8).collect();
        let server = Arc::new(Server {
            verbs,
            content: Mutex::new(content.clone()),
            by_rdma: AtomicUsize::default(),
            by_host: AtomicUsize::default(),
        });
        let stands_for = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let file = File::register_user(&driver, stands_for, Arc::clone(&server) as _).unwrap();
        Some(Bench { driver, file, server, content })
    }

    fn register(&self, at: DevPtr, len: usize) {
        // SAFETY: the tests keep the memory, or free it knowingly.
        unsafe { self.driver.register_buffer(at, len, 0) }.unwrap();
    }

    fn registered(&self) -> i32 {
        self.server.verbs.registered.load(Ordering::SeqCst)
    }

    fn open(&self) -> i32 {
        self.server.verbs.open.load(Ordering::SeqCst)
    }

    /// Reads and writes; all of the memory and of the file is compared. How many calls were by RDMA, and how many not.
    fn round_trip(&mut self, memory: &mut Memory, at: usize, len: usize, offset: usize) -> (usize, usize) {
        let calls = || {
            let Server { by_rdma, by_host, .. } = &*self.server;
            (by_rdma.load(Ordering::SeqCst), by_host.load(Ordering::SeqCst))
        };
        let before = calls();
        let (id, ptr) = (self.file.id(), memory.ptr());
        // SAFETY: the range lies in the memory, which only this test uses.
        let read = unsafe { self.driver.read(id, ptr, len, offset as i64, at as i64) };
        assert_eq!(read.map_err(|e| e.to_string()), Ok(len));
        memory.expect(at, &self.content[offset..offset + len]);
        let other: Vec<u8> = (0..len).map(|n| (n * 7 + offset) as u8).collect();
        memory.fill(at, &other);
        // SAFETY: as above.
        let written = unsafe { self.driver.write(id, ptr, len, offset as i64, at as i64) };
        assert_eq!(written.map_err(|e| e.to_string()), Ok(len));
        self.content[offset..offset + len].copy_from_slice(&other);
        memory.check("after a round trip");
        assert!(*self.server.content.lock().unwrap() == self.content);
        let after = calls();
        (after.0 - before.0, after.1 - before.1)
    }
}

const BOTH: [DeviceChoice; 2] = [DeviceChoice::Emulated, DeviceChoice::EmulatedCuda];

fn under(device: DeviceChoice, test: impl FnOnce(Bench)) {
    if let Some(bench) = Bench::new(device) {
        test(bench);
    }
}

#[test]
fn memory_is_exported_under_hip_and_under_cuda() {
    for device in BOTH {
        under(device, |mut bench| {
            for kind in [Kind::Device, Kind::Imported] {
                let mut memory = Memory::new(kind, 1 << 20, 3);
                let before = bench.registered();
                assert_eq!(bench.round_trip(&mut memory, 100, 700_000, 77), (2, 0), "{device:?} {kind:?}");
                assert_eq!((bench.registered() - before, bench.open()), (2, 0), "one for each transfer");
                bench.register(memory.ptr(), 1 << 20);
                for n in 0..5 {
                    assert_eq!(bench.round_trip(&mut memory, n * 1000 + 1, 500_000, n * 99), (2, 0));
                }
                assert_eq!((bench.registered() - before, bench.open()), (3, 1), "one for all of them");
                bench.driver.deregister_buffer(memory.ptr()).unwrap();
                assert_eq!(bench.open(), 0);
            }
            let info = bench.file.info().unwrap();
            assert_eq!((info.engine, info.reason), ("rdma", None));
            // What the processor reaches has no need of it.
            let mut memory = Memory::new(Kind::Pinned, 100_000, 3);
            assert_eq!(bench.round_trip(&mut memory, 0, 50_000, 1), (0, 2), "{device:?}");
        });
    }
}

#[test]
fn a_runtime_that_exports_nothing_has_the_bytes_staged() {
    // SAFETY: set before the emulation reads it, while this process has one thread of interest.
    unsafe { std::env::set_var("HIP_EMU_HIDE", "hipMemGetHandleForAddressRange") };
    under(DeviceChoice::EmulatedCuda, |mut bench| {
        let mut memory = Memory::new(Kind::Device, 1 << 20, 3);
        let (by_rdma, by_host) = bench.round_trip(&mut memory, 100, 700_000, 77);
        assert!(by_rdma == 0 && by_host >= 2 && bench.registered() == 0);
        let staged = bench.file.info().unwrap().stats.read_staged;
        assert_eq!(staged.iter().map(|s| s.reason).collect::<Vec<_>>(), [Reason::NoRdma]);
    });
}

#[test]
fn behaviour_35_each_piece_of_registered_memory_is_told_once() {
    under(DeviceChoice::Emulated, |mut bench| {
        const LEN: usize = 2 * GRANULARITY + 16_384;
        let mut memory = Memory::new(Kind::Mapped, LEN, 3);
        bench.register(memory.ptr(), LEN);
        let pieces = bench.driver.buffer_info(memory.ptr(), LEN).unwrap().pieces;
        assert_eq!(pieces, 4);
        // Within the first piece, across one border, across all.
        for (at, len, calls) in [(0, 4000, 2), (1000, 10_000, 4), (3, LEN - 5, 8), (LEN - 5000, 5000, 2)] {
            assert_eq!(bench.round_trip(&mut memory, at, len, 12_345), (calls, 0), "{len} at {at}");
        }
        assert_eq!((bench.registered(), bench.open()), (4, 4));
        bench.driver.deregister_buffer(memory.ptr()).unwrap();
        assert_eq!(bench.open(), 0);
    });
}

#[test]
fn behaviour_43_what_a_device_was_told_does_not_serve_other_memory() {
    under(DeviceChoice::Emulated, |mut bench| {
        let first = Memory::new(Kind::Device, 100_000, 1);
        let other = Memory::new(Kind::Device, 100_000, 2);
        let at = import(first.ptr().0);
        bench.register(DevPtr(at), 100_000);
        let read = |bench: &Bench, offset: usize| {
            // SAFETY: memory of this test.
            unsafe { bench.driver.read(bench.file.id(), DevPtr(at), 50_000, offset as i64, 0) }.unwrap()
        };
        assert_eq!((read(&bench, 0), bench.registered(), bench.open()), (50_000, 1, 1));
        let (before, first_bytes) = (other.bytes(), first.bytes());
        assert!(first_bytes != before);
        close(at);
        // The address is another allocation's now; the registration, and what the device knows, are of the first one.
        assert_eq!(import(other.ptr().0), at, "addresses come back");
        assert_eq!(read(&bench, 777_777), 50_000);
        assert!(first.bytes() == first_bytes, "nothing goes to the memory that was registered");
        assert!(other.bytes() != before, "but to what is there");
        assert_eq!((bench.registered(), bench.open()), (2, 1));
        bench.driver.deregister_buffer(DevPtr(at)).unwrap();
        assert_eq!(bench.open(), 0);
        close(at);
        bench.content.clear();
    });
}

#[test]
fn threads_that_come_first_at_the_same_time_leave_one_registration() {
    under(DeviceChoice::Emulated, |bench| {
        let memory = Memory::new(Kind::Device, 1 << 20, 1);
        for _ in 0..20 {
            bench.register(memory.ptr(), 1 << 20);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (driver, id, ptr) = (&bench.driver, bench.file.id(), memory.ptr());
                    scope.spawn(move || {
                        for _ in 0..5 {
                            // SAFETY: the range lies in the memory, in a part that only this thread uses.
                            let read = unsafe { driver.read(id, ptr, 100_000, 7, thread * 200_000) };
                            assert_eq!(read.unwrap(), 100_000);
                        }
                    });
                }
            });
            assert_eq!(bench.open(), 1);
            bench.driver.deregister_buffer(memory.ptr()).unwrap();
            assert_eq!(bench.open(), 0);
        }
        assert_eq!(bench.server.by_host.load(Ordering::SeqCst), 0);
    });
}
