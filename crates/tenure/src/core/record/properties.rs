//! What holds for every story: random operations of a few clients, on clocks that also jump, against the rules that no single
//! example can show.
//!
//! The sequences are blind (nobody follows a protocol), so that a record is safe whatever reaches it, in whatever order. Where a
//! rule binds only those who keep to the protocol (order among waiters that beat, fences that were really used), the test plays
//! those clients faithfully and leaves the rest to chance.

use proptest::prelude::*;

use super::*;

mod invariants;
mod order;
mod steps;

const MS: u64 = 1_000;
const START: u64 = 1_000_000 * MS;
const WALL: u64 = 1_700_000_000_000_000;
const CLIENTS: u8 = 4;

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Event {
    Pass { ms: u64 },
    Do(Draft),
}

/// An operation whose numbers are filled in when it is applied, because they depend on the state: a fence that was seen, a time.
#[derive(Clone, Debug)]
enum Draft {
    Acquire { who: u8, ttl: Duration, wait: u8, floor: i64, late: bool },
    Renew { who: u8, ttl: Duration },
    Detach { who: u8, ttl: Duration },
    Release { who: u8, used: u64 },
    Leave { who: u8 },
    Adopt { from: u8, who: u8, ttl: Duration, late: bool },
    TakeOver { who: u8, ttl: Duration, late: bool },
    Break { who: u8, off_by: u64 },
    Death { who: u8 },
    Inspect,
}

/// Takers and adopters hold and release, but never wait: theirs is a fresh token (R2.1).
fn taker(who: u8) -> Token {
    token(CLIENTS + who)
}

fn anyone() -> impl Strategy<Value = u8> {
    0..2 * CLIENTS
}

fn who() -> impl Strategy<Value = u8> {
    0..CLIENTS
}

fn ttl() -> impl Strategy<Value = Duration> {
    prop_oneof![100..3_000u64, Just(1_000), Just(10_000)].prop_map(Duration::from_millis)
}

/// Relative to the start of the present range.
fn floor() -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(-1), 1 => -200..200i64]
}

fn late() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn draft() -> impl Strategy<Value = Draft> {
    prop_oneof![
        6 => (who(), ttl(), 0..3u8, floor(), late())
            .prop_map(|(who, ttl, wait, floor, late)| Draft::Acquire { who, ttl, wait, floor, late }),
        2 => (anyone(), ttl()).prop_map(|(who, ttl)| Draft::Renew { who, ttl }),
        1 => (anyone(), ttl()).prop_map(|(who, ttl)| Draft::Detach { who, ttl }),
        3 => (anyone(), 0..2 * RANGE).prop_map(|(who, used)| Draft::Release { who, used }),
        1 => anyone().prop_map(|who| Draft::Leave { who }),
        1 => (anyone(), who(), ttl(), late())
            .prop_map(|(from, who, ttl, late)| Draft::Adopt { from, who, ttl, late }),
        1 => (who(), ttl(), late()).prop_map(|(who, ttl, late)| Draft::TakeOver { who, ttl, late }),
        1 => (anyone(), 0..2u64).prop_map(|(who, off_by)| Draft::Break { who, off_by }),
        1 => anyone().prop_map(|who| Draft::Death { who }),
        1 => Just(Draft::Inspect),
    ]
}

fn events(max: usize) -> impl Strategy<Value = Vec<Event>> {
    let pass = prop_oneof![0..50u64, 100..1_000u64, 1_000..12_000u64].prop_map(|ms| Event::Pass { ms });
    prop::collection::vec(prop_oneof![1 => pass, 3 => draft().prop_map(Event::Do)], 1..max)
}

/// A jump of a clock, in ms, forwards or back.
fn jump() -> impl Strategy<Value = i64> {
    prop_oneof![-5_000..5_000i64, Just(-3_600_000), Just(3_600_000)]
}

#[derive(Clone, Debug)]
struct Store {
    record: Record,
    now: Now,
}

impl Store {
    fn new() -> Self {
        let (lease, wall) = (100 * START, WALL);
        Store { record: Record::new(0), now: Now { lease, wall } }
    }

    fn pass(&mut self, ms: u64) {
        self.now.lease += ms * MS;
        self.now.wall += ms * MS;
    }

    fn set_clocks(&mut self, lease_ms: i64, wall_ms: i64) {
        self.now.lease = self.now.lease.saturating_add_signed(lease_ms * 1_000);
        self.now.wall = self.now.wall.saturating_add_signed(wall_ms * 1_000);
    }

    fn apply(&mut self, op: Op) -> (Reply, Vec<Notice>) {
        let mut notices = Vec::new();
        let reply = self.record.apply(op, self.now, &mut notices);
        (reply, notices)
    }

    fn holder(&self) -> Option<Token> {
        match self.clone().apply(Op::Inspect).0 {
            Reply::Seen { holding, .. } => holding.map(|holding| holding.token),
            other => panic!("{other:?}"),
        }
    }

    fn op(&self, draft: Draft) -> Op {
        let start = self.record.last.saturating_sub(RANGE - 1);
        let not_after = |late| self.now.lease - u64::from(late);
        match draft {
            Draft::Acquire { who, ttl, wait, floor, late } => Op::Acquire {
                token: token(who),
                ttl,
                wait: [Wait::No, Wait::Join, Wait::Keep { joined_at: START + u64::from(who) }]
                    [usize::from(wait)],
                polls: false,
                floor: start.saturating_add_signed(floor),
                not_after: not_after(late),
            },
            Draft::Renew { who, ttl } => Op::Renew { token: token(who), ttl },
            Draft::Detach { who, ttl } => Op::Detach { token: token(who), ttl },
            Draft::Release { who, used } => Op::Release { token: token(who), used: start + used },
            Draft::Leave { who } => Op::Leave { token: token(who) },
            Draft::Adopt { from, who, ttl, late } => {
                Op::Adopt { from: token(from), token: taker(who), ttl, floor: 0, not_after: not_after(late) }
            }
            Draft::TakeOver { who, ttl, late } => {
                Op::TakeOver { token: taker(who), ttl, floor: 0, not_after: not_after(late) }
            }
            Draft::Break { who, off_by } => Op::Break { token: token(who), fence: start + off_by },
            Draft::Death { who } => Op::Death { token: token(who) },
            Draft::Inspect => Op::Inspect,
        }
    }
}

fn token(who: u8) -> Token {
    Token::from_store(&who.to_string())
}
