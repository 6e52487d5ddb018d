//! Whether a block device holds something that would be lost by writing to it: a file system, a partition table, a part of a
//! volume or an array. It knows them by their signatures, reads and never writes. Whether the device is in use is the
//! kernel's to say (O_EXCL).

use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Where a signature lies, in bytes.
#[derive(Clone, Copy)]
enum At {
    /// From the start.
    Start(u64),
    /// So many bytes before the end.
    End(u64),
    /// So many bytes before the end, rounded down to a multiple of the second number.
    EndRounded(u64, u64),
}

use At::{End, EndRounded, Start};

/// A thing, where it says what it is, and how. Several places stand for one thing; the first that fits counts.
struct Signature(&'static str, &'static [At], &'static [u8]);

/// Volumes and file systems go before partition tables, whose mark is also that of a FAT file system's boot sector. The
/// numbers are those of the formats' own descriptions.
const SIGNATURES: &[Signature] = &[
    Signature("an LVM physical volume", &[Start(24), Start(536), Start(1048), Start(1560)], b"LVM2 001"),
    Signature("an encrypted volume (LUKS)", &[Start(0)], b"LUKS\xba\xbe"),
    Signature(
        "an encrypted volume (LUKS, second header)",
        &[Start(16 << 10), Start(32 << 10)],
        b"SKUL\xba\xbe",
    ),
    Signature("a dm-integrity volume", &[Start(0)], b"integrt\0"),
    Signature("a VDO volume", &[Start(0)], b"dmvdo001"),
    Signature("a Stratis pool's device", &[Start(516), Start(4612)], b"!Stra0tis"),
    Signature(
        "a part of a RAID array (md)",
        &[Start(0), Start(4096), EndRounded(8192, 4096), EndRounded(65536, 65536)],
        &0xa92b_4efc_u32.to_le_bytes(),
    ),
    Signature("a part of a firmware RAID array", &[End(1024)], b"Intel Raid ISM Cfg Sig."),
    Signature("a part of a firmware RAID array (DDF)", &[End(512)], &0xde11_de11_u32.to_be_bytes()),
    Signature(
        "a bcache or bcachefs device",
        &[Start(4120)],
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81],
    ),
    Signature(
        "a bcachefs file system",
        &[Start(4120)],
        &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9, 0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef],
    ),
    Signature("a Ceph BlueStore device", &[Start(0)], b"bluestore block device"),
    Signature("a VMFS volume", &[Start(1 << 20)], &0xc001_d00d_u32.to_le_bytes()),
    Signature("an ext2, ext3 or ext4 file system", &[Start(1080)], &0xef53_u16.to_le_bytes()),
    Signature("an XFS file system", &[Start(0)], b"XFSB"),
    Signature("a Btrfs file system", &[Start(65_600)], b"_BHRfS_M"),
    Signature("an F2FS file system", &[Start(1024)], &0xf2f5_2010_u32.to_le_bytes()),
    Signature("an exFAT file system", &[Start(3)], b"EXFAT   "),
    Signature("an NTFS file system", &[Start(3)], b"NTFS    "),
    Signature("a ReFS file system", &[Start(3)], b"ReFS\0"),
    Signature("a FAT file system", &[Start(54)], b"FAT12   "),
    Signature("a FAT file system", &[Start(54)], b"FAT16   "),
    Signature("a FAT file system", &[Start(82)], b"FAT32   "),
    Signature("an ISO 9660 file system", &[Start(32_769)], b"CD001"),
    Signature("a UDF file system", &[Start(32_769)], b"BEA01"),
    Signature("an HFS+ file system", &[Start(1024)], b"H+\0\x04"),
    Signature("an HFS+ file system", &[Start(1024)], b"HX\0\x05"),
    Signature("an APFS container", &[Start(32)], b"NXSB"),
    Signature("a squashfs file system", &[Start(0)], b"hsqs"),
    Signature("an EROFS file system", &[Start(1024)], &0xe0f5_e1e2_u32.to_le_bytes()),
    Signature("a cramfs file system", &[Start(0)], &0x28cd_3d45_u32.to_le_bytes()),
    Signature("a romfs file system", &[Start(0)], b"-rom1fs-"),
    Signature("a ReiserFS file system", &[Start(65_588), Start(8244)], b"ReIsEr"),
    Signature("a JFS file system", &[Start(32_768)], b"JFS1"),
    Signature("a NILFS file system", &[Start(1030)], &0x3434_u16.to_le_bytes()),
    Signature("a GFS2 file system", &[Start(65_536)], &0x0116_1970_u32.to_be_bytes()),
    Signature("an OCFS2 file system", &[Start(1024), Start(2048), Start(4096), Start(8192)], b"OCFSV2"),
    Signature("a zonefs file system", &[Start(0)], b"SFOZ"),
    Signature("swap space", SWAP, b"SWAPSPACE2"),
    Signature("swap space", SWAP, b"SWAP-SPACE"),
    Signature("a hibernated system's memory", SWAP, b"S1SUSPEND"),
    Signature("a partition table (GPT)", &[Start(512), Start(4096), End(512), End(4096)], b"EFI PART"),
    Signature("a partition table (Apple)", &[Start(512)], b"PM\0\0"),
    Signature("a partition table (BSD)", &[Start(512), Start(64)], &0x8256_4557_u32.to_le_bytes()),
    Signature("a partition table (Sun)", &[Start(508)], &0xdabe_u16.to_be_bytes()),
    Signature("a partition table (SGI)", &[Start(0)], &0x0be5_a941_u32.to_be_bytes()),
    Signature("a partition table (MBR) or a boot sector", &[Start(510)], b"\x55\xaa"),
];

/// At the end of the first page, whose size depends on the machine.
const SWAP: &[At] = &[Start(4086), Start(8182), Start(16_374), Start(32_758), Start(65_526)];

/// ZFS has its mark in each of up to 128 slots of 1 KiB, of which any may be in use, in either byte order.
const ZFS: &str = "a part of a ZFS pool";
const ZFS_SLOTS: u64 = 128 << 10;
const ZFS_LABEL: u64 = 256 << 10;
const ZFS_MARK: u64 = 0x00ba_b10c;

/// What an open block device holds; `None` when nothing is recognised.
///
/// # Errors
/// What reading it came to.
pub(crate) fn by(device: impl AsFd) -> Result<Option<&'static str>, Errno> {
    let size = rustix::fs::seek(&device, SeekFrom::End(0))?;
    let mut bytes = [0; 32];
    for Signature(what, places, mark) in SIGNATURES {
        for place in *places {
            let at = match *place {
                Start(at) => Some(at),
                End(before) => size.checked_sub(before),
                EndRounded(before, unit) => (size - size % unit).checked_sub(before),
            };
            let Some(at) = at.filter(|at| at.saturating_add(mark.len() as u64) <= size) else { continue };
            let found = &mut bytes[..mark.len()];
            if read(&device, found, at)? == mark.len() && found == *mark {
                return Ok(Some(what));
            }
        }
    }
    let mut slots = vec![0; ZFS_SLOTS as usize];
    for label in [Some(0), Some(ZFS_LABEL), size.checked_sub(ZFS_LABEL)].into_iter().flatten() {
        let n = read(&device, &mut slots, label + ZFS_SLOTS)?;
        let marks = [ZFS_MARK.to_le_bytes(), ZFS_MARK.to_be_bytes()];
        if slots[..n].chunks(1024).any(|slot| marks.iter().any(|mark| slot.starts_with(mark))) {
            return Ok(Some(ZFS));
        }
    }
    Ok(None)
}

fn read(device: impl AsFd, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&device, &mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const SIZE: u64 = 4 << 20;

    fn empty() -> std::fs::File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        file
    }

    #[test]
    fn each_signature_is_found_in_each_of_its_places() {
        for Signature(what, places, mark) in SIGNATURES {
            for place in *places {
                let file = empty();
                let at = match *place {
                    Start(at) => at,
                    End(before) => SIZE - before,
                    EndRounded(before, unit) => SIZE - SIZE % unit - before,
                };
                file.write_all_at(mark, at).unwrap();
                let found = by(&file).unwrap();
                // Two bytes of one can be those of another; that something is there is what counts.
                assert!(found.is_some(), "{what} at {at}");
                assert!(found == Some(what) || mark.len() < 6, "{what} at {at} is taken for {found:?}");
            }
        }
        for at in [128 << 10, (256 + 128) << 10, (128 << 10) + 127 * 1024, SIZE - (128 << 10)] {
            for mark in [ZFS_MARK.to_le_bytes(), ZFS_MARK.to_be_bytes()] {
                let file = empty();
                file.write_all_at(&mark, at).unwrap();
                assert_eq!(by(&file).unwrap(), Some(ZFS), "{at}");
            }
        }
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        assert_eq!(by(empty()).unwrap(), None);
        // Devices that are smaller than the places looked at.
        for size in [0, 1, 512, 1100, 4096, 70_000] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![0xee; size], 0).unwrap();
            assert_eq!(by(&file).unwrap(), None, "{size}");
        }
    }
}
