//! The code that talks to one kind of store.
//!
//! The trait is as narrow as the record: a backend executes one [`Op`] on one name and returns its [`Reply`]. What to ask, when to
//! ask again, whom to believe and for how long is decided above, once for all backends. A backend knows nothing of locks, guards
//! or the keeper; what it hears from its store unasked, it tells a [`Sink`].

pub(crate) mod compensation;
pub(crate) mod compose;
pub(crate) mod file;
#[cfg(all(test, not(shuttle)))]
pub(crate) mod gate;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod redis;
pub(crate) mod runtime;
pub(crate) mod self_test;
pub(crate) mod together;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::core::record::{LONGEST_HEARTBEAT, Op, Reply};
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::Finding;
use crate::types::name::Name;
use crate::types::owner::{Session, Token};

/// Which group a name belongs to; names of different groups may be on servers with different clocks.
pub(crate) type GroupOf = Arc<dyn Fn(&Name) -> u16 + Send + Sync>;

/// One client's access to a store.
pub(crate) trait Backend: Send + Sync {
    /// The session that this client's tokens carry, and to which the store sends its grants.
    fn session(&self) -> &Session;

    /// The lease clock of the store that has this name, as well as it can be known; `None` before the first answer.
    fn server_now(&self, name: &Name) -> Option<u64>;

    /// Executes one operation. Dropping the answer does not take the request back.
    fn execute(&self, name: &Name, op: Op) -> Pending<Answer>;

    /// How many operations are better executed in one go than one by one.
    fn most_at_once(&self) -> usize {
        1
    }

    /// Executes several operations; the answers stand in their order. One without an answer was not executed, and is to be asked for by
    /// itself: the others need not wait for it.
    fn execute_all(&self, operations: &[(Name, Op)]) -> Pending<Vec<Option<Result<Answer, Error>>>> {
        let pending: Vec<_> = operations.iter().map(|(name, op)| self.execute(name, op.clone())).collect();
        Pending::Later(Box::pin(async move {
            let mut answers = Vec::with_capacity(pending.len());
            for answer in pending {
                answers.push(Some(answer.await));
            }
            Ok(answers)
        }))
    }

    /// The names that are held or waited for, and start with `prefix`.
    fn list(&self, prefix: &str) -> Pending<Vec<Name>>;

    /// Whether waiters for this name can't be pushed to for now, and ask again and again instead.
    fn polls(&self, _name: &Name) -> bool {
        false
    }

    /// The longest pause between two requests of a waiter, for a store that needs them more often than its record does.
    fn longest_pause(&self) -> Duration {
        LONGEST_HEARTBEAT
    }

    /// The number of the connection for this name. Times that the store told over different ones can't be compared: it may be another server.
    /// Operations on names of different ones are not executed in one go: one of them may be silent.
    fn connection(&self, _name: &Name) -> u64 {
        0
    }

    /// Which group a name belongs to, where names are on servers with clocks of their own: fences that were seen in one group say nothing of
    /// another. `None` where all names are in one.
    fn groups(&self) -> Option<GroupOf> {
        None
    }

    /// How old a lease gets before it is verified for the first time, where the store tells of its end only after that.
    fn verifies_after(&self) -> Option<Duration> {
        None
    }

    /// What to call the store in a message.
    fn called(&self) -> String {
        "store".to_owned()
    }

    /// Why the store can't be reached, where that is known without asking.
    fn outage(&self) -> Option<Error> {
        None
    }

    /// Whether the client connects again by itself while the store is out of reach: then a request that has to be executed is worth repeating.
    fn reconnects(&self) -> bool {
        false
    }

    /// Which run of which server this is, where that is known.
    fn incarnation(&self) -> Option<Incarnation> {
        None
    }

    /// Whether the lease excludes fewer others than it was asked to.
    fn is_degraded(&self, _token: &Token) -> bool {
        false
    }

    /// The holder of the name whose death this client was the one to see last: its lease was its process's, and ended with it.
    fn reaped(&self, _name: &Name) -> Option<Token> {
        None
    }

    /// Whether nothing can come of this token any more although the store is there: whoever waits with it needs another.
    fn is_unusable(&self, _token: &Token) -> bool {
        false
    }

    /// What this kind of store can do.
    fn capabilities(&self) -> &'static [Capability];

    /// A descriptor that keeps this client's session alive while any process has it open; `None` where deaths are not seen.
    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        Ok(None)
    }

    /// What is known of the store's fitness, beyond that it answers: one sentence each.
    fn warnings(&self) -> Vec<String>;

    /// Looks at everything that makes the store fit to hold locks. Takes locks on names of its own, and leaves nothing behind.
    fn examine(&self) -> Pending<Vec<Finding>> {
        Pending::now(Ok(Vec::new()))
    }

    /// Removes what the store remembers of a name that is not used again; a name in use is left alone.
    fn forget(&self, _name: &Name) -> Pending<()> {
        Pending::now(Ok(()))
    }
}

/// What a store can do beyond taking and giving back a lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Capability, Domain};
///
/// let domain = Domain::open("memory:").await?;
/// assert!(domain.capabilities().await?.contains(&Capability::Fifo));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// First come, first served.
    Fifo,
    /// The names in use can be listed.
    List,
    /// A lease can outlive its process, and be adopted by another.
    Detach,
    /// A lease can be ended by force.
    Force,
    /// A lease that is ended by force, deleted or overwritten is told to its holder at once.
    LossPush,
}

/// Whether a store must be there when a client opens it. The client connects later to one that need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Required,
    /// It may be out of reach. If it refuses the client, opening fails: that does not pass by itself.
    Optional,
    /// It may also refuse the user or the password: it is one of several servers, and the others may be enough.
    OneOfSeveral,
}

impl Presence {
    pub(crate) fn required_if(is_required: bool) -> Self {
        if is_required { Presence::Required } else { Presence::Optional }
    }

    /// Whether the client is opened in spite of this error.
    pub(crate) fn tolerates(self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::Unavailable => self != Presence::Required,
            ErrorKind::Denied => self == Presence::OneOfSeveral,
            _ => false,
        }
    }
}

/// One run of a server, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    /// No two servers, and no two runs of one, have the same.
    pub(crate) id: Arc<str>,
    /// How old it is at least; `None` where it keeps everything from one run to the next.
    pub(crate) age: Option<Duration>,
}

/// A reply, and the store's lease clock when it was made; `None` where it did not look at its clock.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) server: Option<u64>,
}

/// A grant that reached its waiter by a push: for `term`, made at the store's time `at`.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    pub(crate) fence: u64,
    pub(crate) at: u64,
    pub(crate) term: Duration,
}

/// What a backend tells unasked. Called from inside the driver, so it never blocks and never calls the backend.
pub(crate) trait Sink: Send + Sync {
    /// A waiter was granted the name.
    fn granted(&self, name: &Name, grant: Grant);

    /// The lease on the name may be gone, or have been granted: verify it.
    fn verify(&self, name: &Name);

    /// Something may have happened to any lease, or to any waiter, without being told: verify them all.
    fn verify_all(&self);

    /// Grants may have been made without being told: whoever waits asks again.
    fn missed_grants(&self);
}

/// An answer that is there, or will be. In-process stores answer at once, also in a drop and outside a runtime.
pub(crate) enum Pending<T> {
    Now(Option<Result<T, Error>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T> Pending<T> {
    pub(crate) fn now(answer: Result<T, Error>) -> Self {
        Pending::Now(Some(answer))
    }
}

impl<T: Unpin> Future for Pending<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Pending::Now(answer) => Poll::Ready(answer.take().expect("polled after it was ready")),
            Pending::Later(future) => future.as_mut().poll(cx),
        }
    }
}
