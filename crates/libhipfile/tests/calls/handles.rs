//! Registering files.

use std::io::{Read, Seek};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::*;

/// Registers with any kind of handle; the code.
fn register_as(kind: c_int, fd: c_int) -> hipFileOpError_t {
    let mut handle = core::ptr::null_mut();
    let mut description = describe(hipFileFileHandleType_t(kind), fd);
    // SAFETY: both point to values that live during the call.
    code(unsafe { hipFileHandleRegister(&raw mut handle, &raw mut description) })
}

#[test]
fn null_is_refused_and_opens_nothing() {
    start();
    let null = core::ptr::null_mut();
    let mut handle = core::ptr::null_mut();
    let mut description = describe(hipFileHandleTypeOpaqueFD, 0);
    for (fh, descr) in [(&raw mut handle, null), (core::ptr::null_mut(), &raw mut description)] {
        // SAFETY: each is NULL or points to a value that lives during the call.
        assert_eq!(code(unsafe { hipFileHandleRegister(fh, descr) }), hipFileInvalidValue);
    }
    // SAFETY: both are NULL.
    assert_eq!(code(unsafe { hipFileHandleRegister(core::ptr::null_mut(), null) }), hipFileInvalidValue);
    assert!(handle.is_null());
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn behaviour_24_other_kinds_of_handles_are_not_supported() {
    start();
    let file = file(b"x");
    // The type is judged before the descriptor, which may be none.
    for kind in [2, 0, 4, -1, c_int::MIN, c_int::MAX] {
        for fd in [file.as_raw_fd(), -1] {
            assert_eq!(register_as(kind, fd), hipFileIONotSupported, "type {kind}");
        }
    }
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn behaviour_25_the_ops_table_of_a_descriptor_is_not_looked_at() {
    start();
    // `describe` points it nowhere.
    let file = file(b"x");
    assert_eq!(register_as(1, file.as_raw_fd()), hipFileSuccess);
    assert_eq!(hipFileUseCount(), 1);
}

#[test]
fn a_bad_descriptor_is_an_internal_error_and_opens_nothing() {
    start();
    let closed = file(b"x").as_raw_fd();
    for fd in [-1, c_int::MIN, c_int::MAX, closed] {
        assert_eq!(register(fd), Err(hipFileInternalError), "descriptor {fd}");
    }
    assert_eq!(hipFileUseCount(), 0);
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
}

#[test]
fn what_is_no_file_is_refused_and_opens_nothing() {
    start();
    let (reader, writer) = std::io::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let folder = std::fs::File::open("/").unwrap();
    for fd in [reader.as_raw_fd(), writer.as_raw_fd(), socket.as_raw_fd(), folder.as_raw_fd()] {
        assert_eq!(register(fd), Err(hipFileInvalidFileType), "descriptor {fd}");
    }
    assert_eq!(hipFileUseCount(), 0);
}

#[test]
fn behaviour_30_a_descriptor_is_registered_once() {
    start();
    let (file, first) = registered_file(b"0123456789");
    assert_eq!(hipFileUseCount(), 1);
    assert_eq!(register(file.as_raw_fd()), Err(hipFileHandleAlreadyRegistered));
    assert_eq!(hipFileUseCount(), 1);
    let device = Device::new(4096, 0);
    assert_eq!(read(first, device.start, 10, 0, 0), (10, MARK), "the first handle still works");

    // Another number for the same open file is another handle.
    let twin = file.try_clone().unwrap();
    let second = register(twin.as_raw_fd()).unwrap();
    assert_ne!(first, second);
    hipFileHandleDeregister(first);
    assert_eq!(read(second, device.start, 10, 0, 0), (10, MARK));
    assert_eq!(read(first, device.start, 10, 0, 0).0, -(hipFileHandleNotRegistered.0 as isize));
    let again = register(file.as_raw_fd()).unwrap();
    assert_ne!(again, first, "a handle's value is not given out twice");
}

#[test]
fn registering_twice_leaves_the_count_raised() {
    start();
    let (file, _) = registered_file(b"x");
    ok(hipFileDriverClose());
    ok(hipFileDriverOpen());
    assert_eq!(register_as(1, file.as_raw_fd()), hipFileSuccess);
    assert_eq!(hipFileUseCount(), 1, "an open driver is not opened again");
}

#[test]
fn behaviour_21_a_number_that_names_another_file_by_now_is_free() {
    start();
    let (first, old) = registered_file(b"AAAAAAAAAA");
    let second = file(b"BBBBBBBBBB");
    let fd = first.as_raw_fd();
    // The number changes its file without passing through the library.
    // SAFETY: both are open descriptors of this test.
    assert_eq!(unsafe { libc::dup2(second.as_raw_fd(), fd) }, fd);
    let new = register(fd).unwrap();
    let device = Device::new(4096, 0);
    assert_eq!(read(old, device.start, 10, 0, 0).0, -(hipFileHandleNotRegistered.0 as isize));
    assert_eq!(read(new, device.start, 10, 0, 0), (10, MARK));
    assert_eq!(&device.bytes()[..10], b"BBBBBBBBBB");
}

#[test]
fn descriptor_zero_is_a_descriptor() {
    start();
    let file = file(b"zero");
    // SAFETY: the test owns descriptor 0, which nothing else in this process reads.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 0) }, 0);
    let handle = register(0).unwrap();
    let device = Device::new(4096, 0);
    assert_eq!(read(handle, device.start, 4, 0, 0), (4, MARK));
    assert_eq!(&device.bytes()[..4], b"zero");
    hipFileHandleDeregister(handle);
}

#[test]
fn the_callers_descriptor_is_left_as_it_is() {
    start();
    let mut file = file(b"0123456789");
    file.rewind().unwrap();
    let flags = |fd| {
        // SAFETY: asks about a descriptor.
        unsafe { libc::fcntl(fd, libc::F_GETFL) }
    };
    let before = flags(file.as_raw_fd());
    let handle = register(file.as_raw_fd()).unwrap();
    let device = Device::new(4096, 0);
    assert_eq!(read(handle, device.start, 10, 0, 0), (10, MARK));
    hipFileHandleDeregister(handle);
    ok(hipFileDriverClose());
    assert_eq!(flags(file.as_raw_fd()), before);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "0123456789", "open, and its position untouched");
}

#[test]
fn behaviour_22_no_descriptor_is_closed_or_left_open() {
    start();
    let all = || {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut numbers: Vec<RawFd> =
            entries.map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        numbers
    };
    // Those that show statistics are out of the way, and stay.
    let open = || all().into_iter().filter(|fd| *fd < 512).collect::<Vec<_>>();
    let file = file(b"x");
    let before = open();
    ok(hipFileDriverOpen());
    let handle = register(file.as_raw_fd()).unwrap();
    hipFileHandleDeregister(handle);
    register(file.as_raw_fd()).unwrap();
    assert_eq!(register(-1), Err(hipFileInternalError));
    ok(hipFileDriverClose());
    assert_eq!(code(hipFileDriverClose()), hipFileDriverNotInitialized);
    assert_eq!(open(), before);
    let after_one = all();
    assert!(after_one.len() - before.len() <= 5, "two pages, two sockets and an event: {after_one:?}");
    ok(hipFileDriverOpen());
    ok(hipFileDriverClose());
    assert_eq!(all(), after_one);
}

#[test]
fn a_handle_made_up_is_unknown() {
    start();
    let (file, handle) = registered_file(b"x");
    let device = Device::new(4096, 0);
    for made_up in [0usize, 1, 42, 0xdead_beef, usize::MAX, handle.addr() ^ 1, handle.addr() ^ (1 << 40)] {
        let made_up = core::ptr::without_provenance_mut(made_up);
        let unknown = (-(hipFileHandleNotRegistered.0 as isize), MARK);
        assert_eq!(read(made_up, device.start, 1, 0, 0), unknown, "{made_up:?}");
        assert_eq!(write(made_up, device.start, 1, 0, 0), unknown, "{made_up:?}");
        hipFileHandleDeregister(made_up);
    }
    assert_eq!(read(handle, device.start, 1, 0, 0), (1, MARK));
    drop(file);
}

#[test]
fn memory_files_and_unlinked_files_register() {
    start();
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"memory".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let memory = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // `file` is unlinked already.
    let unlinked = file(b"x");
    for file in [&memory, &unlinked] {
        let handle = register(file.as_raw_fd()).unwrap();
        let device = Device::new(4096, 7);
        assert_eq!(write(handle, device.start, 3, 0, 0), (3, MARK));
        assert_eq!(read(handle, device.start, 4088, 0, 8), (3, MARK), "short at end of file");
    }
}
