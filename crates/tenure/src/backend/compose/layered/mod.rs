//! Two stores as one: every holder on a machine holds the *inner* one, its directory, and the *outer* one, Redis, as well.
//!
//! So a machine never has two holders, whatever happens to Redis and whoever can reach it. Inner first, then outer: waiting for the outer one while
//! holding the inner one keeps only this machine, and the outer one is asked with the fence of the inner one as its floor. What comes of it is
//! written back into the inner record, so that fences grow on a machine through every switch (I3). Giving back goes the other way round.
//!
//! When the outer store is out of reach, nobody enters ([`Degrade::Never`]), or whoever holds the inner one does, and knows that it is *degraded*
//! ([`Degrade::Allow`]).
//!
//! A grant of either store is heard as a doubt: the waiter asks again, and that request takes the next step. It costs a round trip, and
//! no rule about pushes is needed for the pair. The client's clock for requests is that of the inner store; what goes out to the other one is
//! translated.

mod acquire;
mod bids;
mod force;
mod outside;
mod steps;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use self::bids::Bids;
use crate::backend::GroupOf;
use crate::backend::{Answer, Backend, Capability, Grant, Pending, Sink};
use crate::core::record::{HEARTBEAT, Op, Reply};
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::{Finding, Verdict};
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, Token};
use crate::url::Degrade;

/// One client of both stores.
pub(crate) struct Layered(Arc<TimePair>);

struct TimePair {
    inner: Arc<dyn Backend>,
    outer: Arc<dyn Backend>,
    /// The stores know it by a weak reference.
    _ear: Arc<dyn Sink>,
    degrade: Degrade,
    /// How long a command may take, where that is set.
    timeout: Option<Duration>,
    clock: Clock,
    bids: Bids,
    /// For what goes on in the background, and keeps nothing open.
    this: Weak<TimePair>,
    /// The outer store was out of reach when it was last asked.
    is_away: AtomicBool,
}

impl Layered {
    /// Both stores have the session of the inner one, and tell `ear`.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        outer: Arc<dyn Backend>,
        ear: Arc<dyn Sink>,
        degrade: Degrade,
        timeout: Option<Duration>,
        clock: Clock,
    ) -> Self {
        let (bids, is_away) = (Bids::default(), AtomicBool::new(false));
        Layered(Arc::new_cyclic(|this| TimePair {
            inner,
            outer,
            _ear: ear,
            degrade,
            timeout,
            clock,
            bids,
            this: this.clone(),
            is_away,
        }))
    }
}

impl Backend for Layered {
    fn session(&self) -> &Session {
        self.0.inner.session()
    }

    fn server_now(&self, name: &Name) -> Option<u64> {
        self.0.inner.server_now(name)
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        let (pair, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            let reply = pair.execute(&name, op).await?;
            // Only where it is compared with nothing that a store pushes.
            let server = if let Reply::Seen { .. } = reply { pair.inner.server_now(&name) } else { None };
            Ok(Answer { reply, server })
        }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (pair, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            let inside = pair.inner.list(&prefix).await?;
            let outside = match pair.outer.list(&prefix).await {
                Err(error) if pair.may_go_on_without(&error) => Vec::new(),
                outside => outside?,
            };
            let mut names = NameMap::default();
            names.extend(inside.into_iter().chain(outside).map(|name| (name, ())));
            Ok(names.into_keys().collect())
        }))
    }

    fn polls(&self, name: &Name) -> bool {
        self.0.outer.polls(name)
    }

    fn groups(&self) -> Option<GroupOf> {
        self.0.outer.groups()
    }

    /// Each request of a waiter also keeps its inner lease.
    fn longest_pause(&self) -> Duration {
        HEARTBEAT
    }

    fn verifies_after(&self) -> Option<Duration> {
        self.0.outer.verifies_after()
    }

    fn reconnects(&self) -> bool {
        self.0.outer.reconnects()
    }

    fn is_degraded(&self, token: &Token) -> bool {
        self.0.bids.standing(token).is_degraded()
    }

    /// While the outer store is out of reach, another token would be of no more use.
    fn is_unusable(&self, token: &Token) -> bool {
        let TimePair { bids, outer, .. } = &*self.0;
        outer.outage().is_none() && bids.standing(token).is_unusable || outer.is_unusable(token)
    }

    fn capabilities(&self) -> &'static [Capability] {
        self.0.outer.capabilities()
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        self.0.inner.lifeline()
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        let pair = Arc::clone(&self.0);
        Pending::Later(Box::pin(async move {
            let inside = pair.inner.examine().await.unwrap_or_else(|error| vec![unfit(&error)]);
            let outside = pair.outer.examine().await.unwrap_or_else(|error| vec![pair.missing(&error)]);
            let inside = inside.into_iter().map(|finding| finding.of("inner"));
            Ok(inside.chain(outside.into_iter().map(|finding| finding.of("outer"))).collect())
        }))
    }

    fn forget(&self, name: &Name) -> Pending<()> {
        let (pair, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            pair.inner.forget(&name).await?;
            pair.outer.forget(&name).await
        }))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.0.inner.warnings();
        warnings.extend(self.0.outer.warnings());
        if self.0.is_away.load(Ordering::Relaxed) {
            warnings.push(match self.0.degrade {
                Degrade::Never => {
                    "outer store is out of reach; nobody acquires anything until it is back".to_owned()
                }
                Degrade::Allow => {
                    "outer store is out of reach; locks exclude the processes of this machine only".to_owned()
                }
            });
        }
        warnings
    }
}

fn unfit(error: &Error) -> Finding {
    Finding::of_error(Verdict::Unfit, error)
}

impl TimePair {
    /// What it means that the outer store can't be examined.
    fn missing(&self, error: &Error) -> Finding {
        let mut finding = unfit(error);
        if self.may_go_on_without(error) {
            finding.verdict = Verdict::Doubtful;
            finding.reason += ": locks exclude the processes of this machine only";
        }
        finding
    }

    /// Whether what was asked of the outer store is done without it.
    fn may_go_on_without(&self, error: &Error) -> bool {
        self.degrade == Degrade::Allow && error.kind() == ErrorKind::Unavailable
    }

    fn seen(&self, answer: Result<Reply, Error>) -> Result<Reply, Error> {
        // Where it is asked again at once, it will be heard of.
        let is_news = |error: &Error| self.degrade == Degrade::Allow || !error.is_worth_asking_again();
        if answer.as_ref().err().is_none_or(is_news) {
            self.saw_outer(answer.as_ref().err());
        }
        answer
    }

    /// The outer store answered, or did not: told once for every change.
    fn saw_outer(&self, error: Option<&Error>) {
        let is_away = error.is_some_and(|error| error.kind() == ErrorKind::Unavailable);
        if self.is_away.swap(is_away, Ordering::Relaxed) == is_away {
            return;
        }
        match (error, self.degrade) {
            (Some(error), Degrade::Allow) => {
                tracing::warn!(target: "tenure", %error, "outer store is out of reach: locks exclude the processes of this machine only");
            }
            (Some(error), Degrade::Never) => {
                tracing::warn!(target: "tenure", %error, "outer store is out of reach: nothing is acquired until it is back");
            }
            (None, _) => {
                tracing::warn!(target: "tenure", "outer store is back: new locks exclude everyone again")
            }
        }
    }
}

/// What a store of the pair tells unasked.
pub(crate) struct Ear(pub(crate) Weak<dyn Sink>);

impl Ear {
    fn tell(&self, tell: impl FnOnce(&dyn Sink)) {
        if let Some(sink) = self.0.upgrade() {
            tell(&*sink);
        }
    }
}

impl Sink for Ear {
    /// A grant of one store is not yet the name: the waiter asks again, for the other one, or to confirm.
    fn granted(&self, name: &Name, _: Grant) {
        self.verify(name);
    }

    fn verify(&self, name: &Name) {
        self.tell(|sink| sink.verify(name));
    }

    fn verify_all(&self) {
        self.tell(|sink| sink.verify_all());
    }

    fn missed_grants(&self) {
        self.tell(|sink| sink.missed_grants());
    }
}
