//! A file system that lives in this process: what it must do for a file, and its calls, checked. It stages nothing.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::op::Op;

/// A file on a file system of the program's own. Its functions move bytes between the file and host memory.
///
/// They are called on the thread that carries a transfer: the caller's for a synchronous call, else one of the library's
/// (all signals blocked), possibly several at the same time, for the same range too, unless
/// [`Driver::set_serialized`](crate::Driver::set_serialized) forbids it. A large transfer is several calls, and several
/// threads may share that of a stream. They may block; whoever waits for the transfer waits too, a GPU stream included. They must not
/// start transfers of the library nor wait for one, and on behalf of a stream they must not call the GPU runtime.
pub trait UserFs: Send + Sync + std::fmt::Debug {
    /// What it calls itself, for reports; for instance `objects`.
    fn name(&self) -> String;

    /// Whether it serves transfers in this direction. What it does not serve goes to the kernel by way of the descriptor.
    fn serves(&self, op: Op) -> bool {
        let _ = op;
        true
    }

    /// Reads bytes at an offset. How many; fewer are asked for again from there, 0 is the end of the file.
    ///
    /// # Errors
    /// An errno. EINTR is asked again; any other ends the transfer.
    fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, i32>;

    /// Writes bytes at an offset. How many; the rest is handed over again from there, 0 is an error (EIO).
    ///
    /// # Errors
    /// As for reads.
    fn write(&self, from: &[u8], offset: u64) -> Result<usize, i32>;

    /// The addresses of the RDMA devices that its server may be reached by, asked for once. None: it knows no RDMA.
    fn rdma_devices(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// How well one of those devices suits a transfer between `len` bytes at an address of a GPU and the file; negative: not
    /// at all. The highest serves.
    fn rdma_priority(&self, address: usize, len: usize, offset: u64, device: IpAddr) -> i32 {
        let _ = (address, len, offset, device);
        0
    }

    /// Has `len` bytes at an offset of the file written into that memory. As [`UserFs::read`] otherwise; EOPNOTSUPP has the
    /// bytes read into host memory instead.
    ///
    /// # Errors
    /// As for reads.
    fn read_by_rdma(&self, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        let _ = (len, offset, memory);
        Err(libc::EOPNOTSUPP)
    }

    /// Has that memory read, and what it holds written at an offset of the file.
    ///
    /// # Errors
    /// As for reads.
    fn write_by_rdma(&self, len: usize, offset: u64, memory: &RemoteMemory) -> Result<usize, i32> {
        let _ = (len, offset, memory);
        Err(libc::EOPNOTSUPP)
    }
}

/// Registered GPU memory, as a file system of the program's own gets it for one call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteMemory {
    /// The version of the description.
    pub version: i32,
    /// How an RDMA device reaches the memory, as docs/rdma.md describes it.
    pub description: String,
    /// Its address on the GPU: a name for it, and nothing to be read or written.
    pub address: usize,
}

/// A file's own file system, and how it is called.
#[derive(Debug)]
pub(crate) struct User {
    fs: Arc<dyn UserFs>,
    serialized: AtomicBool,
    turn: Mutex<()>,
    rdma_devices: OnceLock<Vec<IpAddr>>,
}

impl User {
    pub(crate) fn new(fs: Arc<dyn UserFs>) -> User {
        User { fs, serialized: AtomicBool::new(false), turn: Mutex::default(), rdma_devices: OnceLock::new() }
    }

    pub(crate) fn name(&self) -> String {
        self.fs.name()
    }

    pub(crate) fn serves(&self, op: Op) -> bool {
        self.fs.serves(op)
    }

    /// Whether it is to be called by one thread at a time. A call under way is not waited for by the next one then.
    pub(crate) fn serialize(&self, on: bool) {
        self.serialized.store(on, Ordering::Release);
    }

    pub(crate) fn rdma_devices(&self) -> &[IpAddr] {
        self.rdma_devices.get_or_init(|| self.fs.rdma_devices())
    }

    pub(crate) fn rdma_priority(&self, address: usize, len: usize, offset: u64, device: IpAddr) -> i32 {
        self.fs.rdma_priority(address, len, offset, device)
    }

    /// One call: the memory is described as a whole, so nothing is gone on from within it.
    pub(crate) fn by_rdma(
        &self,
        op: Op,
        len: usize,
        offset: u64,
        memory: &RemoteMemory,
    ) -> (usize, Option<i32>) {
        let mut once = false;
        self.all(len, |done| match (op, std::mem::replace(&mut once, true)) {
            (_, true) if done > 0 => Ok(0),
            (Op::Read, _) => self.fs.read_by_rdma(len, offset, memory),
            (Op::Write, _) => self.fs.write_by_rdma(len, offset, memory),
        })
    }

    /// Reads until `into` is full, the file ends or there is an error: how much, and that error.
    pub(crate) fn fill(&self, into: &mut [u8], offset: u64) -> (usize, Option<i32>) {
        self.all(into.len(), |done| self.fs.read(&mut into[done..], offset + done as u64))
    }

    /// Writes until all is written or there is an error: how much, and that error.
    pub(crate) fn drain(&self, from: &[u8], offset: u64) -> (usize, Option<i32>) {
        match self.all(from.len(), |done| self.fs.write(&from[done..], offset + done as u64)) {
            (done, None) if done < from.len() => (done, Some(libc::EIO)),
            result => result,
        }
    }

    fn all(&self, len: usize, mut call: impl FnMut(usize) -> Result<usize, i32>) -> (usize, Option<i32>) {
        let mut done = 0;
        while done < len {
            let result = {
                let serialized = self.serialized.load(Ordering::Acquire);
                let _turn = serialized.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
                call(done)
            };
            match result {
                Ok(0) => break,
                // More than was asked for cannot be true.
                Ok(n) if n > len - done => return (done, Some(libc::EIO)),
                Ok(n) => done += n,
                Err(libc::EINTR) => {}
                Err(errno) => return (done, Some(errno)),
            }
        }
        (done, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers what it is told to, in turn.
    #[derive(Debug)]
    struct Script(Mutex<Vec<Result<usize, i32>>>);

    impl UserFs for Script {
        fn name(&self) -> String {
            "script".into()
        }
        fn read(&self, _: &mut [u8], _: u64) -> Result<usize, i32> {
            self.0.lock().unwrap().remove(0)
        }
        fn write(&self, _: &[u8], _: u64) -> Result<usize, i32> {
            self.0.lock().unwrap().remove(0)
        }
    }

    fn user(answers: &[Result<usize, i32>]) -> User {
        User::new(Arc::new(Script(Mutex::new(answers.to_vec()))))
    }

    #[test]
    fn short_answers_are_gone_on_from() {
        let eio = Some(libc::EIO);
        for (answers, read, written) in [
            (&[Ok(10)][..], (10, None), (10, None)),
            (&[Ok(3), Err(libc::EINTR), Ok(7)], (10, None), (10, None)),
            (&[Ok(3), Ok(0)], (3, None), (3, eio)),
            (&[Ok(3), Err(libc::ENOSPC)], (3, Some(libc::ENOSPC)), (3, Some(libc::ENOSPC))),
            (&[Ok(3), Ok(8)], (3, eio), (3, eio)),
            (&[Err(libc::EBADF)], (0, Some(libc::EBADF)), (0, Some(libc::EBADF))),
        ] {
            assert_eq!(user(answers).fill(&mut [0; 10], 5), read, "{answers:?}");
            assert_eq!(user(answers).drain(&[0; 10], 5), written, "{answers:?}");
        }
        assert_eq!(user(&[]).fill(&mut [], 5), (0, None), "nothing is asked for nothing");
    }
}
