//! Reading and writing: results, their order, errno. The bytes are the business of the core's own tests.

use std::os::unix::fs::FileExt;

use hip_emu::fault::{self, When};

use super::*;

const NOT_REGISTERED: isize = -5027;
const INVALID: isize = -5022;
const LEN: usize = 65536;

#[test]
fn bytes_travel_both_ways() {
    start();
    let text: Vec<u8> = (0..LEN).map(|i| (i * 7) as u8).collect();
    let (source, from) = registered_file(&text);
    let (target, to) = registered_file(b"");
    let device = Device::new(LEN, 0);
    ok(register_memory(device.start, LEN));
    assert_eq!(read(from, device.start, LEN, 0, 0), (LEN as isize, MARK));
    assert_eq!(device.bytes(), text);
    assert_eq!(write(to, device.start, LEN, 0, 0), (LEN as isize, MARK));
    let mut back = vec![0; LEN];
    target.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, text);
    drop(source);
}

#[test]
fn the_checks_come_in_order() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(b"0123456789");
    let bad = core::ptr::null_mut();
    let host = [0u8; 16];
    let host: *mut c_void = host.as_ptr().cast_mut().cast();
    // Each row has all the faults of the rows below it.
    let rows = [
        (bad, core::ptr::null_mut(), -1i64, -1i64, LEN + 1, (NOT_REGISTERED, MARK)),
        (handle, core::ptr::null_mut(), -1, -1, LEN + 1, (INVALID, MARK)),
        (handle, host, -1, -1, LEN + 1, (-(hipFileHipMemoryTypeInvalid.0 as isize), MARK)),
        (handle, device.start, -1, 0, LEN + 1, (-1, libc::EINVAL)),
        (handle, device.start, 0, -1, LEN + 1, (-1, libc::EINVAL)),
        (handle, device.start, 0, 0, LEN + 1, (INVALID, MARK)),
    ];
    for (fh, buffer, file_offset, buffer_offset, size, expected) in rows {
        assert_eq!(read(fh, buffer, size, file_offset, buffer_offset), expected);
        assert_eq!(write(fh, buffer, size, file_offset, buffer_offset), expected);
    }
}

#[test]
fn behaviour_11_a_size_of_zero_moves_nothing_and_is_checked() {
    start();
    let device = Device::new(LEN, 0xee);
    let (file, handle) = registered_file(b"0123456789");
    for file_offset in [0, 3, 10, 4096, 1 << 40] {
        assert_eq!(read(handle, device.start, 0, file_offset, 0), (0, MARK));
        assert_eq!(write(handle, device.start, 0, file_offset, 5), (0, MARK));
    }
    assert_eq!(file.metadata().unwrap().len(), 10, "the file does not grow");
    assert!(device.bytes().iter().all(|byte| *byte == 0xee));
    assert_eq!(read(core::ptr::null_mut(), device.start, 0, 0, 0), (NOT_REGISTERED, MARK));
    assert_eq!(read(handle, core::ptr::null_mut(), 0, 0, 0), (INVALID, MARK));
    assert_eq!(read(handle, device.start, 0, -1, 0), (-1, libc::EINVAL));
    assert_eq!(read(handle, device.start, 0, 0, -1), (-1, libc::EINVAL));
    assert_eq!(read(handle, device.start, 0, 0, LEN as i64), (INVALID, MARK));
}

#[test]
fn behaviour_12_negative_offsets_are_an_errno() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(b"0123456789");
    for registered in [false, true] {
        if registered {
            ok(register_memory(device.start, LEN));
        }
        for (file_offset, buffer_offset) in [(-1, 0), (0, -1), (-1, -1), (i64::MIN, 0), (0, i64::MIN)] {
            assert_eq!(read(handle, device.start, 10, file_offset, buffer_offset), (-1, libc::EINVAL));
            assert_eq!(write(handle, device.start, 10, file_offset, buffer_offset), (-1, libc::EINVAL));
        }
    }
}

#[test]
fn behaviour_8_a_read_is_short_at_the_end_of_the_file_only() {
    start();
    let device = Device::new(LEN, 0xee);
    let (_file, handle) = registered_file(&[7; 10_000]);
    for (size, file_offset, expected) in
        [(16384, 0, 10_000), (4096, 8192, 1808), (1, 10_000, 0), (1, 1 << 40, 0), (1, 9_999, 1)]
    {
        device.put(&[0xee; LEN]);
        assert_eq!(read(handle, device.start, size, file_offset, 0), (expected, MARK));
        let bytes = device.bytes();
        assert!(bytes[..expected as usize].iter().all(|byte| *byte == 7));
        assert!(bytes[size..].iter().all(|byte| *byte == 0xee), "outside the request");
        if expected == 0 {
            assert_eq!(bytes[0], 0xee);
        }
    }
}

#[test]
fn the_bounds_are_those_of_the_registration_or_the_allocation() {
    start();
    let device = Device::new(LEN, 0);
    let (_file, handle) = registered_file(&[1; LEN]);
    let len = LEN as isize;
    // Not registered: up to the end of the allocation.
    assert_eq!(read(handle, device.at(4096), LEN - 4096, 0, 0), (len - 4096, MARK));
    assert_eq!(read(handle, device.at(4096), LEN, 0, 0), (INVALID, MARK));
    assert_eq!(read(handle, device.start, 1, 0, LEN as i64), (INVALID, MARK));
    assert_eq!(read(handle, device.start, 1, 0, LEN as i64 - 1), (1, MARK));
    assert_eq!(read(handle, device.start, 1, 0, i64::MAX), (INVALID, MARK));
    assert_eq!(read(handle, device.start, usize::MAX, 0, 1), (INVALID, MARK));
    // The registered pointer itself: up to the registered length.
    ok(register_memory(device.start, 8192));
    assert_eq!(read(handle, device.start, 8192, 0, 0), (8192, MARK));
    assert_eq!(read(handle, device.start, 8193, 0, 0), (INVALID, MARK));
    assert_eq!(read(handle, device.start, 1, 0, 8192), (INVALID, MARK));
    // A pointer into it: by the registration if that holds the range, else by the allocation.
    assert_eq!(read(handle, device.at(1), 8191, 0, 0), (8191, MARK));
    assert_eq!(read(handle, device.at(1), 8192, 0, 0), (8192, MARK));
}

#[test]
fn an_error_of_the_system_is_an_errno() {
    start();
    let device = Device::new(LEN, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, b"0123456789").unwrap();
    let read_only = std::fs::File::open(&path).unwrap();
    let handle = register(read_only.as_raw_fd()).unwrap();
    assert_eq!(read(handle, device.start, 10, 0, 0), (10, MARK));
    assert_eq!(write(handle, device.start, 10, 0, 0), (-1, libc::EBADF));
    let write_only = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let handle = register(write_only.as_raw_fd()).unwrap();
    assert_eq!(write(handle, device.start, 10, 0, 0), (10, MARK));
    assert_eq!(read(handle, device.start, 10, 0, 0), (-1, libc::EBADF));
}

#[test]
fn an_error_of_the_runtime_is_its_code_and_leaves_errno_alone() {
    start();
    let device = Device::new(LEN, 0);
    let (file, handle) = registered_file(&[1; LEN]);
    ok(register_memory(device.start, LEN));
    // Nothing is aligned, so all of it is staged and copied.
    assert_eq!(read(handle, device.at(1), 100, 1, 0), (100, MARK));
    fault::inject("hipMemcpy", When::Every, HipError(719)).unwrap();
    assert_eq!(read(handle, device.at(1), 100, 1, 0), (-719, MARK));
    assert_eq!(write(handle, device.at(1), 100, 1, 0), (-719, MARK));
    // hipErrorInvalidValue is 1: told from a system error by errno alone.
    fault::clear();
    fault::inject("hipMemcpy", When::Every, HipError(1)).unwrap();
    assert_eq!(read(handle, device.at(1), 100, 1, 0), (-1, MARK));
    drop(file);
}

#[test]
fn errno_is_left_alone_by_everything_else() {
    start();
    let device = Device::new(4096, 0);
    let file = file(b"x");
    set_errno(MARK);
    ok(hipFileDriverOpen());
    let handle = register(file.as_raw_fd()).unwrap();
    assert_eq!(register(-1), Err(hipFileInternalError));
    ok(register_memory(device.start, 4096));
    assert_eq!(code(register_memory(core::ptr::null(), 4096)), hipFileInvalidValue);
    ok(hipFileBufDeregister(device.start));
    assert_eq!(code(hipFileBufDeregister(device.start)), hipFileMemoryNotRegistered);
    hipFileHandleDeregister(handle);
    ok(hipFileDriverClose());
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
    assert_eq!(errno(), MARK);
}
