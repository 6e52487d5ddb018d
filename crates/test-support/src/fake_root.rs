//! A folder laid out like the root of a machine: /proc, /sys and what else tells about its storage and GPUs, as Linux
//! writes them. Each method adds one thing; what is not added is not there.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A made-up machine; removed when dropped.
#[derive(Debug)]
pub struct FakeRoot {
    dir: tempfile::TempDir,
    mounts: String,
    release: String,
}

/// Where a disk or GPU sits: `pci0000:00/0000:00:01.1/0000:01:00.0`, from the host bridge down.
pub type PciPath<'a> = &'a str;

impl Default for FakeRoot {
    fn default() -> FakeRoot {
        FakeRoot::new()
    }
}

impl FakeRoot {
    /// An empty folder.
    pub fn new() -> FakeRoot {
        let dir = tempfile::tempdir().expect("a temporary folder");
        FakeRoot { dir, mounts: String::new(), release: String::new() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The name that a path of the machine has here.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// A file with its contents; folders are made as needed.
    pub fn file(&self, path: &str, contents: impl AsRef<[u8]>) -> &FakeRoot {
        let at = self.at(path);
        std::fs::create_dir_all(at.parent().expect("a folder")).expect("folders");
        std::fs::write(at, contents).expect("a file");
        self
    }

    /// An empty folder.
    pub fn folder(&self, path: &str) -> &FakeRoot {
        std::fs::create_dir_all(self.at(path)).expect("folders");
        self
    }

    /// A symbolic link, relative as the kernel makes them. Both are paths of the machine.
    pub fn link(&self, from: &str, to: &str) -> &FakeRoot {
        let at = self.at(from);
        std::fs::create_dir_all(at.parent().expect("a folder")).expect("folders");
        // What was there is replaced, as for files.
        let _ = std::fs::remove_file(&at);
        let up = from.trim_matches('/').matches('/').count();
        symlink(format!("{}{}", "../".repeat(up), to.trim_start_matches('/')), at).expect("a link");
        self
    }

    /// The kernel: its release, and its configuration under /boot.
    pub fn kernel(&mut self, release: &str, config: &str) -> &mut FakeRoot {
        self.release = release.to_owned();
        self.file("proc/sys/kernel/ostype", "Linux\n");
        self.file("proc/sys/kernel/hostname", "box\n");
        self.file("proc/sys/kernel/osrelease", format!("{release}\n"));
        self.file("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC\n");
        self.file("proc/sys/kernel/arch", "x86_64\n");
        self.file("proc/sys/kernel/io_uring_disabled", "0\n");
        self.file(&format!("boot/config-{release}"), config);
        self
    }

    /// A line of the mount table.
    pub fn mount(&mut self, dev: &str, point: &str, fs: &str, source: &str, options: &str) -> &mut FakeRoot {
        let id = 20 + self.mounts.lines().count();
        let _ =
            writeln!(self.mounts, "{id} 1 {dev} / {point} rw,relatime shared:{id} - {fs} {source} {options}");
        self.file("proc/self/mountinfo", &self.mounts);
        self
    }

    /// A block device in sysfs at `place` (below /sys/devices) with its number. The rest of its folder is the
    /// caller's.
    pub fn block(&self, place: &str, number: &str) -> String {
        let folder = format!("sys/devices/{place}");
        self.file(&format!("{folder}/dev"), format!("{number}\n"));
        self.link(&format!("sys/dev/block/{number}"), &folder);
        let name = place.rsplit('/').next().unwrap_or_default();
        self.link(&format!("sys/class/block/{name}"), &folder);
        folder
    }

    /// A partition `number`, called `name`, of the device at `folder`.
    pub fn partition(&self, folder: &str, name: &str, number: &str) -> String {
        let place = folder.trim_start_matches("sys/devices/");
        let partition = self.block(&format!("{place}/{name}"), number);
        self.file(&format!("{partition}/partition"), "1\n");
        partition
    }

    /// A PCI device.
    pub fn pci(&self, path: PciPath<'_>, vendor: u16, device: u16, class: u32) -> String {
        let folder = format!("sys/devices/{path}");
        let address = path.rsplit('/').next().unwrap_or_default();
        self.file(&format!("{folder}/vendor"), format!("{vendor:#06x}\n"));
        self.file(&format!("{folder}/device"), format!("{device:#06x}\n"));
        self.file(&format!("{folder}/class"), format!("{class:#08x}\n"));
        self.link(&format!("sys/bus/pci/devices/{address}"), &folder);
        folder
    }

    /// The speed a PCI device runs at, and the most it could.
    pub fn pci_link(&self, folder: &str, speed: [&str; 2], width: [u8; 2]) -> &FakeRoot {
        self.file(&format!("{folder}/current_link_speed"), format!("{} GT/s PCIe\n", speed[0]));
        self.file(&format!("{folder}/max_link_speed"), format!("{} GT/s PCIe\n", speed[1]));
        self.file(&format!("{folder}/current_link_width"), format!("{}\n", width[0]));
        self.file(&format!("{folder}/max_link_width"), format!("{}\n", width[1]));
        self
    }

    /// The regions (BARs) of a PCI device in bytes, all prefetchable memory; 0 for one that is not there.
    pub fn bars(&self, folder: &str, sizes: &[u64; 6]) -> &FakeRoot {
        let mut text = String::new();
        for (at, size) in sizes.iter().enumerate() {
            let start = (at as u64 + 1) << 44;
            let (start, end, flags) =
                if *size == 0 { (0, 0, 0) } else { (start, start + size - 1, 0x14_220c) };
            let _ = writeln!(text, "{start:#018x} {end:#018x} {flags:#018x}");
        }
        self.file(&format!("{folder}/resource"), text)
    }

    /// NVMe namespace `nvme<index>n1` of a local controller.
    pub fn nvme(&self, index: u32, number: &str, path: PciPath<'_>) -> String {
        let pci = self.pci(path, 0x144d, 0xa80a, 0x01_0802);
        let address = path.rsplit('/').next().unwrap_or_default();
        let controller = format!("{pci}/nvme/nvme{index}");
        self.controller(&controller, index, "pcie", address);
        let folder =
            self.block(&format!("{}/nvme{index}n1", controller.trim_start_matches("sys/devices/")), number);
        self.link(&format!("{folder}/device"), &controller);
        folder
    }

    /// NVMe namespace `nvme<index>n1` over a fabric, such as `tcp`.
    pub fn nvme_fabric(&self, index: u32, number: &str, transport: &str) -> String {
        let controller = format!("sys/devices/virtual/nvme-fabrics/ctl/nvme{index}");
        self.controller(&controller, index, transport, "traddr=192.0.2.1,trsvcid=4420");
        let folder = self.block(&format!("virtual/nvme-fabrics/ctl/nvme{index}/nvme{index}n1"), number);
        self.link(&format!("{folder}/device"), &controller);
        folder
    }

    /// The head `nvme<index>n1` over paths through the given controllers.
    pub fn nvme_multipath(&self, index: u32, number: &str, paths: &[(&str, PciPath<'_>)]) -> String {
        let subsystem = format!("sys/devices/virtual/nvme-subsystem/nvme-subsys{index}");
        self.link(&format!("{subsystem}/subsystem"), "sys/class/nvme-subsystem");
        for (n, (transport, path)) in paths.iter().enumerate() {
            let n = index + n as u32;
            let controller = format!("{}/nvme/nvme{n}", self.pci(path, 0x144d, 0xa80a, 0x01_0802));
            self.controller(&controller, n, transport, path.rsplit('/').next().unwrap_or_default());
            self.link(&format!("{subsystem}/nvme{n}"), &controller);
        }
        let folder = self.block(&format!("virtual/nvme-subsystem/nvme-subsys{index}/nvme{index}n1"), number);
        self.link(&format!("{folder}/device"), &subsystem);
        folder
    }

    fn controller(&self, folder: &str, index: u32, transport: &str, address: &str) {
        self.file(&format!("{folder}/transport"), format!("{transport}\n"));
        self.file(&format!("{folder}/address"), format!("{address}\n"));
        self.link(&format!("{folder}/subsystem"), "sys/class/nvme");
        self.link(&format!("sys/class/nvme/nvme{index}"), folder);
    }

    /// A disk `name` on a bus such as `virtio` or `scsi`.
    pub fn disk(&self, name: &str, number: &str, bus: &str) -> String {
        let device = format!("sys/devices/pci0000:00/0000:00:05.0/{bus}0");
        self.link(&format!("{device}/subsystem"), &format!("sys/bus/{bus}"));
        let folder = self.block(&format!("pci0000:00/0000:00:05.0/{bus}0/block/{name}"), number);
        self.link(&format!("{folder}/device"), &device);
        folder
    }

    /// Device-mapper device `dm-<index>` over the devices at the given folders.
    pub fn dm(&self, index: u32, name: &str, uuid: &str, below: &[&str]) -> String {
        let folder = self.block(&format!("virtual/block/dm-{index}"), &format!("252:{index}"));
        self.file(&format!("{folder}/dm/name"), format!("{name}\n"));
        self.file(&format!("{folder}/dm/uuid"), format!("{uuid}\n"));
        self.slaves(&folder, below)
    }

    /// Software RAID `md<index>`.
    pub fn md(&self, index: u32, level: &str, below: &[&str]) -> String {
        let folder = self.block(&format!("virtual/block/md{index}"), &format!("9:{index}"));
        self.file(&format!("{folder}/md/level"), format!("{level}\n"));
        self.slaves(&folder, below)
    }

    /// Loop device `loop<index>`.
    pub fn loop_device(&self, index: u32, file: &str) -> String {
        let folder = self.block(&format!("virtual/block/loop{index}"), &format!("7:{index}"));
        self.file(&format!("{folder}/loop/backing_file"), format!("{file}\n"));
        folder
    }

    fn slaves(&self, folder: &str, below: &[&str]) -> String {
        self.folder(&format!("{folder}/slaves"));
        for device in below {
            let name = device.rsplit('/').next().unwrap_or_default();
            self.link(&format!("{folder}/slaves/{name}"), device);
        }
        folder.to_owned()
    }

    /// Logical volume `group-volume` as `dm-<index>`, with LVM's metadata that counts its extents. One volume a group.
    pub fn lvm(&self, index: u32, group: &str, volume: &str, extents: u32, below: &[&str]) -> String {
        let id = |n: u32| format!("{:0>32}", format!("{volume}{n}"));
        let dashed = |id: &str| {
            let cuts = [0, 6, 10, 14, 18, 22, 26, 32];
            cuts.windows(2).map(|w| &id[w[0]..w[1]]).collect::<Vec<_>>().join("-")
        };
        self.file(
            &format!("etc/lvm/backup/{group}"),
            format!(
                "{group} {{\n\tid = \"{}\"\n\tlogical_volumes {{\n\t\t{volume} {{\n\t\t\tid = \"{}\"\n\
                 \t\t\tsegment_count = {extents}\n\t\t}}\n\t}}\n}}\n",
                dashed(&id(1)),
                dashed(&id(2))
            ),
        );
        self.dm(index, &format!("{group}-{volume}"), &format!("LVM-{}{}", id(1), id(2)), below)
    }

    /// A GPU of AMD's: the PCI device and a node of the driver's topology.
    pub fn amd_gpu(&self, node: u32, path: PciPath<'_>, device: u16, name: &str, capability: u32) -> String {
        let folder = self.pci(path, 0x1002, device, 0x12_0000);
        self.file(&format!("{folder}/revision"), "0x00\n");
        self.link(&format!("{folder}/driver"), "sys/bus/pci/drivers/amdgpu");
        self.folder("sys/module/amdgpu");
        self.file("dev/kfd", "");
        let address = path.rsplit('/').next().unwrap_or_default();
        let (domain, bus, slot) = parts(address);
        let topology = format!("sys/class/kfd/kfd/topology/nodes/{node}");
        self.file(&format!("{topology}/gpu_id"), format!("{}\n", 40000 + node));
        self.file(&format!("{topology}/name"), format!("{name}\n"));
        self.file(
            &format!("{topology}/properties"),
            format!(
                "cpu_cores_count 0\nsimd_count 1216\ncapability {capability}\nvendor_id 4098\ndevice_id {device}\n\
                 location_id {}\ndomain {domain}\ngfx_target_version 90402\n",
                bus << 8 | slot << 3
            ),
        );
        folder
    }

    /// The topology's node of the CPU.
    pub fn cpu_node(&self) -> &FakeRoot {
        let node = "sys/class/kfd/kfd/topology/nodes/0";
        self.file(&format!("{node}/gpu_id"), "0\n");
        self.file(&format!("{node}/properties"), "cpu_cores_count 64\nsimd_count 0\ncapability 64\n")
    }

    /// AMD's kernel driver from its own package: the version, as in `6.14.14-2328000.24.04`.
    pub fn dkms(&self, version: &str) -> &FakeRoot {
        self.folder(&format!("var/lib/dkms/amdgpu/{version}/{}/x86_64/module", self.release))
    }

    /// Names of functions in the kernel.
    pub fn symbols(&self, names: &[&str]) -> &FakeRoot {
        let mut text = String::from("0000000000000000 T _stext\n");
        for name in names {
            let _ = writeln!(text, "0000000000000000 t {name}\t[amdgpu]");
        }
        self.file("proc/kallsyms", text)
    }

    /// A HIP runtime under /opt/rocm, with or without AMD's file functions.
    pub fn hip(&self, file_functions: bool) -> &FakeRoot {
        let names: &[u8] =
            if file_functions { b"\0hipInit\0hipAmdFileRead\0hipAmdFileWrite\0" } else { b"\0hipInit\0" };
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.extend_from_slice(names);
        self.file("opt/rocm/lib/libamdhip64.so.7", bytes);
        self.file("opt/rocm/.info/version", "7.14.0-77\n")
    }

    /// The processor, as /proc/cpuinfo has it.
    pub fn cpu(&self, vendor: &str, family: u32) -> &FakeRoot {
        self.file(
            "proc/cpuinfo",
            format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel name\t: test\n\n"),
        )
    }
}

/// `0000:c1:00.0` as domain, bus and slot.
fn parts(address: &str) -> (u32, u32, u32) {
    let number = |text: &str| u32::from_str_radix(text, 16).unwrap_or(0);
    let mut fields = address.split([':', '.']);
    let mut next = || number(fields.next().unwrap_or_default());
    (next(), next(), next())
}
