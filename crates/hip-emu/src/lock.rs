//! Locks. They know no poisoning: no code under a lock of this crate leaves its data half changed.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::thread;

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many threads read without writing one cache line in turn.
const SHARDS: usize = 8;

#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard(RwLock<()>);

/// A lock for what is read by every copy and written by few calls: a reader takes one shard, by its thread; a writer takes
/// them all.
#[derive(Debug, Default)]
pub(crate) struct Sharded<T> {
    shards: [Shard; SHARDS],
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through the guards only: shared while a shard is locked for reading, exclusively while all
// are locked for writing. So it is shared and sent between threads as in an RwLock.
unsafe impl<T: Send + Sync> Sync for Sharded<T> {}

/// Shared access to the value of a [`Sharded`].
#[derive(Debug)]
pub(crate) struct Reading<'a, T> {
    value: &'a T,
    _shard: RwLockReadGuard<'a, ()>,
}

/// Exclusive access to the value of a [`Sharded`].
#[derive(Debug)]
pub(crate) struct Writing<'a, T> {
    value: &'a mut T,
    _shards: [RwLockWriteGuard<'a, ()>; SHARDS],
}

impl<T> Sharded<T> {
    /// Locks for reading.
    pub(crate) fn read(&self) -> Reading<'_, T> {
        let shard = self.shards[thread::index() % SHARDS].0.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no writer has its exclusive reference while one shard is locked for reading, as the guard keeps it.
        Reading { value: unsafe { &*self.value.get() }, _shard: shard }
    }

    /// Locks for writing.
    pub(crate) fn write(&self) -> Writing<'_, T> {
        // Always in the same order, so that two writers cannot each have some.
        let shards =
            self.shards.each_ref().map(|shard| shard.0.write().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: every shard is locked for writing, as the guards keep them, so there is no other reference.
        Writing { value: unsafe { &mut *self.value.get() }, _shards: shards }
    }
}

impl<T> Deref for Reading<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Deref for Writing<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Writing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_excludes_everybody_and_readers_only_writers() {
        let pair: Sharded<(u64, u64)> = Sharded::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut pair = pair.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let pair = pair.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(pair.read().0, 8000);
        let (first, second) = (pair.read(), std::thread::scope(|scope| scope.spawn(|| pair.read().1).join()));
        assert_eq!(second.ok(), Some(first.1));
    }
}
