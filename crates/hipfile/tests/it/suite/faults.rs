//! The GPU runtime and the file failing: right count, right code, and the next operation works.

use gpu_sys::hip::HipError;
use hip_emu::fault::{self, When};
use hipfile::{Buffer, ErrorKind, File};

use crate::support::gpu::is_emulated_hip;
use crate::support::{Storage, driver, skip};

const BLOCK: usize = 64 << 10;

#[test]
fn a_failing_copy_returns_the_prefix_and_then_its_own_error() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let (driver, storage) = (driver(), Storage::here());
    let content: Vec<u8> = (0..5 * BLOCK).map(|n| (n / 7) as u8).collect();
    std::fs::write(storage.path("f"), &content).unwrap();
    let file = File::register(
        &driver,
        std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap(),
    )
    .unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, content.len()).unwrap();
    for failing in 1..=5 {
        fault::inject("hipMemcpy", When::Nth(failing), HipError::ILLEGAL_ADDRESS).unwrap();
        let result = file.read_at(&mut buffer, 0..content.len(), 0);
        fault::clear();
        if failing == 1 {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HipDriverError);
            assert_eq!(error.device_code(), Some(HipError::ILLEGAL_ADDRESS.0 as i32));
        } else {
            assert_eq!(result.unwrap(), (failing as usize - 1) * BLOCK);
        }
    }
    for failing in 2..=5 {
        let marked = vec![failing as u8; content.len()];
        buffer.upload(0, &marked).unwrap();
        fault::inject("hipMemcpy", When::Nth(failing), HipError::UNKNOWN).unwrap();
        let n = file.write_at(&buffer, 0..content.len(), 0).unwrap();
        fault::clear();
        assert_eq!(n, (failing as usize - 1) * BLOCK);
        assert_eq!(std::fs::read(storage.path("f")).unwrap()[..n], marked[..n]);
    }
    assert_eq!(file.read_at(&mut buffer, 0..content.len(), 0).unwrap(), content.len());
}

#[test]
fn the_error_of_the_last_bytes_shows_on_the_next_call() {
    let Some(storage) = Storage::tmpfs() else { return };
    let driver = driver();
    let filler = std::fs::File::create(storage.path("filler")).unwrap();
    // All but 3 Blocks of the file system's 256 MiB.
    if rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, (256 << 20) - 3 * BLOCK as u64)
        .is_err()
    {
        return skip("full file system", "fallocate is refused");
    }
    let open =
        std::fs::File::options().create(true).truncate(false).write(true).open(storage.path("f")).unwrap();
    let file = File::register(&driver, open).unwrap();
    let buffer = Buffer::alloc(&driver, 0, 8 * BLOCK).unwrap();
    let n = file.write_at(&buffer, 0..8 * BLOCK, 0).unwrap();
    assert!(n > 0 && n <= 3 * BLOCK, "{n}");
    let full = file.write_at(&buffer, n..8 * BLOCK, n as u64).unwrap_err();
    assert_eq!(full.os_error(), Some(libc::ENOSPC));
    assert!(full.to_string().contains("ENOSPC") && full.to_string().contains("/f"), "{full}");
    drop(filler);
    std::fs::remove_file(storage.path("filler")).unwrap();
    assert_eq!(file.write_at(&buffer, n..8 * BLOCK, n as u64).unwrap(), 8 * BLOCK - n);
}

#[test]
fn pinning_that_fails_costs_speed_only() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    fault::inject("hipHostRegister", When::Every, HipError::OUT_OF_MEMORY).unwrap();
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![3; 3 * BLOCK]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 3 * BLOCK).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0..3 * BLOCK, 0).unwrap(), 3 * BLOCK);
    assert!(fault::calls("hipHostRegister") > 0, "pinning was tried");
}

#[test]
fn every_call_failing_in_turn_gives_an_error_and_no_more() {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![3; 3 * BLOCK]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    for function in ["hipMalloc", "hipPointerGetAttributes", "hipMemGetAddressRange"] {
        fault::inject(function, When::Every, HipError::UNKNOWN).unwrap();
        let error = Buffer::alloc(&driver, 0, 3 * BLOCK).unwrap_err();
        fault::clear();
        assert_eq!((error.kind(), error.device_code()), (ErrorKind::HipDriverError, Some(999)), "{function}");
        let mut buffer = Buffer::alloc(&driver, 0, 3 * BLOCK).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0..3 * BLOCK, 0).unwrap(), 3 * BLOCK, "after {function}");
    }
}
