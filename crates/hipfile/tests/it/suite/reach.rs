//! What a GPU's memory can be reached by: not at all from storage, by the processor too, under another address. Transfers are
//! right in any case.

use std::os::fd::AsRawFd as _;

use gpu_sys::cuda::CudaError;
use gpu_sys::hip::HipError;
use hip_emu::cuda::ipc::{cuIpcCloseMemHandle, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2};
use hip_emu::fault::{self, Fault, Rule, When};
use hip_emu::function::Function;
use hip_emu::types::IpcMemHandle;
use hipfile::{Buffer, Config, DevPtr, DeviceChoice, Driver, ErrorKind, Fallback, PageCache, Reason};

use crate::support::gpu::{self, is_emulated_hip};
use crate::support::memory::{Kind, Memory, close, import};
use crate::support::{Storage, driver_with};

const ALL: &[&str] = &["p2p", "uring", "bounce"];

fn content_of(buffer: &Buffer, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    buffer.download(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn behaviour_37_pinning_may_fail_at_any_time() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    const LEN: usize = 1 << 20;
    let (storage, mut pinned) = (Storage::here(), 0);
    let (file, content) = storage.random_file(LEN);
    for (n, when) in
        [When::Nth(1), When::Every, When::Nth(2), When::Nth(1), When::Every].into_iter().enumerate()
    {
        fault::clear();
        let before = fault::calls("hipHostRegister");
        fault::inject("hipHostRegister", when, HipError::OUT_OF_MEMORY).unwrap();
        let driver = driver_with(&["bounce"], |c| {
            c.parallel_min = 100_000;
            // What one driver has pinned the next one takes over, but not if it is too small.
            c.pool_len = (n + 1) << 20;
        });
        let id = driver.register_file(file.as_raw_fd()).unwrap();
        // A registration pins nothing of the caller's, so it cannot fail for that.
        let buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
        for _ in 0..3 {
            // SAFETY: the range lies in the buffer, which nobody else uses; here and below.
            assert_eq!(unsafe { driver.read(id, buffer.ptr(), LEN, 0, 0) }.unwrap(), LEN, "{when:?}");
            assert!(content_of(&buffer, LEN) == content, "{when:?}");
            // SAFETY: as above.
            assert_eq!(unsafe { driver.write(id, buffer.ptr(), LEN, 0, 0) }.unwrap(), LEN, "{when:?}");
        }
        assert!(std::fs::read(storage.path("f")).unwrap() == content);
        pinned += fault::calls("hipHostRegister") - before;
    }
    fault::clear();
    assert!(pinned >= 4, "pinning was tried {pinned} times");
}

/// Reads all of the file and writes it back: both are right, and staged for this reason.
#[track_caller]
fn is_staged(driver: &Driver, file: &std::fs::File, content: &[u8], due: Reason) {
    let len = content.len();
    let id = driver.register_file(file.as_raw_fd()).unwrap();
    let buffer = Buffer::alloc(driver, 0, len).unwrap();
    // SAFETY: the range lies in the buffer, which nobody else uses; here and below.
    assert_eq!(unsafe { driver.read(id, buffer.ptr(), len, 0, 0) }.unwrap(), len);
    assert!(content_of(&buffer, len) == content);
    // SAFETY: as above.
    assert_eq!(unsafe { driver.write(id, buffer.ptr(), len, 0, 0) }.unwrap(), len);
    let stats = driver.file_info(id).unwrap().stats;
    for staged in [&stats.read_staged, &stats.write_staged] {
        let told: Vec<_> = staged.iter().map(|staged| (staged.reason, staged.bytes)).collect();
        assert_eq!(told, [(due, len as u64)], "{:?}", driver.config());
    }
}

#[test]
fn behaviour_38_a_gpu_that_storage_cannot_reach_is_said_so_and_served() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    const LEN: usize = 64 << 10;
    let Some(storage) = Storage::ext4(&[]) else { return };
    let (file, content) = storage.random_file(LEN);
    // What drivers say without peer-to-peer, or with a window too small: no device, remote I/O, no memory, an invalid argument.
    for (errno, reason) in [
        (libc::ENODEV, Reason::NoStorageDevice),
        (libc::EREMOTEIO, Reason::RemoteIo),
        (libc::ENOMEM, Reason::NoMemory),
        (libc::EINVAL, Reason::Demoted),
    ] {
        for function in [Function::hipAmdFileRead, Function::hipAmdFileWrite] {
            fault::add(Rule { function, when: When::Every, fault: Fault::Status(errno) });
        }
        is_staged(&driver_with(ALL, |_| {}), &file, &content, reason);
        fault::clear();
    }
    assert!(std::fs::read(storage.path("f")).unwrap() == content);
}

#[test]
fn behaviour_38_a_small_window_is_named_as_the_reason() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    const LEN: usize = 64 << 10;
    let Some(storage) = Storage::ext4(&[]) else { return };
    let (file, content) = storage.random_file(LEN);
    let bus = tempfile::tempdir().unwrap();
    let pci = driver_with(ALL, |_| {}).devices().unwrap()[0].pci.clone().unwrap().to_ascii_lowercase();
    let gpu = bus.path().join(pci);
    std::fs::create_dir(&gpu).unwrap();
    std::fs::write(gpu.join("vendor"), "0x1002\n").unwrap();
    std::fs::write(gpu.join("device"), "0x74a1\n").unwrap();
    std::fs::write(gpu.join("mem_info_vram_total"), "206158430208\n").unwrap();
    if !crate::support::mount_over(bus.path(), "/sys/bus/pci/devices") {
        return;
    }
    for (window, reason) in [("268435456\n", Reason::SmallBar), ("206158430208\n", Reason::NoMemory)] {
        std::fs::write(gpu.join("mem_info_vis_vram_total"), window).unwrap();
        for function in [Function::hipAmdFileRead, Function::hipAmdFileWrite] {
            fault::add(Rule { function, when: When::Every, fault: Fault::Status(libc::ENOMEM) });
        }
        for skip_topology in [false, true] {
            let driver = driver_with(ALL, |c| c.skip_topology = skip_topology);
            is_staged(&driver, &file, &content, if skip_topology { Reason::NoMemory } else { reason });
        }
        fault::clear();
    }
    assert!(std::fs::read(storage.path("f")).unwrap() == content);
}

/// On a GPU that shares the processor's memory.
fn shared(change: impl FnOnce(&mut Config)) -> Option<Driver> {
    if !is_emulated_hip("it makes an emulated GPU that shares memory") {
        return None;
    }
    // SAFETY: set before the emulation reads it, while this process has one thread of interest.
    unsafe { std::env::set_var("HIP_EMU_INTEGRATED", "all") };
    Some(driver_with(&["uring", "bounce"], |c| {
        c.direct_min = 4096;
        change(c);
    }))
}

#[test]
fn behaviour_158_memory_that_is_shared_is_read_and_written_in_place() {
    const LEN: usize = 1 << 20;
    for page_cache in [PageCache::Auto, PageCache::Direct, PageCache::NoCache] {
        let Some(driver) = shared(|c| {
            c.page_cache = page_cache;
            // Nothing is staged, so there is nothing to forbid.
            c.fallback = Fallback::Forbid;
        }) else {
            return;
        };
        for storage in [Some(Storage::here()), Storage::ext4(&[]), Storage::tmpfs()].into_iter().flatten() {
            let (file, mut content) = storage.random_file(LEN + 777);
            let id = driver.register_file(file.as_raw_fd()).unwrap();
            let mut memory = Memory::new(Kind::Device, LEN + 8192, 5);
            for registered in [false, true] {
                if registered {
                    // SAFETY: the memory outlives the registration.
                    unsafe { driver.register_buffer(memory.ptr(), LEN + 8192, 0) }.unwrap();
                }
                let copies = fault::calls("hipMemcpy") + fault::calls("hipMemcpyAsync");
                for (at, len, offset) in [(0, LEN, 0), (4096, LEN + 777, 0), (3, 100_001, 4099), (8, 0, 0)] {
                    let due = (LEN + 777 - offset).min(len);
                    // SAFETY: the range lies in the memory.
                    let read = unsafe { driver.read(id, memory.ptr(), len, offset as i64, at as i64) };
                    assert_eq!(read.map_err(|e| e.to_string()), Ok(due));
                    memory.expect(at, &content[offset..offset + due]);
                }
                for (at, len, offset) in [(0, LEN, 0), (5000, 5000, 904)] {
                    // SAFETY: the range lies in the memory.
                    let written = unsafe { driver.write(id, memory.ptr(), len, offset as i64, at as i64) };
                    assert_eq!(written.map_err(|e| e.to_string()), Ok(len));
                    content[offset..offset + len].copy_from_slice(memory.known(at, len));
                }
                assert_eq!(fault::calls("hipMemcpy") + fault::calls("hipMemcpyAsync"), copies, "no copies");
                memory.check(&storage.name);
                assert!(std::fs::read(storage.path("f")).unwrap() == content, "{}", storage.name);
            }
            driver.deregister_buffer(memory.ptr()).unwrap();
            let stats = driver.file_info(id).unwrap().stats;
            assert!(stats.read_staged.is_empty() && stats.write_staged.is_empty(), "{stats:?}");
            driver.deregister_file(id).unwrap();
        }
    }
}

#[test]
fn behaviour_158_what_is_queued_before_is_waited_for() {
    const LEN: usize = 256 << 10;
    let Some(driver) = shared(|_| {}) else { return };
    let (storage, marked) = (Storage::here(), vec![7; LEN]);
    let (file, _) = storage.random_file(LEN);
    let id = driver.register_file(file.as_raw_fd()).unwrap();
    let (mut from, to) = (Buffer::alloc(&driver, 0, LEN).unwrap(), Buffer::alloc(&driver, 0, LEN).unwrap());
    from.upload(0, &marked).unwrap();
    let word = gpu::word();
    // The legacy default stream is held, then it is to fill the buffer, as a kernel would.
    gpu::hold_stream(0, word);
    gpu::copy_on_stream(0, to.ptr(), from.ptr(), LEN);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            word.store(1, std::sync::atomic::Ordering::Release);
        });
        // SAFETY: the range lies in the buffer, which only the stream uses besides.
        assert_eq!(unsafe { driver.write(id, to.ptr(), LEN, 0, 0) }.unwrap(), LEN);
    });
    assert!(std::fs::read(storage.path("f")).unwrap() == marked);
}

#[test]
fn imported_memory_is_served_until_it_is_closed() {
    served_until_closed(DeviceChoice::Emulated, import, close);
}

/// The same under CUDA's names, which know memory by contexts.
#[test]
fn imported_memory_of_cuda_is_served_until_it_is_closed() {
    served_until_closed(DeviceChoice::EmulatedCuda, import_by_cuda, close_by_cuda);
}

fn import_by_cuda(original: usize) -> usize {
    let (mut handle, mut at) = (IpcMemHandle { reserved: [0; 64] }, 0);
    // SAFETY: `handle` is writable.
    assert_eq!(unsafe { cuIpcGetMemHandle(&raw mut handle, original as u64) }, CudaError::SUCCESS);
    // SAFETY: `at` is writable.
    assert_eq!(unsafe { cuIpcOpenMemHandle_v2(&raw mut at, handle, 0) }, CudaError::INVALID_VALUE);
    // SAFETY: `at` is writable.
    assert_eq!(unsafe { cuIpcOpenMemHandle_v2(&raw mut at, handle, 1) }, CudaError::SUCCESS);
    at as usize
}

fn close_by_cuda(at: usize) {
    // SAFETY: nobody uses it any more.
    assert_eq!(unsafe { cuIpcCloseMemHandle(at as u64) }, CudaError::SUCCESS);
}

fn served_until_closed(device: DeviceChoice, import: fn(usize) -> usize, close: fn(usize)) {
    const LEN: usize = 300_000;
    for engines in [&["bounce"][..], ALL] {
        let (driver, storage) = (driver_with(engines, |c| c.device = device), Storage::here());
        let mut first = std::ptr::null_mut();
        if device == DeviceChoice::EmulatedCuda {
            let cuda = hip_emu::cuda::api();
            // SAFETY: a plain call that may be made any number of times.
            assert_eq!(unsafe { (cuda.cuInit)(0) }, CudaError::SUCCESS);
            // SAFETY: `first` is writable.
            let retained = unsafe { (cuda.cuDevicePrimaryCtxRetain)(&raw mut first, 0) };
            assert_eq!(retained, CudaError::SUCCESS);
            // SAFETY: the context is retained, and never released.
            assert_eq!(unsafe { (cuda.cuCtxPushCurrent_v2)(first) }, CudaError::SUCCESS);
        }
        let (file, content) = storage.random_file(LEN);
        let id = driver.register_file(file.as_raw_fd()).unwrap();
        let exporter = Buffer::alloc(&driver, 0, LEN).unwrap();
        let read = |at: usize| {
            // SAFETY: memory of this test, or refused.
            unsafe { driver.read(id, DevPtr(at), LEN, 0, 0) }.map_err(|e| e.kind())
        };
        let at = import(exporter.ptr().0);
        assert_eq!(read(at), Ok(LEN), "not registered");
        // SAFETY: nothing is transferred after it was closed, but by refusal.
        unsafe { driver.register_buffer(DevPtr(at), LEN, 0) }.unwrap();
        assert_eq!(read(at), Ok(LEN));
        assert!(content_of(&exporter, LEN) == content, "what the exporter has");
        // SAFETY: as above.
        assert_eq!(unsafe { driver.write(id, DevPtr(at), LEN, 0, 0) }.unwrap(), LEN);
        assert!(std::fs::read(storage.path("f")).unwrap() == content);
        close(at);
        assert!(!driver.buffer_info(DevPtr(at), 1).unwrap().current);
        assert_eq!(read(at), Err(ErrorKind::HipMemoryTypeInvalid));
        // Another import at the same address is another allocation.
        let other = Buffer::alloc(&driver, 0, 4096).unwrap();
        assert_eq!(import(other.ptr().0), at, "addresses come back");
        assert_eq!(read(at), Err(ErrorKind::InvalidValue), "its own bounds count");
        driver.deregister_buffer(DevPtr(at)).unwrap();
        close(at);
    }
}
