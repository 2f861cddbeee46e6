//! A directory, with processes that are killed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Domain, Ticket};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Ability, Doing, Fixture};
use tokio::runtime::{Builder, Runtime};

use crate::{Shared, doomed, without_a_line};

/// A directory of its own, in real time, with clients that are strangers to each other and with processes that are killed.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tenure-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Directory(std::env::temp_dir().join(name))
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Fixture for Directory {
    type Client = Shared;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
    }

    async fn client(&self) -> Shared {
        Shared(Domain::open(&self.url()).await.expect("a directory of this process"))
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// A real process, killed.
    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        doomed::kill(&self.url(), doing, name, ttl)
    }

    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[
            (Ability::CutOff, "there is no line to cut between a process and its own machine's files"),
            (Ability::LoseReplies, "there is no reply to lose between a process and its own machine's files"),
        ]
    }
}

without_a_line!(file, Directory::new(), nor []);
