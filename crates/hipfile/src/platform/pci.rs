//! PCI devices and how two of them reach each other, from sysfs. What the kernel's own P2PDMA code decides from the
//! same facts is said as a forecast; it changes nothing.

use std::path::{Path, PathBuf};

use crate::storage::{self, Roots};

/// One device on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciDevice {
    /// Its address, such as `0000:c1:00.0`.
    pub address: String,
    /// Vendor number.
    pub vendor: u16,
    /// Device number.
    pub device: u16,
    /// Class, subclass and interface: `0x010802` is NVMe.
    pub class: u32,
    /// Speed and width of its link.
    pub link: Option<PciLink>,
    /// The host bridge it hangs off, such as `pci0000:c0`, then the bridges down to it, itself last.
    pub way: Vec<String>,
    place: PathBuf,
}

/// What a link runs at, and the most that the device could.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciLink {
    /// In GT/s, as text: `32.0`.
    pub speed: String,
    /// In GT/s, as text.
    pub max_speed: String,
    /// Lanes in use.
    pub width: u32,
    /// Lanes of the device.
    pub max_width: u32,
}

/// The window (BAR) through which other PCI devices reach a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// Bytes that can be reached.
    pub reached: u64,
    /// Bytes of memory in all, where the driver tells.
    pub memory: Option<u64>,
    /// Bytes that the window could be made to have (Resizable BAR), where the device tells.
    pub most: Option<u64>,
}

impl Window {
    /// What windows have without Resizable BAR.
    const OLD: u64 = 256 << 20;

    /// The window of the GPU at a PCI address.
    pub(crate) fn of(address: &str, roots: &Roots) -> Option<Window> {
        PciDevice::at(&address.to_ascii_lowercase(), roots)?.window()
    }

    /// Whether a part of the memory cannot be reached by other devices, as far as is known.
    pub fn is_small(&self) -> bool {
        match self.memory {
            Some(memory) => self.reached < memory,
            None => self.reached <= Window::OLD || self.most.is_some_and(|most| self.reached < most),
        }
    }
}

/// How one device reaches another without going through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerPath {
    /// Through a switch or port above both.
    Switch,
    /// Through the processor's host bridge, which is known to pass it on.
    HostBridge,
    /// Through a host bridge that the kernel does not know to pass it on: refused.
    Refused,
    /// It cannot be told.
    Unknown,
}

impl PciDevice {
    /// The device at an address of /sys/bus/pci/devices.
    pub(super) fn at(address: &str, roots: &Roots) -> Option<PciDevice> {
        let place = roots.resolve(Path::new("sys/bus/pci/devices").join(address))?;
        let number = |name: &str| {
            let text = storage::line(&place.join(name))?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        // sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0
        let names = place.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
        let way: Vec<String> = names.skip_while(|name| !is_host(name)).collect();
        Some(PciDevice {
            address: address.to_owned(),
            vendor: number("vendor")? as u16,
            device: number("device")? as u16,
            class: number("class").unwrap_or(0),
            link: PciLink::read(&place),
            way,
            place,
        })
    }

    /// Every device, by address.
    pub(super) fn all(roots: &Roots) -> Vec<PciDevice> {
        let addresses = roots.list("sys/bus/pci/devices", 8192);
        addresses.iter().filter_map(|address| PciDevice::at(address.to_str()?, roots)).collect()
    }

    /// Whether it hangs off the host bridge itself, with no root port above: some virtual machines are built so, and
    /// the link then has no speed to speak of.
    pub fn lacks_root_port(&self) -> bool {
        self.way.len() == 2
    }

    /// The revision number; 0 where it is not told.
    pub(super) fn revision(&self) -> u8 {
        let text = storage::line(&self.place.join("revision")).unwrap_or_default();
        u8::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
    }

    /// Whether this is a virtual function, as the machine that holds the physical one sees it.
    pub(super) fn has_physical_function(&self) -> bool {
        self.place.join("physfn").exists()
    }

    /// How the IOMMU treats it: `identity`, `DMA`, `DMA-FQ`; `None` without one.
    pub(super) fn iommu(&self) -> Option<String> {
        storage::line(&self.place.join("iommu_group/type"))
    }

    /// Through what others reach its memory, if it is a GPU: as amdgpu says, else the largest region of the device that is
    /// memory like any other (prefetchable).
    pub(super) fn window(&self) -> Option<Window> {
        let number = |name: &str| storage::line(&self.place.join(name))?.parse::<u64>().ok();
        let (at, region) = self.largest_region().unzip();
        let reached = number("mem_info_vis_vram_total").or(region)?;
        Some(Window {
            reached,
            memory: number("mem_info_vram_total"),
            most: at.and_then(|at| self.largest_size(at)),
        })
    }

    /// Number and size of the largest prefetchable region of memory.
    fn largest_region(&self) -> Option<(usize, u64)> {
        const REGIONS: usize = 6;
        const MEMORY: u64 = 0x200;
        const PREFETCHABLE: u64 = 0x2000;
        let text = storage::read(&self.place.join("resource"), 4096).ok()?;
        let text = String::from_utf8_lossy(&text);
        let size = |line: &str| {
            let mut numbers = line
                .split_whitespace()
                .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
            let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
            let is_memory = flags & MEMORY != 0 && flags & PREFETCHABLE != 0 && start < end;
            is_memory.then(|| (end - start).saturating_add(1))
        };
        let regions = text.lines().take(REGIONS).enumerate().filter_map(|(at, line)| Some((at, size(line)?)));
        regions.max_by_key(|(_, size)| *size)
    }

    /// The most that a region could be resized to: a bit for each power of two, from 1 MiB on.
    fn largest_size(&self, region: usize) -> Option<u64> {
        let bits = storage::line(&self.place.join(format!("resource{region}_resize")))?;
        let bits = u64::from_str_radix(bits.trim_start_matches("0x"), 16).ok()?;
        let highest = 63_u32.checked_sub(bits.leading_zeros())?;
        1_u64.checked_shl(highest + 20)
    }

    pub(super) fn driver(&self) -> Option<String> {
        storage::link_name(&self.place.join("driver"))
    }

    /// How `self` and `other` reach each other, by the rules of the kernel's P2PDMA.
    pub(super) fn path_to(&self, other: &PciDevice, roots: &Roots) -> PeerPath {
        let (Some(host), Some(other_host)) = (self.way.first(), other.way.first()) else {
            return PeerPath::Unknown;
        };
        let shared = self.way.iter().zip(&other.way).take_while(|(a, b)| a == b).count();
        // The first is the host bridge, the second a root port.
        if shared >= 2 {
            return PeerPath::Switch;
        }
        match passes_on(host, other_host, roots) {
            Some(true) => PeerPath::HostBridge,
            Some(false) => PeerPath::Refused,
            None => PeerPath::Unknown,
        }
    }
}

impl PciLink {
    fn read(place: &Path) -> Option<PciLink> {
        let text = |name: &str| storage::line(&place.join(name));
        let speed = |name: &str| Some(text(name)?.split_whitespace().next()?.to_owned());
        let width = |name: &str| text(name)?.parse().ok();
        Some(PciLink {
            speed: speed("current_link_speed")?,
            max_speed: speed("max_link_speed")?,
            width: width("current_link_width")?,
            max_width: width("max_link_width")?,
        })
    }

    /// Whether it runs below what the device could.
    pub fn is_reduced(&self) -> bool {
        let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
        self.width < self.max_width || number(&self.speed) < number(&self.max_speed)
    }
}

impl std::fmt::Display for PciLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GT/s x{} of {} GT/s x{}", self.speed, self.width, self.max_speed, self.max_width)
    }
}

fn is_host(name: &str) -> bool {
    // pci0000:00, and pciffff:00 of hidden hosts.
    name.strip_prefix("pci").is_some_and(|rest| rest.contains(':'))
}

const INTEL: u32 = 0x8086;
/// Host bridges and root ports of Intel's that the kernel lets pass peer traffic on (drivers/pci/p2pdma.c), and
/// whether only within one host bridge.
const PASSES_ON: &[(u32, bool)] = &[
    (0x3c00, true),
    (0x3c01, true),
    (0x2f00, true),
    (0x2f01, true),
    (0x2030, false),
    (0x2031, false),
    (0x2032, false),
    (0x2033, false),
    (0x2020, false),
    (0x09a2, false),
];

/// Whether traffic between two host bridges, or within one, is passed on. AMD's processors do from Zen on.
fn passes_on(a: &str, b: &str, roots: &Roots) -> Option<bool> {
    let cpu = roots.read("proc/cpuinfo", 64 << 10).ok()?;
    let cpu = String::from_utf8_lossy(&cpu);
    let field = |name: &str| {
        let line = cpu.lines().find(|line| line.split(':').next().is_some_and(|n| n.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    match field("vendor_id")?.as_str() {
        "AuthenticAMD" => Some(field("cpu family")?.parse::<u32>().ok()? >= 0x17),
        "GenuineIntel" => {
            let known = |host: &str| {
                let (vendor, device) = root_device(host, roots)?;
                Some(
                    PASSES_ON
                        .iter()
                        .any(|(id, within)| vendor == INTEL && device == *id && (!within || a == b)),
                )
            };
            Some(known(a)? && known(b)?)
        }
        // Others have lists of their own, and some machines no list at all.
        _ => None,
    }
}

/// Vendor and device of what stands for a host bridge: the first device on its bus.
fn root_device(host: &str, roots: &Roots) -> Option<(u32, u32)> {
    let bus = host.strip_prefix("pci")?;
    let folder = Path::new("sys/devices").join(host);
    let first = roots
        .list(&folder, 1024)
        .into_iter()
        .find(|name| name.to_str().is_some_and(|name| name.starts_with(bus) && name.contains('.')))?;
    let number = |name: &str| {
        let text = roots.line(folder.join(&first).join(name))?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    Some((number("vendor")?, number("device")?))
}

#[cfg(test)]
mod tests {
    use test_support::fake_root::FakeRoot;

    use super::*;

    const GPU: &str = "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0";
    const BEHIND_THE_SAME_SWITCH: &str = "pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:01.0/0000:04:00.0";
    const SAME_HOST: &str = "pci0000:00/0000:00:03.1/0000:21:00.0";
    const OTHER_HOST: &str = "pci0000:80/0000:80:01.1/0000:81:00.0";

    fn path(root: &FakeRoot, to: &str) -> PeerPath {
        root.pci(GPU, 0x1002, 0x74a1, 0x12_0000);
        root.pci(to, 0x144d, 0xa80a, 0x01_0802);
        let roots = Roots::under(root.path());
        let at = |path: &str| PciDevice::at(path.rsplit('/').next().unwrap(), &roots).unwrap();
        at(GPU).path_to(&at(to), &roots)
    }

    #[test]
    fn behaviour_156_who_reaches_whom() {
        for (vendor, family, bridge, near, same, far) in [
            ("AuthenticAMD", 25, None, PeerPath::Switch, PeerPath::HostBridge, PeerPath::HostBridge),
            ("AuthenticAMD", 21, None, PeerPath::Switch, PeerPath::Refused, PeerPath::Refused),
            ("GenuineIntel", 6, Some(0x09a2), PeerPath::Switch, PeerPath::HostBridge, PeerPath::HostBridge),
            ("GenuineIntel", 6, Some(0x2f00), PeerPath::Switch, PeerPath::HostBridge, PeerPath::Refused),
            ("GenuineIntel", 6, Some(0x3e34), PeerPath::Switch, PeerPath::Refused, PeerPath::Refused),
            ("GenuineIntel", 6, None, PeerPath::Switch, PeerPath::Refused, PeerPath::Refused),
            ("Other", 1, None, PeerPath::Switch, PeerPath::Unknown, PeerPath::Unknown),
        ] {
            let root = FakeRoot::new();
            root.cpu(vendor, family);
            for host in ["0000:00", "0000:80"] {
                let device = bridge.unwrap_or(0x1234);
                root.pci(&format!("pci{host}/{host}:00.0"), 0x8086, device, 0x06_0000);
            }
            assert_eq!(path(&root, BEHIND_THE_SAME_SWITCH), near, "{vendor} {bridge:?}");
            assert_eq!(path(&root, SAME_HOST), same, "{vendor} {bridge:?}");
            assert_eq!(path(&root, OTHER_HOST), far, "{vendor} {bridge:?}");
        }
        assert_eq!(path(&FakeRoot::new(), SAME_HOST), PeerPath::Unknown);
    }

    #[test]
    fn behaviour_122_slow_links_and_missing_root_ports_show() {
        let root = FakeRoot::new();
        let gpu = root.pci(GPU, 0x1002, 0x74a1, 0x12_0000);
        root.pci_link(&gpu, ["16.0", "32.0"], [8, 16]);
        let bare = root.pci("pci0000:00/0000:00:05.0", 0x1002, 0x74b5, 0x12_0000);
        root.pci_link(&bare, ["32.0", "32.0"], [16, 16]);
        let roots = Roots::under(root.path());
        let gpu = PciDevice::at("0000:03:00.0", &roots).unwrap();
        assert!(!gpu.lacks_root_port());
        let link = gpu.link.unwrap();
        assert!(link.is_reduced());
        assert_eq!(link.to_string(), "16.0 GT/s x8 of 32.0 GT/s x16");
        let bare = PciDevice::at("0000:00:05.0", &roots).unwrap();
        assert!(bare.lacks_root_port() && !bare.link.unwrap().is_reduced());
        assert_eq!(PciDevice::all(&roots).len(), 2);
    }
}
