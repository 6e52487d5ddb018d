//! The places in which the core calls the system, by name, so that tests can make each of them fail. It decides nothing, and
//! in a release build nothing is left of it.

use rustix::io::Errno;

macro_rules! sites {
    ($($name:ident in $file:literal, $outcome:ident: $what:literal;)*) => {
        /// A place in which the core calls the system. `tidy` compares the table with the source, both ways.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the table says what each is")]
        #[cfg_attr(
            not(debug_assertions),
            allow(dead_code, unreachable_pub, reason = "looked at by tests only, where it is exported")
        )]
        pub enum Site { $($name,)* }

        #[cfg(debug_assertions)]
        impl Site {
            /// All of them.
            pub const ALL: &[Site] = &[$(Site::$name,)*];

            /// What may come of it when the system refuses.
            pub fn outcome(self) -> Outcome {
                match self { $(Site::$name => Outcome::$outcome,)* }
            }
        }
    };
}

/// What may come of a refused call.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation goes on as if nothing had happened, another way if need be.
    Heals,
    /// The operation answers with this error, or goes on another way.
    Tells,
    /// Only who reports on the machine or looks at statistics calls it; no operation does.
    Aside,
}

sites! {
    AsideEnd in "aside.rs", Heals: "a read of a stream that no thread waits for";
    AsideRead in "aside.rs", Heals: "starting one";
    AsideSetup in "aside.rs", Heals: "what is needed for such reads";
    AsideWait in "aside.rs", Heals: "waiting for some that are under way";
    BlockMap in "block/memory.rs", Heals: "memory for Blocks";
    BounceRead in "engine/bounce.rs", Tells: "a read into a Block";
    BounceReadUncached in "engine/bounce.rs", Tells: "the same, leaving nothing in the page cache";
    BounceWrite in "engine/bounce.rs", Tells: "a write out of a Block";
    BounceWriteUncached in "engine/bounce.rs", Tells: "the same, leaving nothing in the page cache";
    CacheLook in "policy.rs", Heals: "what of a file is in the page cache";
    CacheProbe in "policy.rs", Heals: "the same, where the kernel does not say";
    ConfigFile in "config.rs", Aside: "the configuration file";
    FileAside in "file.rs", Heals: "a private descriptor moves out of the way";
    FileDuplicate in "file.rs", Heals: "the caller's descriptor where reopening was refused";
    FileFacts in "file.rs", Tells: "what a descriptor is, at its registration";
    FileFlags in "file.rs", Tells: "how it was opened";
    FileIdentity in "file.rs", Tells: "whether a private descriptor is still the file's";
    FileInode in "file.rs", Heals: "whether it still is, of storage that does not answer";
    FileIsCurrent in "file.rs", Tells: "whether the caller's descriptor still is";
    FileLastLook in "file.rs", Heals: "whether it may be closed";
    FileLock in "file/park.rs", Heals: "whether closing would drop a lock of the process's";
    FileLockAside in "file.rs", Heals: "the same, before it moves out of the way";
    FilePath in "file.rs", Heals: "the file's name, for people";
    FileReopen in "file.rs", Heals: "a description of our own";
    FileSize in "file.rs", Heals: "how long it is";
    FileSystemKind in "storage/mod.rs", Heals: "the kind of its file system";
    DeviceSize in "file.rs", Heals: "how long a block device is";
    HostRead in "engine/bounce.rs", Tells: "a read into the caller's own memory";
    HostWrite in "engine/bounce.rs", Tells: "a write out of it";
    MachineFile in "storage/roots.rs", Heals: "a file of /proc or /sys";
    MachineFolder in "storage/roots.rs", Heals: "a folder there";
    MachineLink in "storage/roots.rs", Heals: "a link there";
    MachinePath in "storage/roots.rs", Heals: "the true place of something there";
    MachineNode in "device/topology.rs", Heals: "which memory a GPU is near";
    MappedCopy in "engine/bounce/mapped.rs", Heals: "a copy into a mapping of a file in memory";
    MappedMap in "engine/bounce/mapped.rs", Heals: "that mapping";
    MappedSize in "engine/bounce/mapped.rs", Heals: "how much of the file there is to be mapped";
    NoticeKind in "notice.rs", Heals: "what standard error is";
    NoticePoll in "notice.rs", Heals: "whether it has room";
    NoticeSend in "notice.rs", Heals: "a line to a socket";
    NoticeWrite in "notice.rs", Heals: "a line to anything else";
    OutOfTheWay in "sys.rs", Heals: "a descriptor of the statistics or a ring moves out of the way";
    PlainRead in "engine/bounce.rs", Heals: "a small read into memory that is not pinned";
    PrivateIdentity in "private.rs", Heals: "whether a descriptor is still the library's";
    QueueEntry in "engine/uring/queue.rs", Heals: "one of many small reads in a ring";
    QueueNow in "engine/uring/queue.rs", Heals: "one of them, if it is in the page cache";
    RingCancel in "engine/uring.rs", Heals: "canceling what a lost ring has not begun to write";
    RingEntry in "engine/uring.rs", Tells: "a piece of a large transfer in a ring";
    RingRegister in "engine/uring.rs", Heals: "the ring is told of the Blocks";
    RingSettle in "engine/uring.rs", Heals: "waiting for what a lost ring writes";
    RingSetup in "engine/uring.rs", Heals: "a ring";
    RingSubmit in "engine/uring.rs", Heals: "entering the ring";
    RingWorkers in "engine/uring.rs", Heals: "how many threads the kernel may give a ring";
    SmallRead in "engine/bounce.rs", Heals: "a small read in one piece";
    SmallWrite in "engine/bounce.rs", Heals: "a small write in one piece";
    StatisticsAccept in "monitor/server.rs", Aside: "somebody looks at the statistics";
    StatisticsAsk in "monitor/target.rs", Aside: "asking another process for its statistics";
    StatisticsHear in "monitor/target.rs", Aside: "a child shows its statistics by itself";
    StatisticsListen in "monitor/server.rs", Heals: "the socket they are asked for at";
    StatisticsMap in "stats/region.rs", Tells: "their pages";
    StatisticsPage in "stats/region.rs", Heals: "pages that can be shared";
    StatisticsPeer in "monitor/server.rs", Aside: "who looks at them";
    StatisticsPoll in "monitor/server.rs", Aside: "waiting for somebody to look";
    StatisticsSeal in "stats/region.rs", Heals: "pages that nobody can cut short";
    StatisticsTell in "monitor/server.rs", Heals: "showing them to who has started this process";
    ThreadStart in "pool.rs", Heals: "a thread";
    WriteSync in "driver/counted.rs", Tells: "making a write durable";
}

/// What a call of the system's answers, for one that is made up.
pub(crate) trait Answer {
    /// A refusal.
    #[cfg_attr(not(debug_assertions), allow(dead_code, reason = "only tests make answers up"))]
    fn refused(errno: i32) -> Self;
}

/// An answer that counts bytes.
pub(crate) trait Count: Answer {
    /// The same answer, about fewer bytes.
    #[cfg_attr(not(debug_assertions), allow(dead_code, reason = "only tests make answers up"))]
    fn cut(self) -> Self;
}

#[cfg_attr(not(debug_assertions), allow(dead_code, reason = "only tests make answers up"))]
fn fewer(n: usize) -> usize {
    // Whole pages stay whole pages while there are any, and whole blocks blocks: that is how storage comes out short.
    match n {
        8192.. => (n / 2).next_multiple_of(4096),
        512.. => (n / 2).next_multiple_of(512),
        _ => n.div_ceil(2),
    }
}

impl<T> Answer for Result<T, Errno> {
    fn refused(errno: i32) -> Self {
        Err(Errno::from_raw_os_error(errno))
    }
}

impl Count for Result<usize, Errno> {
    fn cut(self) -> Self {
        self.map(fewer)
    }
}

impl<T> Answer for Result<T, i32> {
    fn refused(errno: i32) -> Self {
        Err(errno)
    }
}

impl Count for Result<usize, i32> {
    fn cut(self) -> Self {
        self.map(fewer)
    }
}

impl<T> Answer for std::io::Result<T> {
    fn refused(errno: i32) -> Self {
        Err(std::io::Error::from_raw_os_error(errno))
    }
}

impl<T> Answer for Option<T> {
    fn refused(_: i32) -> Self {
        None
    }
}

impl Answer for bool {
    fn refused(_: i32) -> Self {
        false
    }
}

/// Calls the system.
#[inline(always)]
#[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "a release build calls and no more"))]
pub(crate) fn at<T: Answer>(site: Site, call: impl FnOnce() -> T) -> T {
    #[cfg(debug_assertions)]
    if let Some(What::Errno(errno)) = injected::hit(site) {
        return T::refused(errno);
    }
    call()
}

/// Calls the system for something that counts bytes.
#[inline(always)]
#[cfg_attr(not(debug_assertions), allow(unused_variables, reason = "a release build calls and no more"))]
pub(crate) fn moves<T: Count>(site: Site, call: impl FnOnce() -> T) -> T {
    #[cfg(debug_assertions)]
    match injected::hit(site) {
        Some(What::Errno(errno)) => return T::refused(errno),
        Some(What::Short) => return call().cut(),
        None => {}
    }
    call()
}

#[cfg(debug_assertions)]
pub use injected::{What, When, absent, clear, hits, inject};

/// What tests have ordered.
#[cfg(debug_assertions)]
mod injected {
    use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

    use super::Site;

    /// What a call comes to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum What {
        /// It is not made, and answers with this error.
        Errno(i32),
        /// It is made, and answers with about half of what it did.
        Short,
    }

    /// Which calls of a site are meant, counted from 1 and from the order on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum When {
        /// This one.
        Nth(u64),
        /// All.
        Every,
    }

    const SITES: usize = Site::ALL.len();
    static HITS: [AtomicU64; SITES] = [const { AtomicU64::new(0) }; SITES];
    /// The site that fails, one more than its number; 0 for none.
    static WHERE: AtomicU64 = AtomicU64::new(0);
    /// The errno, or 0 for a short answer.
    static ERRNO: AtomicI32 = AtomicI32::new(0);
    /// The hits of the site at which it fails, as first and number.
    static FIRST: AtomicU64 = AtomicU64::new(0);
    static LAST: AtomicU64 = AtomicU64::new(0);
    /// The sites at which every call fails, as bits.
    static ABSENT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    const _: () = assert!(SITES <= 128);

    /// Lets calls of a site fail from now on, and those of no other.
    pub fn inject(site: Site, when: When, what: What) {
        clear();
        let now = hits(site);
        let (first, last) = match when {
            When::Nth(n) => (now + n, now + n),
            When::Every => (now + 1, u64::MAX),
        };
        ERRNO.store(if let What::Errno(errno) = what { errno } else { 0 }, Ordering::Relaxed);
        FIRST.store(first, Ordering::Relaxed);
        LAST.store(last, Ordering::Relaxed);
        WHERE.store(site as u64 + 1, Ordering::SeqCst);
    }

    /// Ends it. What is absent stays so.
    pub fn clear() {
        WHERE.store(0, Ordering::SeqCst);
    }

    /// Lets every call of these sites fail, as on a machine that lacks something.
    pub fn absent(sites: &[Site]) {
        let bits = sites.iter().fold(0_u128, |bits, site| bits | 1 << *site as u32);
        ABSENT[0].store(bits as u64, Ordering::SeqCst);
        ABSENT[1].store((bits >> 64) as u64, Ordering::SeqCst);
    }

    /// How often a site was come to.
    pub fn hits(site: Site) -> u64 {
        HITS[site as usize].load(Ordering::Relaxed)
    }

    pub(super) fn hit(site: Site) -> Option<What> {
        let now = HITS[site as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if WHERE.load(Ordering::SeqCst) != site as u64 + 1
            || now < FIRST.load(Ordering::Relaxed)
            || now > LAST.load(Ordering::Relaxed)
        {
            let absent = ABSENT[site as usize / 64].load(Ordering::Relaxed) >> (site as u64 % 64) & 1 == 1;
            return absent.then_some(What::Errno(libc::ENOSYS));
        }
        Some(match ERRNO.load(Ordering::Relaxed) {
            0 => What::Short,
            errno => What::Errno(errno),
        })
    }
}
