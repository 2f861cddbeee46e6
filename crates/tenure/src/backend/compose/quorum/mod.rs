//! A majority of independent servers as one store: a backend made of backends, which it knows by the trait alone.
//!
//! **Exclusion** is the majority's alone: a lease counts when more than half of all servers granted it, and no two majorities are without a
//! server in common. All are asked at the same time, and what is decided is not waited for. **Fences** grow because the highest one of a grant
//! is on a majority before the grant is returned: whoever comes next meets it on at least one server. All servers are asked for a fence that is
//! a little ahead of the latest of their clocks, so that they mostly grant the same one, and nothing has to be written back.
//!
//! **Order** is the *desk's*: waiters queue at one server, the first in the URL's order that is in reach, and whoever has the name there asks
//! the others. So a release wakes one waiter, whatever their number, and there is no herd. Clients may disagree about the desk (one can't reach
//! it, or it was restarted): then two enqueue on a part of the servers each, and whoever sees that nobody gets on leaves everything after a
//! time that is drawn by chance. Order is not promised; exclusion never depends on it.
//!
//! **What is left undone**: every server that may have executed something that nobody wants is told to undo it, at once and again when
//! it can't be executed any more ([`member`]); a server that may still have to undo something for a token is never counted for it again
//! ([`bids`]). **A server that forgot** what it granted would let a majority be had twice: one that started less than the longest ttl ago does
//! not count, unless the whole group is that young.

mod acquire;
mod bids;
mod ear;
mod examine;
mod force;
mod hold;
mod member;
mod requests;
mod round;
mod tally;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use self::bids::Bids;
pub(crate) use self::ear::Ears;
use self::member::Member;
use crate::backend::{Answer, Backend, Capability, Pending, Sink};
use crate::core::record::{HEARTBEAT, Op, Reply};
use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment, micros};
use crate::types::error::Error;
use crate::types::finding::Finding;
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, Token};

/// How many servers there may be.
const MOST_SERVERS: usize = 63;
/// How long a name counts as contended after somebody was seen to wait for it.
const CONTENDED: Duration = Duration::from_secs(1);
const MOST_CONTENDED: usize = 256;
/// Within this, servers were started together.
const TOGETHER: Duration = Duration::from_secs(3);

/// One client of a group of servers.
pub(crate) struct Quorum(Arc<Group>);

struct Group {
    session: Session,
    members: Vec<Arc<Member>>,
    clock: Clock,
    bids: Arc<Bids>,
    /// The longest ttl that was seen, in µs: for so long a server may be missed that forgot.
    longest_ttl: AtomicU64,
    /// How long the last grant took, in µs.
    pace: AtomicU64,
    /// Names that others wanted lately, and until when they count as such.
    contended: Mutex<NameMap<Moment>>,
    /// The servers know them by weak references.
    _ears: Vec<Arc<dyn Sink>>,
}

impl Quorum {
    /// A client of these servers, which have `ears` for sinks and this session. An error where a server would count twice, or where
    /// fewer than a majority are there and they must be.
    pub(crate) fn new(
        session: Session,
        servers: Vec<(String, Arc<dyn Backend>)>,
        ears: Ears,
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
        let (bids, group_of, ears) = ears.into_parts();
        let group = Arc::new(Group {
            session,
            members,
            clock,
            bids,
            longest_ttl: AtomicU64::new(micros(ttl)),
            pace: AtomicU64::new(0),
            contended: Mutex::default(),
            _ears: ears,
        });
        let _ = group_of.set(Arc::downgrade(&group));
        group.refuse_twins()?;
        group.youths();
        match group.outage().filter(|_| must_be_there) {
            Some(error) => Err(error),
            None => Ok(Quorum(group)),
        }
    }
}

type GroupOf = OnceLock<Weak<Group>>;

impl Group {
    /// More than half of all servers, whether they answer or not.
    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn longest_ttl(&self) -> Duration {
        Duration::from_micros(self.longest_ttl.load(Ordering::Relaxed))
    }

    fn saw_ttl(&self, ttl: Duration) {
        self.longest_ttl.fetch_max(micros(ttl), Ordering::Relaxed);
    }

    /// An error where two of the addresses are one server.
    fn refuse_twins(&self) -> Result<(), Error> {
        let runs: Vec<_> = self.members.iter().map(|member| member.backend.incarnation()).collect();
        for (index, run) in runs.iter().enumerate() {
            let Some(run) = run else { continue };
            let twin =
                runs[..index].iter().position(|other| other.as_ref().is_some_and(|it| it.id == run.id));
            if let Some(twin) = twin {
                return Err(Error::invalid(format!(
                    "{} and {} are the same server, which would count twice",
                    self.members[twin].label, self.members[index].label
                ))
                .fix("name every server once"));
            }
        }
        Ok(())
    }

    /// For every server, how old it is if it may have forgotten leases and does not count.
    fn youths(&self) -> Vec<Option<Duration>> {
        let horizon = self.longest_ttl();
        let youths: Vec<_> = self.members.iter().map(|member| member.youth(horizon)).collect();
        let are_all_there = || self.members.iter().all(|member| member.backend.outage().is_none());
        if youths.iter().any(Option::is_some) && self.is_new(&youths, horizon) && are_all_there() {
            self.members.iter().for_each(|member| member.found());
            return vec![None; youths.len()];
        }
        youths
    }

    /// Whether the group as a whole is new. Servers that were started together do not come of age at the same moment.
    fn is_new(&self, youths: &[Option<Duration>], horizon: Duration) -> bool {
        if youths.iter().all(Option::is_some) {
            return true;
        }
        let ages: Option<Vec<_>> =
            self.members.iter().map(|member| member.backend.incarnation()?.age).collect();
        let Some((oldest, youngest)) = ages.and_then(|it| Some((*it.iter().max()?, *it.iter().min()?)))
        else {
            return false;
        };
        let was_new_before = self.members.iter().any(|member| member.is_founding());
        !was_new_before && oldest < horizon + TOGETHER && oldest - youngest <= TOGETHER
    }

    /// Why nothing can be granted, where that is known without asking.
    fn outage(&self) -> Option<Error> {
        let outages: Vec<_> = self.members.iter().map(|member| member.backend.outage()).collect();
        let away = outages.iter().flatten().count();
        (self.members.len() - away < self.majority()).then(|| {
            let answers: Vec<_> = outages.into_iter().map(|outage| outage.map_or(Ok(()), Err)).collect();
            self.too_few("answered", &answers)
        })
    }

    /// The first server that is in reach: where one queues.
    fn desk(&self) -> usize {
        self.members.iter().position(|member| member.is_in_reach()).unwrap_or(0)
    }

    fn is_contended(&self, name: &Name) -> bool {
        self.contended.lock().get(name).is_some_and(|until| *until > self.clock.now())
    }

    fn saw_contended(&self, name: &Name) {
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
                let until = Moment::from_micros(not_after);
                self.acquire(name, acquire::Ask { token, ttl, wait, floor, until }).await
            }
            Op::Renew { .. } | Op::Detach { .. } => self.renew(name, op).await,
            Op::Raise { .. } => self.raise(name, op).await,
            Op::Release { .. } => self.release(name, op).await,
            Op::Leave { .. } | Op::Death { .. } => self.leave(name, op).await,
            Op::Adopt { .. } | Op::TakeOver { .. } => self.take_over_with(name, op).await,
            Op::Break { token, fence } => self.break_lease(name, token, fence).await,
            Op::Inspect => self.inspect(name).await,
        }
    }
}

impl Backend for Quorum {
    fn session(&self) -> &Session {
        &self.0.session
    }

    /// Requests carry moments of our own clock, which are translated for each server.
    fn server_now(&self, _name: &Name) -> Option<u64> {
        Some(self.0.clock.now().as_micros())
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        let (group, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            let reply = group.execute(&name, op).await?;
            // Only where it is compared with nothing that a server pushes.
            let is_seen = matches!(reply, Reply::Seen { .. });
            Ok(Answer { reply, server: is_seen.then(|| group.clock.now().as_micros()) })
        }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (group, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move { group.list(&prefix).await }))
    }

    fn polls(&self, name: &Name) -> bool {
        self.0.members[self.0.desk()].backend.polls(name)
    }

    /// Each request of a waiter also finds out whether its desk still counts.
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

    fn outage(&self) -> Option<Error> {
        self.0.outage()
    }

    /// So many servers are lost to it that the rest is no majority.
    fn is_unusable(&self, token: &Token) -> bool {
        let (group, lost) = (&self.0, self.0.bids.lost(token));
        let in_reach = |server: &usize| group.members[*server].is_in_reach();
        let in_reach: Vec<_> = (0..group.members.len()).filter(in_reach).collect();
        let left = in_reach.iter().filter(|server| !lost.has(**server)).count();
        in_reach.len() >= group.majority() && left < group.majority()
    }

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
