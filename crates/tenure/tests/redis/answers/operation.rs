//! The operations, and which command of the proxy's is theirs.

use std::time::{Duration, Instant};

use tenure::{Attempt, Domain, Error, ErrorKind, Guard, Release};
use tenure_testkit::patience::PATIENCE;
use tenure_testkit::redis::{Proxy, Step};

/// What a client does when the fault meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Acquire,
    TryAcquire,
    Enqueue,
    Beat,
    Renew,
    Keep,
    Release,
    LeaveByTimeout,
    LeaveByCancelling,
    Adopt,
    TakeOver,
    Break,
    Detach,
    Inspect,
    List,
}

pub(crate) const ALL: [Operation; 15] = {
    use Operation::*;
    [
        Acquire,
        TryAcquire,
        Enqueue,
        Beat,
        Renew,
        Keep,
        Release,
        LeaveByTimeout,
        LeaveByCancelling,
        Adopt,
        TakeOver,
        Break,
        Detach,
        Inspect,
        List,
    ]
};

impl Operation {
    /// Whether this is its command, by the number of its words and what they say: docs/protocol.md.
    pub(crate) fn is(self, words: &[Vec<u8>]) -> bool {
        let word = |at: usize| words.get(at).map_or(&b""[..], Vec::as_slice);
        let is_script = [&b"EVALSHA"[..], b"EVAL"].contains(&word(0));
        // Those that use force, or look for it, have one key more.
        let is_plain = is_script && word(2) == b"4";
        let is_of_force = is_script && word(2) == b"5";
        let is_beat = word(10).first().is_some_and(u8::is_ascii_digit);
        match self {
            Operation::Acquire => is_script && words.len() == 16 && word(10) == b"join",
            Operation::TryAcquire => is_script && words.len() == 16 && word(10) == b"no",
            Operation::Enqueue => is_script && words.len() == 16 && word(10) == b"join",
            Operation::Beat => is_script && words.len() == 16 && is_beat,
            Operation::Renew | Operation::Keep | Operation::Detach => is_script && word(2) == b"1",
            Operation::Release => is_plain && words.len() == 11,
            Operation::LeaveByTimeout | Operation::LeaveByCancelling => is_plain && words.len() == 10,
            Operation::Adopt => is_plain && words.len() == 14,
            Operation::TakeOver => is_of_force && words.len() == 14,
            Operation::Break => is_of_force && words.len() == 12,
            Operation::Inspect => is_of_force && words.len() == 9,
            Operation::List => word(0) == b"SCAN",
        }
    }

    /// Whether another holds the name when it begins.
    pub(crate) fn is_contended(self) -> bool {
        use Operation::*;
        matches!(
            self,
            Enqueue | Beat | LeaveByTimeout | LeaveByCancelling | Adopt | TakeOver | Break | Inspect | List
        )
    }
}

/// The machine may be too busy for a short timeout: again, until it succeeds.
pub(crate) async fn in_the_end<T, A>(attempt: impl Fn() -> A) -> T
where
    A: Future<Output = Result<T, Error>>,
{
    let give_up = Instant::now() + PATIENCE;
    loop {
        match attempt().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient() && Instant::now() < give_up, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the operation left in the hands of whoever began it.
pub(crate) enum Outcome {
    /// A guard, perhaps one that came back with an error.
    Guard(Guard),
    /// Nothing: it was given back, refused, or only looked at.
    Nothing,
}

impl Outcome {
    pub(crate) fn guard(&self) -> Option<&Guard> {
        match self {
            Outcome::Guard(guard) => Some(guard),
            Outcome::Nothing => None,
        }
    }
}

/// A client behind a proxy, and one that is not.
pub(crate) struct Cell<'a> {
    pub(crate) victim: &'a Domain,
    pub(crate) other: &'a Domain,
    pub(crate) proxy: &'a Proxy,
    pub(crate) name: &'a str,
    /// How long a lease is watched for what a fault may do to it later.
    pub(crate) watched: Duration,
    /// An error that may pass is as good as an answer.
    pub(crate) may_fail: bool,
}

impl Cell<'_> {
    /// Does it; `arm` sets the fault. `held` is the other's guard, or the victim's, where there is one.
    pub(crate) async fn perform(
        &self,
        operation: Operation,
        held: Guard,
        arm: impl Fn(),
    ) -> (Outcome, Option<Guard>) {
        let lock = self.victim.lock(self.name);
        let met = || self.proxy.seen_async(Step::Received, move |words| operation.is(words));
        let fence = held.fence();
        match operation {
            Operation::Acquire | Operation::TryAcquire => {
                held.release().await.expect("no fault yet");
                arm();
                let attempt = match operation {
                    Operation::Acquire => self.ended(lock.acquire().await),
                    _ => {
                        self.ended(lock.try_acquire().await).map(|attempt| attempt.ok().expect("it is free"))
                    }
                };
                let guard = attempt.inspect(|guard| assert!(guard.fence() > fence));
                (guard.map_or(Outcome::Nothing, Outcome::Guard), None)
            }
            Operation::Enqueue | Operation::Beat => {
                if operation == Operation::Enqueue {
                    arm();
                }
                let waiting = tokio::spawn(async move { lock.acquire().await });
                if operation == Operation::Beat {
                    self.proxy.seen_async(Step::Delivered, |words| Operation::Enqueue.is(words)).await;
                    arm();
                }
                met().await;
                held.release().await.expect("the other has no faults");
                let waited = self.ended(waiting.await.expect("no panic"));
                (waited.map_or(Outcome::Nothing, Outcome::Guard), None)
            }
            Operation::Renew => {
                arm();
                self.ended(held.renew().await);
                (Outcome::Guard(held), None)
            }
            Operation::Keep => {
                arm();
                met().await;
                // Through the fault, and the renewals after it.
                let lost = tokio::time::timeout(self.watched * 2, held.lost()).await;
                assert!(lost.is_err(), "the keeper renews after a fault: {lost:?}");
                (Outcome::Guard(held), None)
            }
            Operation::Release => {
                arm();
                match held.release().await {
                    Ok(release) => assert_eq!(release, Release::Released),
                    Err(returned) => {
                        self.ended(Err::<(), _>(returned.error));
                        assert!(!returned.guard.is_held(), "given up is not held");
                        return (Outcome::Guard(returned.guard), None);
                    }
                }
                (Outcome::Nothing, None)
            }
            Operation::LeaveByTimeout => {
                arm();
                if let Some(attempt) = self.ended(lock.try_acquire_for(Duration::from_millis(200)).await) {
                    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
                }
                met().await;
                (Outcome::Nothing, Some(held))
            }
            Operation::LeaveByCancelling => {
                let waiting = tokio::spawn(async move { lock.acquire().await });
                self.proxy.seen_async(Step::Delivered, |words| Operation::Enqueue.is(words)).await;
                arm();
                waiting.abort();
                met().await;
                (Outcome::Nothing, Some(held))
            }
            Operation::Adopt => {
                let ticket = held.detach().await.expect("the other has no faults");
                arm();
                let adopted = self.ended(ticket.adopt(self.victim).await);
                (adopted.map_or(Outcome::Nothing, Outcome::Guard), None)
            }
            Operation::TakeOver => {
                arm();
                let taken = self.ended(lock.take_over().await);
                if let Some(guard) = &taken {
                    assert!(guard.fence() > fence);
                    held.lost().await;
                }
                (taken.map_or(Outcome::Nothing, Outcome::Guard), Some(held))
            }
            Operation::Break => {
                let holder = self.other.inspect(self.name).await.expect("the other has no faults").holder;
                arm();
                let broken = self.victim.break_lock(self.name, &holder.expect("it is held")).await;
                // Whether an end that was not answered was this one's doing can't be told.
                if self.ended(broken).is_some() {
                    held.lost().await;
                }
                (Outcome::Nothing, Some(held))
            }
            Operation::Detach => {
                arm();
                match held.detach().await {
                    Ok(ticket) => {
                        let adopted = in_the_end(|| ticket.adopt(self.other)).await;
                        assert!(adopted.fence() > fence);
                        (Outcome::Nothing, Some(adopted))
                    }
                    Err(returned) => {
                        self.ended(Err::<(), _>(returned.error));
                        (Outcome::Guard(returned.guard), None)
                    }
                }
            }
            Operation::Inspect => {
                arm();
                if let Some(status) = self.ended(self.victim.inspect(self.name).await) {
                    assert_eq!(status.holder.expect("it is held").fence, fence);
                }
                (Outcome::Nothing, Some(held))
            }
            Operation::List => {
                arm();
                if let Some(statuses) = self.ended(self.victim.list(self.name).await) {
                    assert_eq!(statuses.len(), 1);
                }
                (Outcome::Nothing, Some(held))
            }
        }
    }

    /// What it ended in: an answer, or an error that says that it may be tried again.
    fn ended<T>(&self, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                assert!(self.may_fail, "{error}");
                let is_known = error.is_transient() || error.kind() == ErrorKind::Lost;
                assert!(is_known, "{error:?}");
                None
            }
        }
    }
}
