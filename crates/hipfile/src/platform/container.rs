//! What a container or sandbox keeps from the process: device nodes, parts of /sys, system calls. It looks; it does not
//! try to get out.

use super::Finding;
use crate::storage::Roots;
use crate::sys;

/// The signs of a container, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Container {
    /// What it was recognised by; `None` outside of one, as far as can be told.
    pub sign: Option<String>,
    /// What is missing, and how the container is given it.
    pub missing: Vec<(String, String)>,
}

impl Container {
    pub(super) fn probe(roots: &Roots) -> Container {
        let sign = ["/.dockerenv", "/run/.containerenv"]
            .iter()
            .find(|path| roots.exists(path))
            .map(|path| (*path).to_owned())
            .or_else(|| {
                let groups = roots.read("proc/1/cgroup", 64 << 10).ok()?;
                let groups = String::from_utf8_lossy(&groups).into_owned();
                ["docker", "kubepods", "libpod", "lxc"]
                    .iter()
                    .find(|word| groups.contains(**word))
                    .map(|word| format!("{word} in /proc/1/cgroup"))
            });
        if sign.is_none() {
            return Container::default();
        }
        let mut missing = Vec::new();
        let mut lacks = |path: &str, give: &str| {
            if !roots.exists(path) {
                missing.push((path.to_owned(), give.to_owned()));
            }
        };
        if !roots.exists("dev/nvidiactl") {
            lacks("/dev/kfd", "--device /dev/kfd");
            lacks("/dev/dri", "--device /dev/dri");
        }
        lacks("/sys/dev/block", "-v /sys/dev/block:/sys/dev/block:ro -v /sys/devices:/sys/devices:ro");
        lacks("/sys/class/kfd", "-v /sys/class/kfd:/sys/class/kfd:ro");
        Container { sign, missing }
    }
}

/// Whether io_uring may be used. On the running system it is tried; elsewhere the settings are read.
pub(super) fn io_uring(roots: &Roots) -> Finding {
    let disabled = roots.line("proc/sys/kernel/io_uring_disabled");
    if roots.is_real() {
        return match sys::io_uring_allowed() {
            Ok(()) => Finding::yes("allowed".to_owned()),
            Err(libc::ENOSYS) => Finding::no(
                "the kernel has no io_uring, or a filter hides it".to_owned(),
                "allow it in the seccomp profile",
            ),
            Err(errno) => Finding::no(
                format!("refused: {}", std::io::Error::from_raw_os_error(errno)),
                match disabled.as_deref() {
                    Some("1" | "2") => "sysctl kernel.io_uring_disabled=0",
                    _ => "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile",
                },
            ),
        };
    }
    match disabled.as_deref() {
        Some("0") => Finding::yes("kernel.io_uring_disabled is 0".to_owned()),
        Some(value) => {
            Finding::no(format!("kernel.io_uring_disabled is {value}"), "sysctl kernel.io_uring_disabled=0")
        }
        None => Finding::unknown(
            "kernel.io_uring_disabled cannot be read".to_owned(),
            "run on the machine itself",
        ),
    }
}

#[cfg(test)]
mod tests {
    use test_support::fake_root::FakeRoot;

    use super::*;

    #[test]
    fn behaviour_153_a_container_is_told_what_it_lacks() {
        let root = FakeRoot::new();
        let probe = || Container::probe(&Roots::under(root.path()));
        assert_eq!(probe(), Container::default());
        root.file("proc/1/cgroup", "0::/kubepods.slice/x\n");
        let found = probe();
        assert_eq!(found.sign.as_deref(), Some("kubepods in /proc/1/cgroup"));
        let names: Vec<_> = found.missing.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!(names, ["/dev/kfd", "/dev/dri", "/sys/dev/block", "/sys/class/kfd"]);
        root.file("dev/kfd", "").folder("dev/dri").folder("sys/dev/block").folder("sys/class/kfd");
        assert_eq!(probe().missing, []);
    }

    #[test]
    fn io_uring_is_tried_where_it_can_be() {
        let finding = io_uring(&Roots::real());
        assert_eq!(finding.answer.is_yes(), sys::io_uring_allowed().is_ok(), "{finding:?}");
        let root = FakeRoot::new();
        let of = |text: &str| {
            root.file("proc/sys/kernel/io_uring_disabled", text);
            io_uring(&Roots::under(root.path())).answer
        };
        assert_eq!((of("0\n"), of("2\n")), (super::super::Answer::Yes, super::super::Answer::No));
    }
}
