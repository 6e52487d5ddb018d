//! A plain io_uring reader and writer that keeps a number of requests in flight: what a device can do when nothing else is
//! done. No library in between, no copy, no policy.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use crate::memory::HugePages;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    Read,
    /// To the file.
    Write,
}

/// One range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it begins.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

/// A request that is done.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Bytes moved; fewer than asked for only at the end of the file.
    pub bytes: usize,
    /// From its submission on.
    pub took: Duration,
}

/// The memory of as many requests as are in flight at once, in huge pages.
#[derive(Debug)]
pub struct Lanes {
    /// `None` once the kernel may still write to it after a failure: then it is never given back.
    memory: Option<HugePages>,
    count: usize,
    len: usize,
    /// Whether the memory is registered with each ring. Saves CPU time, and some time per small request.
    registered: bool,
}

impl Lanes {
    /// Memory for `count` requests of up to `len` bytes. With `registered` the ring is told of it beforehand.
    ///
    /// # Errors
    /// What mmap answers.
    pub fn new(count: usize, len: usize, registered: bool) -> io::Result<Lanes> {
        let bytes = count.checked_mul(len).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Lanes { memory: Some(HugePages::new(bytes)?), count, len, registered })
    }

    /// All bytes of all lanes, to fill them before writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }

    /// Carries out `requests`, as many at once as there are lanes, and tells `done` of each. Requests must not be longer
    /// than a lane. Returns when none is in flight.
    ///
    /// # Errors
    /// A kernel or sandbox without io_uring, or the first request that failed; requests after it were not begun.
    pub fn run(
        &mut self,
        fd: BorrowedFd<'_>,
        direction: Direction,
        requests: &mut dyn Iterator<Item = Request>,
        done: &mut dyn FnMut(Completion),
    ) -> io::Result<()> {
        let mut session = Session::open(self, fd, direction)?;
        let mut idle: Vec<usize> = (0..session.lanes.count).rev().collect();
        let mut busy = vec![Flight::default(); session.lanes.count];
        loop {
            while let Some(lane) = idle.pop() {
                let Some(request) = requests.next() else {
                    idle.push(lane);
                    break;
                };
                busy[lane] = Flight { request, moved: 0, begun: Instant::now() };
                session.submit(lane, busy[lane])?;
            }
            if session.in_flight == 0 {
                return Ok(());
            }
            session.wait()?;
            while let Some((lane, result)) = session.reap() {
                let flight = &mut busy[lane];
                match result {
                    Err(libc::EINTR | libc::EAGAIN) => session.submit(lane, *flight)?,
                    Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
                    Ok(bytes) => {
                        flight.moved += bytes;
                        let goes_on = bytes > 0 && bytes.is_multiple_of(4096);
                        if goes_on && flight.moved < flight.request.len {
                            session.submit(lane, *flight)?;
                        } else {
                            done(Completion { bytes: flight.moved, took: flight.begun.elapsed() });
                            idle.push(lane);
                        }
                    }
                }
            }
        }
    }
}

/// A request under way.
#[derive(Clone, Copy)]
struct Flight {
    request: Request,
    moved: usize,
    begun: Instant,
}

impl Default for Flight {
    fn default() -> Self {
        Flight { request: Request { offset: 0, len: 0 }, moved: 0, begun: Instant::now() }
    }
}

/// A ring at work on the lanes. While it lives, the kernel may access them; its destructor waits until that is over.
struct Session<'a> {
    ring: IoUring,
    lanes: &'a mut Lanes,
    fd: BorrowedFd<'a>,
    direction: Direction,
    in_flight: usize,
    registered: bool,
}

impl<'a> Session<'a> {
    fn open(lanes: &'a mut Lanes, fd: BorrowedFd<'a>, direction: Direction) -> io::Result<Session<'a>> {
        let entries = u32::try_from(lanes.count.next_power_of_two()).unwrap_or(u32::MAX);
        let quick = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        // Before Linux 6.1 these two do not exist.
        let ring = quick.or_else(|_| IoUring::new(entries))?;
        let mut session = Session { ring, lanes, fd, direction, in_flight: 0, registered: false };
        // Where the limit of locked memory is too low for it, requests carry addresses instead.
        session.registered = session.lanes.registered && session.register().is_ok();
        Ok(session)
    }

    fn register(&mut self) -> io::Result<()> {
        let bytes = self.lanes.bytes_mut();
        let all = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the memory outlives the ring: the lanes are borrowed as long, and nothing unmaps them before.
        unsafe { self.ring.submitter().register_buffers(&[all]) }
    }

    /// Queues the rest of a request. There is always room: the queue has as many places as there are lanes.
    fn submit(&mut self, lane: usize, flight: Flight) -> io::Result<()> {
        let from = lane * self.lanes.len + flight.moved;
        let rest = flight.request.len - flight.moved;
        let fits = flight.request.len <= self.lanes.len;
        let room = self.lanes.bytes_mut().get_mut(from..from + rest);
        let Some(bytes) = room.filter(|_| fits) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the request is longer than a lane"));
        };
        let (at, len) = (bytes.as_mut_ptr(), u32::try_from(rest).unwrap_or(u32::MAX));
        let (fd, offset) = (types::Fd(self.fd.as_raw_fd()), flight.request.offset + flight.moved as u64);
        let entry: squeue::Entry = match (self.direction, self.registered) {
            (Direction::Read, true) => opcode::ReadFixed::new(fd, at, len, 0).offset(offset).build(),
            (Direction::Read, false) => opcode::Read::new(fd, at, len).offset(offset).build(),
            (Direction::Write, true) => opcode::WriteFixed::new(fd, at, len, 0).offset(offset).build(),
            (Direction::Write, false) => opcode::Write::new(fd, at, len).offset(offset).build(),
        };
        let entry = entry.user_data(lane as u64);
        let mut queue = self.ring.submission();
        // SAFETY: descriptor and memory stay valid until the completion: this value borrows both and its destructor
        // waits. No other request uses this lane, since a lane is submitted only when idle or to go on.
        unsafe { queue.push(&entry) }.map_err(|_| io::Error::other("the submission queue is full"))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Hands over what is queued and waits for one completion at least.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// The next completion: its lane, and bytes or errno.
    fn reap(&mut self) -> Option<(usize, Result<usize, i32>)> {
        let entry = self.ring.completion().next()?;
        self.in_flight -= 1;
        let result = usize::try_from(entry.result()).map_err(|_| -entry.result());
        Some((usize::try_from(entry.user_data()).unwrap_or(usize::MAX), result))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.wait().is_err() {
                // The kernel may write there at any time from now on: the memory is lost.
                std::mem::forget(self.lanes.memory.take());
                return;
            }
            while self.reap().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;

    fn requests(len: u64, chunk: usize) -> impl Iterator<Item = Request> {
        (0..len.div_ceil(chunk as u64)).map(move |n| Request { offset: n * chunk as u64, len: chunk })
    }

    #[test]
    fn every_byte_is_read_and_written_once_at_any_depth() {
        let source = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..100_003_u32).map(|n| (n % 251) as u8).collect();
        source.write_all_at(&content, 0).unwrap();
        for (depth, registered) in [(1, false), (3, true), (64, true)] {
            let mut lanes = Lanes::new(depth, 8192, registered).unwrap();
            let (mut bytes, mut count) = (0, 0);
            let read =
                lanes.run(source.as_fd(), Direction::Read, &mut requests(100_003, 8192), &mut |done| {
                    bytes += done.bytes;
                    count += 1;
                });
            if let Err(error) = read {
                return eprintln!("SKIP: io_uring: {error}");
            }
            assert_eq!((bytes, count), (100_003, 13), "depth {depth}");

            let target = tempfile::tempfile().unwrap();
            lanes.bytes_mut().fill(9);
            lanes.run(target.as_fd(), Direction::Write, &mut requests(81_920, 8192), &mut |_| {}).unwrap();
            assert_eq!(std::fs::read(format!("/proc/self/fd/{}", target.as_raw_fd())).unwrap(), [9; 81_920]);
        }
    }

    #[test]
    fn a_failure_names_the_reason_and_leaves_nothing_in_flight() {
        let nothing = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        let mut lanes = Lanes::new(4, 4096, false).unwrap();
        let failed = lanes.run(nothing.as_fd(), Direction::Read, &mut requests(1 << 20, 4096), &mut |_| {});
        let error = failed.unwrap_err();
        match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM) => eprintln!("SKIP: io_uring: {error}"),
            errno => assert_eq!(errno, Some(libc::EBADF)),
        }
        let too_long = lanes.run(nothing.as_fd(), Direction::Write, &mut requests(8192, 8192), &mut |_| {});
        assert!(too_long.is_err());
    }
}
