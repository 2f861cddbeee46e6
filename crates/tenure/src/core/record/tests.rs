//! Each transition and each rule of the record, one at a time, on a store whose clocks the test sets.
//!
//! A test reads as a story: who does what, at which millisecond, and what the store answers. What holds for *every* story is in
//! `properties`, and what holds with clients and a network around the record is in `model`.

use super::*;

const MS: u64 = 1_000;
const TTL: Duration = Duration::from_secs(10);
/// Where both clocks start; the wall clock is ahead, so that a mix-up of the two shows.
const START: u64 = 1_000_000 * MS;
const WALL: u64 = 1_700_000_000_000_000;

struct Store {
    record: Record,
    now: Now,
    notices: Vec<Notice>,
}

impl Store {
    fn new() -> Self {
        let now = Now { lease: START, wall: WALL };
        Store { record: Record::new(0), now, notices: Vec::new() }
    }

    /// Lets time pass on both clocks.
    fn pass(&mut self, ms: u64) -> &mut Self {
        self.now.lease += ms * MS;
        self.now.wall += ms * MS;
        self
    }

    fn apply(&mut self, op: Op) -> Reply {
        self.notices.clear();
        self.record.apply(op, self.now, &mut self.notices)
    }

    fn acquire_with(&mut self, who: &str, wait: Wait, floor: u64) -> Reply {
        let not_after = self.now.lease;
        self.apply(Op::Acquire { token: token(who), ttl: TTL, wait, polls: false, floor, not_after })
    }

    fn join(&mut self, who: &str) -> Reply {
        self.acquire_with(who, Wait::Join, 0)
    }

    fn beat(&mut self, who: &str, joined_at: u64) -> Reply {
        self.acquire_with(who, Wait::Keep { joined_at }, 0)
    }

    fn try_now(&mut self, who: &str) -> Reply {
        self.acquire_with(who, Wait::No, 0)
    }

    fn renew(&mut self, who: &str, ttl: Duration) -> Reply {
        self.apply(Op::Renew { token: token(who), ttl })
    }

    fn release(&mut self, who: &str, used: u64) -> Reply {
        self.apply(Op::Release { token: token(who), used })
    }

    fn leave(&mut self, who: &str) -> Reply {
        self.apply(Op::Leave { token: token(who) })
    }

    fn death(&mut self, who: &str) -> Reply {
        self.apply(Op::Death { token: token(who) })
    }

    fn detach(&mut self, who: &str) -> Reply {
        self.apply(Op::Detach { token: token(who), ttl: TTL })
    }

    fn adopt(&mut self, from: &str, who: &str) -> Reply {
        let not_after = self.now.lease;
        self.apply(Op::Adopt { from: token(from), token: token(who), ttl: TTL, floor: 0, not_after })
    }

    fn take_over(&mut self, who: &str) -> Reply {
        let not_after = self.now.lease;
        self.apply(Op::TakeOver { token: token(who), ttl: TTL, floor: 0, not_after })
    }

    fn break_lease(&mut self, who: &str, fence: u64) -> Reply {
        self.apply(Op::Break { token: token(who), fence })
    }

    /// Who holds the name, as `inspect` shows it.
    fn holding(&mut self) -> Option<Holding> {
        match self.apply(Op::Inspect) {
            Reply::Seen { holding, .. } => holding,
            other => panic!("{other:?}"),
        }
    }

    /// The fence that was ended by force.
    fn broken(&mut self) -> Option<u64> {
        match self.apply(Op::Inspect) {
            Reply::Seen { broken, .. } => broken,
            other => panic!("{other:?}"),
        }
    }

    fn holder(&mut self) -> Option<String> {
        self.holding().map(|holding| holding.token.as_str().to_owned())
    }

    fn left(&mut self) -> Duration {
        self.holding().expect("somebody holds it").left
    }

    /// The living waiters, first to last.
    fn queue(&mut self) -> String {
        match self.apply(Op::Inspect) {
            Reply::Seen { waiters, .. } => waiters.iter().map(|(token, _)| token.as_str()).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Who was told of a grant by the last operation.
    fn granted_by_push(&self) -> Option<&str> {
        self.notices.iter().find_map(|wake| match wake {
            Notice::Granted { token, .. } => Some(token.as_str()),
            Notice::Revoked { .. } => None,
        })
    }
}

fn token(who: &str) -> Token {
    Token::from_store(who)
}

fn fence(reply: Reply) -> u64 {
    match reply {
        Reply::Granted { fence } => fence,
        other => panic!("expected a grant, got {other:?}"),
    }
}

fn joined_at(reply: Reply) -> u64 {
    match reply {
        Reply::Waiting { joined_at, .. } => joined_at,
        other => panic!("expected to wait, got {other:?}"),
    }
}

fn not_held(by: &str) -> Reply {
    let holder = (!by.is_empty()).then(|| token(by));
    Reply::NotHeld { holder }
}

mod fencing;
mod holding;
mod waiting;
