//! Background work of one client, on whatever runtime there is.
//!
//! A guard may be dropped outside a runtime, on another one than it was taken on, or while its own goes down. So work is started on
//! the runtime of the caller when there is one, and else on the one last seen. On a runtime that is gone the work is dropped at
//! once, unstarted: everything that is spawned here cleans up when it is dropped, and the lease's expiry is the backstop.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::sync::Mutex;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<State>);

#[derive(Debug, Default)]
struct State {
    runtime: Mutex<Option<Handle>>,
    running: AtomicUsize,
    finished: Notify,
}

impl Tasks {
    /// Remembers the caller's runtime, for work that is started where there is none.
    pub(crate) fn see_runtime(&self) {
        if let Ok(handle) = Handle::try_current() {
            *self.0.runtime.lock() = Some(handle);
        }
    }

    /// Starts work that `all_done` waits for.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.0));
        self.spawn_daemon(async move {
            let _running = running;
            work.await;
        });
    }

    /// Starts work that ends by itself when its client is gone.
    pub(crate) fn spawn_daemon(&self, work: impl Future<Output = ()> + Send + 'static) {
        #[cfg(shuttle)]
        drop(shuttle::future::spawn(work));
        #[cfg(not(shuttle))]
        if let Ok(handle) = Handle::try_current() {
            drop(handle.spawn(work));
        } else {
            let last_seen = self.0.runtime.lock().clone();
            if let Some(handle) = last_seen {
                drop(handle.spawn(work));
            }
        }
    }

    /// Waits until nothing that was spawned is running.
    pub(crate) async fn all_done(&self) {
        loop {
            let finished = self.0.finished.notified();
            if self.0.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            finished.await;
        }
    }
}

struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.finished.notify_waiters();
    }
}
