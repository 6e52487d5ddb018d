//! A look at a file before the dynamic loader maps it. It judges shape only: a file that passes may still be refused
//! by the loader, one that fails would be refused or would crash it (a truncated library ends in SIGBUS, a FIFO
//! blocks for ever).

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: usize = 56;
const CLASS_64: u8 = 2;
const DATA_NATIVE: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
const TYPE_DYN: u16 = 3;
const SEGMENT_LOAD: u32 = 1;

/// Whether `path` looks like a complete 64-bit shared object for this machine's byte order.
///
/// # Errors
/// What is wrong with the file, in words; I/O errors keep the system's text.
pub(crate) fn check_shared_object(path: &Path) -> Result<(), String> {
    // O_NONBLOCK: opening a FIFO nobody writes to must not hang.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".into());
    }

    let mut header = [0u8; HEADER_LEN];
    file.read_exact_at(&mut header, 0).map_err(|_| "too short for a shared library".to_string())?;
    if header[..4] != *b"\x7fELF" {
        return Err("not an ELF file".into());
    }
    if header[4] != CLASS_64 {
        return Err(format!("ELF class {} where 64-bit code ({CLASS_64}) is needed", header[4]));
    }
    if header[5] != DATA_NATIVE {
        return Err("built for the other byte order".into());
    }
    let kind = u16::from_ne_bytes([header[16], header[17]]);
    if kind != TYPE_DYN {
        return Err(format!("ELF type {kind}, not a shared library ({TYPE_DYN})"));
    }

    let table = u64_at(&header, 32);
    let entry_len = u16::from_ne_bytes([header[54], header[55]]);
    let entries = u16::from_ne_bytes([header[56], header[57]]);
    if usize::from(entry_len) != PROGRAM_HEADER_LEN {
        return Err(format!("program headers of {entry_len} bytes instead of {PROGRAM_HEADER_LEN}"));
    }
    for index in 0..u64::from(entries) {
        let mut entry = [0u8; PROGRAM_HEADER_LEN];
        let at =
            table.checked_add(index * PROGRAM_HEADER_LEN as u64).ok_or("program headers out of range")?;
        file.read_exact_at(&mut entry, at).map_err(|_| truncated(metadata.len()))?;
        let segment = u32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let end = u64_at(&entry, 8).checked_add(u64_at(&entry, 32));
        if segment == SEGMENT_LOAD && end.is_none_or(|end| end > metadata.len()) {
            return Err(truncated(metadata.len()));
        }
    }
    Ok(())
}

fn truncated(len: u64) -> String {
    format!("truncated: its segments reach beyond its {len} bytes")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0u8; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::check_shared_object;

    #[test]
    fn this_process_runs_from_a_complete_object() {
        let program = std::env::current_exe().expect("own path");
        // Test programs are position independent, so they are shared objects by type.
        assert_eq!(check_shared_object(&program), Ok(()));
    }

    #[test]
    fn a_directory_is_named_as_such() {
        assert_eq!(check_shared_object(std::path::Path::new("/")), Err("not a regular file".into()));
    }
}
