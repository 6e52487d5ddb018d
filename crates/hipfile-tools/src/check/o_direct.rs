//! Whether a mounted file system takes O_DIRECT, tried with a file that has no name, or has one for a moment. Network file
//! systems and FUSE are not touched: a dead server would hold us for ever.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use hipfile::platform::Volume;
use hipfile::storage::{FsClass, FsKind, Roots, StorageFacts};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::scratch;

/// What came of the attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ODirect {
    Yes,
    No,
    /// No file could be made there.
    Unverified,
}

impl ODirect {
    pub(super) fn word(self) -> &'static str {
        match self {
            ODirect::Yes => "yes",
            ODirect::No => "no",
            ODirect::Unverified => "unverified",
        }
    }
}

/// Bytes read and their place in memory: a multiple of every block size there is.
const SIZE: usize = 64 << 10;

/// Tries a mount. `None` for one that no file can be reached through: another lies over it, or it is a single file's.
pub(super) fn probe(volume: &Volume) -> Option<ODirect> {
    let far = matches!(volume.storage.fs.kind(), FsKind::Network) || volume.storage.fs == FsClass::Fuse;
    if far {
        return Some(ODirect::Unverified);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(&volume.mount.mount_point, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOTDIR) => return None,
        Err(_) => return Some(ODirect::Unverified),
    };
    let seen = StorageFacts::of_fd(dir.as_fd(), &Roots::real()).ok()?;
    match seen.mount {
        Some(mount) if mount.id != volume.mount.id => None,
        _ if !volume.is_for_data() => Some(ODirect::Unverified),
        _ => Some(with_file(&dir, |_| ()).map_or(ODirect::Unverified, |(answer, ())| answer)),
    }
}

/// Makes a file in the folder, tries O_DIRECT on it, and hands it over before it is gone.
pub(super) fn with_file<T>(dir: &OwnedFd, then: impl FnOnce(OwnedFd) -> T) -> Result<(ODirect, T), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, mode) {
        // Not every file system has files without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = OsString::from(format!(".hipfile-odirect-{}", std::process::id()));
            let create = || rustix::fs::openat(dir, &name, flags | OFlags::CREATE | OFlags::EXCL, mode);
            let file = scratch::create(dir, &name, create)?;
            let result = try_it(&file).map(|answer| (answer, then(file)));
            scratch::discard();
            result
        }
        file => {
            let file = file?;
            Ok((try_it(&file)?, then(file)))
        }
    }
}

/// Opens it again with O_DIRECT and reads: some file systems take the flag and refuse the read.
fn try_it(file: &OwnedFd) -> Result<ODirect, Errno> {
    rustix::fs::ftruncate(file, SIZE as u64)?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let direct = match rustix::fs::open(
        Path::new(&path),
        OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(direct) => direct,
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(ODirect::No),
        Err(error) => return Err(error),
    };
    let mut memory = vec![0; 2 * SIZE];
    let start = memory.as_ptr().align_offset(SIZE);
    match rustix::io::pread(&direct, &mut memory[start..start + SIZE], 0) {
        Ok(SIZE) => Ok(ODirect::Yes),
        Ok(_) | Err(Errno::INVAL) => Ok(ODirect::No),
        Err(error) => Err(error),
    }
}
