//! Which kinds of storage can be reached without staging, as the kernel and the mounts say. It loads no GPU runtime, so it
//! cannot say whether that has what it takes.

use super::{Answer, kernel, volumes};
use crate::config::Config;
use crate::storage::{FsClass, Roots};

/// Most NVMe controllers that are looked at.
const CONTROLLERS: usize = 1024;

/// Kinds of storage that the kernel lets GPUs reach directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reach {
    /// NVMe on the PCI bus.
    pub nvme: bool,
    /// Network file systems that are mounted, where direct access is tried on any file system.
    pub network: Vec<FsClass>,
}

impl Reach {
    /// Looks.
    pub fn probe(config: &Config, roots: &Roots) -> Reach {
        if config.force_compat || !config.use_p2p {
            return Reach::default();
        }
        let found = kernel::Kernel::probe(roots);
        let symbols = kernel::Symbols::read(roots);
        let peers = kernel::p2pdma(&found, &symbols, roots).answer == Answer::Yes;
        if !peers || kernel::file_access(&symbols, roots).answer != Answer::Yes {
            return Reach::default();
        }
        let transport =
            |name| roots.line(std::path::Path::new("sys/class/nvme").join(name).join("transport"));
        let nvme = roots
            .list("sys/class/nvme", CONTROLLERS)
            .into_iter()
            .any(|name| transport(name).as_deref() == Some("pcie"));
        let mut network = Vec::new();
        if config.unsupported_file_systems {
            for volume in volumes::all(roots) {
                let fs = volume.storage.fs;
                if volume.storage.is_network() && !network.contains(&fs) {
                    network.push(fs);
                }
            }
        }
        Reach { nvme, network }
    }
}
