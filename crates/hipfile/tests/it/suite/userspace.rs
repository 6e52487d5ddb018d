//! Files of the program's own file systems: through Blocks, in place, by streams and batches, and never otherwise.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use hipfile::{
    Buffer, DevPtr, Driver, Entry, ErrorKind, EventStatus, Fallback, FileId, Op, RawBatch, Reason, UserFs,
};

use crate::support::streams::{self, Stream, Variables};
use crate::support::{Random, driver_with};

/// A file in memory that takes at most so many bytes a call.
#[derive(Debug)]
struct InMemory {
    bytes: Mutex<Vec<u8>>,
    most: usize,
    calls: AtomicUsize,
}

impl UserFs for InMemory {
    fn name(&self) -> String {
        "in-memory".into()
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, i32> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.lock().unwrap();
        let there = bytes.get(offset as usize..).unwrap_or_default();
        let n = there.len().min(into.len()).min(self.most);
        into[..n].copy_from_slice(&there[..n]);
        Ok(n)
    }

    fn write(&self, from: &[u8], offset: u64) -> Result<usize, i32> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut bytes = self.bytes.lock().unwrap();
        let (at, n) = (offset as usize, from.len().min(self.most));
        let end = bytes.len().max(at + n);
        bytes.resize(end, 0);
        bytes[at..at + n].copy_from_slice(&from[..n]);
        Ok(n)
    }
}

/// A driver with a file of random bytes.
fn file(
    change: impl FnOnce(&mut hipfile::Config),
    len: usize,
) -> (Driver, Arc<InMemory>, std::fs::File, FileId) {
    let driver = driver_with(&["p2p", "uring", "bounce"], change);
    let mut bytes = vec![0; len];
    Random::new().fill(&mut bytes);
    let fs = Arc::new(InMemory { bytes: Mutex::new(bytes), most: 50_001, calls: AtomicUsize::new(0) });
    let stands_for = tempfile::tempfile().unwrap();
    let id = driver.register_user_file(stands_for.as_raw_fd(), fs.clone()).unwrap();
    (driver, fs, stands_for, id)
}

#[test]
fn gpu_memory_is_staged_and_the_descriptor_left_alone() {
    const LEN: usize = 300_000;
    for pool_len in [64 << 10, 1 << 20] {
        let (driver, fs, stands_for, id) = file(|c| c.pool_len = pool_len, LEN);
        let buffer = Buffer::alloc(&driver, 0, 2 * LEN).unwrap();
        // SAFETY: the ranges lie in the buffer, which nobody else uses; here and below.
        assert_eq!(unsafe { driver.read(id, buffer.ptr(), LEN + 9, 7, 11) }.unwrap(), LEN - 7);
        let mut bytes = vec![0; LEN - 7];
        buffer.download(11, &mut bytes).unwrap();
        assert!(bytes == fs.bytes.lock().unwrap()[7..]);
        // SAFETY: as above.
        assert_eq!(unsafe { driver.write(id, buffer.ptr(), LEN - 7, LEN as i64 + 5, 11) }.unwrap(), LEN - 7);
        assert!(bytes == fs.bytes.lock().unwrap()[LEN + 5..]);
        assert_eq!(fs.bytes.lock().unwrap()[LEN..LEN + 5], [0; 5]);
        assert_eq!(stands_for.metadata().unwrap().len(), 0);
        let info = driver.file_info(id).unwrap();
        assert_eq!((info.engine, info.reason), ("userspace", Some(Reason::UserspaceFs)));
        assert_eq!((info.file_system.as_deref(), info.private_descriptors), (Some("in-memory"), 0));
        let moved =
            |side: &[hipfile::EngineStats]| side.iter().map(|e| (e.engine, e.bytes)).collect::<Vec<_>>();
        let only = |side: Vec<(&str, u64)>| {
            side.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(e, _)| e.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(only(moved(&info.stats.read)), ["userspace"]);
        assert_eq!(only(moved(&info.stats.write)), ["userspace"]);
        let [staged] = &info.stats.read_staged[..] else { panic!("{:?}", info.stats) };
        assert_eq!((staged.reason, staged.bytes), (Reason::UserspaceFs, LEN as u64 - 7));
    }
}

#[test]
fn host_memory_is_handed_over_as_it_is() {
    let (driver, fs, _stands_for, id) = file(|c| c.allow_system_memory = true, 40_000);
    let mut host = vec![0_u8; 50_000];
    let ptr = DevPtr::from(host.as_mut_ptr().cast::<std::ffi::c_void>());
    // SAFETY: the vector outlives the call and is used by nobody else.
    assert_eq!(unsafe { driver.read(id, ptr, 50_000, 0, 0) }.unwrap(), 40_000);
    assert!(host[..40_000] == fs.bytes.lock().unwrap()[..]);
    assert_eq!(fs.calls.load(Ordering::Relaxed), 2, "all of it, and the end of the file");
    host[..5].copy_from_slice(b"hello");
    // SAFETY: as above.
    assert_eq!(unsafe { driver.write(id, ptr, 5, 3, 0) }.unwrap(), 5);
    assert_eq!(fs.bytes.lock().unwrap()[3..8], *b"hello");
    assert!(driver.file_info(id).unwrap().stats.read_staged.is_empty());
}

#[test]
fn forbidden_staging_calls_no_function() {
    let (driver, fs, _stands_for, id) = file(|c| c.fallback = Fallback::Forbid, 40_000);
    let buffer = Buffer::alloc(&driver, 0, 40_000).unwrap();
    // SAFETY: the range lies in the buffer.
    let refused = unsafe { driver.read(id, buffer.ptr(), 4096, 0, 0) }.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IONotSupported);
    assert!(refused.to_string().contains("file system of the program's own"), "{refused}");
    assert_eq!(fs.calls.load(Ordering::Relaxed), 0);
}

#[test]
fn streams_and_batches_take_the_same_way() {
    const LEN: usize = 300_000;
    let (driver, fs, _stands_for, id) = file(|c| c.stream_len = 2 * c.block_len, LEN);
    let buffer = Buffer::alloc(&driver, 0, LEN).unwrap();
    let stream = Stream::free();
    driver.prepare_stream(stream.ptr()).unwrap();
    let variables = Variables::new(LEN, 0, 0);
    streams::enqueue(&driver, Op::Read, id, buffer.ptr(), stream, 0, &variables).unwrap();
    stream.wait();
    assert_eq!(variables.result().unwrap(), LEN);
    let mut bytes = vec![0; LEN];
    buffer.download(0, &mut bytes).unwrap();
    assert!(bytes == *fs.bytes.lock().unwrap());
    let variables = Variables::new(LEN - 3, LEN as i64 + 1, 3);
    streams::enqueue(&driver, Op::Write, id, buffer.ptr(), stream, 0, &variables).unwrap();
    stream.wait();
    assert_eq!(variables.result().unwrap(), LEN - 3);
    assert!(bytes[3..] == fs.bytes.lock().unwrap()[LEN + 1..]);
    let batch = RawBatch::new(64).unwrap();
    let entries: Vec<_> = (0..64)
        .map(|n| Entry {
            op: Ok(Op::Read),
            file: id,
            buffer: buffer.ptr(),
            buffer_offset: n * 4000,
            file_offset: 1000 + n * 4000,
            len: 4000,
            cookie: n as u64,
        })
        .collect();
    // SAFETY: the ranges lie in the buffer and do not overlap; the events are waited for.
    unsafe { batch.submit(&driver, &entries) }.unwrap();
    let mut done = 0;
    while done < 64 {
        for event in batch.poll(1, 64, None).unwrap() {
            assert!(matches!(event.status, EventStatus::Complete(4000)), "{event:?}");
            done += 1;
        }
    }
    let mut bytes = vec![0; 256_000];
    buffer.download(0, &mut bytes).unwrap();
    assert!(bytes == fs.bytes.lock().unwrap()[1000..257_000]);
    let staged = driver.file_info(id).unwrap().stats.read_staged;
    assert!(staged.iter().all(|row| row.reason == Reason::UserspaceFs), "{staged:?}");
}

#[test]
fn only_such_files_can_be_serialized() {
    let (driver, _fs, _stands_for, id) = file(|_| {}, 10);
    driver.set_serialized(id, true).unwrap();
    let plain = tempfile::tempfile().unwrap();
    let other = driver.register_file(plain.as_raw_fd()).unwrap();
    assert_eq!(driver.set_serialized(other, true).unwrap_err().kind(), ErrorKind::InvalidValue);
    driver.deregister_file(id).unwrap();
    assert_eq!(driver.set_serialized(id, true).unwrap_err().kind(), ErrorKind::HandleNotRegistered);
}
