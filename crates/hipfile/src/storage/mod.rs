//! What lies under an open file: its file system, mount and block devices. Facts by descriptor, never by path, and what
//! they mean for direct access by AMD's rules. It moves no bytes and asks no GPU.

mod block;
mod fs;
mod lvm;
pub mod mount;
mod roots;
#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, BorrowedFd};

pub use block::{Backing, BlockDevice, BlockKind, NvmeTransport};
pub use fs::{FsClass, FsKind};
pub use mount::{JournalMode, Mount, Transport};
pub use roots::Roots;
pub(crate) use roots::{line, link_name, read};

use crate::error::{Error, Result};
use crate::reason::Reason;
use crate::sys::{self, Site, Statx};

/// Largest mount table that is looked at: some hundred thousand mounts.
const MOUNT_TABLE: u64 = 32 << 20;

/// Whether a file system or a device is what a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Node {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// Anything else.
    Other,
}

/// What lies under a file. Learnt once; later mounts and volume changes are not noticed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StorageFacts {
    /// What the descriptor refers to.
    pub node: Node,
    /// The kind of its file system; [`FsClass::Raw`] for a block device.
    pub fs: FsClass,
    /// The file system's type as the mount table has it, else the usual name of its kind.
    pub fs_type: String,
    /// The very mount the file was opened through, where the mount table shows it.
    pub mount: Option<Mount>,
    /// The journal mode of ext4; `None` for others, and where the mount table does not show the file system.
    pub journal: Option<JournalMode>,
    /// What carries a network file system; `None` for others.
    pub transport: Option<Transport>,
    /// Number of the block device that holds the file system, or of the device itself; `None` for file systems that
    /// have none of their own (memory, network, btrfs and other multi-device ones).
    pub device: Option<(u32, u32)>,
    /// The block devices under it.
    pub backing: Backing,
}

impl StorageFacts {
    /// The facts about an open file.
    ///
    /// # Errors
    /// `Io` with EBADF for a bad descriptor. Nothing else is an error: what cannot be seen stays unknown.
    pub fn of_fd(fd: BorrowedFd<'_>, roots: &Roots) -> Result<StorageFacts> {
        let statx = sys::statx(fd.as_raw_fd()).map_err(|errno| Error::os("describe storage", errno))?;
        Ok(StorageFacts::of_file(&statx, magic(fd), roots))
    }

    /// As [`StorageFacts::of_fd`], from what was asked already: `magic` is `f_type` of fstatfs.
    pub(crate) fn of_file(statx: &Statx, magic: Option<u32>, roots: &Roots) -> StorageFacts {
        let node = match u32::from(statx.mode) & libc::S_IFMT {
            libc::S_IFBLK => return StorageFacts::of_block_device(statx.rdev, roots),
            libc::S_IFREG => Node::Regular,
            _ => Node::Other,
        };
        let table = mount_table(roots);
        let (very, same) = mount::find(&table, statx.mount_id, statx.dev);
        let facts = StorageFacts::of_file_system(magic, very, same.as_ref(), statx.dev, roots);
        StorageFacts { node, ..facts }
    }

    /// The facts about the files of a mount, as far as the mount table and sysfs tell; for lists of mounts. For an
    /// open file [`StorageFacts::of_fd`] knows better.
    pub fn of_mount(mount: &Mount, roots: &Roots) -> StorageFacts {
        StorageFacts::of_file_system(None, Some(mount.clone()), Some(mount), mount.dev, roots)
    }

    /// The facts about a raw block device.
    pub fn of_block_device(number: (u32, u32), roots: &Roots) -> StorageFacts {
        StorageFacts {
            node: Node::Block,
            fs: FsClass::Raw,
            fs_type: FsClass::Raw.name().to_owned(),
            mount: None,
            journal: None,
            transport: None,
            device: Some(number),
            backing: Backing::look(number, roots),
        }
    }

    fn of_file_system(
        magic: Option<u32>,
        mount: Option<Mount>,
        same: Option<&Mount>,
        dev: (u32, u32),
        roots: &Roots,
    ) -> StorageFacts {
        let fs = FsClass::of(magic, same.map(|m| m.fs_type.as_str()));
        let fs_type = match same {
            Some(shown) if FsClass::of_name(&shown.fs_type) == fs => shown.fs_type.clone(),
            _ => fs.name().to_owned(),
        };
        // Major number 0 marks a file system without a device of its own.
        let device = (dev.0 != 0).then_some(dev);
        let backing = device.map(|number| Backing::look(number, roots)).unwrap_or_default();
        let journal = same.filter(|_| fs == FsClass::Ext4).map(|shown| journal(shown, &backing, roots));
        let transport = match fs.kind() {
            FsKind::Network => Some(same.map_or(Transport::Unknown, Transport::of_mount)),
            _ => None,
        };
        StorageFacts { node: Node::Regular, fs, fs_type, mount, journal, transport, device, backing }
    }

    /// Whether direct access may serve this storage, by AMD's rules: a block device; a regular file on ext4 with
    /// ordered data, on xfs, or with `any_file_system` on any; and no device below that has no direct path. With
    /// `ignore_stack` the devices do not count, for GPUs that do not care (the emulated one).
    ///
    /// What is not known is not refused: the driver knows in the end.
    ///
    /// # Errors
    /// The first thing in the way.
    pub fn direct(&self, any_file_system: bool, ignore_stack: bool) -> Result<(), Reason> {
        match self.node {
            Node::Other => return Err(Reason::FileType),
            Node::Regular if !any_file_system => self.known_file_system()?,
            Node::Regular | Node::Block => {}
        }
        if ignore_stack {
            return Ok(());
        }
        match (self.transport, self.backing.obstacle()) {
            (Some(Transport::Tcp | Transport::Udp), _) => Err(Reason::NetworkTcp),
            (_, Some(obstacle)) => Err(obstacle),
            (_, None) => Ok(()),
        }
    }

    fn known_file_system(&self) -> Result<(), Reason> {
        match (self.fs, self.journal) {
            (FsClass::Xfs, _) | (FsClass::Ext4, Some(JournalMode::Ordered)) => Ok(()),
            (FsClass::Ext4, Some(_)) => Err(Reason::JournalMode),
            // One of the family, and the mount table does not show it: ext4, most likely, but how it journals matters.
            (FsClass::Ext4, None) => Err(Reason::MountUnknown),
            (FsClass::Ext, _) if self.fs_type == FsClass::Ext.name() => Err(Reason::MountUnknown),
            _ if self.transport == Some(Transport::Tcp) => Err(Reason::NetworkTcp),
            _ => Err(Reason::FileSystem),
        }
    }

    /// What [`StorageFacts::direct`] could not look at, in a few words; with `None` its Ok is more than a guess.
    pub fn unseen(&self) -> Option<&'static str> {
        match (self.node, self.fs.kind()) {
            (Node::Other, _) => None,
            (Node::Block, _) | (Node::Regular, FsKind::Local | FsKind::Image) => self.backing.unseen(),
            (Node::Regular, FsKind::Network) if self.transport == Some(Transport::Unknown) => {
                Some("transport")
            }
            (Node::Regular, FsKind::Unknown) => Some("file system"),
            (Node::Regular, FsKind::Network | FsKind::Memory | FsKind::Stacked | FsKind::Pseudo) => None,
        }
    }

    /// Whether the bytes are on other machines.
    pub fn is_network(&self) -> bool {
        self.fs.kind() == FsKind::Network
    }

    /// Whether the bytes are in memory, so that there is no device and no page cache to go past.
    pub fn is_memory(&self) -> bool {
        self.fs.kind() == FsKind::Memory
    }

    /// Whether the kernel has its bytes on devices of this machine, or in memory: nobody else takes part in a read.
    pub(crate) fn is_local(&self) -> bool {
        self.node == Node::Regular && matches!(self.fs.kind(), FsKind::Local | FsKind::Memory)
    }

    /// Whether plain buffered I/O serves it better than O_DIRECT, which brings nothing there (memory, images), goes past a
    /// cache that is the point of it (ZFS, FUSE, 9p), or waits for the far side with each request (network).
    pub fn prefers_buffered(&self) -> bool {
        let caches = matches!(self.fs, FsClass::Zfs | FsClass::Fuse | FsClass::NineP);
        caches
            || self.is_network()
            || matches!(self.fs.kind(), FsKind::Memory | FsKind::Image | FsKind::Pseudo)
                && self.node != Node::Block
    }

    /// The file system for tables: its type, with the journal mode of ext4 or the transport of NFS, as in
    /// `ext4 (ordered)` and `nfs4 (rdma)`.
    pub fn fs_text(&self) -> String {
        match (self.journal, self.transport) {
            (Some(mode), _) => format!("{} ({})", self.fs_type, mode.name()),
            (None, Some(transport)) if transport != Transport::Unknown => {
                format!("{} ({})", self.fs_type, transport.name())
            }
            _ => self.fs_type.clone(),
        }
    }
}

/// `f_type` of fstatfs; `None` where a sandbox refuses it.
pub(crate) fn magic(fd: BorrowedFd<'_>) -> Option<u32> {
    // The numbers have 32 bits; the field is wider, and signed on some machines.
    sys::at(Site::FileSystemKind, || rustix::fs::fstatfs(fd)).ok().map(|facts| facts.f_type as u32)
}

/// The text of the mount table as this thread sees it: threads may be in mount namespaces of their own.
pub(crate) fn mount_table(roots: &Roots) -> Vec<u8> {
    roots
        .read("proc/thread-self/mountinfo", MOUNT_TABLE)
        .or_else(|_| roots.read("proc/self/mountinfo", MOUNT_TABLE))
        .unwrap_or_default()
}

/// The mount table leaves the mode out where it is the file system's default, which tune2fs can change; the kernel's
/// own list of the options in force does not.
fn journal(shown: &Mount, backing: &Backing, roots: &Roots) -> JournalMode {
    if let Some(mode) = shown.option("data") {
        return JournalMode::of_option(mode);
    }
    let in_force = backing.top.as_ref().and_then(|device| {
        let text = roots.read(format!("proc/fs/ext4/{}/options", device.name), 64 << 10).ok()?;
        let text = String::from_utf8_lossy(&text);
        text.lines().find_map(|line| line.strip_prefix("data=")).map(JournalMode::of_option)
    });
    in_force.unwrap_or(JournalMode::Ordered)
}
