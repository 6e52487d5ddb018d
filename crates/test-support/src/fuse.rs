//! A small FUSE file system: one folder, one file in it, kept in memory, read and written. Linux's FUSE protocol, version 7.31,
//! spoken over /dev/fuse by a thread or a child of the test.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use crate::afterwards::Afterwards;

/// Of the one file.
pub const NAME: &str = "file";
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// Largest write that the kernel may send.
const WRITE: u32 = 128 << 10;
/// As long as the file may get.
const MOST: u64 = 256 << 20;

const ENOENT: i32 = -2;
const EFBIG: i32 = -27;
const ENOSYS: i32 = -38;

/// Mounts it at `at` with that in its file, and answers in a thread; whoever unmounts it ends it.
///
/// # Errors
/// Why it cannot be mounted.
pub fn serve(at: &Path, content: Vec<u8>) -> Result<(), String> {
    let device = mount(at)?;
    std::thread::spawn(move || answer_all(device, content, true));
    Ok(())
}

/// A file system whose file can be opened and never gives a byte, as storage that hangs; gone with the value.
#[derive(Debug)]
pub struct Hanging {
    server: i32,
    _mounted: Afterwards,
}

impl Hanging {
    /// Mounts it at `at`. It is served by a process of its own, which ends with this one: a thread that waits for storage
    /// cannot be killed, so a process that waited for itself could not either.
    ///
    /// # Errors
    /// Why it cannot be mounted.
    pub fn serve(at: &Path) -> Result<Hanging, String> {
        let device = mount(at)?;
        // SAFETY: the child calls what a child of threads may: glibc makes its allocator usable there.
        let server = unsafe { libc::fork() };
        if server == 0 {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            answer_all(device, vec![0; 1 << 20], false);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        drop(device);
        Ok(Hanging { server, _mounted: Afterwards::unmount(at) })
    }

    /// The storage is gone: whoever waits for it gets an error.
    pub fn vanish(&self) {
        // SAFETY: the child is ours and was not waited for.
        unsafe { libc::kill(self.server, libc::SIGKILL) };
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.vanish();
        let mut status = 0;
        // SAFETY: the child is ours, and the status writable.
        unsafe { libc::waitpid(self.server, &raw mut status, 0) };
    }
}

fn mount(at: &Path) -> Result<File, String> {
    let device =
        File::options().read(true).write(true).open("/dev/fuse").map_err(|e| format!("/dev/fuse: {e}"))?;
    // The program mount must inherit the descriptor, under the number that the option names.
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).map_err(|e| e.to_string())?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let output = Command::new("mount")
        .args(["-i", "-t", "fuse", "-o", &options, "hipfile-test"])
        .arg(at)
        .output()
        .map_err(|e| e.to_string())?;
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::CLOEXEC).map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(device)
}

fn answer_all(mut device: File, mut content: Vec<u8>, reads: bool) {
    let mut request = vec![0; (1 << 20) + 65536];
    // Ends with ENODEV when the file system is unmounted.
    while let Ok(len) = device.read(&mut request) {
        let (header, body) = request[..len].split_at(40);
        let unique = u64_at(header, 8);
        const READ: u32 = 15;
        if u32_at(header, 4) == READ && !reads {
            continue;
        }
        let Some(answer) = answer(&mut content, u32_at(header, 4), u64_at(header, 16), body) else {
            continue;
        };
        let (error, payload) = match answer {
            Ok(payload) => (0, payload),
            Err(error) => (error, Vec::new()),
        };
        let mut reply = Vec::new();
        reply.extend((16 + payload.len() as u32).to_ne_bytes());
        reply.extend(error.to_ne_bytes());
        reply.extend(unique.to_ne_bytes());
        reply.extend(payload);
        // The process that asked may be gone.
        let _ = device.write(&reply);
    }
}

fn fields32(fields: &[u32]) -> Vec<u8> {
    fields.iter().flat_map(|f| f.to_ne_bytes()).collect()
}

fn fields64(fields: &[u64]) -> Vec<u8> {
    fields.iter().flat_map(|f| f.to_ne_bytes()).collect()
}

/// The payload of the answer, or an errno; `None` for messages that want none.
fn answer(content: &mut Vec<u8>, opcode: u32, node: u64, body: &[u8]) -> Option<Result<Vec<u8>, i32>> {
    let described =
        |content: &[u8], node| [fields64(&[60]), fields32(&[0, 0]), attributes(content, node)].concat();
    Some(match opcode {
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => return None,
        // LOOKUP
        1 if body.strip_suffix(b"\0") == Some(NAME.as_bytes()) => {
            Ok([fields64(&[FILE, 0, 60, 60]), fields32(&[0, 0]), attributes(content, FILE)].concat())
        }
        1 => Err(ENOENT),
        // GETATTR
        3 => Ok(described(content, node)),
        // SETATTR: of the file's size, if that is among what is set.
        4 => {
            let size = u64_at(body, 16);
            if u32_at(body, 0) & 8 != 0 {
                if size > MOST {
                    return Some(Err(EFBIG));
                }
                content.resize(size as usize, 0);
            }
            Ok(described(content, node))
        }
        // OPEN: what is cached is kept (FOPEN_KEEP_CACHE). To drop it, the kernel would wait for the page that a read hangs on, and
        // whoever opens the file again would hang with that read.
        14 => Ok([fields64(&[0]), fields32(&[2, 0])].concat()),
        // OPENDIR
        27 => Ok(vec![0; 16]),
        // READ
        15 => {
            let (offset, wanted) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
            let there = content.get(offset..).unwrap_or_default();
            Ok(there[..wanted.min(there.len())].to_vec())
        }
        // WRITE
        16 => {
            let (offset, len) = (u64_at(body, 8), u32_at(body, 16) as usize);
            if offset + len as u64 > MOST {
                return Some(Err(EFBIG));
            }
            let end = content.len().max(offset as usize + len);
            content.resize(end, 0);
            content[offset as usize..][..len].copy_from_slice(&body[40..40 + len]);
            Ok(fields32(&[len as u32, 0]))
        }
        // STATFS
        17 => Ok([fields64(&[256, 0, 0, 2, 0]), fields32(&[4096, 255, 4096, 0]), vec![0; 24]].concat()),
        // RELEASE, FSYNC, FLUSH, READDIR, RELEASEDIR, DESTROY
        18 | 20 | 25 | 28 | 29 | 38 => Ok(Vec::new()),
        // INIT: version, read-ahead, flags (big writes), background, largest write, granularity of times, the rest.
        26 => Ok([fields32(&[7, 31, 65_536, 1 << 5, 0, WRITE, 1]), vec![0; 36]].concat()),
        _ => Err(ENOSYS),
    })
}

fn attributes(content: &[u8], node: u64) -> Vec<u8> {
    let (size, mode) = if node == ROOT { (0, 0o040_755) } else { (content.len() as u64, 0o100_644) };
    let mut out = fields64(&[node, size, size.div_ceil(512), 0, 0, 0]);
    // Nanoseconds of three times, mode, links, owner, group, device, block size, flags.
    out.extend(fields32(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    out
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("that many bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("that many bytes"))
}
