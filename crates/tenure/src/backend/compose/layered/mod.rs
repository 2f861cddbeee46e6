//! Two stores as one: every holder on a machine holds a lease in the *inner* store, a directory, and one in the *outer* store, Redis.
//!
//! So a machine never has two holders, whatever happens to Redis and whichever process reaches it. A client acquires the inner lease first:
//! while it waits for the outer one, it delays its own machine only. It asks the outer store with the inner fence as the floor, and writes the
//! fence of the grant back into the inner record, so that fences grow on a machine through every switch (I3). Renewals and releases go
//! to the outer store first.
//!
//! If the outer store is out of reach, the [policy](policy) decides: nobody enters, or the holder of the inner lease enters *degraded*.
//!
//! A grant that either store pushes is passed on as "verify": the waiter asks again, and that request takes the next step. This costs a round
//! trip, and needs no rule about pushed grants. Requests carry moments of the inner store's clock, which are translated for the outer one.

mod acquire;
mod bids;
mod force;
mod outside;
mod policy;
mod steps;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use self::bids::LayeredBids;
use self::policy::Policy;
use super::token_of;
use crate::backend::compensation::{Compensations, Target};
use crate::backend::{Admin, Answer, Backend, Capability, Component, Grant, GroupOf, Pending, Sink};
use crate::core::record::{HEARTBEAT, Op, Reply};
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::{Finding, Verdict};
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, Token};
use crate::url::Degrade;

/// One client of both stores.
pub(crate) struct Layered(Arc<Stores>);

struct Stores {
    inner: Arc<dyn Component>,
    outer: Arc<dyn Component>,
    /// The stores know it by a weak reference.
    _listener: Arc<dyn Sink>,
    policy: Policy,
    /// How long a command may take, if the URL says so.
    timeout: Option<Duration>,
    clock: Clock,
    bids: LayeredBids,
    /// What is to be undone in the outer store.
    compensations: Compensations,
    /// For futures that outlive the call which made them, and keep nothing open.
    this: Weak<Stores>,
    /// The outer store was out of reach when it was last asked.
    is_outer_away: AtomicBool,
}

impl Layered {
    /// Both stores have the session of the inner one, and push to `listener`.
    pub(crate) fn new(
        inner: Arc<dyn Component>,
        outer: Arc<dyn Component>,
        listener: Arc<dyn Sink>,
        degrade: Degrade,
        timeout: Option<Duration>,
        clock: Clock,
    ) -> Self {
        Layered(Arc::new_cyclic(|this: &Weak<Stores>| {
            let target: Weak<dyn Target> = this.clone();
            Stores {
                inner,
                outer,
                _listener: listener,
                policy: Policy(degrade),
                timeout,
                compensations: Compensations::new(target, clock.clone()),
                clock,
                bids: LayeredBids::default(),
                this: this.clone(),
                is_outer_away: AtomicBool::new(false),
            }
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
        let (stores, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            let token = token_of(&op).cloned();
            let executed = stores.execute(&name, op).await;
            let reply = executed.map_err(|error| stores.marked(token.as_ref(), error))?;
            // The time of another reply would be compared with that of a grant which one of the two stores pushes.
            let server = if let Reply::Seen { .. } = reply { stores.inner.server_now(&name) } else { None };
            let is_degraded = token.is_some_and(|token| stores.bids.get(&token).is_degraded());
            Ok(Answer { reply, server, is_degraded })
        }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (stores, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            let inside = stores.inner.list(&prefix).await?;
            let outside = stores.policy.tolerate(stores.outer.list(&prefix).await)?.unwrap_or_default();
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
}

impl Admin for Layered {
    fn capabilities(&self) -> &'static [Capability] {
        self.0.outer.capabilities()
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        self.0.inner.lifeline()
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        let stores = Arc::clone(&self.0);
        Pending::Later(Box::pin(async move {
            let inside = stores.inner.examine().await.unwrap_or_else(|error| vec![unfit(&error)]);
            let outside = stores.outer.examine().await.unwrap_or_else(|error| vec![stores.missing(&error)]);
            let inside = inside.into_iter().map(|finding| finding.of("inner"));
            Ok(inside.chain(outside.into_iter().map(|finding| finding.of("outer"))).collect())
        }))
    }

    fn forget(&self, name: &Name) -> Pending<()> {
        let (stores, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            stores.inner.forget(&name).await?;
            stores.outer.forget(&name).await
        }))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.0.inner.warnings();
        warnings.extend(self.0.outer.warnings());
        if self.0.is_outer_away.load(Ordering::Relaxed) {
            warnings.push(format!("outer store is out of reach; {}", self.0.policy.consequence()));
        }
        warnings
    }
}

fn unfit(error: &Error) -> Finding {
    Finding::of_error(Verdict::Unfit, error)
}

impl Stores {
    /// The error of a request, which says whether its token is unusable. During an outage another token would be of no more use.
    fn marked(&self, token: Option<&Token>, error: Error) -> Error {
        let is_unusable = |token: &Token| self.outer.outage().is_none() && self.bids.get(token).is_unusable;
        if token.is_some_and(is_unusable) { error.needing_new_token() } else { error }
    }

    /// What it means that the outer store can't be examined.
    fn missing(&self, error: &Error) -> Finding {
        let mut finding = unfit(error);
        if self.policy.tolerates(error) {
            finding.verdict = Verdict::Doubtful;
            finding.reason = format!("{}: {}", finding.reason, self.policy.consequence());
        }
        finding
    }

    /// Notes whether the outer store answered.
    fn noted(&self, answer: Result<Reply, Error>) -> Result<Reply, Error> {
        match &answer {
            Ok(_) => self.note_outer(None),
            Err(error) if self.policy.is_outage(error) => self.note_outer(Some(error)),
            Err(_) => {}
        }
        answer
    }

    /// Logs every change once.
    fn note_outer(&self, error: Option<&Error>) {
        let is_away = error.is_some_and(|error| error.kind() == ErrorKind::Unavailable);
        if self.is_outer_away.swap(is_away, Ordering::Relaxed) == is_away {
            return;
        }
        match error {
            Some(error) => {
                let consequence = self.policy.consequence();
                tracing::warn!(target: "tenure", %error, "outer store is out of reach: {consequence}");
            }
            None => tracing::warn!(target: "tenure", "outer store is back: new locks exclude everyone again"),
        }
    }
}

/// Hears what either store pushes.
pub(crate) struct LayeredListener(pub(crate) Weak<dyn Sink>);

impl LayeredListener {
    fn pass_on(&self, pass_on: impl FnOnce(&dyn Sink)) {
        if let Some(sink) = self.0.upgrade() {
            pass_on(&*sink);
        }
    }
}

impl Sink for LayeredListener {
    /// One lease of two: the waiter asks again, for the other one or to confirm.
    fn granted(&self, name: &Name, _: Grant) {
        self.verify(name);
    }

    fn verify(&self, name: &Name) {
        self.pass_on(|sink| sink.verify(name));
    }

    fn verify_all(&self) {
        self.pass_on(|sink| sink.verify_all());
    }

    fn missed_grants(&self) {
        self.pass_on(|sink| sink.missed_grants());
    }
}
