//! The whole life of a lease, played through by two clients of a store on a name of their own: taken, waited for, handed over, renewed, broken.
//!
//! An examination does this because it proves more than any setting that can be read: the permissions, the scripts, the pushes and the files are
//! those of real locks. It uses the trait alone, so that it is the same for every store. The clients' sinks only listen: nothing above
//! the backend is involved, and whatever goes wrong stays here.

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

/// How long the lease of a rehearsal lasts, if whoever rehearses is killed.
const TTL: Duration = Duration::from_secs(10);
/// How long a push is waited for.
const LONGEST_PUSH: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What is heard by a client of a rehearsal.
#[derive(Default)]
pub(crate) struct Ear {
    heard: Mutex<Heard>,
    bell: Notify,
}

#[derive(Default)]
struct Heard {
    granted: Option<Instant>,
    doubted: Option<Instant>,
}

impl Sink for Ear {
    fn granted(&self, _: &Name, _: Grant) {
        self.heard.lock().granted.get_or_insert_with(Instant::now);
        self.bell.notify_one();
    }

    fn verify(&self, _: &Name) {
        self.heard.lock().doubted = Some(Instant::now());
        self.bell.notify_one();
    }

    fn verify_all(&self) {}

    fn missed_grants(&self) {}
}

impl Ear {
    /// Waits until this was heard; `None` when it is not, for so long that it never will be.
    async fn hears(&self, what: impl Fn(&Heard) -> Option<Instant>) -> Option<Instant> {
        let heard = async {
            loop {
                if let Some(moment) = what(&self.heard.lock()) {
                    return moment;
                }
                self.bell.notified().await;
            }
        };
        tokio::time::timeout(LONGEST_PUSH, heard).await.ok()
    }
}

/// What came of a rehearsal.
#[derive(Debug)]
pub(crate) struct Rehearsed {
    /// How long it took to take the name; or what went wrong with the lease.
    pub(crate) lease: Result<Duration, Error>,
    /// After which time the one who waited was told of its turn.
    pub(crate) hand_over: Option<Duration>,
    /// After which time the holder was told that its lease was broken.
    pub(crate) loss: Option<Duration>,
}

impl Rehearsed {
    /// As findings, without remedies.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let taken = match &self.lease {
            Ok(taken) => *taken,
            Err(error) => {
                let said = error.to_string();
                let (reason, fix) = said.split_once("; ").unwrap_or((&said, ""));
                let finding = Finding::unfit("lease", format!("no lock can be held: {reason}"));
                return vec![if fix.is_empty() { finding } else { finding.remedy(fix) }];
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

/// Plays a lease through. Whatever comes of it, the name is free afterwards, if the store still answers.
pub(crate) async fn rehearse(
    name: &Name,
    holder: &dyn Backend,
    waiter: &dyn Backend,
    ear: &Arc<Ear>,
) -> Rehearsed {
    let [first, second] = [holder, waiter].map(|client| Token::fresh(client.session(), "tenure doctor", TTL));
    let mut rehearsed = Rehearsed { lease: Ok(Duration::ZERO), hand_over: None, loss: None };
    let scene = Scene { name, holder, waiter, ear, first: &first, second: &second };
    if let Err(error) = scene.play(&mut rehearsed).await {
        rehearsed.lease = Err(error);
        for (client, token) in [(waiter, &second), (holder, &first)] {
            drop(client.execute(name, Op::Leave { token: token.clone() }).await);
        }
    }
    rehearsed
}

struct Scene<'a> {
    name: &'a Name,
    holder: &'a dyn Backend,
    waiter: &'a dyn Backend,
    ear: &'a Arc<Ear>,
    first: &'a Token,
    second: &'a Token,
}

impl Scene<'_> {
    async fn play(&self, rehearsed: &mut Rehearsed) -> Result<(), Error> {
        let asked = Instant::now();
        let Reply::Granted { fence } = self.ask(self.holder, self.first, Wait::No, false).await? else {
            return Err(odd("a name that nobody else knows was not granted"));
        };
        rehearsed.lease = Ok(asked.elapsed());

        let Reply::Waiting { joined_at, .. } = self.ask(self.waiter, self.second, Wait::Join, true).await?
        else {
            return Err(odd("a name that is held was granted to another"));
        };
        self.listening().await;
        let polls = self.waiter.polls(self.name);
        self.ask(self.waiter, self.second, Wait::Keep { joined_at }, polls).await?;
        let released = Instant::now();
        self.execute(self.holder, Op::Release { token: self.first.clone(), used: fence }).await?;
        let granted = self.ear.hears(|heard| heard.granted).await;
        rehearsed.hand_over = granted.map(|granted| granted - released);

        let polls = self.waiter.polls(self.name);
        let reply = self.ask(self.waiter, self.second, Wait::Keep { joined_at }, polls).await?;
        let Reply::Granted { fence: next } = reply else {
            return Err(odd("a name that was given back was not granted to the one who waited"));
        };
        if next <= fence {
            return Err(odd("a fence did not grow"));
        }
        self.execute(self.waiter, Op::Renew { token: self.second.clone(), ttl: TTL }).await?;
        let broken = Instant::now();
        self.execute(self.holder, Op::Break { token: self.second.clone(), fence: next }).await?;
        let doubted = self.ear.hears(|heard| heard.doubted.filter(|doubted| *doubted >= broken)).await;
        rehearsed.loss = doubted.map(|doubted| doubted - broken);
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
        // Nobody sends it again, so that it can't come too late.
        let op = Op::Acquire { token, ttl: TTL, wait, polls, floor: 0, not_after: NEVER };
        self.execute(client, op).await
    }

    async fn execute(&self, client: &dyn Backend, op: Op) -> Result<Reply, Error> {
        let answer = tokio::time::timeout(TTL / 4, client.execute(self.name, op)).await;
        let silent =
            |_| Error::unavailable("store does not answer any more").fix("is it overloaded or cut off?");
        answer.map_err(silent)?.map(|answer| answer.reply)
    }

    /// Waits until the one who waits can be told of its turn, unless it is refused.
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

/// No store's clock gets there, and every number of Lua does.
const NEVER: u64 = (1 << 53) - 1;

fn odd(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("{what}")).fix("do others change this store?")
}
