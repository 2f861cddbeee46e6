//! One client of a store: what the handles of a domain share.
//!
//! It ends with the last handle: a domain, a lock, a guard, or an acquire under way. Nothing in the background keeps it alive but
//! work that ends by itself (R3.5).

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::acquire::PAUSE;
use crate::backend::{Answer, Backend, Grant, Pending, Sink};
use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::keeper;
use crate::name::Name;
use crate::opening::Opening;
use crate::owner::Session;
use crate::record::{Op, PROBATION, Reply};
use crate::release;
use crate::seek;
use crate::sync::Mutex;
use crate::table::{After, Table};
use crate::tasks::Tasks;

/// How a client connects: told where to send what the store says unasked.
pub(crate) type Connect = Box<dyn Fn(Weak<dyn Sink>) -> Pending<Arc<dyn Backend>> + Send + Sync>;

/// A reply, when the request for it was sent, and whether one before it was not answered.
pub(crate) struct Executed {
    pub(crate) reply: Reply,
    pub(crate) sent: Moment,
    pub(crate) was_unanswered: bool,
}

pub(crate) struct Client {
    me: Weak<Client>,
    pub(crate) clock: Clock,
    connect: Connect,
    opening: Opening,
    pub(crate) table: Mutex<Table>,
    pub(crate) tasks: Tasks,
    /// Wakes the keeper.
    alarm: Arc<Notify>,
    /// There is a keeper.
    is_kept: Arc<AtomicBool>,
}

impl Client {
    pub(crate) fn new(clock: Clock, connect: Connect) -> Arc<Self> {
        Arc::new_cyclic(|me| Client {
            me: me.clone(),
            table: Mutex::new(Table::new(clock.clone())),
            clock,
            connect,
            opening: Opening::default(),
            tasks: Tasks::default(),
            alarm: Arc::default(),
            is_kept: Arc::default(),
        })
    }

    /// The backend; connects when nobody has yet.
    pub(crate) async fn backend(&self) -> Result<&Arc<dyn Backend>, Error> {
        if let Some(backend) = self.opening.get() {
            return Ok(backend);
        }
        self.table.lock().floor_unless_closed()?;
        self.tasks.see_runtime();
        let sink: Weak<dyn Sink> = self.me.clone();
        Box::pin(self.opening.get_or_open(&self.tasks, || (self.connect)(sink))).await
    }

    /// The backend of a client that has something in the store.
    pub(crate) fn opened(&self) -> &Arc<dyn Backend> {
        self.opening.get().expect("whoever has something in the store has opened it")
    }

    pub(crate) fn session(&self) -> &Session {
        self.opened().session()
    }

    /// Changes the table, then does what follows from it.
    pub(crate) fn change<T>(&self, transition: impl FnOnce(&mut Table, &mut After) -> T) -> T {
        let mut after = After::default();
        let result = transition(&mut self.table.lock(), &mut after);
        self.follow_up(after);
        result
    }

    pub(crate) fn follow_up(&self, mut after: After) {
        after.wake_all();
        for lease in after.lost {
            if let Some(loss) = lease.loss() {
                tracing::warn!(name = %lease.name, kind = ?loss.kind(), "{loss}");
            }
            lease.tell();
        }
        for (name, attempt, alarm) in after.seeks {
            if let Some(me) = self.me.upgrade() {
                seek::start(me, name, attempt, alarm);
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
        self.table.lock().keeper_sleeps_until = Moment::FAR;
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

    /// Executes an operation; again while it breaks off unanswered, within the time that one command may take.
    pub(crate) async fn execute(&self, name: &Name, op: Op, timeout: Duration) -> Result<Executed, Error> {
        let mut was_unanswered = false;
        let give_up = self.clock.now() + timeout;
        loop {
            let sent = self.clock.now();
            let answer = self.in_time(give_up.since(sent), self.opened().execute(name, op.clone())).await;
            match answer {
                Ok(Answer { reply, .. }) => {
                    return Ok(Executed { reply, sent, was_unanswered });
                }
                Err(error) if error.may_have_run() && self.clock.now() + PAUSE < give_up => {
                    was_unanswered = true
                }
                Err(error) => return Err(error),
            }
            self.clock.sleep_until(self.clock.now() + PAUSE).await;
        }
    }

    /// Runs `work` on the store within the time that one command may take.
    pub(crate) async fn in_time<T>(
        &self,
        timeout: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answer = self.clock.until(self.clock.now() + timeout, work).await;
        answer.unwrap_or_else(|| {
            Err(Error::unanswered(format!(
                "store did not answer within {timeout:?}; is it overloaded or cut off?"
            )))
        })
    }
}

impl Sink for Client {
    fn granted(&self, name: &Name, grant: Grant) {
        if !self.change(|table, after| table.pushed(name, &grant, after))
            && let Some(me) = self.me.upgrade()
        {
            release::leave(&me, name.clone(), grant.token, None, PROBATION);
        }
    }

    fn doubt(&self, name: &Name) {
        self.change(|table, after| table.doubt(name, after));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.alarm.notify_one();
    }
}
