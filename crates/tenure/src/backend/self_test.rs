//! A self-test of a store: two clients acquire, wait for, hand over, renew and break a lease on a name of their own.
//!
//! It proves more than any setting that can be read: it needs the permissions, scripts, pushes and files of real locks. It uses
//! the trait alone, so it is the same for every store. The clients' sinks only note what they hear: nothing above the backend is involved,
//! and a failure stays here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Backend, Grant, Sink};
use crate::core::record::{Op, Reply, Wait};
use crate::sync::Mutex;
pub(crate) use crate::types::duration::shown;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::Finding;
use crate::types::name::Name;
use crate::types::owner::{Session, Token};

/// How long the lease lasts if the process is killed during the test.
const TTL: Duration = Duration::from_secs(10);
/// How long the test waits for a push.
const LONGEST_PUSH: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Notes what a store pushes to one of the clients.
#[derive(Default)]
pub(crate) struct TestListener {
    pushes: Mutex<Pushes>,
    bell: Notify,
}

#[derive(Default)]
struct Pushes {
    granted: Option<Instant>,
    verify: Option<Instant>,
}

impl Sink for TestListener {
    fn granted(&self, _: &Name, _: Grant) {
        self.pushes.lock().granted.get_or_insert_with(Instant::now);
        self.bell.notify_one();
    }

    fn verify(&self, _: &Name) {
        self.pushes.lock().verify = Some(Instant::now());
        self.bell.notify_one();
    }

    fn verify_all(&self) {}

    fn missed_grants(&self) {}
}

impl TestListener {
    /// Waits for a push; `None` if it does not come in time.
    async fn hears(&self, which: impl Fn(&Pushes) -> Option<Instant>) -> Option<Instant> {
        let heard = async {
            loop {
                if let Some(moment) = which(&self.pushes.lock()) {
                    return moment;
                }
                self.bell.notified().await;
            }
        };
        tokio::time::timeout(LONGEST_PUSH, heard).await.ok()
    }
}

/// What a self-test measured.
#[derive(Debug)]
pub(crate) struct SelfTest {
    /// How long the acquire took; or what went wrong with the lease.
    pub(crate) lease: Result<Duration, Error>,
    /// How long after the release the waiter was notified of its turn.
    pub(crate) hand_over: Option<Duration>,
    /// How long after the break the holder was notified of its loss.
    pub(crate) loss: Option<Duration>,
}

impl SelfTest {
    /// A self-test that could not begin.
    pub(crate) fn failed(error: Error) -> Self {
        SelfTest { lease: Err(error), hand_over: None, loss: None }
    }

    /// As findings, without remedies.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let taken = match &self.lease {
            Ok(taken) => *taken,
            Err(error) => {
                let reason = format!("no lock can be held: {}", error.summary());
                let finding = Finding::unfit("lease", reason);
                return vec![match error.remedy() {
                    Some(remedy) => finding.remedy(remedy),
                    None => finding,
                }];
            }
        };
        let lease = format!("a lock was taken in {}, renewed, handed over and broken", shown(taken));
        let hand_over = match self.hand_over {
            Some(after) => {
                Finding::fit("hand-over", format!("the next is told of its turn in {}", shown(after)))
            }
            None => {
                Finding::doubtful("hand-over", "waiters are not told of their turn, and ask again and again")
            }
        };
        let loss = match self.loss {
            Some(after) => {
                Finding::fit("loss", format!("a holder is told of the end of its lease in {}", shown(after)))
            }
            None => {
                let reason =
                    "a holder is not told when its lease is ended by force: the next renewal finds it";
                Finding::doubtful("loss", reason)
            }
        };
        vec![Finding::fit("lease", lease), hand_over, loss]
    }
}

/// A name that nobody else uses.
pub(crate) fn name() -> Name {
    Name::new(&format!("tenure/doctor/{}", Session::random().id().as_str())).expect("a short name")
}

/// Tests a store. The name is free afterwards, if the store still answers.
pub(crate) async fn run(
    name: &Name,
    holder: &dyn Backend,
    waiter: &dyn Backend,
    listener: &Arc<TestListener>,
) -> SelfTest {
    let [first, second] = [holder, waiter].map(|client| Token::fresh(client.session(), "tenure doctor", TTL));
    let mut test = SelfTest { lease: Ok(Duration::ZERO), hand_over: None, loss: None };
    let scene = Scene { name, holder, waiter, listener, first: &first, second: &second };
    if let Err(error) = scene.play(&mut test).await {
        test.lease = Err(error);
        for (client, token) in [(waiter, &second), (holder, &first)] {
            drop(client.execute(name, Op::Leave { token: token.clone() }).await);
        }
    }
    test
}

struct Scene<'a> {
    name: &'a Name,
    holder: &'a dyn Backend,
    waiter: &'a dyn Backend,
    listener: &'a Arc<TestListener>,
    first: &'a Token,
    second: &'a Token,
}

impl Scene<'_> {
    async fn play(&self, test: &mut SelfTest) -> Result<(), Error> {
        let asked = Instant::now();
        let Reply::Granted { fence } = self.ask(self.holder, self.first, Wait::No, false).await? else {
            return Err(odd("a name that nobody else knows was not granted"));
        };
        test.lease = Ok(asked.elapsed());

        let Reply::Waiting { joined_at, .. } = self.ask(self.waiter, self.second, Wait::Join, true).await?
        else {
            return Err(odd("a name that is held was granted to another"));
        };
        self.listening().await;
        let polls = self.waiter.polls(self.name);
        self.ask(self.waiter, self.second, Wait::Keep { joined_at }, polls).await?;
        let released = Instant::now();
        self.execute(self.holder, Op::Release { token: self.first.clone(), used: fence }).await?;
        let granted = self.listener.hears(|pushes| pushes.granted).await;
        test.hand_over = granted.map(|granted| granted - released);

        let polls = self.waiter.polls(self.name);
        let reply = self.ask(self.waiter, self.second, Wait::Keep { joined_at }, polls).await?;
        let Reply::Granted { fence: next } = reply else {
            return Err(odd("a name that was released was not granted to its waiter"));
        };
        if next <= fence {
            return Err(odd("a fence did not grow"));
        }
        self.execute(self.waiter, Op::Renew { token: self.second.clone(), ttl: TTL }).await?;
        let broken = Instant::now();
        self.execute(self.holder, Op::Break { token: self.second.clone(), fence: next }).await?;
        let verify = self.listener.hears(|pushes| pushes.verify.filter(|verify| *verify >= broken)).await;
        test.loss = verify.map(|verify| verify - broken);
        Ok(())
    }

    async fn ask(
        &self,
        client: &dyn Backend,
        token: &Token,
        wait: Wait,
        polls: bool,
    ) -> Result<Reply, Error> {
        let token = token.clone();
        // Nobody sends it again, so it can't come too late.
        let op = Op::Acquire { token, ttl: TTL, wait, polls, floor: 0, not_after: NEVER };
        self.execute(client, op).await
    }

    async fn execute(&self, client: &dyn Backend, op: Op) -> Result<Reply, Error> {
        let answer = tokio::time::timeout(TTL / 4, client.execute(self.name, op)).await;
        let silent =
            |_| Error::unavailable("store does not answer any more").fix("is it overloaded or cut off?");
        answer.map_err(silent)?.map(|answer| answer.reply)
    }

    /// Waits until the store can notify the waiter, unless it refuses to.
    async fn listening(&self) {
        let (start, warnings) = (Instant::now(), self.waiter.warnings().len());
        while self.waiter.polls(self.name)
            && self.waiter.warnings().len() == warnings
            && start.elapsed() < LONGEST_PUSH
        {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// No store's clock reaches it, and Lua can represent it.
const NEVER: u64 = (1 << 53) - 1;

fn odd(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, what).fix("do others change this store?")
}
