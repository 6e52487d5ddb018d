//! The GPUs of a machine, from the PCI bus and AMD's topology: which they are, and what each can do. No runtime is asked.

use super::kernel;
use super::pci::{PciDevice, PciLink, PeerPath, Window};
use crate::storage::Roots;

const AMD: u16 = 0x1002;
const NVIDIA: u16 = 0x10de;

/// Virtual functions by device number, for machines without libdrm's list of names.
const VIRTUAL_FUNCTIONS: &[u16] = &[0x74b5, 0x75b0, 0x75b3];
/// Where libdrm and AMD's packages keep that list.
const NAMES: [&str; 2] = ["usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids"];

/// One GPU on the PCI bus.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Gpu {
    /// `AMD` or `NVIDIA`.
    pub vendor: &'static str,
    /// Its market name, or its numbers where nothing on the machine names it.
    pub name: String,
    /// Its PCI address.
    pub pci: String,
    /// The kernel driver that holds it.
    pub driver: Option<String>,
    /// Whether it is a virtual function (SR-IOV), which can only be reached through host memory.
    pub virtual_function: bool,
    /// Whether the processor contains it; only discrete GPUs have a direct path.
    pub integrated: bool,
    /// Its link.
    pub link: Option<PciLink>,
    /// Through what storage and other devices reach its memory, where that is told.
    pub window: Option<Window>,
    /// Whether no root port is above it.
    pub lacks_root_port: bool,
    /// How the IOMMU treats it; `None` without an IOMMU.
    pub iommu: Option<String>,
    /// The local NVMe controllers by PCI address, and how each is reached.
    pub peers: Vec<(String, PeerPath)>,
}

pub(super) fn all(roots: &Roots) -> Vec<Gpu> {
    let devices = PciDevice::all(roots);
    let drives: Vec<&PciDevice> = devices.iter().filter(|device| device.class >> 8 == 0x0108).collect();
    let names = NAMES.iter().find_map(|path| roots.read(path, 1 << 20).ok());
    let names = String::from_utf8_lossy(names.as_deref().unwrap_or_default()).into_owned();
    let integrated = integrated(roots);
    devices.iter().filter_map(|device| describe(device, &drives, &names, &integrated, roots)).collect()
}

fn describe(
    device: &PciDevice,
    drives: &[&PciDevice],
    names: &str,
    integrated: &[String],
    roots: &Roots,
) -> Option<Gpu> {
    // Display controllers and processing accelerators.
    let vendor = match (device.vendor, device.class >> 16) {
        (AMD, 0x03 | 0x12) => "AMD",
        (NVIDIA, 0x03) => "NVIDIA",
        _ => return None,
    };
    let market_name = if vendor == "AMD" { amd_name(device, names) } else { nvidia_name(device, roots) };
    let listed = vendor == "AMD" && VIRTUAL_FUNCTIONS.contains(&device.device);
    let virtual_function = device.has_physical_function()
        || listed
        || market_name.as_deref().is_some_and(|n| n.ends_with(" VF"));
    Some(Gpu {
        vendor,
        name: market_name
            .unwrap_or_else(|| format!("{vendor} device {:04x}:{:04x}", device.vendor, device.device)),
        pci: device.address.clone(),
        driver: device.driver(),
        virtual_function,
        integrated: integrated.contains(&device.address),
        link: device.link.clone(),
        window: device.window(),
        lacks_root_port: device.lacks_root_port(),
        iommu: device.iommu(),
        peers: drives.iter().map(|drive| (drive.address.clone(), device.path_to(drive, roots))).collect(),
    })
}

/// From lines `74A1, 00, AMD Instinct MI300X`: device, revision, name.
fn amd_name(device: &PciDevice, names: &str) -> Option<String> {
    let hex = |text: &str| u32::from_str_radix(text.trim(), 16).ok();
    names.lines().find_map(|line| {
        let mut fields = line.splitn(3, ',');
        let same = hex(fields.next()?)? == u32::from(device.device)
            && hex(fields.next()?)? == u32::from(device.revision());
        same.then(|| fields.next().unwrap_or_default().trim().to_owned())
    })
}

fn nvidia_name(device: &PciDevice, roots: &Roots) -> Option<String> {
    let text =
        roots.read(format!("proc/driver/nvidia/gpus/{}/information", device.address), 64 << 10).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix("Model:")).map(|name| name.trim().to_owned())
}

/// Addresses of the GPUs that share a node of the topology with processor cores.
fn integrated(roots: &Roots) -> Vec<String> {
    kernel::topology(roots)
        .filter(|node| node.get("cpu_cores_count") != 0)
        .map(|node| {
            let at = node.get("location_id");
            format!("{:04x}:{:02x}:{:02x}.{}", node.get("domain"), at >> 8 & 0xff, at >> 3 & 0x1f, at & 7)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use test_support::fake_root::FakeRoot;

    use super::*;

    const AT: &str = "pci0000:00/0000:00:01.1/0000:c1:00.0";

    #[test]
    fn behaviour_156_virtual_functions_are_told() {
        for (device, names, physical, name, virtual_function) in [
            (0x74a1, "74A1,\t00,\tAMD Instinct MI300X\n", false, "AMD Instinct MI300X", false),
            (0x74a9, "74A9,\t00,\tAMD Instinct New VF\n", false, "AMD Instinct New VF", true),
            (0x74b5, "", false, "AMD device 1002:74b5", true),
            (0x74a1, "garbage\n,,\n74A1,\t01,\tother revision\n", false, "AMD device 1002:74a1", false),
            (0x74a1, "", true, "AMD device 1002:74a1", true),
        ] {
            let root = FakeRoot::new();
            let folder = root.amd_gpu(1, AT, device, "gfx942", 0x40);
            root.file("usr/share/libdrm/amdgpu.ids", format!("# list\n1.0.0\n{names}"));
            if physical {
                root.folder(&format!("{folder}/physfn"));
            }
            let gpus = all(&Roots::under(root.path()));
            assert_eq!(gpus.len(), 1);
            assert_eq!((gpus[0].name.as_str(), gpus[0].virtual_function), (name, virtual_function));
            assert_eq!(gpus[0].driver.as_deref(), Some("amdgpu"));
            assert!(!gpus[0].integrated);
        }
    }

    #[test]
    fn behaviour_38_the_window_to_a_gpus_memory_is_told() {
        const GIB: u64 = 1 << 30;
        // What amdgpu says, the regions, what they could be; what is told.
        for (amd, regions, resize, reached, memory, most, small) in [
            (Some((192, 192)), &[(0, 256)][..], None, 192, Some(192), None, false),
            (Some((16, 192)), &[(0, 16)], Some((0, 1 << 18 | 1 << 14)), 16, Some(192), Some(256), true),
            // BAR 1, with NVIDIA's registers before it and others behind; 32-bit numbers of regions that 64-bit ones take up.
            (None, &[(1, 32)], Some((1, 1 << 15 | 1 << 8)), 32, None, Some(32), false),
            (None, &[(1, 8)], Some((1, 1 << 15)), 8, None, Some(32), true),
            (None, &[(1, 8), (3, 16)], None, 16, None, None, false),
        ] {
            let root = FakeRoot::new();
            let folder = root.pci(AT, 0x10de, 0x2335, 0x03_0200);
            let mut bars = [0; 6];
            regions.iter().for_each(|(at, gib)| bars[*at] = gib * GIB);
            root.bars(&folder, &bars);
            if let Some((visible, all)) = amd {
                root.file(&format!("{folder}/mem_info_vis_vram_total"), format!("{}\n", visible * GIB));
                root.file(&format!("{folder}/mem_info_vram_total"), format!("{}\n", all * GIB));
            }
            if let Some((at, bits)) = resize {
                root.file(&format!("{folder}/resource{at}_resize"), format!("{bits:016x}\n"));
            }
            let window = all(&Roots::under(root.path()))[0].window.unwrap();
            assert_eq!(window.reached, reached * GIB);
            assert_eq!((window.memory, window.most), (memory.map(|n| n * GIB), most.map(|n| n * GIB)));
            assert_eq!(window.is_small(), small, "{window:?}");
        }
        let root = FakeRoot::new();
        let folder = root.pci(AT, 0x10de, 0x2335, 0x03_0200);
        let window = || all(&Roots::under(root.path()))[0].window;
        assert_eq!(window(), None, "nothing is told");
        root.bars(&folder, &[16 << 20, 256 << 20, 0, 32 << 20, 0, 0]);
        assert!(window().unwrap().is_small(), "as windows were before they could be resized");
        for garbage in ["", "x y z\n", "0x0 0x0 0x0\n", "0xffffffffffffffff 0x0 0x2200\n"] {
            root.file(&format!("{folder}/resource"), garbage);
            assert_eq!(window(), None, "{garbage:?}");
        }
    }

    #[test]
    fn integrated_gpus_are_told() {
        let root = FakeRoot::new();
        root.amd_gpu(1, AT, 0x1586, "gfx1151", 0);
        let text = "cpu_cores_count 16\nsimd_count 80\nlocation_id 49408\ndomain 0\n";
        root.file("sys/class/kfd/kfd/topology/nodes/1/properties", text);
        assert!(all(&Roots::under(root.path()))[0].integrated);
    }

    #[test]
    fn nvidia_gpus_are_named_by_their_driver() {
        let root = FakeRoot::new();
        root.pci(AT, 0x10de, 0x2335, 0x03_0200);
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\n";
        root.file("proc/driver/nvidia/gpus/0000:c1:00.0/information", text);
        let gpus = all(&Roots::under(root.path()));
        assert_eq!((gpus[0].vendor, gpus[0].name.as_str()), ("NVIDIA", "NVIDIA H200"));
    }
}
