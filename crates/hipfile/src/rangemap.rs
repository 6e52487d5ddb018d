//! Registered memory by address: exact bases, and the registration that holds a range. Look-ups write no shared memory
//! and see one snapshot. Not an allocator; registrations may overlap.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

/// Entries of one leaf; an insertion copies one leaf and the list of leaves, so both stay small.
const LEAF: usize = 256;

/// Something with a range of addresses.
pub(crate) trait Ranged {
    /// First address.
    fn base(&self) -> usize;
    /// Number of bytes.
    fn len(&self) -> usize;
    /// First address behind the range; registrations never wrap.
    fn end(&self) -> usize {
        self.base() + self.len()
    }
}

#[derive(Debug)]
struct Leaf<T> {
    /// Sorted by base, never empty.
    entries: Vec<Arc<T>>,
    /// Largest end within this leaf.
    reach: usize,
}

#[derive(Debug)]
struct Snapshot<T> {
    /// Sorted by first base; with the largest end of this leaf and all before it.
    leaves: Vec<(usize, usize, Arc<Leaf<T>>)>,
}

/// A map from address ranges to values, at most one value per base.
#[derive(Debug)]
pub(crate) struct RangeMap<T> {
    snapshot: ArcSwap<Snapshot<T>>,
    writer: Mutex<()>,
}

/// The registrations at one moment.
pub(crate) struct View<T> {
    snapshot: arc_swap::Guard<Arc<Snapshot<T>>>,
}

impl<T: Ranged> Leaf<T> {
    fn new(entries: Vec<Arc<T>>) -> Arc<Leaf<T>> {
        let reach = entries.iter().map(|e| e.end()).max().unwrap_or(0);
        Arc::new(Leaf { entries, reach })
    }
}

impl<T: Ranged> Snapshot<T> {
    fn leaf_of(&self, address: usize) -> Option<usize> {
        self.leaves.partition_point(|(first, ..)| *first <= address).checked_sub(1)
    }

    fn exact(&self, base: usize) -> Option<&Arc<T>> {
        let entries = &self.leaves[self.leaf_of(base)?].2.entries;
        let at = entries.binary_search_by_key(&base, |e| e.base()).ok()?;
        Some(&entries[at])
    }

    /// The registration with the highest base that holds `start..end` wholly.
    fn holding(&self, start: usize, end: usize) -> Option<&Arc<T>> {
        for at in (0..=self.leaf_of(start)?).rev() {
            let (_, reach_so_far, leaf) = &self.leaves[at];
            if *reach_so_far < end {
                return None;
            }
            if leaf.reach < end {
                continue;
            }
            let upto = leaf.entries.partition_point(|e| e.base() <= start);
            if let Some(found) = leaf.entries[..upto].iter().rev().find(|e| e.end() >= end) {
                return Some(found);
            }
        }
        None
    }

    fn from_leaves(leaves: impl IntoIterator<Item = Arc<Leaf<T>>>) -> Snapshot<T> {
        let mut reach = 0;
        Snapshot {
            leaves: leaves
                .into_iter()
                .map(|leaf| {
                    reach = reach.max(leaf.reach);
                    (leaf.entries[0].base(), reach, leaf)
                })
                .collect(),
        }
    }
}

impl<T> View<T> {
    /// The registration of exactly this base.
    pub(crate) fn exact(&self, base: usize) -> Option<&Arc<T>>
    where
        T: Ranged,
    {
        self.snapshot.exact(base)
    }

    /// A registration that holds the whole range; of several, the one with the highest base.
    pub(crate) fn holding(&self, start: usize, len: usize) -> Option<&Arc<T>>
    where
        T: Ranged,
    {
        self.snapshot.holding(start, start.checked_add(len)?)
    }
}

impl<T: Ranged> RangeMap<T> {
    pub(crate) fn new() -> RangeMap<T> {
        RangeMap { snapshot: ArcSwap::from_pointee(Snapshot { leaves: Vec::new() }), writer: Mutex::new(()) }
    }

    /// The registrations as they are now; later changes do not show in it.
    pub(crate) fn view(&self) -> View<T> {
        View { snapshot: self.snapshot.load() }
    }

    /// Adds a value; gives it back when its base is taken.
    pub(crate) fn insert(&self, value: Arc<T>) -> Result<(), Arc<T>> {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.load();
        if old.exact(value.base()).is_some() {
            return Err(value);
        }
        let at = old.leaf_of(value.base()).unwrap_or(0);
        let mut entries = old.leaves.get(at).map(|(.., leaf)| leaf.entries.clone()).unwrap_or_default();
        entries.insert(entries.partition_point(|e| e.base() < value.base()), value);
        let upper = if entries.len() > LEAF { entries.split_off(LEAF / 2) } else { Vec::new() };
        let replaced = [entries, upper].into_iter().filter(|e| !e.is_empty()).map(Leaf::new);
        self.replace(&old, at, replaced);
        Ok(())
    }

    /// Takes out the value of exactly this base, if `accept` agrees.
    pub(crate) fn remove(&self, base: usize, accept: impl FnOnce(&T) -> bool) -> Removal {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.load();
        let Some(found) = old.exact(base) else {
            return Removal::Unknown;
        };
        if !accept(found) {
            return Removal::Refused;
        }
        let at = old.leaf_of(base).unwrap_or(0);
        let mut entries = old.leaves[at].2.entries.clone();
        entries.retain(|e| e.base() != base);
        self.replace(&old, at, Some(entries).filter(|e| !e.is_empty()).map(Leaf::new));
        Removal::Done
    }

    /// Takes everything out.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.swap(Arc::new(Snapshot { leaves: Vec::new() }));
        old.leaves.iter().flat_map(|(.., leaf)| leaf.entries.iter().cloned()).collect()
    }

    fn replace(&self, old: &Snapshot<T>, at: usize, new: impl IntoIterator<Item = Arc<Leaf<T>>>) {
        let before = old.leaves[..at.min(old.leaves.len())].iter().map(|(.., leaf)| Arc::clone(leaf));
        let after = old.leaves.iter().skip(at + 1).map(|(.., leaf)| Arc::clone(leaf));
        self.snapshot.store(Arc::new(Snapshot::from_leaves(before.chain(new).chain(after))));
    }
}

/// What [`RangeMap::remove`] did.
pub(crate) enum Removal {
    /// Taken out.
    Done,
    /// The caller's condition did not hold.
    Refused,
    /// No value has this base.
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Range(usize, usize);
    impl Ranged for Range {
        fn base(&self) -> usize {
            self.0
        }
        fn len(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn holds_ranges_and_their_edges() {
        let map = RangeMap::new();
        map.insert(Arc::new(Range(1000, 100))).unwrap();
        map.insert(Arc::new(Range(1040, 20))).unwrap();
        assert!(map.insert(Arc::new(Range(1000, 5))).is_err());
        let view = map.view();
        let holding = |start, len| view.holding(start, len).map(|r| r.0);
        assert_eq!(holding(1000, 100), Some(1000));
        assert_eq!(holding(1099, 1), Some(1000));
        assert_eq!(holding(1040, 20), Some(1040));
        assert_eq!(holding(1040, 21), Some(1000), "an overlapping one with a lower base reaches further");
        assert_eq!(holding(999, 1), None);
        assert_eq!(holding(1000, 101), None);
        assert_eq!(holding(usize::MAX, 2), None);
        assert_eq!(view.exact(1040).map(|r| r.1), Some(20));
        assert!(view.exact(1041).is_none());
    }

    #[test]
    fn agrees_with_a_plain_list() {
        let map = RangeMap::new();
        let mut list: Vec<(usize, usize)> = Vec::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for step in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let (base, len) = (random(5000), random(60) + usize::from(random(50) == 0) * 1000);
            match random(3) {
                0 | 1 => {
                    let fresh = !list.iter().any(|(b, _)| *b == base);
                    assert_eq!(map.insert(Arc::new(Range(base, len))).is_ok(), fresh);
                    if fresh {
                        list.push((base, len));
                    }
                }
                _ => {
                    let known = list.iter().any(|(b, _)| *b == base);
                    assert_eq!(matches!(map.remove(base, |_| true), Removal::Done), known);
                    list.retain(|(b, _)| *b != base);
                }
            }
            if step % 7 == 0 {
                let (start, len) = (random(6000), random(80));
                let expected =
                    list.iter().filter(|(b, l)| *b <= start && b + l >= start + len).map(|(b, _)| *b).max();
                assert_eq!(map.view().holding(start, len).map(|r| r.0), expected);
            }
        }
        assert_eq!(map.drain().len(), list.len());
        assert!(map.view().holding(0, 0).is_none());
    }

    #[test]
    fn a_refused_removal_changes_nothing() {
        let map = RangeMap::new();
        map.insert(Arc::new(Range(1, 1))).unwrap();
        assert!(matches!(map.remove(1, |_| false), Removal::Refused));
        assert!(map.view().exact(1).is_some());
        assert!(matches!(map.remove(2, |_| true), Removal::Unknown));
    }
}
