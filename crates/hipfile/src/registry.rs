//! Ids for registered objects: generation-tagged, never reused, safe to look up with any number. Not a cache and not
//! ordered; ranges of memory live in `rangemap`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sync::{Arc, ArcSwapOption, Guard, Mutex, PoisonError};

/// Ids carry this tag on top, so that small integers and ordinary pointers never look like one.
const TAG: u64 = 0xf1;
const INDEX_BITS: u32 = 24;
const FIRST_CHUNK: usize = 64;
const CHUNKS: usize = 19;

/// Where generations come from. Process-wide although the core has no other global: a C handle can outlive the
/// Driver that made it, and must not be taken for one of the next Driver's.
static NEXT_GENERATION: AtomicU32 = AtomicU32::new(1);

type Slot<T> = ArcSwapOption<Entry<T>>;

#[derive(Debug)]
struct Entry<T> {
    id: u64,
    value: Arc<T>,
}

/// Objects by id. Look-ups write no shared memory; insertions and removals take a mutex.
pub(crate) struct Registry<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    free: Vec<u32>,
    used: u32,
}

/// An entry found, kept alive without touching its reference count.
pub(crate) struct Found<T> {
    entry: Guard<Option<Arc<Entry<T>>>>,
}

impl<T> Found<T> {
    /// An owned reference, for work that leaves the thread.
    pub(crate) fn to_arc(&self) -> Arc<T> {
        Arc::clone(self.value())
    }

    fn value(&self) -> &Arc<T> {
        match self.entry.as_ref() {
            Some(entry) => &entry.value,
            None => unreachable!("Found is made of occupied slots only"),
        }
    }
}

impl<T> std::ops::Deref for Found<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value()
    }
}

/// Chunk and offset of a place: chunks double in size, so that a place never moves.
fn locate(index: u32) -> (usize, usize) {
    let shifted = index as usize + FIRST_CHUNK;
    let chunk = (usize::BITS - 1 - shifted.leading_zeros()) as usize - FIRST_CHUNK.trailing_zeros() as usize;
    (chunk, shifted - (FIRST_CHUNK << chunk))
}

impl<T> Registry<T> {
    pub(crate) fn new() -> Registry<T> {
        Registry { chunks: [const { OnceLock::new() }; CHUNKS], places: Mutex::new(Places::default()) }
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = locate(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Stores a value; `None` when all places are taken (16 million).
    pub(crate) fn insert(&self, value: Arc<T>) -> Option<u64> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match places.free.pop() {
            Some(index) => index,
            None => {
                let index = places.used;
                if index >= (1 << INDEX_BITS) {
                    return None;
                }
                places.used += 1;
                index
            }
        };
        let (chunk, offset) = locate(index);
        let slots = self.chunks.get(chunk)?.get_or_init(|| {
            (0..FIRST_CHUNK << chunk).map(|_| Slot::empty()).collect::<Vec<_>>().into_boxed_slice()
        });
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        let id = TAG << 56 | u64::from(generation) << INDEX_BITS | u64::from(index);
        slots[offset].store(Some(Arc::new(Entry { id, value })));
        Some(id)
    }

    /// The value of this id, if it is registered.
    pub(crate) fn get(&self, id: u64) -> Option<Found<T>> {
        let entry = self.slot((id & ((1 << INDEX_BITS) - 1)) as u32)?.load();
        match entry.as_ref() {
            Some(found) if found.id == id => Some(Found { entry }),
            _ => None,
        }
    }

    /// Takes the value out; its place may be used again under another id.
    pub(crate) fn remove(&self, id: u64) -> Option<Arc<T>> {
        let index = (id & ((1 << INDEX_BITS) - 1)) as u32;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = self.slot(index)?;
        if slot.load().as_ref().is_none_or(|entry| entry.id != id) {
            return None;
        }
        let entry = slot.swap(None)?;
        places.free.push(index);
        Some(Arc::clone(&entry.value))
    }

    /// Takes everything out.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Vec::new();
        for index in 0..places.used {
            if let Some(entry) = self.slot(index).and_then(|slot| slot.swap(None)) {
                out.push(Arc::clone(&entry.value));
                places.free.push(index);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_dense_and_distinct() {
        let mut seen = std::collections::HashSet::new();
        for index in 0..if cfg!(miri) { 200 } else { 5000 } {
            let (chunk, offset) = locate(index);
            assert!(offset < FIRST_CHUNK << chunk);
            assert!(seen.insert((chunk, offset)));
        }
        let (chunk, offset) = locate((1 << INDEX_BITS) - 1);
        assert!(chunk < CHUNKS && offset < FIRST_CHUNK << chunk);
    }

    #[test]
    fn an_id_is_never_good_again() {
        let registry = Registry::new();
        let first = registry.insert(Arc::new(1)).unwrap();
        assert_eq!(*registry.get(first).unwrap(), 1);
        assert_eq!(registry.remove(first).as_deref(), Some(&1));
        assert!(registry.remove(first).is_none());
        let second = registry.insert(Arc::new(2)).unwrap();
        assert_eq!(first & 0xff_ffff, second & 0xff_ffff, "the place is reused");
        assert_ne!(first, second);
        assert!(registry.get(first).is_none());
        assert_eq!(*registry.get(second).unwrap(), 2);
    }

    #[test]
    fn any_number_may_be_asked_for() {
        let registry = Registry::<u8>::new();
        for id in [0, 1, 42, 0xdead_beef, u64::MAX, TAG << 56] {
            assert!(registry.get(id).is_none());
            assert!(registry.remove(id).is_none());
        }
        let id = registry.insert(Arc::new(0)).unwrap();
        assert!(registry.get(id ^ (1 << INDEX_BITS)).is_none());
        assert!(registry.get(id & !(0xff << 56)).is_none());
    }

    #[test]
    fn two_registries_never_share_an_id() {
        let (a, b) = (Registry::new(), Registry::new());
        let id = a.insert(Arc::new(0)).unwrap();
        b.insert(Arc::new(0)).unwrap();
        assert!(b.get(id).is_none());
    }

    #[test]
    fn look_ups_race_with_removal() {
        let registry = Registry::new();
        let ids = std::sync::atomic::AtomicU64::new(0);
        let (registry, ids) = (&registry, &ids);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..if cfg!(miri) { 20 } else { 2000_u64 } {
                    let id = registry.insert(Arc::new(n)).unwrap();
                    ids.store(id, Ordering::Release);
                    assert_eq!(registry.remove(id).as_deref(), Some(&n));
                }
                ids.store(u64::MAX, Ordering::Release);
            });
            scope.spawn(move || {
                loop {
                    let id = ids.load(Ordering::Acquire);
                    if id == u64::MAX {
                        break;
                    }
                    if let Some(found) = registry.get(id) {
                        assert!(*found < 2000);
                    }
                }
            });
        });
    }
}
