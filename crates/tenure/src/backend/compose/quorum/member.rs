//! One server of the group: whether it answers, whether its word counts, and what it is still owed.
//!
//! What must be undone on a server that does not answer is a *debt*: it is paid when the server answers again, or forgotten when the lease
//! has run out by itself. One task for each server pays all of them, and holds the server by a weak reference.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::backend::Backend;
use crate::core::record::Op;
use crate::sync::Mutex;
use crate::time::backoff::Backoff;
use crate::time::clock::{Clock, Moment};
use crate::types::name::Name;

/// How long one attempt to pay may take.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);
/// How many debts are remembered: of a server that is away for long, those that it had time to forget by itself go first.
const MOST_DEBTS: usize = 4_096;

pub(super) struct Member {
    /// Host and port, without credentials.
    pub(super) label: String,
    pub(super) backend: Arc<dyn Backend>,
    clock: Clock,
    /// It did not answer in time when it was last asked.
    pub(super) is_silent: AtomicBool,
    /// The run of this server that was there when the whole group was new.
    founding: Mutex<Option<Arc<str>>>,
    debts: Mutex<Debts>,
}

#[derive(Default)]
struct Debts {
    owed: VecDeque<Debt>,
    is_being_paid: bool,
}

/// What is to be done on a server, not before `due`, and not after `until`.
pub(super) struct Debt {
    pub(super) name: Name,
    pub(super) op: Op,
    pub(super) due: Moment,
    pub(super) until: Moment,
}

impl Member {
    pub(super) fn new(label: String, backend: Arc<dyn Backend>, clock: Clock) -> Arc<Self> {
        Arc::new(Member {
            label,
            backend,
            clock,
            is_silent: AtomicBool::new(false),
            founding: Mutex::new(None),
            debts: Mutex::default(),
        })
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Whether it answers, as far as that is known without asking.
    pub(super) fn is_in_reach(&self) -> bool {
        !self.is_silent() && self.backend.outage().is_none()
    }

    /// How old the server is, if it is younger than `horizon` and may have forgotten leases that others count on.
    pub(super) fn youth(&self, horizon: Duration) -> Option<Duration> {
        let run = self.backend.incarnation()?;
        let age = run.age.filter(|age| *age < horizon)?;
        (self.founding.lock().as_ref() != Some(&run.id)).then_some(age)
    }

    /// The whole group is new: nothing can have been forgotten.
    pub(super) fn found(&self) {
        *self.founding.lock() = self.backend.incarnation().map(|run| run.id);
    }

    /// Whether it was there when the whole group was new.
    pub(super) fn is_founding(&self) -> bool {
        self.founding.lock().is_some()
    }

    /// A moment of our clock, on the server's.
    pub(super) fn translated(&self, name: &Name, moment: Moment) -> u64 {
        let left = moment.since(self.clock.now());
        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        self.backend.server_now(name).map_or(u64::MAX, |now| now.saturating_add(left))
    }

    /// Does it as soon as the server answers.
    pub(super) fn owe(self: &Arc<Self>, debt: Debt) {
        let mut debts = self.debts.lock();
        if debts.owed.len() >= MOST_DEBTS {
            debts.owed.pop_front();
        }
        debts.owed.push_back(debt);
        if debts.is_being_paid {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        debts.is_being_paid = true;
        drop(debts);
        drop(runtime.spawn(pay(Paying(Arc::downgrade(self)), self.clock.clone())));
    }
}

/// Says that debts are being paid, until it is dropped.
struct Paying(Weak<Member>);

impl Drop for Paying {
    fn drop(&mut self) {
        if let Some(member) = self.0.upgrade() {
            member.debts.lock().is_being_paid = false;
        }
    }
}

async fn pay(paying: Paying, clock: Clock) {
    let mut backoff = Backoff::new();
    loop {
        let Some(member) = paying.0.upgrade() else { return };
        let pause = match pay_one(&member, &clock).await {
            Paid::All => return,
            Paid::One => {
                backoff = Backoff::new();
                continue;
            }
            Paid::NotDue(due) => due,
            Paid::Nothing => clock.now() + backoff.pause(),
        };
        drop(member);
        clock.sleep_until(pause).await;
    }
}

enum Paid {
    All,
    One,
    NotDue(Moment),
    Nothing,
}

/// In their order: what comes first on a name must be done first.
async fn pay_one(member: &Member, clock: &Clock) -> Paid {
    let now = clock.now();
    let debt = {
        let mut debts = member.debts.lock();
        debts.owed.retain(|debt| debt.until > now);
        let Some(index) = (0..debts.owed.len()).find(|&index| debts.owed[index].due <= now) else {
            return match debts.owed.iter().map(|debt| debt.due).min() {
                Some(due) => Paid::NotDue(due),
                None => {
                    debts.is_being_paid = false;
                    Paid::All
                }
            };
        };
        debts.owed.remove(index).expect("it is there")
    };
    let limit = clock.now() + LONGEST_ATTEMPT;
    let answer = clock.until(limit, member.backend.execute(&debt.name, debt.op.clone())).await;
    match answer {
        Some(Ok(_)) => {
            member.is_silent.store(false, Ordering::Relaxed);
            Paid::One
        }
        // It would be refused again, and keep all others waiting.
        Some(Err(error)) if !error.is_transient() => Paid::One,
        _ => {
            member.debts.lock().owed.push_front(debt);
            Paid::Nothing
        }
    }
}
