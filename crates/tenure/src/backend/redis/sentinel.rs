//! Finds the master of a service through Sentinel, and hears of its successor.
//!
//! All Sentinels are asked at once, and the one whose configuration is newest is believed: one that was cut off together with an old
//! master goes on naming it. A majority of them is waited for, or all when the majority is older than what was known before. Whoever is
//! named must still say itself that it is a master. The driver's own Sentinel client is not used: it asks one after the other, and
//! believes the first.
//!
//! A failover is heard on one Sentinel (`watcher.rs`). It ends the connections to the master before by what the driver says of a connection
//! that broke, so that whoever uses one need not know of Sentinel.

mod asking;
mod count;
mod silence;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Client, ConnectionAddr, PushInfo, PushKind};

pub(super) use self::asking::{Named, Sentinel, named};
pub(super) use self::silence::Silence;
use super::access::Access;
use crate::backend::together;
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::url::HostPort;

/// A Sentinel that is slower than a majority is waited for during this part of the time that it has.
const GRACE: u32 = 4;

/// What a connection says unasked, or is made to say.
pub(super) type Hear = dyn Fn(PushInfo) + Send + Sync;

/// The Sentinels of one service.
pub(super) struct Sentinels {
    pub(super) service: String,
    pub(super) sentinels: Vec<Sentinel>,
    servers: Access,
    /// How long one may take to answer.
    pub(super) patience: Duration,
    /// The server that the commands go to.
    master: Mutex<Option<HostPort>>,
    /// Counts the masters.
    number: AtomicU64,
    /// The newest configuration that was heard of.
    newest: AtomicU64,
    /// Somebody counts the replicas.
    is_counting: AtomicBool,
    /// The connections to servers.
    connections: Mutex<Vec<(HostPort, Weak<Hear>)>>,
    pub(super) is_watched: AtomicBool,
    /// It was said that failovers are not heard.
    is_unheard: AtomicBool,
}

/// What one of them answered; nothing, if it was not waited for.
pub(super) type Answered = Option<Result<Named, Silence>>;

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
            is_unheard: AtomicBool::new(false),
        })
    }

    /// Asks who is the master. The server is the one for commands from now on.
    pub(super) async fn find(&self) -> Result<(Client, HostPort), Error> {
        let master = self.newest_in(&self.ask(Duration::ZERO).await)?.master;
        let is_another = self.master.lock().replace(master.clone()).is_none_or(|before| before != master);
        if is_another {
            self.number.fetch_add(1, Ordering::AcqRel);
        }
        Ok((self.servers.client(&master)?, master))
    }

    /// A connection to the server that was found stands. Asks again whether that is the master: connecting took its time, and a majority may
    /// know less than the others.
    ///
    /// One that was paused answers when it resumes, after a failover perhaps, whoever began to connect before. And a failover is known to
    /// one of them first: nobody is at the new master before that, so whoever asks all of them after the first grant there hears of it.
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

    /// The server that the commands go to; asks who it may be when there was none yet.
    pub(super) async fn standing(&self) -> Result<(Client, HostPort), Error> {
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

    /// A connection to this server is to end when another one is the master.
    pub(super) fn watch(&self, server: HostPort, hear: &Arc<Hear>) {
        let mut connections = self.connections.lock();
        connections.retain(|(_, hear)| hear.strong_count() > 0);
        connections.push((server, Arc::downgrade(hear)));
    }

    /// Whether the connection has not been ended.
    pub(super) fn watches(&self, hear: &Arc<Hear>) -> bool {
        self.connections.lock().iter().any(|(_, one)| one.ptr_eq(&Arc::downgrade(hear)))
    }

    /// One of them names a master: connections to another end. False when it is an older one, which does not count.
    pub(super) fn heard(&self, sentinel: &Sentinel, named: &Named) -> bool {
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
        for hear in ended.into_iter().filter_map(|(_, hear)| hear.upgrade()) {
            tracing::debug!(target: "tenure", master = shown(&named.master), "sentinel names another master");
            hear(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
        true
    }

    /// Asks all of them, and hears the newest.
    pub(super) async fn ask_and_hear(&self) {
        let answers = self.ask_each(|_| false).await;
        if let Some((sentinel, named)) = self.newest_of(&answers) {
            self.heard(sentinel, named);
        }
    }

    /// The newest of these answers, and who gave it; of several, the one that most of them gave. What each says of the replicas is noted.
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

    /// One of them does not let us hear of failovers, which is said once.
    pub(super) fn missed_grants(&self, address: &str, error: &redis::RedisError) {
        if !self.is_unheard.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                target: "tenure", sentinel = address, %error,
                "sentinel does not let us listen, and may be asked late for a new master; allow its user `+subscribe` and `&+switch-master`"
            );
        }
    }

    /// The answers of a majority, and of those that answer so soon after it; of all, where a newer one was heard before, or where no
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

    /// The newest of these answers; it counts as heard.
    fn newest_in(&self, answers: &[Answered]) -> Result<Named, Error> {
        match self.newest_of(answers) {
            Some((_, named)) => {
                self.newest.fetch_max(named.epoch, Ordering::AcqRel);
                Ok(named.clone())
            }
            None => {
                let silences = answers.iter().flatten().filter_map(|answer| answer.as_ref().err());
                let each = self.sentinels.iter().map(|sentinel| &*sentinel.address).zip(silences);
                Err(silence::of_all(&self.service, &each.collect::<Vec<_>>()))
            }
        }
    }

    /// Asks all of them at once, until the answers are enough, or there is one of each.
    pub(super) async fn ask_each(&self, are_enough: impl Fn(&[Answered]) -> bool) -> Vec<Answered> {
        together::until(self.questions(), are_enough).await
    }

    fn questions(&self) -> Vec<impl Future<Output = Result<Named, Silence>> + Send> {
        self.sentinels.iter().map(|sentinel| sentinel.ask(&self.service, self.patience)).collect()
    }

    /// How many replicas they know of, also those that are down: the most that one of them said; nothing, if none of them says it.
    pub(super) fn replicas(&self) -> Option<u64> {
        self.sentinels.iter().filter_map(Sentinel::counted).max()
    }

    /// Asks all of them anew how many replicas there are: an operator may have made them forget one. One that does not answer is left out
    /// where a majority does.
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

/// Somebody counts, until this is dropped.
struct Counting<'a>(&'a AtomicBool);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

pub(super) fn shown(host: &HostPort) -> String {
    host.to_string()
}
