//! Memory: what registers, what bounds hold, which GPU is touched.

use hipfile::{Buffer, DevPtr, ErrorKind, File};

use crate::support::gpu::is_emulated_hip;
use crate::support::{Storage, driver, driver_with};

#[test]
fn registration_answers_in_the_documented_order() {
    let driver = driver();
    let buffer = Buffer::alloc(&driver, 0, 8192).unwrap();
    let base = buffer.ptr().0;
    // SAFETY: the memory outlives them, and nothing is transferred.
    let register = |ptr, len| unsafe { driver.register_buffer(DevPtr(ptr), len, 0) }.map_err(|e| e.kind());
    assert_eq!(register(base, 8192), Err(ErrorKind::MemoryAlreadyRegistered));
    assert_eq!(register(0, 10), Err(ErrorKind::InvalidValue));
    assert_eq!(register(base + 4096, 4096), Ok(()));
    assert_eq!(register(base + 1, 8192), Err(ErrorKind::HipPointerRangeError));
    assert_eq!(register(base + 1, usize::MAX), Err(ErrorKind::HipPointerRangeError));
    assert_eq!(register(base + 2, 0), Ok(()));
    let host = [0u8; 64];
    assert_eq!(register(host.as_ptr().addr(), 64), Err(ErrorKind::HipMemoryTypeInvalid));
    driver.deregister_buffer(DevPtr(base + 4096)).unwrap();
    assert_eq!(
        driver.deregister_buffer(DevPtr(base + 4096)).unwrap_err().kind(),
        ErrorKind::MemoryNotRegistered
    );
}

#[test]
fn behaviour_32_interior_pointers_reach_the_same_bytes() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"abcdef").unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 1 << 20).unwrap();
    let base = buffer.ptr().0;
    for (ptr, offset) in [(base, 70_000), (base + 70_000, 0), (base + 30_000, 40_000)] {
        // SAFETY: the range lies inside the buffer.
        assert_eq!(unsafe { driver.read(file.id(), DevPtr(ptr), 6, 0, offset) }.unwrap(), 6);
        let mut bytes = [0; 8];
        buffer.download(69_999, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0abcdef\0");
    }
}

/// Whichever way a place inside is named: the registration serves it, by the same engine, and the runtime is asked for no bounds.
#[test]
fn behaviour_32_an_interior_pointer_hits_the_registration() {
    const MIB: usize = 1 << 20;
    if !is_emulated_hip("it counts HIP's calls") {
        return;
    }
    let driver = driver_with(&["p2p", "uring", "bounce"], |_| {});
    for storage in [Some(Storage::here()), Storage::ext4(&[])].into_iter().flatten() {
        let (file, content) = storage.random_file(4 * MIB);
        let file = File::register(&driver, file).unwrap();
        let buffer = Buffer::alloc(&driver, 0, 1 << 30).unwrap();
        let base = buffer.ptr();
        let within = DevPtr(base.0 + 64 * MIB);
        let held = driver.buffer_info(within, 4 * MIB).unwrap();
        assert_eq!((held.start, held.len), (base, 1 << 30), "by whom it is registered");
        let asked = || hip_emu::fault::calls("hipMemGetAddressRange");
        let read = |ptr, offset| {
            let (before, bounds) = (file.info().unwrap().stats, asked());
            // SAFETY: the range lies in the buffer, which only this test uses.
            assert_eq!(unsafe { driver.read(file.id(), ptr, 4 * MIB, 0, offset) }.unwrap(), 4 * MIB);
            assert_eq!(asked(), bounds, "the registration knows them");
            let mut bytes = vec![0; 4 * MIB];
            buffer.download(64 * MIB, &mut bytes).unwrap();
            assert!(bytes == content);
            let after = file.info().unwrap().stats;
            let served = |stats: &hipfile::Stats| {
                stats.read.iter().map(|engine| (engine.engine, engine.bytes)).collect::<Vec<_>>()
            };
            let (before, after) = (served(&before), served(&after));
            after
                .into_iter()
                .filter(|engine| !before.contains(engine))
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        let inner = read(within, 0);
        assert_eq!(read(base, 64 * MIB as i64), inner, "the same path");
        assert_eq!(inner.len(), 1, "{inner:?}");
        driver.deregister_buffer(base).unwrap();
        let bounds = asked();
        // SAFETY: as above.
        assert_eq!(unsafe { driver.read(file.id(), within, MIB, 0, 0) }.unwrap(), MIB);
        assert!(asked() > bounds, "without a registration they are asked for");
    }
}

#[test]
fn an_unregistered_pointer_has_the_bounds_of_its_allocation() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![1; 8192]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 8192).unwrap();
    driver.deregister_buffer(buffer.ptr()).unwrap();
    let at = DevPtr(buffer.ptr().0 + 4096);
    // SAFETY: the ranges lie inside the allocation, or are refused.
    assert_eq!(unsafe { driver.read(file.id(), at, 4096, 0, 0) }.unwrap(), 4096);
    // SAFETY: as above.
    let beyond = unsafe { driver.read(file.id(), at, 8192, 0, 0) };
    assert_eq!(beyond.unwrap_err().kind(), ErrorKind::InvalidValue);
}

#[test]
fn a_registered_base_keeps_its_registered_length() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![1; 8192]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 8192).unwrap();
    driver.deregister_buffer(buffer.ptr()).unwrap();
    // SAFETY: the memory outlives the registration.
    unsafe { driver.register_buffer(buffer.ptr(), 4096, 0) }.unwrap();
    // SAFETY: the ranges lie inside the allocation, or are refused.
    let read = |len, offset| unsafe { driver.read(file.id(), buffer.ptr(), len, 0, offset) };
    assert_eq!(read(4096, 0).unwrap(), 4096);
    assert_eq!(read(4097, 0).unwrap_err().kind(), ErrorKind::InvalidValue);
    assert_eq!(read(0, 4096).unwrap_err().kind(), ErrorKind::InvalidValue);
    assert_eq!(read(0, 4095).unwrap(), 0);
}

#[test]
fn behaviour_42_host_memory_works_when_allowed() {
    let storage = Storage::here();
    std::fs::write(storage.path("f"), b"to plain memory").unwrap();
    let open = || std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    let driver = driver_with(&["bounce"], |c| c.allow_system_memory = true);
    let file = File::register(&driver, open()).unwrap();
    let mut host = vec![0u8; 100];
    let ptr = DevPtr::from(host.as_mut_ptr().cast::<std::ffi::c_void>());
    // SAFETY: the vector outlives the calls and is not touched during them.
    assert_eq!(unsafe { driver.read(file.id(), ptr, 100, 0, 0) }.unwrap(), 15);
    assert_eq!(&host[..15], b"to plain memory");
    host[..3].copy_from_slice(b"TO ");
    // SAFETY: as above.
    assert_eq!(unsafe { driver.write(file.id(), ptr, 3, 0, 0) }.unwrap(), 3);
    assert_eq!(std::fs::read(storage.path("f")).unwrap(), b"TO plain memory");
    let strict = crate::support::driver();
    let file = File::register(&strict, open()).unwrap();
    // SAFETY: refused before anything is touched.
    let refused = unsafe { strict.read(file.id(), ptr, 100, 0, 0) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HipMemoryTypeInvalid);
}

#[test]
fn behaviour_57_the_callers_current_gpu_stays_current() {
    if !is_emulated_hip("it makes three emulated GPUs") {
        return;
    }
    // SAFETY: set before the emulation reads it, while this process has one thread of interest.
    unsafe { std::env::set_var("HIP_EMU_DEVICES", "3") };
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![9; 300_000]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let api = hip_emu::api();
    let current = || {
        let mut device = -1;
        // SAFETY: `device` is writable.
        assert_eq!(unsafe { (api.hipGetDevice)(&raw mut device) }, gpu_sys::hip::HipError::SUCCESS);
        device
    };
    for callers in 0..3 {
        // SAFETY: a plain call.
        assert_eq!(unsafe { (api.hipSetDevice)(callers) }, gpu_sys::hip::HipError::SUCCESS);
        for ordinal in 0..3 {
            let mut buffer = Buffer::alloc(&driver, ordinal, 300_000).unwrap();
            assert_eq!(buffer.ordinal(), Some(ordinal));
            assert_eq!(file.read_at(&mut buffer, 0..300_000, 0).unwrap(), 300_000);
            let mut bytes = vec![0; 300_000];
            buffer.download(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|b| *b == 9));
            hip_emu::fault::inject("hipMemcpy", hip_emu::fault::When::Every, gpu_sys::hip::HipError::UNKNOWN)
                .unwrap();
            assert!(file.read_at(&mut buffer, 0..300_000, 0).is_err());
            hip_emu::fault::clear();
            assert_eq!(current(), callers);
        }
    }
    assert_eq!(Buffer::alloc(&driver, 3, 10).unwrap_err().kind(), ErrorKind::DeviceNotFound);
}

#[test]
fn a_buffer_in_use_is_not_deregistered_under_the_transfer() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![1; 1 << 20]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 1 << 20).unwrap();
    let (id, ptr) = (file.id(), buffer.ptr());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // SAFETY: the buffer outlives the scope.
            (0..200)
                // SAFETY: the memory outlives the call, or the call is refused before it is touched.
                .map(|_| unsafe { driver.read(id, ptr, 1 << 20, 0, 0) })
                .all(|n| n.is_ok_and(|n| n == 1 << 20))
        });
        while !reader.is_finished() {
            match driver.deregister_buffer(ptr) {
                // SAFETY: the buffer outlives the scope.
                Ok(()) => unsafe { driver.register_buffer(ptr, 1 << 20, 0) }.unwrap(),
                Err(error) => assert_eq!(error.kind(), ErrorKind::InternalError, "{error}"),
            }
        }
        assert!(reader.join().unwrap(), "every read is right, registered or not");
    });
}
