//! One client of a store: what the handles of a domain share.
//!
//! It ends with the last handle: a domain, a lock, a guard, or an acquire under way. Nothing in the background keeps it alive but
//! work that ends by itself (R3.5).

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::runtime;
use crate::backend::{Answer, Backend, Grant, Pending, Sink};
use crate::core::deadlines::Terms;
use crate::core::record::{Op, PROBATION, Reply};
use crate::engine::keeper;
use crate::engine::opening::Opening;
use crate::engine::release::{self, Leftovers};
use crate::engine::seek;
use crate::engine::table::{Effects, Pushed, Table};
use crate::engine::tasks::Tasks;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::time::backoff::Attempts;
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;
use crate::types::loss::{Loss, LossKind};
use crate::types::name::Name;
use crate::types::owner::Session;
use crate::types::process::FirstUser;

/// The longest that an attempt to connect may take.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);

/// How a client connects: told where to send what the store says unasked.
pub(crate) type Connect = Box<dyn Fn(Weak<dyn Sink>) -> Pending<Arc<dyn Backend>> + Send + Sync>;

/// A reply, when the request for it was sent, and the store's time of it.
pub(crate) struct Executed {
    pub(crate) reply: Reply,
    pub(crate) sent: Moment,
    pub(crate) server: Option<u64>,
}

pub(crate) struct Client {
    me: Weak<Client>,
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
    pub(crate) fn new(clock: Clock, connect: Connect) -> Arc<Self> {
        Arc::new_cyclic(|me| Client {
            me: me.clone(),
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

    /// Refuses a forked child, before anything of its parent is touched: a mutex may be held by a thread that the child does not have.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.user.check()
    }

    /// False in a forked child.
    pub(crate) fn is_here(&self) -> bool {
        self.user.is_this_process()
    }

    /// Remembers the caller's runtime. Refuses a lease that is to be renewed when there is no runtime that would do it.
    pub(crate) fn see_runtime(&self, terms: &Terms) -> Result<(), Error> {
        match self.tasks.see_runtime() || !terms.needs_renewal() {
            true => Ok(()),
            false => Err(runtime::missing_for_renewal()),
        }
    }

    /// Refuses a forked child, and everyone after `close`.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_process()?;
        self.table.lock().check_open()
    }

    /// The backend; connects when nobody has yet.
    pub(crate) async fn backend(&self) -> Result<&Arc<dyn Backend>, Error> {
        self.check_process()?;
        if let Some(backend) = self.opened_before() {
            return Ok(backend);
        }
        self.tasks.see_runtime();
        Box::pin(async {
            let mut closing = pin!(self.closing.notified());
            closing.as_mut().enable();
            self.check()?;
            let mut opening = pin!(self.opening.get_or_open(&self.tasks, || self.connect()));
            let backend = std::future::poll_fn(|cx| match opening.as_mut().poll(cx) {
                Poll::Pending => closing.as_mut().poll(cx).map(|()| Err(Error::closed())),
                answer => answer,
            })
            .await?;
            let mut table = self.table.lock();
            table.verify_after = backend.verifies_after();
            table.floors.group_by(backend.groups());
            drop(table);
            Ok(backend)
        })
        .await
    }

    fn connect(&self) -> Pending<Arc<dyn Backend>> {
        let (sink, clock): (Weak<dyn Sink>, _) = (self.me.clone(), self.clock.clone());
        match (self.connect)(sink) {
            Pending::Later(later) => Pending::Later(Box::pin(async move {
                let answer = clock.until(clock.now() + LONGEST_CONNECT, later).await;
                let silence =
                    || Err(Error::unavailable("store could not be connected to in time").fix("try again"));
                answer.unwrap_or_else(silence)
            })),
            at_once => at_once,
        }
    }

    /// Ends everything; whoever waits for a connection is told too.
    pub(crate) fn close(&self) {
        let after = self.table.lock().close();
        self.closing.notify_waiters();
        self.follow_up(after);
    }

    /// The backend, if somebody has connected.
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

    /// Changes the table, then does what follows from it.
    pub(crate) fn change<T>(&self, transition: impl FnOnce(&mut Table, &mut Effects) -> T) -> T {
        let mut after = Effects::default();
        let mut table = self.table.lock();
        let result = transition(&mut table, &mut after);
        // The keeper may have gone down with its runtime, whatever it meant to sleep until.
        after.rouse_keeper |= !table.due.is_empty() && !self.is_kept.load(Ordering::Acquire);
        drop(table);
        self.follow_up(after);
        result
    }

    /// Starts the keeper where it went down with its runtime: the leases that are waited for must end.
    pub(crate) fn mind_keeper(&self) {
        if !self.is_kept.load(Ordering::Acquire) {
            self.change(|_, _| ());
        }
    }

    pub(crate) fn follow_up(&self, mut after: Effects) {
        after.wake_all();
        for lease in after.lost {
            match lease.loss().map(Loss::kind) {
                None | Some(LossKind::Closed) => {
                    tracing::debug!(target: "tenure", name = %lease.name, "closed")
                }
                Some(kind) => tracing::warn!(target: "tenure", name = %lease.name, ?kind, "lost"),
            }
            lease.tell();
        }
        for (name, bid, alarm) in after.seeks {
            if let Some(me) = self.me.upgrade() {
                seek::start(me, name, bid, alarm);
            }
        }
        if after.rouse_keeper {
            self.rouse_keeper();
        }
    }

    /// Wakes the keeper; starts it when there is none, or when it went down with its runtime.
    fn rouse_keeper(&self) {
        self.tasks.see_runtime();
        if let Some(keeper) = self.new_keeper() {
            self.tasks.spawn_daemon(keeper);
        }
        self.alarm.notify_one();
    }

    /// The keeper's runtime is going down. If another one uses this client, its leases must still be renewed.
    pub(crate) fn keeper_went_down(&self) {
        if let Some(runtime) = self.tasks.take_other_runtime()
            && let Some(keeper) = self.new_keeper()
        {
            drop(runtime.spawn(keeper));
        }
    }

    /// A keeper, unless there is one.
    fn new_keeper(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.is_kept.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (client, is_running) = (self.me.clone(), Arc::clone(&self.is_kept));
        let running = keeper::Running { client, is_running, has_ended: false };
        Some(keeper::keep(running, Arc::clone(&self.alarm)))
    }

    /// Executes an operation, as [`ask_again`](Self::ask_again).
    pub(crate) async fn execute(&self, name: &Name, op: Op, timeout: Duration) -> Result<Executed, Error> {
        let mut sent = self.clock.now();
        let execute = || {
            sent = self.clock.now();
            self.opened().execute(name, op.clone())
        };
        let Answer { reply, server } = self.ask_again(timeout, execute).await?;
        Ok(Executed { reply, sent, server })
    }

    /// Asks the store; again while that breaks off unanswered, within the time that one command may take.
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
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut work = pin!(work);
        let mut work = pin!(std::future::poll_fn(|cx| match self.is_here() {
            true => work.as_mut().poll(cx),
            false => Poll::Ready(Err(Error::forked())),
        }));
        // A store in this process, or of this machine, answers at once: no clock is read for it.
        if let Poll::Ready(answer) = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return answer;
        }
        let timeout = give_up.since(self.clock.now());
        self.clock.until(give_up, work).await.unwrap_or_else(|| {
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
        match self.change(|table, after| table.pushed(name, &grant, connection, after)) {
            Pushed::Known => {}
            Pushed::Unwanted => {
                if let Some(me) = self.me.upgrade() {
                    release::leave(&me, name.clone(), grant.token, None, PROBATION);
                }
            }
            // Not given back: the process that asked for it may be at work under it.
            Pushed::Unasked => tracing::warn!(
                target: "tenure",
                %name,
                "the store granted a lock that this client did not ask for: another process has a copy of its memory; open the domain again"
            ),
        }
    }

    fn verify(&self, name: &Name) {
        if self.is_here() {
            self.change(|table, after| table.verify(name, after));
        }
    }

    fn verify_all(&self) {
        if !self.is_here() {
            return;
        }
        // Another server may tell more, or less, of what happens to a lease.
        let verify_after = self.opened_before().and_then(|backend| backend.verifies_after());
        self.change(|table, after| {
            table.verify_after = verify_after;
            table.verify_all(after);
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
        // Whatever is dropped here may wake a task of the parent's runtime, close a connection or lock a mutex: a forked child leaves it all
        // where it is.
        let table = std::mem::replace(&mut self.table, Mutex::new(Table::new(self.clock.clone())));
        std::mem::forget((table, std::mem::take(&mut self.opening), std::mem::take(&mut self.tasks)));
    }
}
