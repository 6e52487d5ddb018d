//! The made-up machines of the golden files. Each differs from a good one in what its name says.

use test_support::fake_root::FakeRoot;

/// Name of the golden file, arguments, machine.
pub(super) type Machine = (&'static str, &'static [&'static str], fn() -> FakeRoot);

pub(super) const ALL: &[Machine] = &[
    ("nothing_at_all", &[], FakeRoot::new),
    ("bare_vm", &[], bare_vm),
    ("mi300x", &[], mi300x),
    ("mi300x_verbose", &["-v"], mi300x),
    ("lvm_16_extents", &[], lvm_16),
    ("lvm_17_extents", &["-v"], lvm_17),
    ("lvm_extents_not_readable", &[], lvm_unreadable),
    ("md", &["-v"], md),
    ("crypt", &[], crypt),
    ("dm_multipath", &[], dm_multipath),
    ("nvme_multipath", &["-v"], nvme_multipath),
    ("loop_device", &[], loop_device),
    ("data_journal", &[], data_journal),
    ("nfs_rdma", &[], nfs_rdma),
    ("nfs_tcp", &[], nfs_tcp),
    ("nvmeof_rdma", &[], nvmeof_rdma),
    ("nvmeof_tcp", &[], nvmeof_tcp),
    ("container", &[], container),
    ("sriov_vf", &[], sriov_vf),
    ("kernel_without_p2pdma", &[], kernel_without_p2pdma),
    ("driver_says_no", &[], driver_says_no),
    ("no_hip", &[], no_hip),
    ("old_hip", &[], old_hip),
    ("old_amdgpu", &[], old_amdgpu),
    ("symbols_hidden", &[], symbols_hidden),
    ("host_bridge_refuses", &["-v"], host_bridge_refuses),
    ("integrated_gpu", &[], integrated_gpu),
    ("wsl", &[], wsl),
    ("nvidia_open", &[], nvidia_open),
    ("nvidia_proprietary", &[], nvidia_proprietary),
    ("small_bar", &[], small_bar),
    ("nvidia_small_bar", &[], nvidia_small_bar),
    ("odd_names", &[], odd_names),
];

const HOST: &str = "pci0000:c0";
const GPU: &str = "pci0000:c0/0000:c0:01.1/0000:c1:00.0/0000:c2:00.0/0000:c3:00.0";
const NVME: [&str; 2] = [
    "pci0000:c0/0000:c0:01.1/0000:c1:00.0/0000:c2:01.0/0000:c4:00.0",
    "pci0000:00/0000:00:03.1/0000:01:00.0",
];
/// MI300X; bit 0x40: files can be read into its memory.
const MI300X: u16 = 0x74a1;
const CAPABLE: u32 = 0x40 | 0x2000;
const NAMES: &str = "1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n74B5,\t00,\tAMD Instinct MI300X VF\n";
const P2PDMA: &str = "CONFIG_PCI=y\nCONFIG_PCI_P2PDMA=y\n";

/// Kernel, driver, runtime and GPU as they should be; no storage.
fn good_but_for_storage() -> FakeRoot {
    let mut root = FakeRoot::new();
    root.kernel("6.8.0-45-generic", P2PDMA);
    root.cpu("AuthenticAMD", 25).cpu_node();
    root.pci(&format!("{HOST}/0000:c0:00.0"), 0x1022, 0x14a4, 0x06_0000);
    let gpu = root.amd_gpu(1, GPU, MI300X, "gfx942", CAPABLE);
    root.pci_link(&gpu, ["32.0", "32.0"], [16, 16]);
    root.bars(&gpu, &[256 << 30, 0, 2 << 20, 0, 0, 0]);
    for name in ["mem_info_vis_vram_total", "mem_info_vram_total"] {
        root.file(&format!("{gpu}/{name}"), format!("{}\n", 192_u64 << 30));
    }
    root.file("usr/share/libdrm/amdgpu.ids", NAMES);
    root.dkms("6.14.14-2328000.24.04").symbols(&["kfd_ais_rw_file", "pci_p2pdma_distance_many"]).hip(true);
    root.file("etc/hostname", "box\n");
    root.mount("0:24", "/proc", "proc", "proc", "rw");
    root.mount("0:25", "/run", "tmpfs", "tmpfs", "rw,size=1g");
    root
}

/// The same with its system on one drive, and `/data` on what the caller makes of a second.
fn good() -> FakeRoot {
    let mut root = good_but_for_storage();
    let disk = root.nvme(0, "259:0", NVME[0]);
    root.partition(&disk, "nvme0n1p2", "259:2");
    root.mount("259:2", "/", "ext4", "/dev/nvme0n1p2", "rw,errors=remount-ro");
    root
}

fn with_data(
    fs: &str,
    source: &str,
    options: &str,
    make: impl FnOnce(&FakeRoot, &str) -> (String, &'static str),
) -> FakeRoot {
    let mut root = good_but_for_storage();
    let disk = root.nvme(1, "259:5", NVME[1]);
    let (_, number) = make(&root, &disk);
    root.mount(number, "/data", fs, source, options);
    root
}

pub(super) fn bare_vm() -> FakeRoot {
    let mut root = FakeRoot::new();
    root.kernel("6.8.0-45-generic", P2PDMA);
    root.symbols(&["pci_p2pdma_distance_many"]).folder("sys/module");
    root.disk("vda", "254:0", "virtio");
    root.mount("254:0", "/", "ext4", "/dev/vda", "rw");
    root
}

pub(super) fn mi300x() -> FakeRoot {
    let mut root = good();
    root.nvme(1, "259:5", NVME[1]);
    root.mount("259:5", "/data", "xfs", "/dev/nvme1n1", "rw,attr2,inode64");
    root.mount("259:2", "/mount\\040with\\040spaces", "ext4", "/dev/nvme0n1p2", "rw");
    root
}

fn lvm_16() -> FakeRoot {
    with_data("xfs", "/dev/mapper/vg0-data", "rw", |root, disk| {
        (root.lvm(0, "vg0", "data", 16, &[disk]), "252:0")
    })
}

fn lvm_17() -> FakeRoot {
    with_data("xfs", "/dev/mapper/vg0-data", "rw", |root, disk| {
        (root.lvm(0, "vg0", "data", 17, &[disk]), "252:0")
    })
}

fn lvm_unreadable() -> FakeRoot {
    let root = lvm_17();
    std::fs::remove_dir_all(root.at("etc/lvm")).unwrap();
    root
}

pub(super) fn md() -> FakeRoot {
    with_data("ext4", "/dev/md0", "rw,stripe=256", |root, disk| {
        let second = root.nvme(2, "259:7", "pci0000:00/0000:00:03.2/0000:02:00.0");
        (root.md(0, "raid0", &[disk, &second]), "9:0")
    })
}

fn crypt() -> FakeRoot {
    with_data("ext4", "/dev/mapper/luks-data", "rw", |root, disk| {
        (root.dm(0, "luks-data", "CRYPT-LUKS2-0123-luks-data", &[disk]), "252:0")
    })
}

fn dm_multipath() -> FakeRoot {
    with_data("xfs", "/dev/mapper/mpatha1", "rw", |root, disk| {
        let head = root.dm(0, "mpatha", "mpath-36001405", &[disk]);
        (root.dm(1, "mpatha1", "part1-mpath-36001405", &[&head]), "252:1")
    })
}

fn nvme_multipath() -> FakeRoot {
    let mut root = good_but_for_storage();
    root.nvme_multipath(0, "259:0", &[("pcie", NVME[0]), ("pcie", NVME[1])]);
    root.mount("259:0", "/data", "xfs", "/dev/nvme0n1", "rw");
    root
}

fn loop_device() -> FakeRoot {
    with_data("ext4", "/dev/loop0", "rw", |root, _| (root.loop_device(0, "/images/data.img"), "7:0"))
}

fn data_journal() -> FakeRoot {
    with_data("ext4", "/dev/nvme1n1", "rw,data=journal", |_, disk| (disk.to_owned(), "259:5"))
}

fn nfs(source: &str, options: &str) -> FakeRoot {
    let mut root = good_but_for_storage();
    root.mount("0:60", "/data", "nfs4", source, options);
    root
}

fn nfs_rdma() -> FakeRoot {
    nfs("server:/export", "rw,vers=4.2,proto=rdma,port=20049")
}

fn nfs_tcp() -> FakeRoot {
    nfs("server:/export", "rw,vers=4.2,proto=tcp")
}

fn nvmeof(transport: &str) -> FakeRoot {
    let mut root = good_but_for_storage();
    root.nvme_fabric(3, "259:9", transport);
    root.mount("259:9", "/data", "xfs", "/dev/nvme3n1", "rw");
    root
}

fn nvmeof_rdma() -> FakeRoot {
    nvmeof("rdma")
}

fn nvmeof_tcp() -> FakeRoot {
    nvmeof("tcp")
}

/// As Docker makes one: an overlay as root, the host's file system in a volume, no device nodes, no block devices in
/// sysfs, no udev, no /boot.
fn container() -> FakeRoot {
    let mut root = FakeRoot::new();
    root.kernel("6.8.0-45-generic", P2PDMA);
    std::fs::remove_dir_all(root.at("boot")).unwrap();
    root.file(".dockerenv", "").folder("sys/module/amdgpu").hip(true);
    root.symbols(&["kfd_ais_rw_file", "pci_p2pdma_distance_many"]);
    root.file("proc/sys/kernel/io_uring_disabled", "2\n");
    root.mount("0:50", "/", "overlay", "overlay", "rw,lowerdir=/a:/b,upperdir=/c,workdir=/d");
    root.mount("259:5", "/data", "xfs", "/dev/nvme1n1", "rw");
    root.mount("259:2", "/models", "ext4", "/dev/nvme0n1p2", "rw");
    root.mount("0:52", "/var/lib/docker/overlay2/x/merged", "overlay", "overlay", "rw");
    root.mount("0:51", "/dev/shm", "tmpfs", "shm", "rw,size=65536k");
    root
}

fn sriov_vf() -> FakeRoot {
    let mut root = good();
    std::fs::remove_dir_all(root.at("sys/class/kfd")).unwrap();
    std::fs::remove_dir_all(root.at(&format!("sys/devices/{GPU}"))).unwrap();
    std::fs::remove_file(root.at("sys/bus/pci/devices/0000:c3:00.0")).unwrap();
    let gpu = root.amd_gpu(1, "pci0000:00/0000:00:05.0", 0x74b5, "gfx942", 0x2000);
    root.pci_link(&gpu, ["32.0", "32.0"], [16, 16]);
    root.kernel("6.8.0-45-generic", P2PDMA);
    root
}

/// Ubuntu 22.04 as it was released, with the driver of the kernel itself.
fn kernel_without_p2pdma() -> FakeRoot {
    let mut root = good();
    std::fs::remove_dir_all(root.at("var")).unwrap();
    root.kernel("5.15.0-122-generic", "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n");
    root.symbols(&["kfd_ais_rw_file"]);
    root
}

/// A driver new enough to be believed, which says that the GPU cannot.
fn driver_says_no() -> FakeRoot {
    let root = good();
    root.file(
        "sys/class/kfd/kfd/topology/nodes/1/properties",
        "cpu_cores_count 0\nsimd_count 1216\ncapability 8192\n",
    );
    root
}

fn no_hip() -> FakeRoot {
    let root = good();
    std::fs::remove_dir_all(root.at("opt")).unwrap();
    root
}

fn old_hip() -> FakeRoot {
    let root = good();
    root.hip(false);
    root
}

fn old_amdgpu() -> FakeRoot {
    let root = good();
    root.dkms("6.10.5-2084815.22.04").symbols(&["pci_p2pdma_distance_many"]);
    std::fs::remove_dir_all(root.at("var/lib/dkms/amdgpu/6.14.14-2328000.24.04")).unwrap();
    root
}

/// What a process without privileges sees on a hardened machine.
fn symbols_hidden() -> FakeRoot {
    let root = good();
    std::fs::remove_file(root.at("proc/kallsyms")).unwrap();
    root
}

/// Intel's host bridges that the kernel does not list, a reduced link, and an IOMMU that translates.
fn host_bridge_refuses() -> FakeRoot {
    let mut root = good();
    root.cpu("GenuineIntel", 6);
    root.pci(&format!("{HOST}/0000:c0:00.0"), 0x8086, 0x3e34, 0x06_0000);
    root.pci("pci0000:00/0000:00:00.0", 0x8086, 0x3e34, 0x06_0000);
    root.nvme(1, "259:5", NVME[1]);
    root.mount("259:5", "/data", "xfs", "/dev/nvme1n1", "rw");
    let gpu = format!("sys/devices/{GPU}");
    root.pci_link(&gpu, ["16.0", "32.0"], [8, 16]);
    root.file("sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
    root.link(&format!("{gpu}/iommu_group"), "sys/kernel/iommu_groups/7");
    root
}

fn integrated_gpu() -> FakeRoot {
    let root = good();
    root.file(
        "sys/class/kfd/kfd/topology/nodes/1/properties",
        "cpu_cores_count 16\nsimd_count 80\ncapability 64\nlocation_id 49920\ndomain 0\n",
    );
    root
}

pub(super) fn wsl() -> FakeRoot {
    let mut root = FakeRoot::new();
    root.kernel("5.15.153.1-microsoft-standard-WSL2", "# CONFIG_PCI_P2PDMA is not set\n");
    root.folder("sys/module");
    root.symbols(&[]);
    root.disk("sdc", "8:32", "scsi");
    root.mount("8:32", "/", "ext4", "/dev/sdc", "rw");
    root.mount("0:70", "/mnt/c", "9p", "C:\\134", "rw,aname=drvfs");
    root
}

pub(super) fn nvidia_open() -> FakeRoot {
    let mut root = FakeRoot::new();
    root.kernel("6.8.0-45-generic", P2PDMA);
    root.cpu("GenuineIntel", 6).folder("sys/module/nvidia").symbols(&["pci_p2pdma_distance_many"]);
    let gpu = root.pci(GPU, 0x10de, 0x2335, 0x03_0200);
    root.link(&format!("{gpu}/driver"), "sys/bus/pci/drivers/nvidia");
    root.file("proc/driver/nvidia/gpus/0000:c3:00.0/information", "Model: \t\t NVIDIA H200\n");
    root.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\n",
    );
    root.file("proc/driver/nvidia-fs/version", "version: 2.26 libcufile 1.15\n");
    root.file("usr/local/cuda-13.0/lib64/libcufile.so.0", "");
    root.nvme(0, "259:0", NVME[0]);
    root.mount("259:0", "/", "ext4", "/dev/nvme0n1", "rw");
    root
}

/// A consumer's GPU with the closed module, on a machine that keeps its kernel's configuration to itself.
pub(super) fn nvidia_proprietary() -> FakeRoot {
    let mut root = nvidia_open();
    root.kernel("6.8.0-45-generic", "");
    std::fs::remove_dir_all(root.at("proc/driver/nvidia-fs")).unwrap();
    root.file("proc/driver/nvidia/gpus/0000:c3:00.0/information", "Model: \t\t NVIDIA GeForce RTX 4090\n");
    root.file(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n",
    );
    root
}

/// An MI300X whose firmware gives it a window of old.
pub(super) fn small_bar() -> FakeRoot {
    let root = mi300x();
    let gpu = format!("sys/devices/{GPU}");
    root.bars(&gpu, &[256 << 20, 0, 2 << 20, 0, 0, 0]);
    root.file(&format!("{gpu}/mem_info_vis_vram_total"), format!("{}\n", 256 << 20));
    root.file(&format!("{gpu}/mem_info_vram_total"), format!("{}\n", 192_u64 << 30));
    root.file(&format!("{gpu}/resource0_resize"), "0000000000040100\n");
    root
}

/// A consumer's GPU, of which only the regions are told.
fn nvidia_small_bar() -> FakeRoot {
    let root = nvidia_proprietary();
    let gpu = format!("sys/devices/{GPU}");
    root.bars(&gpu, &[0, 256 << 20, 0, 32 << 20, 0, 0]);
    root.file(&format!("{gpu}/resource1_resize"), "0000000000008000\n");
    root
}

/// Names that would move a terminal's cursor, and a table that no kernel writes.
fn odd_names() -> FakeRoot {
    let mut root = good();
    root.mount("259:2", "/evil\\033[2Jname\\012second\\011third", "ext4", "/dev/\\033x", "rw");
    root.mount("259:2", "/no-options", "ext4", "", "");
    root.mount("4294967296:1", "/number", "ext4", "/dev/x", "rw");
    root.mount("x:y", "/number", "ext4", "/dev/x", "rw");
    root
}
