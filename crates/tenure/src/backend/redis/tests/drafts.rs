//! Random stories of one name: operations of a few tokens, steps of the server's clock, sessions that come and go.
//!
//! They differ from those of `record/properties.rs`: here a token names a session that is subscribed or not, waiters poll or do not, and
//! the clock steps by the lives of keys. They follow no protocol, so that a script gets any request, and must answer as the record does.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::parts::RecordParts;
use crate::core::record::{MOST_AHEAD, Op, RANGE, Wait};
use crate::types::owner::{SessionId, Token};

pub(super) const SESSIONS: u8 = 4;
const TOKENS: u8 = 6;
/// Enough that the last waiters have a long pause.
const CROWD: u8 = 60;
const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
/// How far a floor may be ahead, in µs.
const YEAR: i64 = MOST_AHEAD.cast_signed();

/// Names that a message must carry unchanged: a space, braces, a percent sign, other alphabets.
const NAMES: [&str; 4] = ["orders/42", "a b", "{tag}%7D", "üñ:☃ *"];

/// One case.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) name: &'static str,
    /// Whether the scripts name their flags.
    pub(super) has_flags: bool,
    /// Which sessions are subscribed at first, as bits.
    pub(super) subscribed: u8,
    pub(super) events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The server's clock steps by this many milliseconds.
    Step(i64),
    Subscribe(u8),
    Unsubscribe(u8),
    /// An operator deletes everything.
    FlushAll,
    /// The server forgets the scripts.
    ScriptFlush,
    Do(Draft),
}

/// Which token.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    Token(u8),
    Holder,
    FirstWaiter,
}

/// Which position a waiter asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    None,
    Join,
    /// The time of the last answer.
    Known,
    /// The time of the first waiter: the tokens decide.
    First,
    /// Before or after now, in µs.
    Near(i64),
}

/// The highest fence that the client has seen, from the start of the present range, or from the server's time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Floor {
    Zero,
    FromStart(i64),
    FromNow(i64),
}

/// Until when a request may be executed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Late,
    Ample,
    /// The limit of a client without any answer yet.
    Unknown,
}

/// An operation whose numbers depend on the state when it is sent.
#[derive(Clone, Debug)]
pub(super) enum Draft {
    Acquire { who: Who, ttl: Duration, joined_at: Position, polls: bool, floor: Floor, limit: Limit },
    Renew { who: Who, ttl: Duration },
    Detach { who: Who, ttl: Duration },
    Release { who: Who, used: Option<u64> },
    Raise { who: Who, floor: Floor },
    Leave { who: Who },
    Adopt { from: Who, who: Who, ttl: Duration, floor: Floor, limit: Limit },
    TakeOver { who: Who, ttl: Duration, floor: Floor, limit: Limit },
    Break { who: Who, off_by: u64 },
    Inspect,
}

impl Draft {
    /// The operation, sent at `now` to a name in this state, by tokens that joined at these times.
    pub(super) fn op(&self, parts: &RecordParts, joined_at_of: &BTreeMap<Token, u64>, now: u64) -> Op {
        let of = |who: Who| match (who, &parts.holder, parts.queue.first()) {
            (Who::Token(number), ..) => token(number),
            (Who::Holder, Some((holder, _)), _) => Token::from_store(holder),
            (Who::FirstWaiter, _, Some(waiter)) => Token::from_store(&waiter.token),
            _ => token(0),
        };
        let floor = |floor: Floor| match floor {
            Floor::Zero => 0,
            Floor::FromStart(by) => parts.start().saturating_add_signed(by),
            Floor::FromNow(by) => now.saturating_add_signed(by),
        };
        let not_after = |limit: Limit| match limit {
            Limit::Late => now - 1,
            Limit::Ample => now + 10_000_000,
            Limit::Unknown => u64::MAX,
        };
        let wait = |token: &Token, joined_at: Position| match joined_at {
            Position::None => Wait::No,
            Position::Join => Wait::Join,
            Position::Known => {
                joined_at_of.get(token).map_or(Wait::Join, |joined_at| Wait::Keep { joined_at: *joined_at })
            }
            Position::First => {
                parts.queue.first().map_or(Wait::Join, |first| Wait::Keep { joined_at: first.joined_at })
            }
            Position::Near(by) => Wait::Keep { joined_at: now.saturating_add_signed(by) },
        };
        match self.clone() {
            Draft::Acquire { who, ttl, joined_at, polls, floor: seen, limit } => {
                let (token, not_after) = (of(who), not_after(limit));
                let wait = wait(&token, joined_at);
                Op::Acquire { token, ttl, wait, polls, floor: floor(seen), not_after }
            }
            Draft::Renew { who, ttl } => Op::Renew { token: of(who), ttl },
            Draft::Detach { who, ttl } => Op::Detach { token: of(who), ttl },
            Draft::Release { who, used } => {
                Op::Release { token: of(who), used: used.map_or(0, |used| parts.start() + used) }
            }
            Draft::Raise { who, floor: fence } => Op::Raise { token: of(who), fence: floor(fence) },
            Draft::Leave { who } => Op::Leave { token: of(who) },
            Draft::Adopt { from, who, ttl, floor: seen, limit } => Op::Adopt {
                from: of(from),
                token: of(who),
                ttl,
                floor: floor(seen),
                not_after: not_after(limit),
            },
            Draft::TakeOver { who, ttl, floor: seen, limit } => {
                Op::TakeOver { token: of(who), ttl, floor: floor(seen), not_after: not_after(limit) }
            }
            Draft::Break { who, off_by } => Op::Break { token: of(who), fence: parts.start() + off_by },
            Draft::Inspect => Op::Inspect,
        }
    }
}

pub(super) fn session(number: u8) -> SessionId {
    SessionId::parse(&format!("5e55{number:012x}")).expect("16 hexadecimal digits")
}

/// Some sessions have two tokens. The order of tokens is not that of their numbers. Some have a ttl, and operations ask for a longer one.
pub(super) fn token(number: u8) -> Token {
    let random = u128::from(number.wrapping_mul(151)) << 120 | u128::from(number);
    let session = session(number % SESSIONS);
    let ttl = ["", ":1500", ":10000"][usize::from(number % 3)];
    Token::from_store(&format!("{random:032x}:{}:host%3A1:user:1:label{number}{ttl}", session.as_str()))
}

pub(super) fn story() -> impl Strategy<Value = Story> {
    let event = prop_oneof![
        6 => step().prop_map(Event::Step),
        1 => (0..SESSIONS).prop_map(Event::Subscribe),
        1 => (0..SESSIONS).prop_map(Event::Unsubscribe),
        20 => draft().prop_map(Event::Do),
    ];
    let rare = prop_oneof![Just(Event::FlushAll), Just(Event::ScriptFlush)];
    let event = prop_oneof![100 => event, 1 => rare];
    let events = prop::collection::vec(event, 1..80);
    let crowd = prop_oneof![5 => Just(0), 1 => 20..CROWD];
    (prop::sample::select(&NAMES[..]), any::<bool>(), 0..1u8 << SESSIONS, crowd, events).prop_map(
        |(name, has_flags, subscribed, crowd, events)| {
            let events = (0..crowd).map(join).chain(events).collect();
            Story { name, has_flags, subscribed, events }
        },
    )
}

/// Mostly within the lives of leases and heartbeats, and around two heartbeats (0.8 s) and a lapse (1.5 s); past the life of a queue (30
/// s) and of a fence (ten minutes after its lease); and back.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 1..50i64,
        8 => 50..700i64,
        6 => 700..950i64,
        4 => 1_300..1_700i64,
        4 => SECOND..4 * SECOND,
        1 => Just(31 * SECOND),
        1 => prop_oneof![Just(HOUR), Just(605 * SECOND)],
        1 => prop_oneof![-5 * SECOND..0, Just(-HOUR)],
    ]
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![6 => 0..TOKENS, 1 => 0..CROWD].prop_map(Who::Token)
}

/// An acquire that joins, or a heartbeat of a waiter that has joined.
pub(super) fn join(number: u8) -> Event {
    let (who, ttl) = (Who::Token(number), Duration::from_secs(10));
    let (joined_at, floor, limit) = (Position::Known, Floor::Zero, Limit::Ample);
    Event::Do(Draft::Acquire { who, ttl, joined_at, polls: false, floor, limit })
}

fn anyone() -> impl Strategy<Value = Who> {
    prop_oneof![4 => who(), 4 => Just(Who::Holder), 1 => Just(Who::FirstWaiter)]
}

/// Some are not whole milliseconds.
fn ttl() -> impl Strategy<Value = Duration> {
    prop_oneof![
        2 => (100..300u64).prop_map(Duration::from_millis),
        2 => (100_000..3_000_000u64).prop_map(Duration::from_micros),
        1 => Just(Duration::from_secs(1)),
        1 => Just(Duration::from_secs(10)),
    ]
}

fn joined_at() -> impl Strategy<Value = Position> {
    prop_oneof![
        2 => Just(Position::None),
        4 => Just(Position::Join),
        4 => Just(Position::Known),
        1 => Just(Position::First),
        1 => (-3_000_000..3_000_000i64).prop_map(Position::Near),
    ]
}

fn floor() -> impl Strategy<Value = Floor> {
    prop_oneof![
        12 => Just(Floor::Zero),
        6 => (-200..200i64).prop_map(Floor::FromStart),
        // Rarely: after a fence from the future, the age of the last grant is unknown.
        1 => (-SECOND..3 * SECOND).prop_map(|ms| Floor::FromNow(ms * 1_000)),
        // On both sides of a year, from the clock and from a fence that is ahead of it.
        1 => prop_oneof![4 => 0..10 * SECOND, 1 => -10 * SECOND..0].prop_map(|ms| Floor::FromNow(YEAR + ms * 1_000)),
        1 => prop_oneof![4 => 1..300i64, 1 => -200..1i64].prop_map(|by| Floor::FromStart(YEAR + by)),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![1 => Just(Limit::Late), 12 => Just(Limit::Ample), 2 => Just(Limit::Unknown)]
}

fn draft() -> impl Strategy<Value = Draft> {
    let polls = || prop::bool::weighted(0.2);
    prop_oneof![
        12 => (who(), ttl(), joined_at(), polls(), floor(), limit()).prop_map(|(who, ttl, joined_at, polls, floor, limit)| {
            Draft::Acquire { who, ttl, joined_at, polls, floor, limit }
        }),
        2 => (anyone(), ttl()).prop_map(|(who, ttl)| Draft::Renew { who, ttl }),
        1 => (anyone(), ttl()).prop_map(|(who, ttl)| Draft::Detach { who, ttl }),
        4 => (anyone(), prop::option::weighted(0.8, 0..2 * RANGE))
            .prop_map(|(who, used)| Draft::Release { who, used }),
        1 => (anyone(), floor()).prop_map(|(who, floor)| Draft::Raise { who, floor }),
        2 => anyone().prop_map(|who| Draft::Leave { who }),
        1 => (anyone(), anyone(), ttl(), floor(), limit())
            .prop_map(|(from, who, ttl, floor, limit)| Draft::Adopt { from, who, ttl, floor, limit }),
        1 => (anyone(), ttl(), floor(), limit())
            .prop_map(|(who, ttl, floor, limit)| Draft::TakeOver { who, ttl, floor, limit }),
        2 => (anyone(), 0..2u64).prop_map(|(who, off_by)| Draft::Break { who, off_by }),
        2 => Just(Draft::Inspect),
    ]
}
