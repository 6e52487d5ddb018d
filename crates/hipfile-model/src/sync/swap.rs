//! What the crate arc-swap promises, made of a lock that the scheduler knows: each look and each exchange is one step. How that
//! crate keeps its promise is for its own tests.

use std::sync::Arc;

use shuttle::sync::{Mutex, MutexGuard, PoisonError};

/// A place that holds a value of which many may have hold.
#[derive(Debug, Default)]
pub(crate) struct Place<T>(Mutex<T>);

pub(crate) type ArcSwap<T> = Place<Arc<T>>;
pub(crate) type ArcSwapOption<T> = Place<Option<Arc<T>>>;

/// What was in a place.
#[derive(Debug)]
pub(crate) struct Guard<T>(T);

impl<T> std::ops::Deref for Guard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> Place<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn load(&self) -> Guard<T> {
        Guard(self.lock().clone())
    }

    pub(crate) fn store(&self, value: T) {
        drop(self.swap(value));
    }

    pub(crate) fn swap(&self, value: T) -> T {
        std::mem::replace(&mut *self.lock(), value)
    }
}

impl<T> Place<Arc<T>> {
    pub(crate) fn from_pointee(value: T) -> Self {
        Place(Mutex::new(Arc::new(value)))
    }
}

impl<T> Place<Option<Arc<T>>> {
    pub(crate) fn empty() -> Self {
        Place(Mutex::new(None))
    }
}
