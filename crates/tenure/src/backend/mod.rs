//! The code that talks to one kind of store.
//!
//! The trait [`Backend`] is as narrow as the record: a backend executes one [`Op`] on one name and returns its [`Reply`]. The layer above
//! decides, once for all backends, what to ask, when to ask again, and how long to believe an answer. A backend knows nothing of locks,
//! guards or the keeper; what its store pushes, it passes to a [`Sink`]. What operators need is in [`Admin`], and what a layered
//! or quorum store needs of its parts is in [`Component`].

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

/// One client's access to a store: what acquiring, holding and releasing needs.
pub(crate) trait Backend: Admin {
    /// The session that this client's tokens carry, and to which the store pushes grants.
    fn session(&self) -> &Session;

    /// The lease clock of the store that has this name, as well as it can be known; `None` before the first answer.
    fn server_now(&self, name: &Name) -> Option<u64>;

    /// Executes one operation. Dropping the future does not cancel the request.
    fn execute(&self, name: &Name, op: Op) -> Pending<Answer>;

    /// How many operations are better executed in one go than one by one.
    fn most_at_once(&self) -> usize {
        1
    }

    /// Executes several operations; the answers are in their order. An operation without an answer was not executed, and the caller sends it
    /// alone, so that the others need not wait for it.
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

    /// The names that start with `prefix` and have a holder or a waiter.
    fn list(&self, prefix: &str) -> Pending<Vec<Name>>;

    /// Whether the store can't push grants of this name for now, so that waiters poll.
    fn polls(&self, _name: &Name) -> bool {
        false
    }

    /// The longest pause between two requests of a waiter, if the store needs them more often than its record does.
    fn longest_pause(&self) -> Duration {
        LONGEST_HEARTBEAT
    }

    /// The number of the connection for this name. Times that came over different connections can't be compared: the servers may differ.
    /// Operations on names of different connections are not executed in one go: one of them may be silent.
    fn connection(&self, _name: &Name) -> u64 {
        0
    }

    /// Which group a name belongs to, if names are on servers with clocks of their own: fences of one group say nothing of another. `None` if
    /// all names are in one group.
    fn groups(&self) -> Option<GroupOf> {
        None
    }

    /// The delay before the first renewal, which also arms loss notification, if the store needs that.
    fn verifies_after(&self) -> Option<Duration> {
        None
    }

    /// Whether the client reconnects by itself after an outage: then it is worth repeating a request that has to be executed.
    fn reconnects(&self) -> bool {
        false
    }
}

/// What operators see of a store.
pub(crate) trait Admin: Send + Sync {
    /// What to call the store in a message.
    fn called(&self) -> String {
        "store".to_owned()
    }

    /// What this kind of store can do.
    fn capabilities(&self) -> &'static [Capability];

    /// What makes the store less fit: one sentence each.
    fn warnings(&self) -> Vec<String>;

    /// A descriptor that keeps this client's session alive while any process has it open; `None` if the store does not notice deaths.
    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        Ok(None)
    }

    /// Examines whether the store is fit to hold locks. Takes locks on names of its own, and leaves nothing behind.
    fn examine(&self) -> Pending<Vec<Finding>> {
        Pending::now(Ok(Vec::new()))
    }

    /// Removes what the store remembers of a name that is not used again; leaves a name in use alone.
    fn forget(&self, _name: &Name) -> Pending<()> {
        Pending::now(Ok(()))
    }
}

/// A store that can be part of a layered or a quorum store, which ask more of it.
pub(crate) trait Component: Backend {
    /// Why the store can't be reached, if that is known without asking.
    fn outage(&self) -> Option<Error> {
        None
    }

    /// Which run of which server this is, if that is known.
    fn incarnation(&self) -> Option<Incarnation> {
        None
    }

    /// The last holder of the name whose death this client noticed: its lease was bound to its process, and ended with it.
    fn reaped(&self, _name: &Name) -> Option<Token> {
        None
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
    /// How old it is at least; `None` if it keeps everything from one run to the next.
    pub(crate) age: Option<Duration>,
}

/// The answer to an operation.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// The store's lease clock when it made the reply; `None` if it did not read its clock.
    pub(crate) server: Option<u64>,
    /// The lease excludes fewer others than it was asked to.
    pub(crate) is_degraded: bool,
}

impl Answer {
    pub(crate) fn new(reply: Reply, server: Option<u64>) -> Self {
        Answer { reply, server, is_degraded: false }
    }
}

/// A grant that reached its waiter by a push: for `term`, made at the store's time `at`.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    pub(crate) fence: u64,
    pub(crate) at: u64,
    pub(crate) term: Duration,
}

/// Takes what a store pushes. The driver calls it, so it never blocks and never calls the backend.
pub(crate) trait Sink: Send + Sync {
    /// A waiter was granted the name.
    fn granted(&self, name: &Name, grant: Grant);

    /// The lease on the name may be gone, or have been granted: verify it.
    fn verify(&self, name: &Name);

    /// Any lease or waiter may have changed without a push: verify them all.
    fn verify_all(&self);

    /// The store may have granted names without a push: waiters ask again.
    fn missed_grants(&self);
}

/// An answer now or later. In-process stores answer at once, also in a drop and outside a runtime.
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
