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

#[cfg(test)]
mod tests {
    use test_support::fake_root::FakeRoot;

    use super::*;

    #[test]
    fn behaviour_130_what_can_be_reached_follows_kernel_storage_and_settings() {
        let machine = |config: &str, symbols: &[&str]| {
            let mut root = FakeRoot::new();
            root.kernel("6.8.0", config).symbols(symbols);
            root.file("sys/class/nvme/nvme0/transport", "pcie\n");
            root.mount("0:50", "/nfs", "nfs4", "host:/x", "rw,proto=rdma");
            root
        };
        let ask = |root: &FakeRoot, change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            Reach::probe(&config, &Roots::under(root.path()))
        };
        let able = machine("CONFIG_PCI_P2PDMA=y\n", &["kfd_ais_rw_file"]);
        assert_eq!(ask(&able, |_| {}), Reach { nvme: true, network: vec![] });
        let any = ask(&able, |c| c.unsupported_file_systems = true);
        assert_eq!(any, Reach { nvme: true, network: vec![FsClass::Nfs] });
        assert_eq!(ask(&able, |c| c.use_p2p = false), Reach::default());
        assert_eq!(ask(&able, |c| c.force_compat = true), Reach::default());
        assert_eq!(ask(&machine("CONFIG_PCI_P2PDMA=y\n", &["other"]), |_| {}), Reach::default());
        assert_eq!(ask(&machine("CONFIG_PCI=y\n", &["kfd_ais_rw_file"]), |_| {}), Reach::default());
        able.file("sys/class/nvme/nvme0/transport", "tcp\n");
        assert!(!ask(&able, |_| {}).nvme);
    }
}
