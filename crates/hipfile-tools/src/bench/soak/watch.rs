//! What the process holds while it is soaked: memory, descriptors, threads. It judges whether that grows.

use std::time::Duration;

use serde::Serialize;

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Held {
    pub(super) resident_mib: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
}

impl Held {
    fn now() -> Held {
        let count = |path: &str| std::fs::read_dir(path).map_or(0, |entries| entries.count() as u64);
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
        Held {
            resident_mib: (resident * 4096) >> 20,
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    fn join(self, other: Held, join: impl Fn(u64, u64) -> u64) -> Held {
        Held {
            resident_mib: join(self.resident_mib, other.resident_mib),
            descriptors: join(self.descriptors, other.descriptors),
            threads: join(self.threads, other.threads),
        }
    }
}

/// A run from which memory has had the time to settle.
const SETTLED: Duration = Duration::from_secs(900);

/// Looks now and then.
#[derive(Debug)]
pub(super) struct Watch {
    time: Duration,
    seen: Vec<(Duration, Held)>,
}

impl Watch {
    pub(super) fn new(time: Duration) -> Watch {
        Watch { time, seen: Vec::new() }
    }

    pub(super) fn look(&mut self, at: Duration) {
        self.seen.push((at, Held::now()));
    }

    /// The most of the second fifth, of the last, and of all. The first is for what is made once.
    ///
    /// # Errors
    /// What has grown.
    pub(super) fn verdict(&self) -> Result<(Held, Held, Held), String> {
        let most = |from: f64, to: f64| {
            let within =
                |at: &Duration| (from..=to).contains(&(at.as_secs_f64() / self.time.as_secs_f64().max(1e-9)));
            let inside = self.seen.iter().filter(|(at, _)| within(at)).map(|(_, held)| *held);
            inside.fold(Held::default(), |most, held| most.join(held, u64::max))
        };
        let (begin, end, all) = (most(0.2, 0.4), most(0.8, 2.0), most(0.0, 2.0));
        // Pinned memory of drivers that are gone is kept for the next ones: until every size was there as often as it can be
        // at the same time, that takes minutes.
        // Threads come and go with what happens to be under way: of few looks the most tells little.
        let (room, few) = match self.time < SETTLED {
            true => (1024, 64),
            false => (begin.resident_mib / 10 + 32, 16),
        };
        let grown = [
            ("resident memory in MiB", begin.resident_mib, end.resident_mib, room),
            ("descriptors", begin.descriptors, end.descriptors, few),
            ("threads", begin.threads, end.threads, few),
        ];
        for (what, before, after, room) in grown {
            if after > before + room {
                return Err(format!("{what}: {before} at the begin, {after} at the end: it grows"));
            }
        }
        Ok((begin, end, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_told() {
        let watched = |grows: u64| {
            let mut watch = Watch::new(Duration::from_secs(1000));
            for n in 0..1000 {
                let held = Held { resident_mib: 200 + n * grows, descriptors: 20, threads: 9 };
                watch.seen.push((Duration::from_secs(n), held));
            }
            watch.verdict()
        };
        assert_eq!(watched(0).unwrap().2, Held { resident_mib: 200, descriptors: 20, threads: 9 });
        assert!(watched(3).unwrap_err().contains("resident memory"));
    }
}
