//! Where /proc, /sys and the rest of a system are looked into, and how their files are read: bounded, never waiting,
//! never a device. It knows no file's meaning.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use crate::sys::{self, Site};

/// Longest text of a small file (a sysfs attribute, say) that is looked at, in bytes.
const SMALL: u64 = 4096;

/// The root of the system that facts are gathered from: the running one, or any folder laid out like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    base: PathBuf,
}

impl Roots {
    /// The running system.
    pub fn real() -> Roots {
        Roots { base: PathBuf::from("/") }
    }

    /// A folder that holds `proc`, `sys`, `etc` and so on. What it lacks is unknown, not an error.
    pub fn under(base: impl Into<PathBuf>) -> Roots {
        Roots { base: base.into() }
    }

    /// Whether this is the running system, so that system calls tell the truth about it.
    pub fn is_real(&self) -> bool {
        self.base == Path::new("/")
    }

    /// Where `path`, such as `/proc/self/mountinfo`, lies under this root. A path with `..` stays at the root itself.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let mut whole = self.base.clone();
        let path = path.as_ref();
        if path.components().any(|part| part == Component::ParentDir) {
            return whole;
        }
        whole.extend(path.components().filter(|part| matches!(part, Component::Normal(_))));
        whole
    }

    /// The first `limit` bytes of a regular file. A device, FIFO or socket under that name is refused unopened for
    /// data: reading one could wait or act.
    pub(crate) fn read(&self, path: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        read(&self.path(path), limit)
    }

    /// The first line of a small file, without blanks around it.
    pub(crate) fn line(&self, path: impl AsRef<Path>) -> Option<String> {
        line(&self.path(path))
    }

    /// The names in a folder, sorted, `max` at most.
    pub(crate) fn list(&self, path: impl AsRef<Path>, max: usize) -> Vec<OsString> {
        list(&self.path(path), max)
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The true place of a path, links resolved; `None` when there is none or it lies outside this root.
    pub(crate) fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let base = self.base.canonicalize().ok()?;
        let real = sys::at(Site::MachinePath, || self.path(path).canonicalize()).ok()?;
        real.starts_with(base).then_some(real)
    }
}

/// See [`Roots::read`]; for paths that were resolved already.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    // Asked before opening: to open a device can act already (tapes rewind). The second look is for what changed
    // meanwhile.
    sys::at(Site::MachineFile, || read_file(path, limit))
}

fn read_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// See [`Roots::line`].
pub(crate) fn line(path: &Path) -> Option<String> {
    let bytes = read(path, SMALL).ok()?;
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    Some(String::from_utf8_lossy(first).trim().to_owned())
}

/// See [`Roots::list`].
pub(crate) fn list(path: &Path, max: usize) -> Vec<OsString> {
    let Ok(entries) = sys::at(Site::MachineFolder, || std::fs::read_dir(path)) else { return Vec::new() };
    let mut names: Vec<OsString> = entries.flatten().take(max).map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}

/// The last part of what a symbolic link says, whether or not that exists.
pub(crate) fn link_name(path: &Path) -> Option<String> {
    let target = sys::at(Site::MachineLink, || std::fs::read_link(path)).ok()?;
    Some(String::from_utf8_lossy(target.file_name()?.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_under_the_root() {
        let roots = Roots::under("/somewhere");
        assert_eq!(roots.path("/proc/version"), Path::new("/somewhere/proc/version"));
        assert_eq!(roots.path("proc//version"), Path::new("/somewhere/proc/version"));
        assert_eq!(roots.path("/proc/../../etc/shadow"), Path::new("/somewhere"));
        assert!(Roots::real().is_real() && !roots.is_real());
    }

    #[test]
    fn links_out_of_the_root_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path().join("root"));
        std::fs::create_dir(dir.path().join("root")).unwrap();
        std::os::unix::fs::symlink("/proc", dir.path().join("root/out")).unwrap();
        std::os::unix::fs::symlink("in-there", dir.path().join("root/in")).unwrap();
        std::fs::create_dir(dir.path().join("root/in-there")).unwrap();
        assert_eq!(roots.resolve("out"), None);
        assert_eq!(roots.resolve("absent"), None);
        assert!(roots.resolve("in").unwrap().ends_with("root/in-there"));
    }

    #[test]
    fn what_could_wait_or_act_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let roots = Roots::under(dir.path());
        assert!(roots.read("fifo", 10).is_err());
        assert!(roots.read("", 10).is_err());
        assert!(Roots::real().read("/dev/zero", 10).is_err());
    }

    #[test]
    fn reading_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("big"), vec![b'x'; 100_000]).unwrap();
        std::fs::write(dir.path().join("two"), b"  one \xff\ntwo\n").unwrap();
        let roots = Roots::under(dir.path());
        assert_eq!(roots.read("big", 10).unwrap(), b"xxxxxxxxxx");
        assert_eq!(roots.line("big").unwrap().len(), 4096);
        assert_eq!(roots.line("two").unwrap(), "one \u{fffd}");
        assert_eq!(roots.list("/", 1).len(), 1);
    }
}
