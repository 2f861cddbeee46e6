//! Connecting once, for all callers that ask at the same time (R0.3).
//!
//! The attempt runs as a task of its own, so a caller that is cancelled or runs out of time takes nothing away from the others.
//! All callers that waited for an attempt get its answer. The first caller after a failed attempt starts a new one.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::backend::runtime;
use crate::backend::{Backend, Pending};
use crate::engine::tasks::Tasks;
use crate::sync::Mutex;
use crate::types::error::Error;

type Answer = Result<Arc<dyn Backend>, Error>;

#[derive(Default)]
pub(crate) struct Opening {
    open: OnceLock<Arc<dyn Backend>>,
    attempt: Mutex<Option<watch::Receiver<Option<Answer>>>>,
}

impl Opening {
    /// The backend, if it was opened.
    pub(crate) fn get(&self) -> Option<&Arc<dyn Backend>> {
        self.open.get()
    }

    /// The backend. The first call connects.
    pub(crate) async fn get_or_open(
        &self,
        tasks: &Tasks,
        open: impl FnOnce() -> Pending<Arc<dyn Backend>>,
    ) -> Result<&Arc<dyn Backend>, Error> {
        let mut answer = self.join_or_start(tasks, open);
        let answer = match answer.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone(),
            Err(_) => None,
        };
        match answer {
            Some(Ok(backend)) => Ok(self.open.get_or_init(|| backend)),
            Some(Err(error)) => Err(error),
            None => Err(Error::unavailable("connecting was broken off because its runtime shut down")
                .fix("try again")),
        }
    }

    fn join_or_start(
        &self,
        tasks: &Tasks,
        open: impl FnOnce() -> Pending<Arc<dyn Backend>>,
    ) -> watch::Receiver<Option<Answer>> {
        let mut attempt = self.attempt.lock();
        if let Some(known) = attempt.as_ref() {
            let (succeeded, has_answer) = match &*known.borrow() {
                Some(answer) => (answer.is_ok(), true),
                None => (false, false),
            };
            let is_running = !has_answer && known.has_changed().is_ok();
            if succeeded || is_running {
                return known.clone();
            }
        }
        let (tell, answer) = watch::channel(None);
        *attempt = Some(answer.clone());
        match open() {
            Pending::Now(at_once) => drop(tell.send(at_once)),
            Pending::Later(_) if !tasks.has_runtime() => drop(tell.send(Some(Err(runtime::missing())))),
            later => {
                drop(attempt);
                tasks.spawn_daemon(async move {
                    let opened = later.await;
                    tell.send_replace(Some(opened));
                });
            }
        }
        answer
    }
}
