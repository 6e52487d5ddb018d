//! Every call of the system, and every function of the GPU's runtime, failing in turn: call x error x door x direction x row of
//! engines. After each: the bytes and the count are right, the error is the one that was given or there is none, nothing has
//! leaked, and the next operation works. Here a sample of it; `cargo xtask deep faults` runs all.

use std::collections::BTreeMap;

use gpu_sys::hip::HipError;
use hip_emu::fault;
use hip_emu::function::Function;
use hipfile::faults::{self, Outcome, Site, What, When};
use hipfile::{ErrorKind, Op};

use crate::support::faulty::{Door, Held, ROWS, Row, Seen, World};
use crate::support::gpu::is_emulated_hip;
use crate::support::skip;
use crate::support::streams::{Bench, Watchdog};

const ERRORS: &[i32] = &[
    libc::EINTR,
    libc::EAGAIN,
    libc::EIO,
    libc::ENOSPC,
    libc::EDQUOT,
    libc::EFBIG,
    libc::ENOMEM,
    libc::EMFILE,
    libc::EINVAL,
    libc::EPERM,
    libc::ENOSYS,
    libc::EOPNOTSUPP,
    libc::EBADF,
];

/// Where the library asks whether a descriptor is still its own before it closes it.
const LOOKS: &[Site] = &[Site::FileIdentity, Site::FileLastLook, Site::PrivateIdentity];

/// Which of the cases run: one in so many, all, or a part of all: `HIPFILE_TEST_FAULTS=3/8` is the third of eight parts.
struct Sample {
    every: usize,
    /// Which of so many.
    which: usize,
    at: usize,
    pub(crate) ran: usize,
    counts: BTreeMap<&'static str, usize>,
}

impl Sample {
    fn new(usual: usize) -> Sample {
        let asked = std::env::var("HIPFILE_TEST_FAULTS").unwrap_or_default();
        let (which, every) = match (asked.as_str(), asked.split_once('/')) {
            ("", _) => (0, usual),
            ("all", _) => (0, 1),
            (_, Some((part, parts))) => {
                let number = |text: &str| text.parse().expect("HIPFILE_TEST_FAULTS: a number");
                let (part, parts): (usize, usize) = (number(part), number(parts));
                assert!((1..=parts).contains(&part), "HIPFILE_TEST_FAULTS={asked}: there is no such part");
                (part % parts, parts)
            }
            _ => panic!("HIPFILE_TEST_FAULTS={asked}: all, or a part such as 3/8"),
        };
        Sample { every, which, at: 0, ran: 0, counts: BTreeMap::new() }
    }

    fn takes(&mut self) -> bool {
        self.at += 1;
        // A stride that shares no factor with the numbers of errors, sites and rows meets each of them.
        let takes = self.at % self.every == self.which;
        self.ran += usize::from(takes);
        if takes && self.ran.is_multiple_of(1000) {
            eprintln!("{} cases ran", self.ran);
        }
        takes
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn tell(&self, name: &str) {
        eprintln!("{name}: {} cases of {}: {:?}", self.ran, self.at, self.counts);
        assert!(self.ran > 0);
    }
}

/// What a case is, for messages.
fn case(row: &Row, door: Door, op: Op, what: &str) -> String {
    format!("[{}] {door:?} {op:?}: {what}", row.name)
}

/// Whether an error with this number, at every call, only lets the caller ask again.
fn passes(errno: i32) -> bool {
    [libc::EINTR, libc::EAGAIN].contains(&errno)
}

/// All sites that an operation comes to, with how often.
fn reached(world: &World, row: &Row, door: Door, op: Op) -> Vec<(Site, u64)> {
    let before: Vec<u64> = Site::ALL.iter().map(|site| faults::hits(*site)).collect();
    let mut during = Vec::new();
    let seen = world.run(
        row,
        door,
        op,
        || {},
        || {
            let now = Site::ALL.iter().map(|site| faults::hits(*site));
            during = now.zip(&before).map(|(now, before)| now - before).collect();
        },
    );
    assert!(
        seen.iter().all(|seen| matches!(seen, Seen::Full)),
        "{}: {seen:?}",
        case(row, door, op, "no fault")
    );
    Site::ALL.iter().copied().zip(during).filter(|(_, hits)| *hits > 0).collect()
}

fn system_calls(door: Door, op: Op) {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let (world, mut sample) = (World::new(), Sample::new(97));
    for row in ROWS {
        // Twice: what is made once in a process is there from then on.
        reached(&world, row, door, op);
        let sites = reached(&world, row, door, op);
        let mut before = Held::now();
        for (site, hits) in sites {
            let mut whats: Vec<What> = ERRORS.iter().map(|errno| What::Errno(*errno)).collect();
            whats.push(What::Short);
            for what in whats {
                let mut whens = vec![When::Nth(1), When::Nth(hits.div_ceil(2)), When::Nth(hits)];
                whens.dedup();
                // An answer that means "again" for ever is waited out for ever, as by any program.
                if !matches!(what, What::Errno(errno) if passes(errno)) {
                    whens.push(When::Every);
                }
                for when in whens {
                    if sample.takes() {
                        let name = case(row, door, op, &format!("{site:?} {what:?} {when:?}"));
                        one(&world, row, (door, op), (site, when, what), &name, &mut sample);
                        // Whether a number is still the library's cannot be learnt: a stranger's must not be closed.
                        if LOOKS.contains(&site) && (when == When::Every || what == What::Errno(libc::EBADF))
                        {
                            before = Held::now();
                        } else if let Err(why) = Held::is_back_to(before) {
                            panic!("{name}: leaked: {why}");
                        }
                    }
                }
            }
        }
    }
    sample.tell(&format!("system calls, {door:?} {op:?}"));
}

fn one(
    world: &World,
    row: &Row,
    (door, op): (Door, Op),
    (site, when, what): (Site, When, What),
    name: &str,
    sample: &mut Sample,
) {
    let _watchdog = Watchdog::named(60, name);
    let _context = Context(name);
    world.lost.store(site == Site::RingSubmit, std::sync::atomic::Ordering::Relaxed);
    let seen = world.run(row, door, op, || faults::inject(site, when, what), faults::clear);
    let may_tell = site.outcome() == Outcome::Tells;
    for seen in &seen {
        match (seen, what) {
            (Seen::Full, _) => sample.count("healed"),
            (Seen::Short(n), What::Errno(errno)) if *n > 0 && may_tell && errno != libc::EINTR => {
                sample.count("prefix")
            }
            (Seen::Failed(error), What::Errno(errno)) if may_tell && errno != libc::EINTR => {
                let stale = [Site::FileIdentity, Site::FileIsCurrent].contains(&site)
                    && error.kind() == ErrorKind::HandleNotRegistered;
                assert!(error.os_error() == Some(errno) || stale, "{name}: {error}");
                sample.count("told");
            }
            _ => panic!("{name}: {seen:?}"),
        }
    }
}

/// Says which case it was when one fails somewhere below.
struct Context<'a>(&'a str);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the case {}", self.0);
        }
    }
}

macro_rules! doors {
    ($($name:ident, $gpu:ident: $door:ident $op:ident;)*) => { $(
        #[test]
        fn $name() { system_calls(Door::$door, Op::$op); }
        #[test]
        fn $gpu() { gpu_calls(Door::$door, Op::$op); }
    )* };
}

doors! {
    system_calls_read, gpu_calls_read: Calls Read;
    system_calls_write, gpu_calls_write: Calls Write;
    system_calls_stream_read, gpu_calls_stream_read: Streams Read;
    system_calls_stream_write, gpu_calls_stream_write: Streams Write;
    system_calls_batch_read, gpu_calls_batch_read: Batches Read;
    system_calls_batch_write, gpu_calls_batch_write: Batches Write;
    system_calls_host_read, gpu_calls_host_read: Host Read;
    system_calls_host_write, gpu_calls_host_write: Host Write;
}

/// Every site is come to by some operation of the matrix, or it is said here why not and which tests come to it.
#[test]
fn every_site_is_reached() {
    const ELSEWHERE: &[(Site, &str)] = &[
        (Site::CacheProbe, "kernels before 6.5; `policy` and the row without cachestat"),
        (Site::ConfigFile, "once in a process: config::tests"),
        (Site::DeviceSize, "block devices, which take root: suite::files"),
        (
            Site::FileInode,
            "storage that does not answer: hanging::storage_that_hangs_holds_up_only_who_asked_it",
        ),
        (Site::FilePath, "errors: an_error_is_told_without_the_files_name_too"),
        (Site::MachineLink, "LVM and sysfs of real devices: storage::tests"),
        (Site::NoticeSend, "standard error that is a socket: notice::tests"),
        (Site::RingCancel, "a ring that is lost while it writes: the cases of RingSubmit"),
        (Site::RingSettle, "a ring that is lost while it writes: the cases of RingSubmit"),
        (Site::PlainRead, "GPUs under CUDA's functions: the step `cuda`"),
    ];
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let world = World::new();
    for row in ROWS {
        for door in [Door::Calls, Door::Streams, Door::Batches, Door::Host] {
            for op in [Op::Read, Op::Write] {
                reached(&world, row, door, op);
            }
        }
    }
    // Of a plain file nobody asks whether it has room.
    let file = std::fs::metadata("/proc/self/fd/2").is_ok_and(|about| about.is_file());
    if file {
        skip("NoticePoll", "standard error is a plain file");
    }
    let elsewhere =
        |site: &Site| (file && *site == Site::NoticePoll) || ELSEWHERE.iter().any(|(other, _)| other == site);
    let lacking: Vec<_> = Site::ALL
        .iter()
        .filter(|site| site.outcome() != Outcome::Aside && faults::hits(**site) == 0 && !elsewhere(site))
        .collect();
    assert!(lacking.is_empty(), "not reached: {lacking:?}");
}

#[test]
fn an_error_is_told_without_the_files_name_too() {
    let bench = Bench::new(&["bounce"], 4096, |_| {});
    faults::absent(&[Site::FilePath]);
    faults::inject(Site::BounceRead, When::Every, What::Errno(libc::EIO));
    let read = |len| {
        // SAFETY: the memory is the bench's.
        unsafe { bench.driver.read(bench.id, bench.buffer.ptr(), len, 0, 0) }
    };
    faults::absent(&[Site::FilePath, Site::SmallRead, Site::PlainRead]);
    let error = read(4000).unwrap_err();
    assert!(error.os_error() == Some(libc::EIO) && error.to_string().contains("EIO"), "{error}");
    faults::absent(&[]);
    faults::clear();
    assert_eq!(read(4000).unwrap(), 4000);
}

/// Not hipErrorInvalidValue: with it the runtime answers that a pointer is of no allocation, which is told as that.
const GPU_ERRORS: &[HipError] =
    &[HipError::OUT_OF_MEMORY, HipError::ILLEGAL_ADDRESS, HipError::UNKNOWN, HipError::NO_DEVICE];

fn gpu_calls(door: Door, op: Op) {
    if !is_emulated_hip("faults are injected into HIP's functions") {
        return;
    }
    let (world, mut sample) = (World::new(), Sample::new(29));
    for row in ROWS.iter().filter(|row| row.absent.is_empty()) {
        reached(&world, row, door, op);
        let calls = |function: &Function| fault::calls(function.name());
        let counts: Vec<u64> = Function::ALL.iter().map(calls).collect();
        let mut during = Vec::new();
        world.run(row, door, op, || {}, || during = Function::ALL.iter().map(calls).collect());
        let before = Held::now();
        for ((function, hits), earlier) in Function::ALL.iter().zip(during).zip(counts) {
            let hits = hits - earlier;
            if hits == 0 {
                continue;
            }
            for error in GPU_ERRORS {
                let mut whens =
                    vec![fault::When::Nth(1), fault::When::Nth(hits.div_ceil(2)), fault::When::Nth(hits)];
                whens.dedup();
                whens.push(fault::When::Every);
                for when in whens {
                    if !sample.takes() {
                        continue;
                    }
                    let name = case(row, door, op, &format!("{} {error:?} {when:?}", function.name()));
                    let watchdog = Watchdog::named(60, &name);
                    let _context = Context(&name);
                    let arm = || fault::inject(function.name(), when, *error).unwrap();
                    let seen = world.run(row, door, op, arm, fault::clear);
                    drop(watchdog);
                    for seen in seen {
                        match seen {
                            Seen::Full => sample.count("healed"),
                            Seen::Short(_) => sample.count("prefix"),
                            Seen::Failed(told) => {
                                let own = told.device_code() == Some(error.0 as i32)
                                    || [
                                        ErrorKind::DeviceNotSupported,
                                        ErrorKind::AsyncNotSupported,
                                        ErrorKind::PlatformNotSupported,
                                    ]
                                    .contains(&told.kind());
                                assert!(own, "{name}: {told}: {:?}", told.kind());
                                sample.count("told");
                            }
                        }
                    }
                    if let Err(why) = Held::is_back_to(before) {
                        panic!("{name}: leaked: {why}");
                    }
                }
            }
        }
    }
    sample.tell(&format!("GPU calls, {door:?} {op:?}"));
}
