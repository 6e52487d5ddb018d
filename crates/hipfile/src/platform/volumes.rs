//! The mounts on which files may lie, and whether each can be reached directly. By the mount table; it opens nothing.

use std::path::Path;

use crate::reason::Reason;
use crate::storage::{self, FsClass, FsKind, Mount, Roots, StorageFacts, mount};

/// One mount.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Volume {
    /// Its line in the mount table.
    pub mount: Mount,
    /// What lies under it.
    pub storage: StorageFacts,
}

impl Volume {
    /// Whether files on it can be reached directly, by [`StorageFacts::direct`].
    ///
    /// # Errors
    /// The first thing in the way.
    pub fn direct(&self, any_file_system: bool) -> Result<(), Reason> {
        self.storage.direct(any_file_system, false)
    }

    /// Whether it is one that people keep data on: not in memory, not made up by the kernel, not a read-only image, and
    /// not an overlay other than the root's, for those are the insides of containers.
    pub fn is_for_data(&self) -> bool {
        match self.storage.fs.kind() {
            FsKind::Stacked if self.storage.fs == FsClass::Overlay => {
                self.mount.mount_point == Path::new("/")
            }
            FsKind::Local | FsKind::Network | FsKind::Stacked => true,
            FsKind::Unknown => self.mount.source.starts_with("/dev/"),
            FsKind::Memory | FsKind::Image | FsKind::Pseudo => false,
        }
    }
}

/// Every mount, in the order of the table.
pub(super) fn all(roots: &Roots) -> Vec<Volume> {
    mount::parse(&storage::mount_table(roots))
        .into_iter()
        .map(|mount| Volume { storage: StorageFacts::of_mount(&mount, roots), mount })
        .collect()
}
