//! The thread of a soak that lets calls fail for a while, then leaves all alone for a while. In a build without debug assertions
//! there is nothing that could be made to fail, and it does nothing.

use super::Shared;

/// Works until the soak stops.
#[cfg(not(debug_assertions))]
pub(super) fn let_calls_fail(_: &Shared) {}

/// Works until the soak stops.
#[cfg(debug_assertions)]
pub(super) fn let_calls_fail(shared: &Shared) {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use hipfile::faults::{self, Outcome, Site, What, When, gpu};

    use super::{Random, add};

    // Of those left out some descriptors or Blocks stay away for good, on purpose, each time.
    const LEFT_OUT: &[Site] =
        &[Site::PrivateIdentity, Site::FileIdentity, Site::FileLastLook, Site::RingSubmit];
    const ERRORS: &[i32] = &[4, 5, 11, 12, 24, 27, 28, 122, 1, 38, 95, 22];
    const FUNCTIONS: &[&str] = &[
        "hipMemcpy",
        "hipMemcpyAsync",
        "hipHostRegister",
        "hipMalloc",
        "hipPointerGetAttributes",
        "hipAmdFileRead",
        "hipAmdFileWrite",
        "hipStreamQuery",
        "hipEventRecord",
    ];
    let sites: Vec<Site> = Site::ALL
        .iter()
        .copied()
        .filter(|site| site.outcome() != Outcome::Aside && !LEFT_OUT.contains(site))
        .collect();
    let mut random = Random::new(77);
    let pause = |time: Duration| {
        let end = Instant::now() + time;
        while Instant::now() < end && !shared.stops() {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    while !shared.stops() {
        pause(Duration::from_secs(2));
        shared.window.fetch_add(1, Ordering::SeqCst);
        for _ in 0..200 {
            if shared.stops() {
                break;
            }
            let (site, nth) = (sites[random.below(sites.len())], random.below(8) as u64 + 1);
            let what = match random.below(4) {
                0 => What::Short,
                _ => What::Errno(ERRORS[random.below(ERRORS.len())]),
            };
            faults::inject(site, When::Nth(nth), what);
            if random.one_in(4) {
                gpu::clear();
                let error = [2, 700, 999][random.below(3)];
                let function = FUNCTIONS[random.below(FUNCTIONS.len())];
                if let Ok(rule) = gpu::parse(&format!("{function}:{nth}:{error}")) {
                    gpu::add(rule);
                }
            }
            add(&shared.counts.faults, 1);
            std::thread::sleep(Duration::from_millis(5));
        }
        faults::clear();
        gpu::clear();
        shared.window.fetch_add(1, Ordering::SeqCst);
    }
}
