//! Mode, owner and extended attributes that a replaced file hands on to its successor. Not times, not flags of one file system.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Gid, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;

use crate::failure::reason_of;

const ACL: &[u8] = b"system.posix_acl_access";
/// Bound to the old content (capabilities of a program, its signatures): the kernel drops or recomputes them on a write too.
const BOUND_TO_CONTENT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

/// What the finished file will have.
pub(super) struct Attributes {
    pub(super) mode: Mode,
    owner: Option<(Uid, Gid)>,
    xattrs: Vec<(CString, Vec<u8>)>,
    /// Access rights go last: until then the file is for its owner alone.
    acl: Option<Vec<u8>>,
    /// False for a new file: its extended attributes are a courtesy, and the ACL that its directory gave it stays.
    binding: bool,
}

impl Attributes {
    /// All that the file at `path` has. The error says what cannot be learnt.
    pub(super) fn of_existing(path: &Path, stat: &Stat) -> Result<Self, String> {
        let mut mode = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o7777);
        if !rustix::process::geteuid().is_root() {
            // A write by anyone but root clears these bits, so replacing must too.
            mode -= Mode::SUID | Mode::SGID;
        }
        let mut acl = None;
        let mut xattrs = Vec::new();
        for name in list(path).map_err(|error| format!("its extended attributes: {}", reason_of(error)))? {
            if BOUND_TO_CONTENT.contains(&name.as_bytes()) {
                continue;
            }
            let value = get(path, &name)
                .map_err(|error| format!("its attribute {}: {}", name.to_string_lossy(), reason_of(error)))?;
            if name.as_bytes() == ACL { acl = Some(value) } else { xattrs.push((name, value)) }
        }
        let owner = Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        Ok(Self { mode, owner, xattrs, acl, binding: true })
    }

    /// What a new file takes from its source: the mode, less the umask, and the user's own attributes where possible.
    pub(super) fn of_source(path: &Path, stat: &Stat) -> Self {
        let mode = Mode::from_raw_mode(stat.st_mode) & Mode::from_raw_mode(0o777) & !umask();
        let xattrs = list(path)
            .unwrap_or_default()
            .into_iter()
            .filter(|name| name.as_bytes().starts_with(b"user."))
            .filter_map(|name| get(path, &name).ok().map(|value| (name, value)))
            .collect();
        Self { mode, owner: None, xattrs, acl: None, binding: false }
    }

    /// Gives the new file all but its access rights. The error says what cannot be given.
    pub(super) fn give(&self, fd: &OwnedFd) -> Result<(), String> {
        if let Some((uid, gid)) = self.owner {
            let has = rustix::fs::fstat(fd).map_err(|error| reason_of(error).to_string())?;
            if (has.st_uid, has.st_gid) != (uid.as_raw(), gid.as_raw()) {
                rustix::fs::fchown(fd, Some(uid), Some(gid))
                    .map_err(|error| format!("its owner: {}", reason_of(error)))?;
            }
        }
        for (name, value) in &self.xattrs {
            if let Err(error) = rustix::fs::fsetxattr(fd, name.as_c_str(), value, XattrFlags::empty())
                && self.binding
                && !has_already(fd, name, value)
            {
                return Err(format!("its attribute {}: {}", name.to_string_lossy(), reason_of(error)));
            }
        }
        Ok(())
    }

    /// Opens the finished file to whom it concerns.
    pub(super) fn give_access(&self, fd: &OwnedFd) -> Result<(), Errno> {
        match &self.acl {
            Some(acl) => rustix::fs::fsetxattr(fd, ACL, acl, XattrFlags::empty())?,
            // The directory may have given the new file an ACL that the old one did not have.
            None if self.binding => match rustix::fs::fremovexattr(fd, ACL) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error),
            },
            None => {}
        }
        rustix::fs::fchmod(fd, self.mode)
    }
}

/// The umask as /proc tells it. The system call can only ask by setting it, which would be felt by other threads that create
/// files; without /proc the usual value is assumed.
fn umask() -> Mode {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
    Mode::from_raw_mode(mask.unwrap_or(0o022))
}

/// The names of all extended attributes; none, where there cannot be any.
fn list(path: &Path) -> Result<Vec<CString>, Errno> {
    let mut names = vec![0; 4096];
    let len = loop {
        match rustix::fs::llistxattr(path, names.as_mut_slice()) {
            Ok(len) => break len,
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(Errno::RANGE) if names.len() < 64 << 10 => names.resize(64 << 10, 0),
            Err(error) => return Err(error),
        }
    };
    let names = names[..len].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

fn get(path: &Path, name: &CString) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::lgetxattr(path, name.as_c_str(), value.as_mut_slice())?;
    value.truncate(len);
    Ok(value)
}

/// Labels that the system gives to every new file may be right without our doing.
fn has_already(fd: &OwnedFd, name: &CString, value: &[u8]) -> bool {
    let mut has = vec![0; value.len() + 1];
    rustix::fs::fgetxattr(fd, name.as_c_str(), has.as_mut_slice()).is_ok_and(|len| has[..len] == *value)
}
