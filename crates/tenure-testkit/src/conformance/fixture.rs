//! What a backend's tests must be able to do to a store and its clients.
//!
//! It is kept to what no public API offers: making clients that are strangers to each other, letting time pass, and doing harm. A
//! fixture says which harm it [lacks](Fixture::lacks), and why; everything else is written once, in the cases.

use std::future::Future;
use std::time::Duration;

use tenure::{Capability, Domain, Ticket};
use tokio::runtime::Runtime;

/// An empty store of one kind, and the power to disturb it. Each case gets a new one.
pub trait Fixture: Send + Sync + 'static {
    /// A client of the store.
    type Client: Client;

    /// The runtime that a case runs on; also for a case that needs a second one, to shut it down.
    fn runtime(&self) -> Runtime;

    /// A new client, as if it were another process.
    fn client(&self) -> impl Future<Output = Self::Client> + Send;

    /// Time passes: a clock that tests own is moved, a real one is waited for.
    fn let_pass(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// What this fixture can't do, each with the reason that is printed. It can do everything else.
    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[]
    }

    /// Whether connections break all the time, also where no case asks for it. Then replies get lost, and whoever asked again can't always be
    /// told what the first try did; and a waiter that just connects again may be passed over.
    fn breaks_connections(&self) -> bool {
        false
    }

    /// A client of its own comes, does this with the name, and dies without a word while it does: killed, stopped for good, or cut off.
    /// Returns when it is dead, with the ticket if it detached.
    fn die(&self, doing: Doing, name: &str, ttl: Duration) -> impl Future<Output = Option<Ticket>> + Send {
        let _ = (name, ttl);
        async move { unable(Ability::Die(doing)) }
    }
}

/// A client, as if it were a process: nothing in it is shared with another.
pub trait Client: Send + Sync + 'static {
    /// Its domain.
    fn domain(&self) -> &Domain;

    /// Cuts it off from the store: neither hears of the other until it is reconnected.
    fn cut_off(&self) -> impl Future<Output = ()> + Send {
        async { unable(Ability::CutOff) }
    }

    /// Lets it reach the store again.
    fn reconnect(&self) -> impl Future<Output = ()> + Send {
        async { unable(Ability::CutOff) }
    }

    /// The next request of this client is executed, and its reply is lost: the connection breaks, or nothing ever comes.
    fn lose_next_reply(&self) -> impl Future<Output = ()> + Send {
        async { unable(Ability::LoseReplies) }
    }
}

fn unable<T>(ability: Ability) -> T {
    panic!("the fixture can't {ability:?}, and does not say so in `lacks`")
}

/// Harm that a fixture may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// [`Fixture::die`] while doing this.
    Die(Doing),
    /// [`Client::cut_off`] and [`Client::reconnect`].
    CutOff,
    /// [`Client::lose_next_reply`].
    LoseReplies,
}

/// What a client does when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It holds the name.
    Holding,
    /// It waits for the name, and the store's queue shows it.
    Waiting,
    /// It has detached its lease on the name, and told the ticket.
    Detached,
}

/// What a case needs of the store or of the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The store has it.
    Store(Capability),
    /// The fixture does not lack it.
    Fixture(Ability),
}

/// A death for [`Fixture::die`] where clients are not processes: the client gets a runtime of its own, which stops for good in the
/// middle of what it does. A store inside the process can still wake a waiter by a call: such a fixture must cut its line as well.
pub fn die_in_process(
    open: impl Future<Output = Domain> + Send,
    doing: Doing,
    name: &str,
    ttl: Duration,
) -> Option<Ticket> {
    let live_and_die = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let ticket = runtime.block_on(async {
            let domain = open.await;
            let mut acquire = Box::pin({
                let lock = domain.lock(name).ttl(ttl).label("doomed");
                async move { lock.acquire().await.expect("to be granted") }
            });
            let is_queued = async {
                let is_doomed = |waiter: &tenure::Waiter| waiter.owner.label() == "doomed";
                while !domain.inspect(name).await.expect("to look").waiters.iter().any(is_doomed) {
                    tokio::task::yield_now().await;
                }
            };
            let ticket = match doing {
                Doing::Holding => {
                    std::mem::forget(acquire.as_mut().await);
                    None
                }
                Doing::Detached => Some(acquire.as_mut().await.detach().await.expect("to detach")),
                Doing::Waiting => tokio::select! {
                    _ = &mut acquire => panic!("one that was to wait for `{name}` was granted it"),
                    () = is_queued => None,
                },
            };
            std::mem::forget(acquire);
            ticket
        });
        // A runtime that is not dropped and not driven: what runs on it neither goes on nor cleans up.
        std::mem::forget(runtime);
        ticket
    };
    std::thread::scope(|scope| scope.spawn(live_and_die).join().expect("a client that could die"))
}
