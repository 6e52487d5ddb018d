//! What is to be undone when a test process is gone, however it ended: killed ones run no destructor. It does nothing while the
//! process lives.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that waits for this one's end, or for this value's, and then unmounts.
#[derive(Debug)]
pub struct Afterwards {
    waiting: Option<Child>,
}

impl Afterwards {
    /// Unmounts what is mounted there, lazily: a loop device of `mount -o loop` goes with it.
    pub fn unmount(at: &Path) -> Afterwards {
        Afterwards::run("umount -l \"$1\"", at)
    }

    /// Detaches the loop devices over this image. By its name: a device's own may be another's by then.
    pub fn detach(image: &Path) -> Afterwards {
        Afterwards::run("losetup -j \"$1\" | cut -d: -f1 | xargs -r losetup --detach", image)
    }

    /// In a group of its own, for a runner ends the whole group of a test that takes too long.
    fn run(script: &str, about: &Path) -> Afterwards {
        let script = format!("read -r _; {script}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(about).process_group(0);
        // The pipe's other end closes when this process ends, and its forks.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Afterwards { waiting: command.spawn().ok() }
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        if let Some(mut waiting) = self.waiting.take() {
            let told = waiting.stdin.take().map(|mut stdin| stdin.write_all(b"\n"));
            drop(told);
            let _ = waiting.wait();
        }
    }
}
