//! Locks without poisoning: no code under a lock of this crate can leave its data half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks one shard, for reading: threads that read do not write the same cache line.
pub(crate) fn read<T>(sharded: &ShardedLock<T>) -> ShardedLockReadGuard<'_, T> {
    sharded.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks every shard, for writing.
pub(crate) fn write<T>(sharded: &ShardedLock<T>) -> ShardedLockWriteGuard<'_, T> {
    sharded.write().unwrap_or_else(PoisonError::into_inner)
}
