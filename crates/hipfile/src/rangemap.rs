//! Registered memory by address: exact bases, and the registration that holds a range. Look-ups write no shared memory
//! and see one snapshot. Not an allocator; registrations may overlap.

use crate::sync::{Arc, ArcSwap, Guard, Mutex, PoisonError};

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

/// A value, with its range beside it: a search touches no value but the one it finds.
#[derive(Debug)]
struct Entry<T> {
    base: usize,
    end: usize,
    value: Arc<T>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Entry<T> {
        Entry { base: self.base, end: self.end, value: Arc::clone(&self.value) }
    }
}

/// Sorted by base, never empty.
type Leaf<T> = Vec<Entry<T>>;

/// A leaf and what a search must know of it before it looks in.
#[derive(Debug)]
struct Branch<T> {
    /// Base of its first entry.
    first: usize,
    /// Largest end in it.
    reach: usize,
    /// Largest end in it and in all before it.
    reach_so_far: usize,
    leaf: Arc<Leaf<T>>,
}

#[derive(Debug)]
struct Snapshot<T> {
    /// Sorted by first base.
    branches: Vec<Branch<T>>,
}

/// A map from address ranges to values, at most one value per base.
#[derive(Debug)]
pub(crate) struct RangeMap<T> {
    snapshot: ArcSwap<Snapshot<T>>,
    writer: Mutex<()>,
}

/// The registrations at one moment.
pub(crate) struct View<T> {
    snapshot: Guard<Arc<Snapshot<T>>>,
}

impl<T> Snapshot<T> {
    /// The last branch whose first base is not above the address.
    fn branch_of(&self, address: usize) -> Option<usize> {
        self.branches.partition_point(|branch| branch.first <= address).checked_sub(1)
    }

    fn exact(&self, base: usize) -> Option<&Arc<T>> {
        let leaf = &self.branches[self.branch_of(base)?].leaf;
        let at = leaf.binary_search_by_key(&base, |entry| entry.base).ok()?;
        Some(&leaf[at].value)
    }

    /// The registration with the highest base that holds `start..end` wholly.
    fn holding(&self, start: usize, end: usize) -> Option<&Arc<T>> {
        for branch in self.branches[..=self.branch_of(start)?].iter().rev() {
            if branch.reach_so_far < end {
                return None;
            }
            if branch.reach < end {
                continue;
            }
            let upto = branch.leaf.partition_point(|entry| entry.base <= start);
            if let Some(found) = branch.leaf[..upto].iter().rev().find(|entry| entry.end >= end) {
                return Some(&found.value);
            }
        }
        None
    }

    /// Replaces the branch at `at`, if there is one, by these.
    fn with(&self, at: usize, new: impl Iterator<Item = Leaf<T>>) -> Snapshot<T> {
        let mut branches = Vec::with_capacity(self.branches.len() + 1);
        let mut reach_so_far = 0;
        let mut add = |first, reach, leaf| {
            reach_so_far = reach_so_far.max(reach);
            branches.push(Branch { first, reach, reach_so_far, leaf });
        };
        let old = |branch: &Branch<T>| (branch.first, branch.reach, Arc::clone(&branch.leaf));
        for (first, reach, leaf) in self.branches[..at.min(self.branches.len())].iter().map(old) {
            add(first, reach, leaf);
        }
        for leaf in new {
            let reach = leaf.iter().map(|entry| entry.end).max().unwrap_or(0);
            add(leaf[0].base, reach, Arc::new(leaf));
        }
        for (first, reach, leaf) in self.branches.iter().skip(at + 1).map(old) {
            add(first, reach, leaf);
        }
        Snapshot { branches }
    }
}

impl<T> View<T> {
    /// The registration of exactly this base.
    pub(crate) fn exact(&self, base: usize) -> Option<&Arc<T>> {
        self.snapshot.exact(base)
    }

    /// A registration that holds the whole range; of several, the one with the highest base.
    pub(crate) fn holding(&self, start: usize, len: usize) -> Option<&Arc<T>> {
        self.snapshot.holding(start, start.checked_add(len)?)
    }
}

impl<T: Ranged> RangeMap<T> {
    pub(crate) fn new() -> RangeMap<T> {
        let empty = Snapshot { branches: Vec::new() };
        RangeMap { snapshot: ArcSwap::from_pointee(empty), writer: Mutex::new(()) }
    }

    /// The registrations as they are now; later changes do not show in it.
    pub(crate) fn view(&self) -> View<T> {
        View { snapshot: self.snapshot.load() }
    }

    /// Adds a value; gives it back when its base is taken.
    pub(crate) fn insert(&self, value: Arc<T>) -> Result<(), Arc<T>> {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.load();
        let base = value.base();
        if old.exact(base).is_some() {
            return Err(value);
        }
        let at = old.branch_of(base).unwrap_or(0);
        let mut leaf = old.branches.get(at).map(|branch| branch.leaf.to_vec()).unwrap_or_default();
        let entry = Entry { base, end: value.end(), value };
        leaf.insert(leaf.partition_point(|other| other.base < base), entry);
        let upper = if leaf.len() > LEAF { leaf.split_off(LEAF / 2) } else { Vec::new() };
        self.replace(&old, at, [leaf, upper]);
        Ok(())
    }

    /// Takes out the value of exactly this base, if `accept` agrees.
    pub(crate) fn remove(&self, base: usize, accept: impl FnOnce(&T) -> bool) -> Removal<T> {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.load();
        let (Some(at), Some(found)) = (old.branch_of(base), old.exact(base)) else {
            return Removal::Unknown;
        };
        if !accept(found) {
            return Removal::Refused;
        }
        let removed = Arc::clone(found);
        let mut leaf = old.branches[at].leaf.to_vec();
        leaf.retain(|entry| entry.base != base);
        self.replace(&old, at, [leaf, Vec::new()]);
        Removal::Done(removed)
    }

    /// Takes everything out.
    pub(crate) fn drain(&self) -> Vec<Arc<T>> {
        let _writing = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.snapshot.swap(Arc::new(Snapshot { branches: Vec::new() }));
        old.branches.iter().flat_map(|b| b.leaf.iter().map(|entry| Arc::clone(&entry.value))).collect()
    }

    fn replace(&self, old: &Snapshot<T>, at: usize, new: [Leaf<T>; 2]) {
        let new = new.into_iter().filter(|leaf| !leaf.is_empty());
        self.snapshot.store(Arc::new(old.with(at, new)));
    }
}

/// What [`RangeMap::remove`] did.
pub(crate) enum Removal<T> {
    /// Taken out.
    Done(Arc<T>),
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
                    assert_eq!(matches!(map.remove(base, |_| true), Removal::Done(_)), known);
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
    fn the_innermost_of_many_nested_ranges_is_found() {
        const COUNT: usize = if cfg!(miri) { 300 } else { 20_000 };
        let map = RangeMap::new();
        // One around all, and small ones with gaps: what crosses a gap belongs to the outer one.
        map.insert(Arc::new(Range(1, COUNT * 16 + 16))).unwrap();
        for n in 1..=COUNT {
            map.insert(Arc::new(Range(n * 16, 8))).unwrap();
        }
        let view = map.view();
        for n in (1..=COUNT).step_by(97) {
            assert_eq!(view.holding(n * 16 + 3, 5).map(|r| r.0), Some(n * 16));
            assert_eq!(view.holding(n * 16 + 3, 6).map(|r| r.0), Some(1));
            assert_eq!(view.holding(n * 16 + 8, 1).map(|r| r.0), Some(1));
        }
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
