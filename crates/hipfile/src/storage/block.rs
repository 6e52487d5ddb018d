//! The block devices under a file, from sysfs by device number: partitions, volumes, arrays, and the disks below. All
//! of it is untrusted text; what cannot be seen is unknown. It opens no device.

use std::path::{Path, PathBuf};

use super::lvm;
use super::roots::{self, Roots};
use crate::reason::Reason;

/// Deepest stack and most devices that are looked at: more than any real one has.
const DEPTH: usize = 16;
const DEVICES: usize = 256;
/// AMD's limit for a logical volume on the direct path.
const MAX_EXTENTS: u32 = 16;

/// What a file system or raw device lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    /// The device the file system is on; `None` when it has none, or none that can be seen.
    pub top: Option<BlockDevice>,
}

/// One block device and those it consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Device number.
    pub number: (u32, u32),
    /// The kernel's name, such as `nvme0n1p2`.
    pub name: String,
    /// What it is.
    pub kind: BlockKind,
    /// The devices it consists of, for those that consist of others.
    pub below: Vec<BlockDevice>,
}

/// What a block device is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockKind {
    /// An NVMe namespace.
    Nvme {
        /// How it is reached.
        transport: NvmeTransport,
        /// Whether it is the head over several paths.
        multipath: bool,
        /// PCI address of its controller, for a local one.
        pci: Option<String>,
    },
    /// A part of the device below.
    Partition,
    /// A logical volume.
    Lvm {
        /// Its name to device-mapper.
        name: String,
        /// Of how many contiguous pieces it consists; known only where LVM's metadata can be read.
        extents: Option<u32>,
    },
    /// An encrypted volume (dm-crypt).
    Crypt,
    /// Several paths to one device (dm-multipath).
    Multipath,
    /// Another target of device-mapper.
    Dm,
    /// Software RAID, with its level.
    Md(Option<String>),
    /// A file as a device, with the file.
    Loop(Option<PathBuf>),
    /// A virtual machine's disk.
    Virtio,
    /// A SCSI, SATA or USB disk.
    Scsi,
    /// Something else, by the name of its driver.
    Other(String),
    /// It cannot be told.
    Unknown,
}

/// How an NVMe namespace is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvmeTransport {
    /// On this machine's PCI bus.
    Pcie,
    /// Over a network, by RDMA.
    Rdma,
    /// Over a network, by TCP.
    Tcp,
    /// Over Fibre Channel.
    Fc,
    /// Looped back to this machine.
    Loop,
    /// It cannot be told.
    Unknown,
}

impl NvmeTransport {
    fn of_text(text: &str) -> NvmeTransport {
        match text {
            "pcie" => NvmeTransport::Pcie,
            "rdma" => NvmeTransport::Rdma,
            "tcp" => NvmeTransport::Tcp,
            "fc" => NvmeTransport::Fc,
            "loop" => NvmeTransport::Loop,
            _ => NvmeTransport::Unknown,
        }
    }

    /// As sysfs calls it.
    pub const fn name(self) -> &'static str {
        match self {
            NvmeTransport::Pcie => "pcie",
            NvmeTransport::Rdma => "rdma",
            NvmeTransport::Tcp => "tcp",
            NvmeTransport::Fc => "fc",
            NvmeTransport::Loop => "loop",
            NvmeTransport::Unknown => "unknown",
        }
    }
}

impl Backing {
    /// The stack under a device number.
    pub(super) fn look(number: (u32, u32), roots: &Roots) -> Backing {
        let link = format!("sys/dev/block/{}:{}", number.0, number.1);
        let top = match (roots.resolve("/"), roots.resolve(&link)) {
            (Some(base), Some(place)) => {
                Some(Walk { roots, base, budget: DEVICES }.look(&place, Some(number), DEPTH))
            }
            // The link's text names the device also where the place it leads to is hidden.
            _ => roots::link_name(&roots.path(&link)).map(|name| BlockDevice {
                number,
                kind: by_name(&name),
                name,
                below: Vec::new(),
            }),
        };
        Backing { top }
    }

    /// What stands in the way of direct access, the topmost thing first. What is unknown does not: the driver decides.
    pub fn obstacle(&self) -> Option<Reason> {
        self.top.as_ref().and_then(BlockDevice::obstacle)
    }

    /// What of the stack could not be seen, so that the absence of an obstacle is no more than a guess.
    pub fn unseen(&self) -> Option<&'static str> {
        self.top.as_ref().map_or(Some("block devices"), BlockDevice::unseen)
    }

    /// The one word for tables: what the file system lies on, partitions left out (`nvme`, `lvm`, `mpath`, `crypt`,
    /// `dm`, `md`, `virtio`, `scsi`, `loop`, `nvme-tcp` and so on).
    pub fn word(&self) -> &str {
        self.top.as_ref().map_or("unknown", BlockDevice::word)
    }

    /// One line for each device, from the top down, those of one level side by side.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut level: Vec<&BlockDevice> = self.top.iter().collect();
        while !level.is_empty() {
            lines.extend(level.iter().map(|device| device.to_string()));
            level = level.iter().flat_map(|device| &device.below).collect();
        }
        lines
    }

    /// PCI addresses of the NVMe controllers at the bottom.
    pub fn controllers(&self) -> Vec<&str> {
        fn collect<'a>(device: &'a BlockDevice, found: &mut Vec<&'a str>) {
            if let BlockKind::Nvme { pci: Some(pci), .. } = &device.kind {
                found.push(pci);
            }
            device.below.iter().for_each(|below| collect(below, found));
        }
        let mut found = Vec::new();
        self.top.iter().for_each(|top| collect(top, &mut found));
        found.dedup();
        found
    }
}

impl BlockDevice {
    fn obstacle(&self) -> Option<Reason> {
        let own = match &self.kind {
            BlockKind::Nvme { multipath: true, .. } | BlockKind::Multipath => {
                Some(Reason::BlockStackMultipath)
            }
            BlockKind::Nvme { transport: NvmeTransport::Tcp, .. } => Some(Reason::NvmeTcp),
            BlockKind::Lvm { extents: Some(n), .. } if *n > MAX_EXTENTS => Some(Reason::LvmExtents),
            BlockKind::Crypt => Some(Reason::BlockStackCrypt),
            BlockKind::Dm => Some(Reason::BlockStackDm),
            BlockKind::Md(_) => Some(Reason::BlockStackMd),
            BlockKind::Loop(_) => Some(Reason::BlockStackLoop),
            BlockKind::Virtio | BlockKind::Scsi | BlockKind::Other(_) => Some(Reason::NotNvme),
            BlockKind::Nvme { .. } | BlockKind::Partition | BlockKind::Lvm { .. } | BlockKind::Unknown => {
                None
            }
        };
        own.or_else(|| self.below.iter().find_map(BlockDevice::obstacle))
    }

    fn unseen(&self) -> Option<&'static str> {
        let own = match &self.kind {
            BlockKind::Unknown => Some("block devices"),
            BlockKind::Partition | BlockKind::Lvm { .. } if self.below.is_empty() => Some("block devices"),
            BlockKind::Nvme { transport: NvmeTransport::Unknown, .. } => Some("NVMe transport"),
            BlockKind::Lvm { extents: None, .. } => Some("extents of the volume"),
            _ => None,
        };
        own.or_else(|| self.below.iter().find_map(BlockDevice::unseen))
    }

    fn word(&self) -> &str {
        match &self.kind {
            BlockKind::Partition => self.below.first().map_or("unknown", BlockDevice::word),
            BlockKind::Nvme { multipath: true, .. } => "nvme-mpath",
            BlockKind::Nvme { transport, .. } => match transport {
                NvmeTransport::Rdma => "nvme-rdma",
                NvmeTransport::Tcp => "nvme-tcp",
                NvmeTransport::Fc => "nvme-fc",
                NvmeTransport::Loop => "nvme-loop",
                NvmeTransport::Pcie | NvmeTransport::Unknown => "nvme",
            },
            BlockKind::Lvm { .. } => "lvm",
            BlockKind::Crypt => "crypt",
            BlockKind::Multipath => "mpath",
            BlockKind::Dm => "dm",
            BlockKind::Md(_) => "md",
            BlockKind::Loop(_) => "loop",
            BlockKind::Virtio => "virtio",
            BlockKind::Scsi => "scsi",
            BlockKind::Other(word) => word,
            BlockKind::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.kind {
            BlockKind::Nvme { transport, multipath, pci } => {
                write!(f, "nvme, {}", transport.name())?;
                if *multipath {
                    f.write_str(", multipath head")?;
                }
                match pci {
                    Some(pci) => write!(f, ", {pci}"),
                    None => Ok(()),
                }
            }
            BlockKind::Partition => f.write_str("partition"),
            BlockKind::Lvm { name, extents: Some(1) } => write!(f, "lvm {name}, 1 extent"),
            BlockKind::Lvm { name, extents: Some(n) } => write!(f, "lvm {name}, {n} extents"),
            BlockKind::Lvm { name, extents: None } => write!(f, "lvm {name}, extents unknown"),
            BlockKind::Md(Some(level)) => write!(f, "md, {level}"),
            BlockKind::Loop(Some(file)) => write!(f, "loop over {}", file.display()),
            _ => f.write_str(self.word()),
        }
    }
}

/// One way down through sysfs.
struct Walk<'a> {
    roots: &'a Roots,
    /// The root, links resolved.
    base: PathBuf,
    /// How many more devices may be looked at.
    budget: usize,
}

impl Walk<'_> {
    /// One device by its folder, links resolved, and what is below it.
    fn look(&mut self, place: &Path, number: Option<(u32, u32)>, depth: usize) -> BlockDevice {
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = number.or_else(|| device_number(&roots::line(&place.join("dev"))?)).unwrap_or_default();
        let (kind, below) = self.classify(place, &name);
        let mut device = BlockDevice { number, name, kind, below: Vec::new() };
        for link in below {
            if depth == 0 || self.budget == 0 {
                // Deeper or wider than any stack there is, or going in a circle: not to be believed.
                device.below.push(BlockDevice {
                    number: (0, 0),
                    name: "further devices".to_owned(),
                    kind: BlockKind::Unknown,
                    below: Vec::new(),
                });
                break;
            }
            self.budget -= 1;
            match link.canonicalize() {
                Ok(place) if place.starts_with(&self.base) => {
                    device.below.push(self.look(&place, None, depth - 1));
                }
                _ => {}
            }
        }
        device
    }

    /// What a device is, and where those it consists of are; links are not resolved yet.
    fn classify(&self, place: &Path, name: &str) -> (BlockKind, Vec<PathBuf>) {
        if place.join("partition").exists() {
            return (BlockKind::Partition, place.parent().map(Path::to_owned).into_iter().collect());
        }
        if place.join("loop").is_dir() {
            let file = roots::line(&place.join("loop/backing_file"));
            return (BlockKind::Loop(file.map(PathBuf::from)), Vec::new());
        }
        let device = place.join("device");
        let kind = if place.join("dm").is_dir() {
            self.device_mapper(place)
        } else if place.join("md").is_dir() {
            BlockKind::Md(roots::line(&place.join("md/level")).filter(|level| !level.is_empty()))
        } else {
            match roots::link_name(&device.join("subsystem")).as_deref() {
                Some("nvme" | "nvme-subsystem") => nvme(&device),
                Some("virtio") => BlockKind::Virtio,
                Some("scsi") => BlockKind::Scsi,
                Some(other) if !other.is_empty() => BlockKind::Other(other.to_owned()),
                _ => match by_name(name) {
                    BlockKind::Nvme { .. } => nvme(&device),
                    kind => kind,
                },
            }
        };
        let slaves = place.join("slaves");
        let below = roots::list(&slaves, DEVICES).into_iter().map(|name| slaves.join(name)).collect();
        (kind, below)
    }

    fn device_mapper(&self, place: &Path) -> BlockKind {
        let Some(uuid) = roots::line(&place.join("dm/uuid")) else { return BlockKind::Unknown };
        // kpartx: a partition, as device-mapper makes it: part1-mpath-...
        let part =
            uuid.strip_prefix("part").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        if let Some(volume) = uuid.strip_prefix("LVM-") {
            let name = roots::line(&place.join("dm/name")).unwrap_or_default();
            let extents = lvm::extents(self.roots, &name, volume);
            BlockKind::Lvm { name, extents }
        } else if uuid.starts_with("CRYPT-VERITY-") {
            BlockKind::Dm
        } else if uuid.starts_with("CRYPT-") {
            BlockKind::Crypt
        } else if uuid.starts_with("mpath-") {
            BlockKind::Multipath
        } else if part.is_some_and(|rest| rest.starts_with('-')) {
            BlockKind::Partition
        } else {
            BlockKind::Dm
        }
    }
}

/// `device` is the namespace's controller, or with multipath the subsystem that holds the controllers.
fn nvme(device: &Path) -> BlockKind {
    let multipath = roots::link_name(device).is_some_and(|name| name.starts_with("nvme-subsys"));
    let controllers = if multipath {
        let is_controller = |name: &str| {
            name.strip_prefix("nvme").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        roots::list(device, DEVICES)
            .into_iter()
            .filter(|name| name.to_str().is_some_and(is_controller))
            .map(|name| device.join(name))
            .collect()
    } else {
        vec![device.to_owned()]
    };
    let mut found =
        controllers.iter().filter_map(|place| Some((roots::line(&place.join("transport"))?, place)));
    let Some((text, place)) = found.next() else {
        return BlockKind::Nvme { transport: NvmeTransport::Unknown, multipath, pci: None };
    };
    // Paths of different kinds: the one without a direct path decides.
    let transport =
        found.fold(
            NvmeTransport::of_text(&text),
            |known, (other, _)| {
                if other == "tcp" { NvmeTransport::Tcp } else { known }
            },
        );
    let pci = (text == "pcie").then(|| roots::line(&place.join("address"))).flatten();
    BlockKind::Nvme { transport, multipath, pci }
}

/// What a name alone tells, where sysfs hides the rest.
fn by_name(name: &str) -> BlockKind {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem {
        "dm-" => BlockKind::Unknown,
        "md" | "md_d" => BlockKind::Md(None),
        "loop" => BlockKind::Loop(None),
        "zram" | "ram" | "nbd" | "rbd" | "pmem" | "drbd" | "bcache" | "mmcblk" | "sr" => {
            BlockKind::Other(stem.to_owned())
        }
        _ if name.starts_with("nvme") => {
            BlockKind::Nvme { transport: NvmeTransport::Unknown, multipath: false, pci: None }
        }
        _ if name.starts_with("vd") => BlockKind::Virtio,
        _ if name.starts_with("sd") => BlockKind::Scsi,
        _ if name.starts_with("xvd") => BlockKind::Other("xen".to_owned()),
        _ => BlockKind::Unknown,
    }
}

fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
