//! Finds the master of a service through Sentinel, and follows failovers.
//!
//! The client asks all Sentinels at once, and believes the newest configuration: a Sentinel that was cut off together with an old master
//! keeps naming it. It waits for a majority, or for all if the majority is older than the known configuration. The server that they name
//! must say itself that it is a master. The driver's Sentinel client asks one Sentinel after the other and believes the first, so it is
//! not used.
//!
//! One Sentinel reports failovers (`watcher.rs`). The client then ends connections to the former master with the driver's message for a
//! broken connection, so that their users need not know of Sentinel.

mod asking;
mod count;
mod no_master;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Client, ConnectionAddr, PushInfo, PushKind};

pub(super) use self::asking::{Named, Sentinel, named};
pub(super) use self::no_master::NoMaster;
use super::access::Access;
use crate::backend::together;
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::url::HostPort;

/// The part of its time for which a Sentinel that is slower than a majority is waited for.
const GRACE: u32 = 4;

/// The callback of a connection for pushes.
pub(super) type OnPush = dyn Fn(PushInfo) + Send + Sync;

/// The Sentinels of one service.
pub(super) struct Sentinels {
    pub(super) service: String,
    pub(super) sentinels: Vec<Sentinel>,
    servers: Access,
    /// How long a Sentinel may take to answer.
    pub(super) patience: Duration,
    /// The server that gets the commands.
    master: Mutex<Option<HostPort>>,
    /// Counts the masters.
    number: AtomicU64,
    /// The newest known configuration.
    newest: AtomicU64,
    /// A task counts the replicas.
    is_counting: AtomicBool,
    /// The connections to servers.
    connections: Mutex<Vec<(HostPort, Weak<OnPush>)>>,
    pub(super) is_watched: AtomicBool,
    /// The warning that a Sentinel refuses the subscription was logged.
    has_warned: AtomicBool,
}

/// The answer of one Sentinel; `None` if it was not waited for.
pub(super) type Answered = Option<Result<Named, NoMaster>>;

impl Sentinels {
    pub(super) fn new(
        service: &str,
        hosts: &[HostPort],
        sentinels: &Access,
        servers: Access,
        patience: Duration,
    ) -> Result<Self, Error> {
        let sentinels = hosts.iter().map(|host| Ok(Sentinel::new(shown(host), sentinels.client(host)?)));
        Ok(Sentinels {
            service: service.to_owned(),
            sentinels: sentinels.collect::<Result<_, Error>>()?,
            servers,
            patience,
            master: Mutex::new(None),
            number: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            is_counting: AtomicBool::new(false),
            connections: Mutex::default(),
            is_watched: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Asks for the master, which gets the commands from now on.
    pub(super) async fn find(&self) -> Result<(Client, HostPort), Error> {
        let master = self.newest_in(&self.ask(Duration::ZERO).await)?.master;
        let is_another = self.master.lock().replace(master.clone()).is_none_or(|before| before != master);
        if is_another {
            self.number.fetch_add(1, Ordering::AcqRel);
        }
        Ok((self.servers.client(&master)?, master))
    }

    /// Asks again whether the connected server is the master: connecting took time, and a majority may know less than the others.
    ///
    /// A master that was paused answers when it resumes, perhaps after a failover. And one Sentinel knows of a failover first: no client
    /// is at the new master before that. So a client that asks all Sentinels after the first grant there learns of the failover.
    pub(super) async fn confirm(&self) -> Result<(), Error> {
        let answers = self.ask(self.patience / GRACE).await;
        let newest = self.newest_in(&answers)?;
        let mut named = answers.iter().flatten().flatten().filter(|one| one.epoch == newest.epoch);
        match self.master().is_none_or(|found| named.any(|one| one.master == found)) {
            true => Ok(()),
            false => Err(Error::not_yet(format!(
                "sentinel names another master than before: {}",
                shown(&newest.master)
            ))
            .fix("try again")),
        }
    }

    /// The server that gets the commands; asks for it if none is known yet.
    pub(super) async fn current(&self) -> Result<(Client, HostPort), Error> {
        let master = self.master();
        match master {
            Some(master) => Ok((self.servers.client(&master)?, master)),
            None => self.find().await,
        }
    }

    pub(super) fn master(&self) -> Option<HostPort> {
        self.master.lock().clone()
    }

    pub(super) fn addr(&self, server: &HostPort) -> ConnectionAddr {
        self.servers.addr(server)
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Registers a connection that ends when another server is the master.
    pub(super) fn watch(&self, server: HostPort, on_push: &Arc<OnPush>) {
        let mut connections = self.connections.lock();
        connections.retain(|(_, on_push)| on_push.strong_count() > 0);
        connections.push((server, Arc::downgrade(on_push)));
    }

    /// Whether the connection is still registered.
    pub(super) fn watches(&self, on_push: &Arc<OnPush>) -> bool {
        self.connections.lock().iter().any(|(_, one)| one.ptr_eq(&Arc::downgrade(on_push)))
    }

    /// Applies the answer of one Sentinel: connections to other servers end. Returns false if the answer is older than the known
    /// configuration.
    pub(super) fn apply(&self, sentinel: &Sentinel, named: &Named) -> bool {
        sentinel.counts(named.replicas);
        if named.epoch < self.newest.fetch_max(named.epoch, Ordering::AcqRel) {
            return false;
        }
        let ended: Vec<_> = {
            let mut connections = self.connections.lock();
            let (ended, kept) = std::mem::take(&mut *connections)
                .into_iter()
                .partition(|(server, _)| *server != named.master);
            *connections = kept;
            ended
        };
        for on_push in ended.into_iter().filter_map(|(_, on_push)| on_push.upgrade()) {
            tracing::debug!(target: "tenure", master = shown(&named.master), "sentinel names another master");
            on_push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
        true
    }

    /// Asks all Sentinels, and applies the newest answer.
    pub(super) async fn ask_and_apply(&self) {
        let answers = self.ask_each(|_| false).await;
        if let Some((sentinel, named)) = self.newest_of(&answers) {
            self.apply(sentinel, named);
        }
    }

    /// The newest of these answers, and its Sentinel; of several, the most frequent one. Notes the number of replicas of each.
    fn newest_of<'a>(&'a self, answers: &'a [Answered]) -> Option<(&'a Sentinel, &'a Named)> {
        let each = self.sentinels.iter().zip(answers);
        let named = each.filter_map(|(one, answer)| Some((one, answer.as_ref()?.as_ref().ok()?)));
        let named: Vec<_> = named.inspect(|(one, named)| one.counts(named.replicas)).collect();
        let rank = |(_, named): &(&Sentinel, &Named)| {
            let says_so = |one: &&Named| (one.epoch, &one.master) == (named.epoch, &named.master);
            (named.epoch, answers.iter().flatten().flatten().filter(says_so).count())
        };
        named.into_iter().reduce(|best, one| if rank(&one) > rank(&best) { one } else { best })
    }

    /// Logs once that a Sentinel refuses the subscription to failovers.
    pub(super) fn warn_cannot_listen(&self, address: &str, error: &redis::RedisError) {
        if !self.has_warned.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                target: "tenure", sentinel = address, %error,
                "sentinel does not let us listen, and may be asked late for a new master; allow its user `+subscribe` and `&+switch-master`"
            );
        }
    }

    /// The answers of a majority, and those that come within `grace` after it; of all Sentinels, if a newer configuration is known or no
    /// majority answers.
    async fn ask(&self, grace: Duration) -> Vec<Answered> {
        let newest = self.newest.load(Ordering::Acquire);
        let are_enough = |answers: &[Answered]| {
            let mut named = answers.iter().flatten().flatten();
            let majority = self.sentinels.len() / 2 + 1;
            named.clone().count() >= majority && named.any(|one| one.epoch >= newest)
        };
        together::until_late(self.questions(), are_enough, grace).await
    }

    /// The newest of these answers, noted as known.
    fn newest_in(&self, answers: &[Answered]) -> Result<Named, Error> {
        match self.newest_of(answers) {
            Some((_, named)) => {
                self.newest.fetch_max(named.epoch, Ordering::AcqRel);
                Ok(named.clone())
            }
            None => {
                let reasons = answers.iter().flatten().filter_map(|answer| answer.as_ref().err());
                let each = self.sentinels.iter().map(|sentinel| &*sentinel.address).zip(reasons);
                Err(no_master::of_all(&self.service, &each.collect::<Vec<_>>()))
            }
        }
    }

    /// Asks all Sentinels at once, until the answers are enough or complete.
    pub(super) async fn ask_each(&self, are_enough: impl Fn(&[Answered]) -> bool) -> Vec<Answered> {
        together::until(self.questions(), are_enough).await
    }

    fn questions(&self) -> Vec<impl Future<Output = Result<Named, NoMaster>> + Send> {
        self.sentinels.iter().map(|sentinel| sentinel.ask(&self.service, self.patience)).collect()
    }

    /// The highest number of replicas that a Sentinel reports, including those that are down; `None` if no Sentinel says it.
    pub(super) fn replicas(&self) -> Option<u64> {
        self.sentinels.iter().filter_map(Sentinel::counted).max()
    }

    /// Counts the replicas again, because an operator may have made the Sentinels forget one. If a majority answers, the others do not
    /// count.
    pub(super) async fn count_replicas(&self) {
        if self.is_counting.swap(true, Ordering::AcqRel) {
            return;
        }
        let _counting = Counting(&self.is_counting);
        let answers = self.ask_each(|_| false).await;
        let counts = || answers.iter().map(|answer| answer.as_ref()?.as_ref().ok()?.replicas);
        if counts().flatten().count() > self.sentinels.len() / 2 {
            self.sentinels.iter().zip(counts()).for_each(|(one, count)| one.counts(count));
        }
    }
}

/// Marks a count as running until it is dropped.
struct Counting<'a>(&'a AtomicBool);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

pub(super) fn shown(host: &HostPort) -> String {
    host.to_string()
}
