//! What is told of a GPU: where it is in the machine, as the kernel has it, and what its name says. It asks no runtime.

use std::path::Path;

use crate::platform::Window;
use crate::storage::Roots;
use crate::sys::{Site, at};

/// The memory node that the GPU at a PCI address is near, where the machine has several.
pub(super) fn near_node(pci: &str) -> Option<u32> {
    node_in(Path::new("/sys"), pci)
}

/// Whether only a part of the memory of the GPU at a PCI address can be reached by other devices.
pub(super) fn has_small_window(pci: &str) -> bool {
    Window::of(pci, &Roots::real()).is_some_and(|window| window.is_small())
}

fn node_in(sys: &Path, pci: &str) -> Option<u32> {
    let read = |path| at(Site::MachineNode, || std::fs::read_to_string(path)).ok();
    let online = read(sys.join("devices/system/node/online"))?;
    if online.trim() == "0" {
        return None;
    }
    let path = sys.join("bus/pci/devices").join(pci.to_ascii_lowercase()).join("numa_node");
    // -1 says that the firmware does not tell.
    read(path)?.trim().parse().ok()
}

/// Text in an array that a runtime has filled.
pub(super) fn text(chars: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What the emulated GPU says of itself in its name, in brackets.
pub(super) fn emulation_note(name: &str) -> Option<String> {
    name.split_once(" (").map(|(_, note)| note.trim_end_matches(')').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_59_staging_memory_lies_near_the_gpu() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("devices/system/node/online", "0-1\n");
        write("bus/pci/devices/0000:c1:00.0/numa_node", "1\n");
        write("bus/pci/devices/0000:03:00.0/numa_node", "-1\n");
        assert_eq!(node_in(root.path(), "0000:C1:00.0"), Some(1));
        assert_eq!(node_in(root.path(), "0000:03:00.0"), None);
        assert_eq!(node_in(root.path(), "0000:99:00.0"), None);
        write("devices/system/node/online", "0\n");
        assert_eq!(node_in(root.path(), "0000:C1:00.0"), None);
    }
}
