//! A name in a directory: found through links, judged whether a rename onto it does what a write would, and the temporary name
//! beside it.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, Stat, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::source::identity;
use crate::failure::Failure;
use crate::scratch;

/// A name in a directory, all links resolved. The directory is held open: renaming it meanwhile does not matter.
pub(super) struct Seat {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
    pub(super) path: PathBuf,
}

impl Seat {
    /// Follows the links at the end of `path` by hand, since a link to nothing is followed too. None behind a link of
    /// /proc: it leads to the open file itself, whatever name it shows.
    pub(super) fn find(path: &Path) -> Result<Option<Self>, Failure> {
        const LINKS: usize = 40;
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            match rustix::fs::readlinkat(CWD, &path, Vec::new()) {
                Ok(target) => {
                    path.pop();
                    if rustix::fs::statfs(directory(&path)).is_ok_and(|fs| fs.f_type == PROC_SUPER_MAGIC) {
                        return Ok(None);
                    }
                    path.push(OsString::from_vec(target.into_bytes()));
                }
                Err(Errno::INVAL | Errno::NOENT) => return Self::at(path).map(Some),
                Err(error) => return Err(Failure::os(&path, error)),
            }
        }
        Err(Failure::os(&path, Errno::LOOP))
    }

    pub(super) fn at(path: PathBuf) -> Result<Self, Failure> {
        let name = path.file_name().ok_or_else(|| Failure::at(&path, "it is no name of a file"))?.to_owned();
        let parent = directory(path.parent().unwrap_or(Path::new("")));
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = match rustix::fs::open(parent, flags | OFlags::RDONLY, Mode::empty()) {
            // A directory that may be entered but not listed can still be written.
            Err(Errno::ACCESS) => rustix::fs::open(parent, flags | OFlags::PATH, Mode::empty()),
            other => other,
        }
        .map_err(|error| Failure::os(parent, error))?;
        Ok(Self { dir, name, path })
    }

    pub(super) fn duplicate(&self) -> std::io::Result<Self> {
        Ok(Self { dir: self.dir.try_clone()?, name: self.name.clone(), path: self.path.clone() })
    }

    /// Why a rename onto this file would fail or would change more than its content.
    pub(super) fn irreplaceable(&self, stat: &Stat) -> Option<String> {
        if stat.st_nlink > 1 {
            return Some(format!("it has {} names (hard links)", stat.st_nlink));
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let here = rustix::fs::statx(&self.dir, &self.name, flags, StatxFlags::BASIC_STATS);
        if here.as_ref().is_ok_and(|here| here.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
            return Some("it is a mount point".to_owned());
        }
        let found = rustix::fs::statat(&self.dir, &self.name, flags);
        if !found.is_ok_and(|found| identity(&found) == identity(stat)) {
            return Some("another file took its name at this moment".to_owned());
        }
        let dir = rustix::fs::fstat(&self.dir).ok()?;
        let me = rustix::process::geteuid();
        let sticky = Mode::from_raw_mode(dir.st_mode).contains(Mode::SVTX);
        let mine = me.is_root() || [dir.st_uid, stat.st_uid].contains(&me.as_raw());
        (sticky && !mine).then(|| "only its owner may replace it in this directory".to_owned())
    }

    /// A new file beside the name: one without a name, if it can be, so that nothing is left of it when the process is
    /// killed; else one of a temporary name.
    pub(super) fn create_temporary(&self) -> Result<(OwnedFd, Temporary), Errno> {
        match self.create_nameless() {
            Some(fd) => Ok((fd, Temporary::Nameless)),
            None => self.create_named().map(|(fd, name)| (fd, Temporary::Named(name))),
        }
    }

    /// `None` where the file system has no such files, or nothing could give it a name later.
    fn create_nameless(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
        let by_link = rustix::fs::stat(link_to(&fd)).ok()?;
        (identity(&by_link) == identity(&rustix::fs::fstat(&fd).ok()?)).then_some(fd)
    }

    /// Gives the name to the file, in place of whatever has it.
    pub(super) fn give_name(&self, fd: &OwnedFd, temporary: &Temporary) -> Result<(), Errno> {
        let rename = |name: &OsStr| rustix::fs::renameat(&self.dir, name, &self.dir, &self.name);
        let link = |name: &OsStr| {
            rustix::fs::linkat(CWD, link_to(fd), &self.dir, name, AtFlags::SYMLINK_FOLLOW)
                .map(|()| name.to_owned())
        };
        let Temporary::Nameless = temporary else {
            let Temporary::Named(name) = temporary else { return Ok(()) };
            return rename(name);
        };
        let mut linked = link(&self.name);
        if linked.is_ok() {
            return Ok(());
        }
        // Only a rename puts it in the place of another.
        for _ in 0..TRIES {
            if !matches!(linked, Err(Errno::EXIST)) {
                break;
            }
            linked = link(&temporary_name(&self.name));
        }
        let name = linked?;
        rename(&name).inspect_err(|_| _ = rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty()))
    }

    pub(super) fn create_named(&self) -> Result<(OwnedFd, OsString), Errno> {
        let mut result = Err(Errno::EXIST);
        for _ in 0..TRIES {
            let name = temporary_name(&self.name);
            result = scratch::create(&self.dir, &name, || {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(&self.dir, &name, flags, Mode::RUSR | Mode::WUSR)
            })
            .map(|fd| (fd, name));
            if !matches!(result, Err(Errno::EXIST)) {
                break;
            }
        }
        result
    }
}

/// Temporary names that are tried.
const TRIES: usize = 100;

/// What a file is called until it gets its name.
pub(super) enum Temporary {
    Named(OsString),
    Nameless,
    /// It has its name.
    Not,
}

/// How an open file is named by number.
fn link_to(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// A path's directory part, as system calls want it.
fn directory(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// `.NAME.hipfile-XXXXXXXX`, NAME cut so that the whole is a legal name.
fn temporary_name(name: &OsStr) -> OsString {
    const LONGEST: usize = 255;
    let tail = format!(".hipfile-{:08x}", RandomState::new().build_hasher().finish() as u32);
    let mut bytes = vec![b'.'];
    bytes.extend(name.as_bytes().iter().take(LONGEST - 1 - tail.len()));
    bytes.extend(tail.as_bytes());
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_is_hidden_and_never_too_long() {
        for len in [1, 200, 237, 238, 255] {
            let name = temporary_name(OsStr::new(&"n".repeat(len)));
            assert!(name.len() <= 255, "{}", name.len());
            assert!(name.as_bytes().starts_with(b".n"));
        }
        assert_ne!(temporary_name(OsStr::new("a")), temporary_name(OsStr::new("a")));
    }
}
