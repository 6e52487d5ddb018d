//! Why a transfer, or part of one, did not go straight between storage and memory. A vocabulary; it decides nothing.

macro_rules! reasons {
    ($($name:ident = $word:literal: $text:literal,)*) => {
        /// Why bytes were staged through host memory instead of going direct.
        ///
        /// The numbers are stable: they are what `hipFileExtHandleGetInfo` reports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $text] $name,)*
        }

        impl Reason {
            /// Every reason, in the order of their numbers.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// One word for tables and JSON, for instance `alignment`.
            pub const fn word(self) -> &'static str {
                match self { $(Reason::$name => $word,)* }
            }

            /// What is missing, in plain words.
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    Configuration = "configuration": "the direct engines are switched off by configuration",
    NoRuntime = "no-runtime": "no GPU runtime serves this process",
    NoSymbols = "no-symbols": "the GPU runtime has no functions for direct file access",
    NotDeviceMemory = "memory-type": "the memory is not device memory",
    FileType = "file-type": "neither a regular file nor a block device",
    NoDirectIo = "no-direct-io": "the file system refuses O_DIRECT on this file",
    Append = "append": "the file is opened for appending, where the kernel ignores offsets",
    FileSystem = "file-system": "the file system is not one that direct access knows (ext4, xfs)",
    JournalMode = "journal-mode": "ext4 is not mounted with data=ordered",
    BlockStackMd = "block-stack(md)": "the file system lies on software RAID (md)",
    BlockStackCrypt = "block-stack(crypt)": "the file system lies on an encrypted volume (dm-crypt)",
    BlockStackMultipath = "block-stack(multipath)": "the file system lies on a multipath device",
    BlockStackLoop = "block-stack(loop)": "the file system lies on a loop device",
    BlockStackDm = "block-stack(dm)": "the file system lies on a device-mapper target without direct access",
    LvmExtents = "block-stack(lvm-extents)": "the logical volume has more than 16 extents",
    NotNvme = "not-nvme": "the storage device is not NVMe",
    NvmeTcp = "nvme-tcp": "the NVMe namespace is reached over TCP, which has no direct access",
    NetworkTcp = "network-tcp": "the network file system uses TCP, which has no direct access",
    Alignment = "alignment": "file offset, size and memory address are not aligned for direct access, or not aligned to each other",
    Demoted = "demoted": "direct access of this kind of range was refused on this file before (EINVAL)",
    Backoff = "backoff": "direct access failed several times in a row on this file and rests for a while",
    EndOfFile = "end-of-file": "the last, partial block of the file cannot be read direct",
    NoStorageDevice = "enodev": "the driver found no path from this storage to the GPU (ENODEV)",
    RemoteIo = "eremoteio": "the driver could not reach the storage (EREMOTEIO)",
    NoKernelSupport = "enotty": "the kernel driver has no direct file access (ENOTTY)",
    NoMemory = "enomem": "the driver had no memory for the direct transfer (ENOMEM)",
    Refused = "refused": "the driver refused the direct transfer for another reason",
    MountUnknown = "mount-unknown": "the mount table does not show the file system, so how ext4 journals is not known",
    RuntimeUnfit = "runtime-unfit": "a GPU runtime is there, but it is too old, incomplete, or finds no GPU",
    Trial = "trial": "it is staged now and then to measure whether direct access is the faster way (HIPFILE_ADAPTIVE)",
    Slower = "slower": "direct access was measured to be slower than staging on this file (HIPFILE_ADAPTIVE)",
    UserspaceFs = "userspace-fs": "the file is of a file system of the program's own, whose functions take host memory",
    NoGds = "no-gds": "NVIDIA's GPUDirect Storage does not work on this machine, or would stage itself",
    HeldStream = "held-stream": "a stream is held for it, and what would carry it directly may not be called meanwhile",
    NoRdma = "no-rdma": "no RDMA device that the file system names is here, or none can reach the GPU's memory",
    SmallBar = "small-bar": "direct access failed, and storage reaches only a part of this GPU's memory (small BAR)",
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_texts_are_distinct_and_numbers_in_order() {
        let mut words: Vec<_> = Reason::ALL.iter().map(|r| r.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(Reason::ALL.iter().enumerate().all(|(n, r)| *r as usize == n));
    }
}
