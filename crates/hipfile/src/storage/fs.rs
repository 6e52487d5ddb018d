//! Kinds of file systems, by the magic number of statfs and by the name in the mount table. It reads nothing.

macro_rules! classes {
    ($($variant:ident $kind:ident $name:literal [$($magic:literal),*] [$($alias:literal),*] $text:literal;)*) => {
        /// What kind of file system a file lies on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum FsClass {
            $(#[doc = $text] $variant,)*
        }

        impl FsClass {
            /// Every class.
            pub const ALL: &'static [FsClass] = &[$(FsClass::$variant),*];

            /// Its usual name in a mount table.
            pub const fn name(self) -> &'static str {
                match self { $(FsClass::$variant => $name,)* }
            }

            /// Where such a file system keeps its bytes.
            pub const fn kind(self) -> FsKind {
                match self { $(FsClass::$variant => FsKind::$kind,)* }
            }

            /// By `f_type` of statfs; `None` for a number not known here.
            pub const fn of_magic(magic: u32) -> Option<FsClass> {
                match magic {
                    $($($magic => Some(FsClass::$variant),)*)*
                    _ => None,
                }
            }

            /// By the type in the mount table; [`FsClass::Other`] for a name not known here.
            pub fn of_name(name: &str) -> FsClass {
                match name {
                    $($name $(| $alias)* => FsClass::$variant,)*
                    _ if name.starts_with("fuse.") => FsClass::Fuse,
                    _ => FsClass::Other,
                }
            }
        }
    };
}

/// Where a file system keeps its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FsKind {
    /// On block devices of this machine.
    Local,
    /// On other machines.
    Network,
    /// In memory.
    Memory,
    /// On another file system, or behind a process.
    Stacked,
    /// In a read-only image on a block device.
    Image,
    /// Nowhere: the kernel makes the contents up.
    Pseudo,
    /// Not known.
    Unknown,
}

// Numbers: linux/magic.h, and the file systems' own documentation where they are not in the kernel.
classes! {
    Ext4 Local "ext4" [] [] "ext4.";
    Ext Local "ext" [0xEF53] ["ext2", "ext3"] "ext2, ext3, or one of the family that the mount table does not tell apart.";
    Xfs Local "xfs" [0x5846_5342] [] "XFS.";
    Btrfs Local "btrfs" [0x9123_683E] [] "Btrfs.";
    F2fs Local "f2fs" [0xF2F5_2010] [] "F2FS.";
    Bcachefs Local "bcachefs" [0xCA45_1A4E] [] "bcachefs.";
    Zfs Local "zfs" [0x2FC1_2FC1] [] "ZFS.";
    Fat Local "vfat" [0x4D44] ["msdos"] "FAT.";
    Exfat Local "exfat" [0x2011_BAB0] [] "exFAT.";
    Ntfs Local "ntfs" [0x5346_544E, 0x7366_746E] ["ntfs3"] "NTFS.";
    Reiserfs Local "reiserfs" [0x5265_4973] [] "ReiserFS.";
    Jfs Local "jfs" [0x3153_464A] [] "JFS.";
    Nilfs Local "nilfs2" [0x3434] [] "NILFS.";
    Ocfs2 Local "ocfs2" [0x7461_636F] [] "OCFS2, on shared block devices.";
    Gfs2 Local "gfs2" [0x0116_1970] [] "GFS2, on shared block devices.";
    Nfs Network "nfs" [0x6969] ["nfs4"] "NFS.";
    Smb Network "cifs" [0x517B, 0xFF53_4D42, 0xFE53_4D42] ["smb3", "smbfs"] "SMB.";
    Ceph Network "ceph" [0x00C3_6400] [] "CephFS.";
    Lustre Network "lustre" [0x0BD0_0BD0] [] "Lustre.";
    Gpfs Network "gpfs" [0x4750_4653] [] "IBM Storage Scale.";
    Beegfs Network "beegfs" [0x1983_0326] [] "BeeGFS.";
    Weka Network "wekafs" [] [] "WEKA.";
    Panfs Network "panfs" [0xAAD7_AAEA] [] "PanFS.";
    Afs Network "afs" [0x5346_414F, 0x6B41_4653] [] "AFS.";
    NineP Network "9p" [0x0102_1997] [] "9p, from the host of a virtual machine.";
    Virtiofs Network "virtiofs" [] [] "virtiofs, from the host of a virtual machine.";
    Tmpfs Memory "tmpfs" [0x0102_1994] [] "tmpfs, also under memfd and shared memory.";
    Ramfs Memory "ramfs" [0x8584_58F6] ["rootfs"] "ramfs.";
    Hugetlbfs Memory "hugetlbfs" [0x9584_58F6] [] "Huge pages.";
    Devtmpfs Memory "devtmpfs" [] [] "Device nodes.";
    Secretmem Memory "secretmem" [0x5345_434D] [] "Memory hidden from the kernel.";
    Overlay Stacked "overlay" [0x794C_7630] ["overlayfs", "aufs"] "A union of other file systems.";
    Ecryptfs Stacked "ecryptfs" [0xF15F] [] "eCryptfs.";
    Fuse Stacked "fuse" [0x6573_5546] ["fuseblk"] "FUSE: a process serves it.";
    Squashfs Image "squashfs" [0x7371_7368] [] "squashfs.";
    Erofs Image "erofs" [0xE0F5_E1E2] [] "EROFS.";
    Iso Image "iso9660" [0x9660] [] "ISO 9660.";
    Udf Image "udf" [0x1501_3346] [] "UDF.";
    Proc Pseudo "proc" [0x9FA0] [] "/proc.";
    Sysfs Pseudo "sysfs" [0x6265_6572] [] "/sys.";
    Cgroup Pseudo "cgroup" [0x0027_E0EB, 0x6367_7270] ["cgroup2"] "Control groups.";
    Pseudo Pseudo "pseudo" [
        0x6462_6720, 0x7363_6673, 0xF97C_FF8C, 0x7472_6163, 0x4249_4E4D, 0x1CD1, 0x6C6F_6F70, 0x5049_5045,
        0x534F_434B, 0x0904_1934, 0x6E73_6673, 0xCAFE_4A11, 0x5A3C_69F0, 0xDE5E_81E4, 0x6165_676C, 0x0187,
        0x6264_6576, 0x0765_5821
    ] [
        "debugfs", "securityfs", "selinuxfs", "tracefs", "binfmt_misc", "devpts", "binder", "pipefs", "sockfs",
        "anon_inodefs", "nsfs", "bpf", "efivarfs", "pstore", "autofs", "bdev", "resctrl", "configfs", "mqueue",
        "fusectl", "rpc_pipefs", "nfsd", "cpuset", "sysctl"
    ] "Another file system that the kernel makes up.";
    Raw Pseudo "none" [] [] "No file system: a raw device.";
    Other Unknown "unknown" [] [] "One not known here.";
}

impl FsClass {
    /// The class from both sources. The number of the open file is to be trusted; the name only tells apart those
    /// that share a number.
    pub(crate) fn of(magic: Option<u32>, name: Option<&str>) -> FsClass {
        let by_name = name.map(FsClass::of_name);
        let Some(by_magic) = magic.and_then(FsClass::of_magic) else {
            return by_name.unwrap_or(FsClass::Other);
        };
        match (by_magic, by_name) {
            (FsClass::Ext, Some(named @ FsClass::Ext4))
            | (FsClass::Fuse, Some(named @ FsClass::Virtiofs))
            | (FsClass::Tmpfs | FsClass::Ramfs, Some(named @ FsClass::Devtmpfs)) => named,
            _ => by_magic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_class() {
        for class in FsClass::ALL {
            assert_eq!(FsClass::of_name(class.name()), *class);
        }
        assert_eq!(FsClass::of_name("fuse.sshfs"), FsClass::Fuse);
        assert_eq!(FsClass::of_name("nfs4").kind(), FsKind::Network);
        assert_eq!(FsClass::of_name(""), FsClass::Other);
    }

    #[test]
    fn the_number_wins_and_the_name_refines() {
        for (magic, name, class) in [
            (Some(0xEF53), Some("ext4"), FsClass::Ext4),
            (Some(0xEF53), Some("ext3"), FsClass::Ext),
            (Some(0xEF53), Some("xfs"), FsClass::Ext),
            (Some(0xEF53), None, FsClass::Ext),
            (Some(0x5846_5342), None, FsClass::Xfs),
            (Some(0x6573_5546), Some("virtiofs"), FsClass::Virtiofs),
            (Some(0x6573_5546), Some("fuse.x"), FsClass::Fuse),
            (Some(1), Some("wekafs"), FsClass::Weka),
            (Some(1), None, FsClass::Other),
            (None, Some("xfs"), FsClass::Xfs),
            (None, None, FsClass::Other),
        ] {
            assert_eq!(FsClass::of(magic, name), class, "{magic:?} {name:?}");
        }
    }

    #[test]
    fn the_running_kernel_agrees() {
        let magic = |path: &str| rustix::fs::statfs(path).unwrap().f_type as u32;
        assert_eq!(FsClass::of_magic(magic("/proc")), Some(FsClass::Proc));
        assert_eq!(FsClass::of_magic(magic("/sys")), Some(FsClass::Sysfs));
        let memory = rustix::fs::memfd_create("magic", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let memory = rustix::fs::fstatfs(&memory).unwrap().f_type as u32;
        assert_eq!(FsClass::of_magic(memory).map(FsClass::kind), Some(FsKind::Memory));
    }
}
