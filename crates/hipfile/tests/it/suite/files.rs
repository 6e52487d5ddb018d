//! Files and descriptors: whatever the caller holds works, and stays as it was.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use hipfile::{Buffer, Config, DeviceChoice, Driver, ErrorKind, File};

use crate::support::{Storage, driver, gpu, mount_over, skip};

/// Reads the first `len` bytes through the library.
fn read_through(driver: &Driver, fd: impl Into<OwnedFd>, len: usize) -> Vec<u8> {
    let file = File::register(driver, fd).unwrap();
    let mut buffer = Buffer::alloc(driver, 0, len.max(1)).unwrap();
    let n = file.read_at(&mut buffer, 0..len, 0).unwrap();
    let mut bytes = vec![0; n];
    buffer.download(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn behaviour_08_reads_at_and_past_the_end_are_short() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), vec![7; 10_000]).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 16384).unwrap();
    for (len, offset, expected) in
        [(16384, 0, 10_000), (4096, 8192, 1808), (1, 10_000, 0), (1, 1 << 40, 0), (1, 9_999, 1)]
    {
        buffer.upload(0, &[0xa5; 16384]).unwrap();
        assert_eq!(file.read_at(&mut buffer, 0..len, offset).unwrap(), expected, "{len} at {offset}");
        let mut bytes = vec![0; 16384];
        buffer.download(0, &mut bytes).unwrap();
        assert!(bytes[..expected].iter().all(|b| *b == 7));
        assert!(bytes[expected..].iter().all(|b| *b == 0xa5), "bytes beyond the count are untouched");
    }
}

#[test]
fn behaviour_19_the_callers_descriptor_is_never_changed() {
    let (driver, storage) = (driver(), Storage::here());
    let file = std::fs::File::options()
        .create(true)
        .append(false)
        .read(true)
        .write(true)
        .truncate(true)
        .open(storage.path("f"))
        .unwrap();
    (&file).write_all(b"0123456789").unwrap();
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    let position = rustix::fs::tell(&file).unwrap();
    let copy = file.try_clone().unwrap();
    assert_eq!(read_through(&driver, copy, 10), b"0123456789");
    assert_eq!(rustix::fs::fcntl_getfl(&file).unwrap(), flags);
    assert_eq!(rustix::fs::tell(&file).unwrap(), position);
    std::os::unix::fs::FileExt::write_at(&file, b"abc", 1).unwrap();
}

#[test]
fn behaviour_20_few_descriptors_are_enough() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"content").unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 64).unwrap();
    let open = || std::fs::File::open(storage.path("f")).unwrap();
    let files: Vec<_> = (0..40).map(|_| File::register(&driver, open()).unwrap()).collect();
    let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(used + 10), maximum: Some(used + 10) },
    )
    .unwrap();
    for file in &files {
        assert_eq!(file.read_at(&mut buffer, 0..64, 0).unwrap(), 7);
    }
    assert!(files.iter().any(|f| f.info().unwrap().private_descriptors == 0), "the limit was reached");
}

#[test]
fn behaviour_21_an_old_handle_never_reaches_the_new_file() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("a"), b"AAAA").unwrap();
    std::fs::write(storage.path("b"), b"BBBB").unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 64).unwrap();
    for used_before in [false, true] {
        let a = std::fs::File::open(storage.path("a")).unwrap().into_raw_fd();
        let old = driver.register_file(a).unwrap();
        // SAFETY: the buffer outlives them.
        let read = |id, buffer: &mut Buffer| unsafe { driver.read(id, buffer.ptr(), 4, 0, 0) };
        if used_before {
            assert_eq!(read(old, &mut buffer).unwrap(), 4);
        }
        let b = std::fs::File::open(storage.path("b")).unwrap();
        // SAFETY: `a` is this test's own number; from here on it names file b.
        let mut a_slot = unsafe { OwnedFd::from_raw_fd(a) };
        rustix::io::dup2(&b, &mut a_slot).unwrap();
        buffer.upload(0, b"....").unwrap();
        let result = read(old, &mut buffer);
        let mut bytes = [0; 4];
        buffer.download(0, &mut bytes).unwrap();
        match result {
            Ok(4) => assert_eq!(&bytes, b"AAAA"),
            Err(error) => assert_eq!((error.kind(), &bytes), (ErrorKind::HandleNotRegistered, b"....")),
            other => panic!("{other:?}"),
        }
        let new = driver.register_file(a).unwrap();
        assert_eq!(read(new, &mut buffer).unwrap(), 4);
        buffer.download(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"BBBB");
        assert_eq!(read(old, &mut buffer).unwrap_err().kind(), ErrorKind::HandleNotRegistered);
        driver.deregister_file(new).unwrap();
    }
}

#[test]
fn behaviour_30_the_same_number_registers_once_and_another_number_twice() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"x").unwrap();
    let file = std::fs::File::open(storage.path("f")).unwrap();
    let id = driver.register_file(file.as_raw_fd()).unwrap();
    let again = driver.register_file(file.as_raw_fd()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::HandleAlreadyRegistered);
    let twin = file.try_clone().unwrap();
    let second = driver.register_file(twin.as_raw_fd()).unwrap();
    assert_ne!(id, second);
    driver.deregister_file(id).unwrap();
    assert_ne!(driver.register_file(file.as_raw_fd()).unwrap(), id);
}

#[test]
fn only_files_with_offsets_register() {
    let (driver, storage) = (driver(), Storage::here());
    let (reader, writer) = std::io::pipe().unwrap();
    let (left, _right) = std::os::unix::net::UnixStream::pair().unwrap();
    let folder = std::fs::File::open(storage.folder()).unwrap();
    let zero = std::fs::File::open("/dev/zero").unwrap();
    for fd in [reader.as_fd(), writer.as_fd(), left.as_fd(), folder.as_fd(), zero.as_fd()] {
        let error = driver.register_file(fd.as_raw_fd()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFileType, "{error}");
    }
    let path_only =
        rustix::fs::open(storage.folder(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for bad in [-1, 9999, path_only.as_raw_fd()] {
        assert_eq!(driver.register_file(bad).unwrap_err().os_error(), Some(libc::EBADF));
    }
}

#[test]
fn files_without_a_name_work() {
    let driver = driver();
    let storage = Storage::here();
    let memfd = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let unlinked = tempfile::tempfile_in(storage.folder()).unwrap();
    let tmpfile = std::fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(storage.folder())
        .unwrap();
    for fd in [memfd, unlinked.into(), tmpfile.into()] {
        rustix::io::pwrite(&fd, b"nameless", 0).unwrap();
        assert_eq!(read_through(&driver, fd, 100), b"nameless");
    }
    std::fs::write(storage.path("gone"), b"still here").unwrap();
    let gone = std::fs::File::open(storage.path("gone")).unwrap();
    std::fs::remove_file(storage.path("gone")).unwrap();
    assert_eq!(read_through(&driver, gone, 100), b"still here");
}

#[test]
fn a_file_opened_the_wrong_way_answers_as_pread_does() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"x").unwrap();
    let mut buffer = Buffer::alloc(&driver, 0, 64).unwrap();
    let write_only = std::fs::File::options().write(true).open(storage.path("f")).unwrap();
    let write_only = File::register(&driver, write_only).unwrap();
    let refused = write_only.read_at(&mut buffer, 0..1, 0).unwrap_err();
    assert_eq!(refused.os_error(), Some(libc::EBADF));
    assert!(refused.to_string().ends_with("EBADF: the file was opened for writing only"), "{refused}");
    let read_only = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    let refused = read_only.write_at(&buffer, 0..1, 0).unwrap_err();
    assert_eq!(refused.os_error(), Some(libc::EBADF));
    assert!(refused.to_string().ends_with("EBADF: the file was opened for reading only"), "{refused}");
}

#[test]
fn appended_writes_are_whole_and_in_order() {
    let (driver, storage) = (driver(), Storage::here());
    let open =
        || std::fs::File::options().create(true).append(true).read(true).open(storage.path("log")).unwrap();
    const RECORD: usize = 200_000;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let file = File::register(&driver, open()).unwrap();
            let driver = &driver;
            scope.spawn(move || {
                let mut buffer = Buffer::alloc(driver, 0, RECORD).unwrap();
                for _ in 0..5 {
                    buffer.upload(0, &vec![thread; RECORD]).unwrap();
                    // The offset is ignored, as the kernel does.
                    assert_eq!(file.write_at(&buffer, 0..RECORD, 12345).unwrap(), RECORD);
                }
            });
        }
    });
    let log = std::fs::read(storage.path("log")).unwrap();
    assert_eq!(log.len(), 20 * RECORD);
    // One handle per thread: each handle's records are unbroken runs of its own writes, in Blocks.
    let mut counts = [0usize; 4];
    log.iter().for_each(|b| counts[*b as usize] += 1);
    assert_eq!(counts, [5 * RECORD; 4]);
}

#[test]
fn one_handle_appends_unbroken_records() {
    let (driver, storage) = (driver(), Storage::here());
    let log = std::fs::File::options().create(true).append(true).open(storage.path("log")).unwrap();
    let file = File::register(&driver, log).unwrap();
    const RECORD: usize = 200_000;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (driver, file) = (&driver, &file);
            scope.spawn(move || {
                let mut buffer = Buffer::alloc(driver, 0, RECORD).unwrap();
                buffer.upload(0, &vec![thread; RECORD]).unwrap();
                for _ in 0..5 {
                    assert_eq!(file.write_at(&buffer, 0..RECORD, 0).unwrap(), RECORD);
                }
            });
        }
    });
    let log = std::fs::read(storage.path("log")).unwrap();
    assert_eq!(log.len(), 20 * RECORD);
    for record in log.chunks(RECORD) {
        assert!(record.iter().all(|b| *b == record[0]), "a record is broken by another");
    }
}

#[test]
fn posix_locks_survive_registration_and_deregistration() {
    let (driver, storage) = (driver(), Storage::here());
    std::fs::write(storage.path("f"), b"locked").unwrap();
    let file = std::fs::File::options().read(true).write(true).open(storage.path("f")).unwrap();
    let lock = |kind: i32| {
        // SAFETY: flock is plain integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock
    };
    let mut request = lock(libc::F_WRLCK);
    // SAFETY: one flock is read.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw mut request) }, 0);
    let mut buffer = Buffer::alloc(&driver, 0, 64).unwrap();
    for _ in 0..10 {
        let id = driver.register_file(file.as_raw_fd()).unwrap();
        // SAFETY: the buffer outlives the call.
        assert_eq!(unsafe { driver.read(id, buffer.ptr(), 6, 0, 0) }.unwrap(), 6);
        driver.deregister_file(id).unwrap();
    }
    let mut bytes = [0; 6];
    buffer.download(0, &mut bytes).unwrap();
    buffer.upload(0, &bytes).unwrap();
    // An open-file-description query sees the process's own lock, if it is still there.
    let other = std::fs::File::open(storage.path("f")).unwrap();
    let mut query = lock(libc::F_WRLCK);
    // SAFETY: one flock is read and written.
    assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_GETLK, &raw mut query) }, 0);
    assert_ne!(i32::from(query.l_type), libc::F_UNLCK, "the process lost its lock");
    std::mem::forget(other);
    // A GPU runtime has descriptors of its own.
    let is_ours = |entry: &std::io::Result<std::fs::DirEntry>| {
        std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|to| to == storage.path("f"))
    };
    let names = std::fs::read_dir("/proc/self/fd").unwrap().filter(is_ours).count();
    assert!(names < 8, "descriptors kept for locks are used again, not piled up: {names}");
}

#[test]
fn a_direct_only_file_reads_anything_and_refuses_ragged_writes() {
    let storage = Storage::here();
    std::fs::write(storage.path("f"), (0..10_000u32).map(|n| n as u8).collect::<Vec<_>>()).unwrap();
    let open =
        std::fs::File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(storage.path("f"));
    let Ok(direct) = open else {
        return skip("O_DIRECT", "the build folder's file system refuses it");
    };
    // A GPU runtime needs /proc to start.
    let driver = driver();
    let mut buffer = Buffer::alloc(&driver, 0, 20_000).unwrap();
    // Without /proc the descriptor cannot be opened anew. An empty folder over it stands for that.
    let empty = tempfile::tempdir().unwrap();
    if !mount_over(empty.path(), "/proc") {
        return;
    }
    let file = File::register(&driver, direct).unwrap();
    for (len, offset) in
        [(1, 0), (1, 4095), (4096, 4096), (5000, 1234), (20_000, 0), (100, 9_990), (4096, 10_000)]
    {
        let expected = 10_000usize.saturating_sub(offset).min(len);
        assert_eq!(file.read_at(&mut buffer, 0..len, offset as u64).unwrap(), expected);
        let mut bytes = vec![0; expected];
        buffer.download(0, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (offset + i) as u8), "{len} at {offset}");
    }
    assert_eq!(file.write_at(&buffer, 0..4096, 4096).unwrap(), 4096);
    let refused = file.write_at(&buffer, 0..100, 0).unwrap_err();
    assert_eq!(refused.os_error(), Some(libc::EINVAL));
    assert!(refused.to_string().contains("O_DIRECT"), "{refused}");
}

#[test]
fn registration_needs_no_runtime_and_no_device() {
    let storage = Storage::here();
    std::fs::write(storage.path("f"), b"x").unwrap();
    let mut config = Config::default();
    // The one that is not there.
    config.device = match gpu::choice() {
        DeviceChoice::Cuda => DeviceChoice::Hip,
        _ => DeviceChoice::Cuda,
    };
    let driver = Driver::open(config).unwrap();
    let file = File::register(&driver, std::fs::File::open(storage.path("f")).unwrap()).unwrap();
    assert_eq!(file.info().unwrap().private_descriptors, 0, "descriptors are opened at first use");
    assert_eq!(driver.devices().unwrap_err().kind(), ErrorKind::PlatformNotSupported);
    assert_eq!(Buffer::alloc(&driver, 0, 10).unwrap_err().kind(), ErrorKind::PlatformNotSupported);
}

#[test]
fn behaviour_26_registration_never_fails_for_a_file_systems_sake() {
    let driver = driver();
    let mut folders = vec![Storage::here()];
    folders.extend(Storage::tmpfs());
    folders.extend(Storage::xfs());
    folders.extend(Storage::ext4(&["data=journal"]));
    for storage in folders {
        std::fs::write(storage.path("f"), b"registered").unwrap();
        let file = std::fs::File::open(storage.path("f")).unwrap();
        assert_eq!(read_through(&driver, file, 100), b"registered", "{}", storage.name);
    }
    // A file of /proc has no block device, no O_DIRECT and no size.
    let status = std::fs::File::open("/proc/self/status").unwrap();
    assert!(read_through(&driver, status, 5).starts_with(b"Name:"));
}
