//! What the block device under a file really did, from its statistics in /sys. They count for the whole device: other programs'
//! traffic is in them.

use std::os::fd::AsFd;
use std::path::PathBuf;

use hipfile::storage::{Roots, StorageFacts};

/// The unit of the kernel's counters, whatever the device's own is.
const SECTOR: u64 = 512;

/// The device that holds a file system or is the file itself.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) name: String,
    statistics: PathBuf,
}

/// Bytes since the system started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) read: u64,
    pub(super) written: u64,
}

impl Disk {
    /// The device under an open file.
    ///
    /// # Errors
    /// Why it cannot be known.
    pub(super) fn under(file: impl AsFd) -> Result<Disk, String> {
        let facts = StorageFacts::of_fd(file.as_fd(), &Roots::real()).map_err(|error| error.to_string())?;
        let Some((major, minor)) = facts.device else {
            return Err(format!("a file system of type {} has no block device of its own", facts.fs_type));
        };
        let name = facts.backing.top.map_or_else(|| format!("{major}:{minor}"), |device| device.name);
        let disk = Disk { name, statistics: format!("/sys/dev/block/{major}:{minor}/stat").into() };
        match disk.traffic() {
            Some(_) => Ok(disk),
            None => Err(format!("{} cannot be read", disk.statistics.display())),
        }
    }

    /// The counters now.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        parse(&std::fs::read_to_string(&self.statistics).ok()?)
    }
}

/// Fields 3 and 7 of Documentation/block/stat.rst of the kernel: sectors read and written.
fn parse(text: &str) -> Option<Traffic> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    let read = fields.nth(2)?.ok()?.checked_mul(SECTOR)?;
    let written = fields.nth(3)?.ok()?.checked_mul(SECTOR)?;
    Some(Traffic { read, written })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_and_seventh_field_count_sectors() {
        let text = "   10 1 20 3   40 5 60 7 0 9 10 0 0 0 0 1 2\n";
        assert_eq!(parse(text), Some(Traffic { read: 10_240, written: 30_720 }));
        for bad in ["", "1 2 3", "a b c d e f g", "1 2 18446744073709551615 4 5 6 7"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn memory_is_no_disk() {
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(Disk::under(file).unwrap_err().contains("no block device"));
    }
}
