//! Counting the operations that use an object, without a cache line that every thread writes. Not a reference count:
//! memory is kept alive by `Arc`; this answers only "may it be deregistered now?".

use crossbeam_utils::CachePadded;

use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

const STRIPES: usize = 8;

/// Set in a stripe while the object is retired; its uses are counted below.
const RETIRED: u64 = 1 << 63;

/// How many operations use an object, striped over threads. Whether it is retired stands in each stripe: a use looks at one
/// cache line only.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    stripes: [CachePadded<AtomicU64>; STRIPES],
}

/// One operation's use of an object; ends when dropped.
#[derive(Debug)]
pub(crate) struct InUse<'a> {
    stripe: &'a AtomicU64,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.stripe.fetch_sub(1, Ordering::Release);
    }
}

impl Usage {
    /// Begins a use; `None` once the object is retired.
    pub(crate) fn enter(&self) -> Option<InUse<'_>> {
        let stripe = &*self.stripes[thread_stripe() % STRIPES];
        // Of one word: either `retire` sees our count, or we see its mark.
        let before = stripe.fetch_add(1, Ordering::SeqCst);
        let in_use = InUse { stripe };
        if before & RETIRED == 0 { Some(in_use) } else { None }
    }

    /// Retires the object unless it is in use; later uses are refused. One call at a time.
    pub(crate) fn retire(&self) -> bool {
        if self.mark() == 0 {
            return true;
        }
        self.stripes.iter().for_each(|stripe| _ = stripe.fetch_and(!RETIRED, Ordering::SeqCst));
        false
    }

    /// Refuses later uses whether or not some are under way.
    pub(crate) fn retire_anyway(&self) {
        self.mark();
    }

    /// Marks all stripes. The uses that were counted there.
    fn mark(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.fetch_or(RETIRED, Ordering::SeqCst) & !RETIRED).sum()
    }
}

/// An object whose uses are counted.
pub(crate) trait Used {
    fn usage(&self) -> &Usage;
}

/// A use that owns its object, for work that outlives the call that began it.
#[derive(Debug)]
pub(crate) struct Hold<T: Used> {
    object: Arc<T>,
    stripe: usize,
}

impl<T: Used> Hold<T> {
    /// Begins a use; `None` once the object is retired.
    pub(crate) fn new(object: Arc<T>) -> Option<Hold<T>> {
        let stripe = thread_stripe() % STRIPES;
        // Its end is this value's drop.
        std::mem::forget(object.usage().enter()?);
        Some(Hold { object, stripe })
    }
}

impl<T: Used> std::ops::Deref for Hold<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T: Used> Drop for Hold<T> {
    fn drop(&mut self) {
        drop(InUse { stripe: &self.object.usage().stripes[self.stripe] });
    }
}

/// A small number for this thread, spread evenly over threads.
pub(crate) fn thread_stripe() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    // A thread that is ending has no thread-local storage any more; the last stripe serves it.
    MINE.try_with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    })
    .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retires_only_when_unused() {
        let usage = Usage::default();
        let one = usage.enter().unwrap();
        assert!(!usage.retire());
        let two = usage.enter().expect("a refused retirement leaves the object usable");
        drop(one);
        assert!(!usage.retire());
        drop(two);
        assert!(usage.retire());
        assert!(usage.enter().is_none());
    }

    #[test]
    fn a_hold_may_end_on_another_thread() {
        #[derive(Default)]
        struct Object(Usage);
        impl Used for Object {
            fn usage(&self) -> &Usage {
                &self.0
            }
        }
        let object = Arc::new(Object::default());
        let hold = Hold::new(Arc::clone(&object)).unwrap();
        assert!(!object.0.retire());
        std::thread::spawn(move || drop(hold)).join().unwrap();
        assert!(object.0.retire());
        assert!(Hold::new(object).is_none());
    }
}
