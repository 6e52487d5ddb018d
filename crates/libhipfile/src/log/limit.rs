//! How many lines of a kind are written in a second. A kind is a place in the source, which its metadata stands for. It
//! writes nothing.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use tracing::{Level, Metadata};

/// Lines a second of one kind that tells what went wrong or what happened.
pub(super) const FEW: u64 = 20;
/// Lines a second of one kind that tells how, or everything.
pub(super) const MANY: u64 = 1000;

/// Room for every kind there is, and then some; what finds none is not limited.
const KINDS: usize = 64;

/// Counts lines by kind. Lock-free; threads that meet at the turn of a second may let a line or two more through.
pub(super) struct Limiter {
    kinds: [Kind; KINDS],
    /// The second in which it was last looked for what was left out.
    swept: AtomicU64,
}

struct Kind {
    /// Null while nobody has taken the place.
    metadata: AtomicPtr<Metadata<'static>>,
    second: AtomicU64,
    written: AtomicU64,
    left_out: AtomicU64,
}

impl Kind {
    const fn free() -> Kind {
        Kind {
            metadata: AtomicPtr::new(std::ptr::null_mut()),
            second: AtomicU64::new(0),
            written: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }
}

/// Whether a line may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Granted,
    LeftOut,
}

impl Limiter {
    pub(super) const fn new() -> Limiter {
        Limiter { kinds: [const { Kind::free() }; KINDS], swept: AtomicU64::new(0) }
    }

    /// Counts a line of this kind in this second.
    pub(super) fn admit(&self, metadata: &'static Metadata<'static>, second: u64) -> Admission {
        let Some(kind) = self.kind(metadata) else { return Admission::Granted };
        if kind.second.swap(second, Ordering::Relaxed) != second {
            kind.written.store(0, Ordering::Relaxed);
        }
        let most = if *metadata.level() <= Level::INFO { FEW } else { MANY };
        if kind.written.fetch_add(1, Ordering::Relaxed) < most {
            return Admission::Granted;
        }
        kind.left_out.fetch_add(1, Ordering::Relaxed);
        Admission::LeftOut
    }

    /// Tells what was left out before this second; looks once a second.
    pub(super) fn sweep(&self, second: u64, tell: &mut dyn FnMut(&'static Metadata<'static>, u64)) {
        let before = self.swept.load(Ordering::Relaxed);
        if before == second
            || self.swept.compare_exchange(before, second, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        for kind in &self.kinds {
            let metadata = kind.metadata.load(Ordering::Acquire);
            if metadata.is_null() {
                return;
            }
            if kind.left_out.load(Ordering::Relaxed) > 0 && kind.second.load(Ordering::Relaxed) != second {
                // SAFETY: a pointer that is not null came from a reference that lives for ever.
                let metadata = unsafe { &*metadata };
                tell(metadata, kind.left_out.swap(0, Ordering::Relaxed));
            }
        }
    }

    fn kind(&self, metadata: &'static Metadata<'static>) -> Option<&Kind> {
        let mine = std::ptr::from_ref(metadata).cast_mut();
        self.kinds.iter().find(|kind| {
            let there = kind.metadata.load(Ordering::Acquire);
            there == mine
                || (there.is_null()
                    && match kind.metadata.compare_exchange(
                        std::ptr::null_mut(),
                        mine,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    ) {
                        Ok(_) => true,
                        Err(theirs) => theirs == mine,
                    })
        })
    }
}
