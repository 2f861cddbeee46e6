//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::sync::{Mutex, MutexGuard};
use crate::time::moment::{Moment, system_wall_micros};

/// Where a manual clock starts: any moment will do, as long as it is well away from zero.
const START: u64 = 1_000_000_000_000;
/// How often `advance` lets other tasks run before it takes the next step. A chain of tasks that wake each other (a heartbeat, a
/// grant, the holder's next step) has few links.
const YIELDS: usize = 32;

#[derive(Debug)]
pub(crate) struct ManualClock(Mutex<State>);

#[derive(Debug)]
struct State {
    now: u64,
    wall: u64,
    sleepers: BTreeMap<(u64, u64), Waker>,
    next_id: u64,
}

impl ManualClock {
    pub(crate) fn new() -> Self {
        let wall = system_wall_micros();
        ManualClock(Mutex::new(State { now: START, wall, sleepers: BTreeMap::new(), next_id: 0 }))
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::from_micros(self.state().now)
    }

    pub(crate) fn wall_micros(&self) -> u64 {
        self.state().wall
    }

    /// Moves time, stopping at each sleeper on the way and letting it run.
    pub(crate) async fn advance(&self, by: Duration) {
        let target = self.now() + by;
        loop {
            for _ in 0..YIELDS {
                yield_once().await;
            }
            let now = self.now();
            let next = self.state().sleepers.keys().next().map(|&(due, _)| Moment::from_micros(due));
            if now >= target && next.is_none_or(|due| due > now) {
                return;
            }
            self.jump(next.map_or(target, |due| due.clamp(now, target)).since(now));
        }
    }

    /// Moves time at once, as if the machine had slept. Sleepers wake up after it.
    pub(crate) fn jump(&self, by: Duration) {
        let target = self.now() + by;
        let woken = {
            let mut state = self.state();
            state.wall += target.as_micros() - state.now;
            state.now = target.as_micros();
            state.due()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn sleep_until(&self, moment: Moment) -> Sleep<'_> {
        Sleep { clock: self, due: moment.as_micros(), id: None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn due(&mut self) -> Vec<Waker> {
        let later = self.sleepers.split_off(&(self.now + 1, 0));
        std::mem::replace(&mut self.sleepers, later).into_values().collect()
    }
}

pub(crate) struct Sleep<'a> {
    clock: &'a ManualClock,
    due: u64,
    id: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.now >= self.due {
            return Poll::Ready(());
        }
        let id = self.id.unwrap_or_else(|| {
            state.next_id += 1;
            state.next_id
        });
        state.sleepers.insert((self.due, id), cx.waker().clone());
        drop(state);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.state().sleepers.remove(&(self.due, id));
        }
    }
}

/// Lets other tasks run once, on any executor.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
