//! The machine that the figures belong to. Facts for the reader of a report; nothing is decided by them.

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    /// The processor's name, or its architecture where the system does not tell.
    cpu: String,
    /// Processors this process may run on.
    cpus: usize,
    memory_bytes: u64,
    kernel: String,
    /// The setting of transparent huge pages, or null without them.
    huge_pages: Option<String>,
}

impl Machine {
    pub(super) fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let uname = rustix::system::uname();
        let kernel = format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
        let cpu = value_of(&read("/proc/cpuinfo"), "model name");
        let memory = value_of(&read("/proc/meminfo"), "MemTotal");
        let memory = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok()).unwrap_or(0);
        let huge_pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
        Machine {
            cpu: cpu.unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory << 10,
            kernel,
            huge_pages: huge_pages.split(['[', ']']).nth(1).map(str::to_owned),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memory = crate::units::show_size(self.memory_bytes);
        write!(f, "{}, {} CPUs, {memory}, {}", self.cpu, self.cpus, self.kernel)
    }
}

/// The value of the first line `name : value`.
fn value_of(text: &str, name: &str) -> Option<String> {
    text.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU: 9000\nMemTotal:     123 kB\n";
        assert_eq!(value_of(text, "model name").as_deref(), Some("Some CPU: 9000"));
        assert_eq!(value_of(text, "MemTotal").as_deref(), Some("123 kB"));
        assert_eq!(value_of(text, "model"), None);
    }
}
