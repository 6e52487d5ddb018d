//! Opening, closing, counting.

use super::*;

#[test]
fn the_count_follows_open_and_close() {
    start();
    assert_eq!(hipFileUseCount(), 0);
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
    for count in 1..=5 {
        ok(hipFileDriverOpen());
        assert_eq!(hipFileUseCount(), count);
    }
    for count in (0..5).rev() {
        ok(hipFileDriverClose());
        assert_eq!(hipFileUseCount(), count);
    }
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn behaviour_48_the_first_to_close_does_not_pull_the_driver_from_under_the_second() {
    start();
    ok(hipFileDriverOpen());
    ok(hipFileDriverOpen());
    let (_file, handle) = registered_file(b"0123456789");
    let device = Device::new(4096, 0);
    ok(hipFileDriverClose());
    assert_eq!(read(handle, device.start, 10, 0, 0), (10, MARK));
    assert_eq!(&device.bytes()[..10], b"0123456789");
    ok(hipFileDriverClose());
    assert_eq!(hipFileUseCount(), 0);
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
    assert_eq!(read(handle, device.start, 10, 0, 0), (-1, libc::EINVAL));
}

#[test]
fn opening_loads_no_runtime() {
    start();
    ok(hipFileDriverOpen());
    let (_file, handle) = registered_file(b"x");
    hipFileHandleDeregister(handle);
    ok(hipFileDriverClose());
    for function in ["hipInit", "hipGetDeviceCount", "hipPointerGetAttributes", "hipRuntimeGetVersion"] {
        assert_eq!(hip_emu::fault::calls(function), 0, "{function}");
    }
}

#[test]
fn what_was_registered_is_unknown_after_the_last_close() {
    start();
    let device = Device::new(4096, 0);
    let (file, old) = registered_file(b"0123456789");
    ok(register_memory(device.start, 4096));
    assert_eq!(hipFileUseCount(), 1);
    assert_eq!(register(file.as_raw_fd()), Err(hipFileHandleAlreadyRegistered));
    assert_eq!(code(register_memory(device.start, 4096)), hipFileMemoryAlreadyRegistered);
    ok(hipFileDriverClose());

    // Both may be registered again; the old handle stays unknown.
    let new = register(file.as_raw_fd()).unwrap();
    assert_ne!(new, old);
    ok(register_memory(device.start, 4096));
    let unknown = -(hipFileHandleNotRegistered.0 as isize);
    assert_eq!(read(old, device.start, 10, 0, 0), (unknown, MARK));
    assert_eq!(read(new, device.start, 10, 0, 0), (10, MARK));
    hipFileHandleDeregister(old);
    assert_eq!(read(new, device.start, 10, 0, 0), (10, MARK), "the old handle named nothing");
    ok(hipFileDriverClose());
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
}

#[test]
fn functions_that_do_not_open_the_driver() {
    start();
    let device = Device::new(4096, 0);
    hipFileHandleDeregister(core::ptr::null_mut());
    hipFileHandleDeregister(core::ptr::without_provenance_mut(0x1234));
    assert_eq!(code(hipFileBufDeregister(device.start)), hipFileDriverClosing);
    assert_eq!(code(hipFileBufDeregister(core::ptr::null())), hipFileDriverClosing);
    assert_eq!(read(core::ptr::null_mut(), core::ptr::null_mut(), 0, 0, 0), (-1, libc::EINVAL));
    assert_eq!(write(core::ptr::null_mut(), core::ptr::null(), 0, 0, 0), (-1, libc::EINVAL));
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn the_version_is_the_headers_and_null_is_skipped() {
    start();
    let null = core::ptr::null_mut();
    let (mut major, mut minor, mut patch) = (9, 9, 9);
    // SAFETY: every argument is NULL or points to a local variable.
    ok(unsafe { hipFileGetVersion(&raw mut major, &raw mut minor, &raw mut patch) });
    assert_eq!((major, minor, patch), (0, 5, 0));
    let mut minor = 9;
    // SAFETY: as above.
    ok(unsafe { hipFileGetVersion(null, &raw mut minor, null) });
    assert_eq!(minor, 5);
    // SAFETY: as above.
    ok(unsafe { hipFileGetVersion(null, null, null) });
    assert_eq!(hipFileUseCount(), 0);
}
