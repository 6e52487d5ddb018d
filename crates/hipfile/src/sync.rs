//! The locks, atomics and threads of those modules whose every order of steps is tried out: std's here, a scheduler's in
//! the crate `hipfile-model`, which takes the same modules. It adds nothing to them.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, atomic};
pub(crate) use std::thread;
