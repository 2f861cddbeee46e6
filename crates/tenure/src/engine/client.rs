//! One client of a store: what the handles of a domain share.
//!
//! It ends with its last handle: a domain, a lock, a guard, or an acquire in progress. Background tasks keep it alive only if they end by
//! themselves (R3.5).

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::runtime;
use crate::backend::{Answer, Backend, Grant, Pending, Sink};
use crate::core::deadlines::Terms;
use crate::core::record::{Op, Reply};
use crate::engine::bid::{Alarm, Bid};
use crate::engine::effects::Effects;
use crate::engine::leftovers::Leftovers;
use crate::engine::opening::Opening;
use crate::engine::table::{Pushed, Table};
use crate::engine::tasks::Tasks;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::time::backoff::Attempts;
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;
use crate::types::loss::{Loss, LossKind};
use crate::types::name::Name;
use crate::types::owner::{Session, Token};
use crate::types::process::{AtHome, FirstUser, Home};

/// The longest that an attempt to connect may take.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);

/// How a client connects. The sink gets what the store says unasked.
pub(crate) type Connect = Box<dyn Fn(Weak<dyn Sink>) -> Pending<Arc<dyn Backend>> + Send + Sync>;

/// A reply, when its request was sent, and the store's time when it made the reply.
pub(crate) struct Executed {
    pub(crate) reply: Reply,
    pub(crate) sent: Moment,
    pub(crate) server: Option<u64>,
    pub(crate) is_degraded: bool,
}

/// The keeper, before a runtime runs it.
pub(crate) type Keeper = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks that a client starts in the background. It knows them by these functions alone, because they know the client.
pub(crate) struct Background {
    /// Seeks a lease for the tasks that wait for the name.
    pub(crate) seek: fn(Arc<Client>, Name, Bid, Arc<Alarm>),
    /// Keeps the leases of the client until its last handle is gone.
    pub(crate) keep: fn(KeeperRuns, Arc<Notify>) -> Keeper,
    /// Gives back a lease that nobody wants any more.
    pub(crate) give_up: fn(&Arc<Client>, Name, Token),
}

/// Marks that the keeper runs, for as long as it exists.
pub(crate) struct KeeperRuns {
    pub(crate) client: Weak<Client>,
    is_kept: Arc<AtomicBool>,
    /// The domain was closed: no other keeper is needed.
    pub(crate) has_ended: bool,
}

impl KeeperRuns {
    pub(crate) fn new(client: Weak<Client>, is_kept: Arc<AtomicBool>) -> Self {
        KeeperRuns { client, is_kept, has_ended: false }
    }
}

impl Drop for KeeperRuns {
    fn drop(&mut self) {
        self.is_kept.store(false, Ordering::Release);
        if !self.has_ended
            && let Some(client) = self.client.upgrade()
            && client.is_here()
        {
            client.keeper_went_down();
        }
    }
}

pub(crate) struct Client {
    me: Weak<Client>,
    background: Background,
    pub(crate) clock: Clock,
    connect: Connect,
    opening: Opening,
    pub(crate) table: Mutex<Table>,
    pub(crate) tasks: Tasks,
    pub(crate) leftovers: Leftovers,
    /// Wakes the keeper.
    alarm: Arc<Notify>,
    /// There is a keeper.
    is_kept: Arc<AtomicBool>,
    closing: Notify,
    /// The process that uses it.
    user: FirstUser,
}

impl Client {
    pub(crate) fn new(clock: Clock, connect: Connect, background: Background) -> Arc<Self> {
        Arc::new_cyclic(|me| Client {
            me: me.clone(),
            background,
            table: Mutex::new(Table::new(clock.clone())),
            tasks: Tasks::on(&clock),
            clock,
            connect,
            opening: Opening::default(),
            leftovers: Leftovers::default(),
            alarm: Arc::default(),
            is_kept: Arc::default(),
            closing: Notify::new(),
            user: FirstUser::new(),
        })
    }

    /// Refuses a forked child before it touches anything of its parent: a thread that the child does not have may hold a mutex.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.user.check()
    }

    /// False in a forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.user.is_this_process()
    }

    /// Remembers the caller's runtime. Refuses a lease that needs renewal if there is no runtime to renew it on.
    pub(crate) fn see_runtime(&self, terms: &Terms) -> Result<(), Error> {
        match self.tasks.see_runtime() || !terms.needs_renewal() {
            true => Ok(()),
            false => Err(runtime::missing_for_renewal()),
        }
    }

    /// Refuses a forked child, and every call after `close`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_process()?;
        self.table.lock().check_open()
    }

    /// The backend. The first call connects.
    pub(crate) async fn backend(&self) -> Result<&Arc<dyn Backend>, Error> {
        self.check_process()?;
        if let Some(backend) = self.opened_before() {
            return Ok(backend);
        }
        self.tasks.see_runtime();
        // A forked child does not wait for a connection of its parent.
        let connecting = AtHome::new(Home::here(), async {
            let mut closing = pin!(self.closing.notified());
            closing.as_mut().enable();
            self.check()?;
            let mut opening = pin!(self.opening.get_or_open(&self.tasks, || self.connect()));
            let backend = std::future::poll_fn(|cx| match opening.as_mut().poll(cx) {
                Poll::Pending => closing.as_mut().poll(cx).map(|()| Err(Error::closed())),
                answer => answer,
            })
            .await?;
            Ok(backend)
        });
        connecting.await?
    }

    fn connect(&self) -> Pending<Arc<dyn Backend>> {
        let (me, clock) = (self.me.clone(), self.clock.clone());
        match (self.connect)(me.clone()) {
            Pending::Later(later) => Pending::Later(Box::pin(async move {
                let answer = clock.until(clock.now() + LONGEST_CONNECT, later).await;
                let silence =
                    || Err(Error::unavailable("store could not be connected to in time").fix("try again"));
                let opened = answer.unwrap_or_else(silence);
                if let (Ok(backend), Some(client)) = (&opened, me.upgrade()) {
                    client.know(&**backend);
                }
                opened
            })),
            Pending::Now(opened) => {
                if let Some(Ok(backend)) = &opened {
                    self.know(&**backend);
                }
                Pending::Now(opened)
            }
        }
    }

    /// Tells the table what it must know of the store before any task asks it.
    fn know(&self, backend: &dyn Backend) {
        let mut table = self.table.lock();
        table.verify_after = backend.verifies_after();
        table.bidder.session = Some(backend.session().clone());
        table.bidder.floors.group_by(backend.groups());
    }

    /// Ends everything. Tasks that wait for a connection get an error.
    pub(crate) fn close(&self) {
        let mut effects = Effects::default();
        self.table.lock().close(&mut effects);
        self.closing.notify_waiters();
        self.follow_up(effects);
    }

    /// The backend, if this client has connected.
    pub(crate) fn opened_before(&self) -> Option<&Arc<dyn Backend>> {
        self.opening.get()
    }

    /// The backend of a client that has something in the store.
    pub(crate) fn opened(&self) -> &Arc<dyn Backend> {
        self.opened_before().expect("whoever has something in the store has opened it")
    }

    pub(crate) fn session(&self) -> &Session {
        self.opened().session()
    }

    /// Changes the table, then executes the effects of the change.
    pub(crate) fn change<T>(&self, transition: impl FnOnce(&mut Table, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let mut table = self.table.lock();
        let result = transition(&mut table, &mut effects);
        // The keeper's runtime may have shut down while the keeper slept.
        effects.rouse_keeper |= !table.due.is_empty() && !self.is_kept.load(Ordering::Acquire);
        drop(table);
        self.follow_up(effects);
        result
    }

    /// Starts the keeper again if its runtime shut down: leases that tasks wait for must end.
    pub(crate) fn mind_keeper(&self) {
        if !self.is_kept.load(Ordering::Acquire) {
            self.change(|_, _| ());
        }
    }

    pub(crate) fn follow_up(&self, mut effects: Effects) {
        effects.wake_all();
        for lease in effects.lost {
            match lease.loss().map(Loss::kind) {
                None | Some(LossKind::Closed) => {
                    tracing::debug!(target: "tenure", name = %lease.name, "closed")
                }
                Some(kind) => tracing::warn!(target: "tenure", name = %lease.name, ?kind, "lost"),
            }
            lease.tell();
        }
        for (name, bid, alarm) in effects.seeks {
            if let Some(me) = self.me.upgrade() {
                (self.background.seek)(me, name, bid, alarm);
            }
        }
        if effects.rouse_keeper {
            self.rouse_keeper();
        }
    }

    /// Wakes the keeper. Starts one if none runs.
    fn rouse_keeper(&self) {
        self.tasks.see_runtime();
        if let Some(keeper) = self.new_keeper() {
            self.tasks.spawn_daemon(keeper);
        }
        self.alarm.notify_one();
    }

    /// The keeper's runtime shuts down. If another runtime uses this client, its leases must still be renewed.
    fn keeper_went_down(&self) {
        if let Some(runtime) = self.tasks.take_other_runtime()
            && let Some(keeper) = self.new_keeper()
        {
            drop(runtime.spawn(keeper));
        }
    }

    /// A new keeper, unless one runs.
    fn new_keeper(&self) -> Option<Keeper> {
        if self.is_kept.swap(true, Ordering::AcqRel) {
            return None;
        }
        let runs = KeeperRuns::new(self.me.clone(), Arc::clone(&self.is_kept));
        Some((self.background.keep)(runs, Arc::clone(&self.alarm)))
    }

    /// Executes an operation, as [`ask_again`](Self::ask_again).
    pub(crate) async fn execute(&self, name: &Name, op: Op, timeout: Duration) -> Result<Executed, Error> {
        let mut sent = self.clock.now();
        let execute = || {
            sent = self.clock.now();
            self.opened().execute(name, op.clone())
        };
        let Answer { reply, server, is_degraded } = self.ask_again(timeout, execute).await?;
        Ok(Executed { reply, sent, server, is_degraded })
    }

    /// Asks the store, and again if the connection breaks, within the time that one command may take.
    pub(crate) async fn ask_again<T: Unpin>(
        &self,
        timeout: Duration,
        mut ask: impl FnMut() -> Pending<T>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::until(self.clock.now() + timeout);
        loop {
            match self.in_time(attempts.give_up, ask()).await {
                Err(error) => attempts.again(&self.clock, error).await?,
                answer => return answer,
            }
        }
    }

    /// Runs `work` on the store until `give_up` at most.
    pub(crate) async fn in_time<T>(
        &self,
        give_up: Moment,
        mut work: impl Future<Output = Result<T, Error>> + Unpin,
    ) -> Result<T, Error> {
        self.check_process()?;
        // A store in this process or on this machine answers at once: that needs no look at the clock.
        if let Poll::Ready(answer) =
            std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut work).poll(cx))).await
        {
            return answer;
        }
        let timeout = give_up.since(self.clock.now());
        let answer = AtHome::new(Home::here(), self.clock.until(give_up, work)).await?;
        answer.unwrap_or_else(|| {
            let store = self.opened_before().map_or_else(|| "store".to_owned(), |backend| backend.called());
            Err(Error::unanswered(format!(
                "{store} did not answer within {}",
                crate::types::duration::shown(timeout)
            ))
            .fix("is it overloaded or cut off?"))
        })
    }
}

impl Sink for Client {
    fn granted(&self, name: &Name, grant: Grant) {
        if !self.is_here() {
            return;
        }
        let connection = self.opened_before().map_or(0, |backend| backend.connection(name));
        match self.change(|table, effects| table.pushed(name, &grant, connection, effects)) {
            Pushed::Known => {}
            Pushed::Unwanted => {
                if let Some(me) = self.me.upgrade() {
                    (self.background.give_up)(&me, name.clone(), grant.token);
                }
            }
            // The client keeps it: the process that asked for it may be at work under it.
            Pushed::Unasked => tracing::warn!(
                target: "tenure",
                %name,
                "the store granted a lock that this client did not ask for: another process has a copy of its memory; open the domain again"
            ),
        }
    }

    fn verify(&self, name: &Name) {
        if self.is_here() {
            self.change(|table, effects| table.verify(name, effects));
        }
    }

    fn verify_all(&self) {
        if !self.is_here() {
            return;
        }
        // Another server may tell more, or less, of what happens to a lease.
        let verify_after = self.opened_before().and_then(|backend| backend.verifies_after());
        self.change(|table, effects| {
            table.verify_after = verify_after;
            table.verify_all(effects);
        });
    }

    fn missed_grants(&self) {
        if self.is_here() {
            self.table.lock().rouse_waiting();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.is_here() {
            self.alarm.notify_one();
            return;
        }
        // Dropping these could wake a task of the parent's runtime, close a connection or lock a mutex: a forked child leaks them.
        let table = std::mem::replace(&mut self.table, Mutex::new(Table::new(self.clock.clone())));
        std::mem::forget((table, std::mem::take(&mut self.opening), std::mem::take(&mut self.tasks)));
    }
}
