//! What to do about each reason, for people. A vocabulary beside `reason`; it decides nothing.

use crate::reason::Reason;

impl Reason {
    /// What would make the transfer direct, or why nothing does; for people.
    pub const fn advice(self) -> &'static str {
        match self {
            Reason::Configuration => {
                "unset HIPFILE_FORCE_COMPAT_MODE, and leave p2p in HIPFILE_ENGINES if that is set"
            }
            Reason::NoRuntime => "install the GPU's runtime (ROCm), or name it in HIPFILE_HIP_LIBRARY",
            Reason::NoSymbols => {
                "install ROCm 7.2 or newer: its HIP runtime has hipAmdFileRead and hipAmdFileWrite"
            }
            Reason::NotDeviceMemory => {
                "allocate the buffer with hipMalloc; host and managed memory are staged"
            }
            Reason::FileType => "nothing: character devices are read and written through host memory",
            Reason::NoDirectIo => "put the file on a file system with O_DIRECT, such as ext4 or xfs",
            Reason::Append => "open the file without O_APPEND and write at offsets",
            Reason::FileSystem => {
                "put the file on ext4 or xfs; HIPFILE_UNSUPPORTED_FILE_SYSTEMS=true tries any, at your own risk"
            }
            Reason::JournalMode => {
                "mount it with data=ordered; `tune2fs -o ^journal_data` clears a default set there"
            }
            Reason::BlockStackMd => "put the file system on the NVMe drives themselves, or on LVM's own RAID",
            Reason::BlockStackCrypt => {
                "put the file system on an NVMe drive without dm-crypt; drives that encrypt themselves qualify"
            }
            Reason::BlockStackMultipath => {
                "reach the drive by one path: for NVMe boot with nvme_core.multipath=N, else leave dm-multipath out"
            }
            Reason::BlockStackLoop => "put the file on the file system that holds the loop device's file",
            Reason::BlockStackDm => "put the file system on an NVMe drive or a linear logical volume",
            Reason::LvmExtents => {
                "bring the volume together with pvmove, or create it anew in one piece; 16 extents are the most"
            }
            Reason::NotNvme => "put the file on an NVMe drive",
            Reason::NvmeTcp => "connect the NVMe namespace over RDMA, or use a local drive",
            Reason::NetworkTcp => "mount the network file system with proto=rdma",
            Reason::Alignment => {
                "make file offset and size multiples of 4096, and the memory address congruent to the offset"
            }
            Reason::Demoted => {
                "look at the alignment that the file system asks for; registering the file anew tries again"
            }
            Reason::Backoff => "look at the error of the last direct transfer; it is tried again by itself",
            Reason::EndOfFile => {
                "nothing: only the last block of a file whose size is no multiple of 4096 is staged"
            }
            Reason::NoStorageDevice => {
                "see `hipfile check`: the storage is no local NVMe drive, or the GPU cannot be reached from it"
            }
            Reason::RemoteIo => "see the kernel's log for errors of the drive or of the PCI bus",
            Reason::NoKernelSupport => {
                "install amdgpu-dkms 30.20.1 or newer, and boot a kernel with CONFIG_PCI_P2PDMA=y"
            }
            Reason::NoMemory => "use fewer or smaller transfers at a time",
            Reason::Refused => "see the kernel's log for the driver's own words",
            Reason::RuntimeUnfit => {
                "install ROCm 7.2 or newer and its driver, and give the process /dev/kfd and /dev/dri"
            }
            Reason::Trial => "nothing; HIPFILE_ADAPTIVE=off measures nothing and goes direct",
            Reason::Slower => {
                "look for what slows direct access down (the path to the storage, the IOMMU); HIPFILE_ADAPTIVE=off goes direct"
            }
            Reason::UserspaceFs => {
                "nothing; register a descriptor of a file of the kernel's where the storage is to be reached directly"
            }
            Reason::NoGds => {
                "see `hipfile check`: it takes libcufile, and nvidia-fs or P2PDMA; with an older libcufile also \
                 properties.allow_compat_mode false in cufile.json"
            }
            Reason::HeldStream => "use calls or batches instead of streams where files are reached directly",
            Reason::NoRdma => {
                "install rdma-core 34 or newer, and see docs/rdma.md for what registering GPU memory with a device takes"
            }
            Reason::SmallBar => {
                "turn on Resizable BAR and decoding above 4G in the firmware's settings; `hipfile check` shows the window's size"
            }
            Reason::MountUnknown => "make /proc/self/mountinfo readable in the container or sandbox",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/engines.md is made from here.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a switch of the test's own")]
    fn the_engines_page_lists_every_reason() {
        const HEAD: &str = "| reason | what is in the way | what to do |\n|---|---|---|\n";
        const END: &str = "<!-- end of the table -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines.md");
        let page = std::fs::read_to_string(path).unwrap();
        let start = page.find(HEAD).unwrap() + HEAD.len();
        let end = start + page[start..].find(END).unwrap();
        let rows: String = Reason::ALL
            .iter()
            .map(|reason| format!("| `{}` | {} | {} |\n", reason.word(), reason.text(), reason.advice()))
            .collect();
        if std::env::var_os("HIPFILE_UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{}{rows}{}", &page[..start], &page[end..])).unwrap();
            return;
        }
        assert_eq!(&page[start..end], rows, "docs/engines.md is out of step");
    }

    #[test]
    fn each_reason_has_advice_of_its_own() {
        let mut all: Vec<_> = Reason::ALL.iter().map(|reason| reason.advice()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Reason::ALL.len());
    }
}
