//! A majority of independent servers as one store.
//!
//! **Exclusion** comes from the majority alone: a lease counts if more than half of all servers granted it, and any two majorities have
//! a server in common. The client asks all servers at the same time, and waits only until the outcome is decided. **Fences** grow because a
//! majority has the highest fence of a grant before the client returns it: the next holder meets it on at least one server. The client asks
//! all servers for a fence a little ahead of the latest of their clocks, so that most grant the same one and nothing has to be written back.
//!
//! **Order** comes from the *queue server*: the first server in the URL's order that is in reach. Waiters queue there, and the one that is
//! granted the name there asks the others. So a release wakes one waiter, whatever their number. Clients may disagree about the queue server
//! (one can't reach it, or it restarted): then each holds a part of the servers, and a client that makes no progress leaves all of them after
//! a random time. Order is not promised, and exclusion never depends on it.
//!
//! **Undo**: the client undoes what a server may have executed although nobody wants it, at once and again after it can't be executed any more
//! ([`member`]); until then the token is unusable on that server ([`bids`]). **A server that forgot** its grants could be part of a second
//! majority. So a server that started less than the longest ttl ago does not count: the leases that it may have forgotten end before
//! it counts. This holds for any number of servers, a new group included.

mod acquire;
mod bids;
mod examine;
mod force;
mod hold;
mod listener;
mod member;
mod requests;
mod round;
mod tally;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use self::bids::QuorumBids;
pub(crate) use self::listener::MemberListeners;
use self::member::{Member, WarmUp};
use super::{Acquire, Takeover, token_of};
use crate::backend::{Admin, Answer, Backend, Capability, Component, Pending, Sink};
use crate::core::record::{HEARTBEAT, Op, Reply};
use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment, micros};
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::Finding;
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, Token};

/// How many servers there may be.
const MOST_SERVERS: usize = 63;
/// How long a name counts as contended after this client saw another that wants it.
const CONTENDED: Duration = Duration::from_secs(1);
const MOST_CONTENDED: usize = 256;

/// One client of a group of servers.
pub(crate) struct Quorum(Arc<Group>);

struct Group {
    session: Session,
    members: Vec<Arc<Member>>,
    clock: Clock,
    bids: Arc<QuorumBids>,
    /// The longest ttl that this client has seen, in µs: the length of a server's warm-up.
    longest_ttl: AtomicU64,
    /// How long the last grant took, in µs.
    pace: AtomicU64,
    /// Names that others wanted lately, each with the moment until which it counts as contended.
    contended: Mutex<NameMap<Moment>>,
    /// The servers know them by weak references.
    _listeners: Vec<Arc<dyn Sink>>,
}

impl Quorum {
    /// A client of these servers, which have this session and push to `listeners`.
    ///
    /// # Errors
    /// If a server would count twice, if a majority refuses the client, or if fewer than a majority are in reach and `must_be_there`.
    pub(crate) fn new(
        session: Session,
        servers: Vec<(String, Arc<dyn Component>)>,
        listeners: MemberListeners,
        ttl: Duration,
        clock: Clock,
        must_be_there: bool,
    ) -> Result<Self, Error> {
        if servers.len() > MOST_SERVERS {
            return Err(
                Error::invalid(format!("a quorum has at most {MOST_SERVERS} servers")).fix("name fewer")
            );
        }
        let members: Vec<_> =
            servers.into_iter().map(|(label, backend)| Member::new(label, backend, clock.clone())).collect();
        let (bids, late_group, listeners) = listeners.into_parts();
        let group = Arc::new(Group {
            session,
            members,
            clock,
            bids,
            longest_ttl: AtomicU64::new(micros(ttl)),
            pace: AtomicU64::new(0),
            contended: Mutex::default(),
            _listeners: listeners,
        });
        let _ = late_group.set(Arc::downgrade(&group));
        group.refuse_duplicates()?;
        // A majority that refuses the client does not change its mind.
        if let Some(error) = group.outage().filter(|error| must_be_there || !error.is_transient()) {
            return Err(error);
        }
        for outage in group.members.iter().filter_map(|member| member.backend.outage()) {
            if outage.kind() == ErrorKind::Denied {
                tracing::warn!(target: "tenure", error = %outage, "a server refuses this client; the others are enough");
            }
        }
        Ok(Quorum(group))
    }
}

/// The group, once it is open: its listeners exist before it.
type LateGroup = OnceLock<Weak<Group>>;

impl Group {
    /// More than half of all servers, whether they answer or not.
    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn longest_ttl(&self) -> Duration {
        Duration::from_micros(self.longest_ttl.load(Ordering::Relaxed))
    }

    fn note_ttl(&self, ttl: Duration) {
        self.longest_ttl.fetch_max(micros(ttl), Ordering::Relaxed);
    }

    /// # Errors
    /// If two of the addresses lead to one server.
    fn refuse_duplicates(&self) -> Result<(), Error> {
        let ids: Vec<_> =
            self.members.iter().map(|member| member.backend.incarnation().map(|it| it.id)).collect();
        for (index, id) in ids.iter().enumerate().filter(|(_, id)| id.is_some()) {
            if let Some(first) = ids[..index].iter().position(|other| other == id) {
                return Err(Error::invalid(format!(
                    "{} and {} are the same server, which would count twice",
                    self.members[first].label, self.members[index].label
                ))
                .fix("name every server once"));
            }
        }
        Ok(())
    }

    /// The warm-up of every server that does not count yet.
    fn warm_ups(&self) -> Vec<Option<WarmUp>> {
        let ttl = self.longest_ttl();
        self.members.iter().map(|member| member.warm_up(ttl)).collect()
    }

    /// Why too few servers can be reached, if that is known without asking.
    fn outage(&self) -> Option<Error> {
        let outages: Vec<_> = self.members.iter().map(|member| member.backend.outage()).collect();
        let away = outages.iter().flatten().count();
        (self.members.len() - away < self.majority()).then(|| {
            let answers: Vec<_> = outages.into_iter().map(|outage| outage.map_or(Ok(()), Err)).collect();
            self.too_few("answered", &answers)
        })
    }

    /// The error of a request, which says whether its token is unusable.
    fn marked(&self, token: Option<&Token>, error: Error) -> Error {
        if token.is_some_and(|token| self.is_unusable(token)) { error.needing_new_token() } else { error }
    }

    /// Whether a majority is in reach, but the token is unusable on so many servers that the rest is none.
    fn is_unusable(&self, token: &Token) -> bool {
        let unusable = self.bids.unusable(token);
        let in_reach = |server: &usize| self.members[*server].is_in_reach();
        let in_reach: Vec<_> = (0..self.members.len()).filter(in_reach).collect();
        let left = in_reach.iter().filter(|server| !unusable.has(**server)).count();
        in_reach.len() >= self.majority() && left < self.majority()
    }

    /// The server where waiters queue: the first that is in reach.
    fn queue_server(&self) -> usize {
        self.members.iter().position(|member| member.is_in_reach()).unwrap_or(0)
    }

    fn is_contended(&self, name: &Name) -> bool {
        self.contended.lock().get(name).is_some_and(|until| *until > self.clock.now())
    }

    fn note_contended(&self, name: &Name) {
        let now = self.clock.now();
        let mut contended = self.contended.lock();
        if contended.len() >= MOST_CONTENDED {
            contended.retain(|_, until| *until > now);
        }
        contended.insert(name.clone(), now + CONTENDED);
    }

    async fn execute(self: &Arc<Self>, name: &Name, op: Op) -> Result<Reply, Error> {
        match op {
            Op::Acquire { token, ttl, wait, polls: _, floor, not_after } => {
                self.acquire(name, Acquire { token, ttl, wait, floor, not_after }).await
            }
            Op::Renew { ref token, ttl } | Op::Detach { ref token, ttl } => {
                self.renew(name, token.clone(), ttl, &op).await
            }
            Op::Raise { token, fence } => self.raise(name, &token, fence).await,
            Op::Release { token, used } => self.release(name, &token, used).await,
            Op::Leave { ref token } | Op::Death { ref token } => self.leave(name, token, &op).await,
            Op::Adopt { from, token, ttl, floor, not_after } => {
                self.take_over(name, Takeover { ticket: Some(from), token, ttl, floor, not_after }).await
            }
            Op::TakeOver { token, ttl, floor, not_after } => {
                self.take_over(name, Takeover { ticket: None, token, ttl, floor, not_after }).await
            }
            Op::Break { token, fence } => self.break_lease(name, token, fence).await,
            Op::Inspect => self.inspect(name).await,
        }
    }
}

impl Backend for Quorum {
    fn session(&self) -> &Session {
        &self.0.session
    }

    /// Requests carry moments of our own clock; each server gets them translated.
    fn server_now(&self, _name: &Name) -> Option<u64> {
        Some(self.0.clock.now().as_micros())
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        let (group, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            let token = token_of(&op).cloned();
            let executed = group.execute(&name, op).await;
            let reply = executed.map_err(|error| group.marked(token.as_ref(), error))?;
            // The time of another reply would be compared with that of a grant which a server pushes.
            let is_seen = matches!(reply, Reply::Seen { .. });
            Ok(Answer::new(reply, is_seen.then(|| group.clock.now().as_micros())))
        }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (group, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move { group.list(&prefix).await }))
    }

    fn polls(&self, name: &Name) -> bool {
        self.0.members[self.0.queue_server()].backend.polls(name)
    }

    /// Each request of a waiter also finds out whether its queue server still counts.
    fn longest_pause(&self) -> Duration {
        HEARTBEAT
    }

    fn connection(&self, name: &Name) -> u64 {
        self.0.members.iter().map(|member| member.backend.connection(name)).sum()
    }

    fn verifies_after(&self) -> Option<Duration> {
        self.0.members.iter().filter_map(|member| member.backend.verifies_after()).min()
    }

    fn reconnects(&self) -> bool {
        self.0.members.iter().any(|member| member.backend.reconnects())
    }
}

impl Component for Quorum {
    fn outage(&self) -> Option<Error> {
        self.0.outage()
    }
}

impl Admin for Quorum {
    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Force, List, LossPush};
        let tells = |member: &Arc<Member>| member.backend.capabilities().contains(&LossPush);
        match self.0.members.iter().filter(|member| tells(member)).count() >= self.0.majority() {
            true => &[List, Detach, Force, LossPush],
            false => &[List, Detach, Force],
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        let group = Arc::clone(&self.0);
        Pending::Later(Box::pin(async move { group.examine().await }))
    }

    fn forget(&self, name: &Name) -> Pending<()> {
        let (group, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move { group.forget(&name).await }))
    }
}
