//! The holder's side against a real [`Record`] with a clock of its own: whatever the delays, the drift and the pauses, the holder
//! stops believing before the store gives the name to another (I2), and asks for no more than it was allowed.

use proptest::prelude::*;

use super::*;
use crate::core::record::{Notice, Now, Op, Record, Reply, Wait};
use crate::types::error::ErrorKind;
use crate::types::owner::Token;

mod deadlines;
mod renewing;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(10);
/// The clocks of the holder and of the store have nothing in common but their speed.
const START: u64 = 7_000_000_000;
const STORE_START: u64 = 3_000_000_000_123;

fn at(offset: Duration) -> Moment {
    Moment::from_micros(START) + offset
}

fn terms(ttl: Duration) -> Terms {
    Terms::new(ttl, None)
}

fn terms_with(ttl: Duration, percent: u8) -> Terms {
    Terms { margin: Margin::new(percent).unwrap(), ..terms(ttl) }
}

/// A store that runs at `per_mille` thousandths of the holder's speed more or less, and knows one other client.
struct Store {
    record: Record,
    fast_per_mille: f64,
}

impl Store {
    fn new(fast_per_mille: f64) -> Self {
        Store { record: Record::new(0), fast_per_mille }
    }

    /// The store's clock at a moment of the holder's.
    fn clock(&self, now: Moment) -> Now {
        let passed = now.since(at(Duration::ZERO)).as_micros() as f64;
        let lease = STORE_START + (passed * (1.0 + self.fast_per_mille / 1_000.0)) as u64;
        Now { lease, wall: lease }
    }

    fn apply(&mut self, op: Op, now: Moment) -> (Reply, Vec<Notice>) {
        let mut notices = Vec::new();
        let reply = self.record.apply(op, self.clock(now), &mut notices);
        (reply, notices)
    }

    fn acquire(&mut self, who: &str, ttl: Duration, now: Moment) -> Reply {
        let op = Op::Acquire {
            token: token(who),
            ttl,
            wait: Wait::Join,
            polls: false,
            floor: 0,
            not_after: u64::MAX,
        };
        self.apply(op, now).0
    }

    fn renew(&mut self, who: &str, ttl: Duration, now: Moment) -> Reply {
        let op = Op::Renew { token: token(who), ttl };
        self.apply(op, now).0
    }

    fn release(&mut self, who: &str, now: Moment) -> Vec<Notice> {
        let op = Op::Release { token: token(who), used: 0 };
        self.apply(op, now).1
    }

    /// Whether anyone else could have the name now.
    fn would_give_away(&self, who: &str, now: Moment) -> bool {
        let mut copy = self.record.clone();
        let renewal = Op::Renew { token: token(who), ttl: Duration::ZERO };
        let reply = copy.apply(renewal, self.clock(now), &mut Vec::new());
        reply != Reply::Done
    }
}

fn token(who: &str) -> Token {
    Token::from_store(who)
}

fn is_over(lease: &Deadlines, now: Moment) -> bool {
    matches!(lease.step(now), Step::Over { .. })
}
