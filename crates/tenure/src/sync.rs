//! A mutex that can't be poisoned and atomics, on the standard library's or, to permute schedules, on shuttle's.
//!
//! No lock of this crate is held while foreign code runs, so a panic under it is a bug of ours; the state is whole at every
//! unlock, and the next one to come must still be able to release what it holds.

#[cfg(not(shuttle))]
use std::sync::{Mutex as Raw, PoisonError};

#[cfg(shuttle)]
use shuttle::sync::Mutex as Raw;
#[cfg(shuttle)]
use std::sync::PoisonError;

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{MutexGuard, atomic};
#[cfg(not(shuttle))]
pub(crate) use std::sync::{MutexGuard, atomic};

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(Raw<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(Raw::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
