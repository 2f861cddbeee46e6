//! Random stories of one name: operations of a few tokens, steps of the server's clock, sessions that come and go.
//!
//! Of their own, and not those of `record/properties.rs`: here a token names a session that is subscribed or not, waiters poll or don't,
//! and a clock steps by the lives of keys. They are blind as well: nobody follows a protocol, so that whatever reaches a script is
//! answered as the record answers it.

use proptest::prelude::*;
use std::time::Duration;

use crate::owner::{SessionId, Token};
use crate::record::RANGE;

pub(super) const SESSIONS: u8 = 4;
const TOKENS: u8 = 6;
const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;

/// Keys with what a message must carry unharmed: a space, braces, a percent sign, other alphabets.
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
    /// The server's clock steps by so many milliseconds.
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

/// Which place a waiter asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    None,
    Join,
    /// The one that it was last told.
    Known,
    /// That of the first of the queue: the tokens decide.
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
    /// As a client sends it that has had no answer yet.
    Unknown,
}

/// An operation whose numbers are filled in when it is sent, because they depend on the state.
#[derive(Clone, Debug)]
pub(super) enum Draft {
    Acquire { who: Who, ttl: Duration, place: Place, polls: bool, floor: Floor, limit: Limit },
    Renew { who: Who, ttl: Duration },
    Detach { who: Who, ttl: Duration },
    Release { who: Who, used: Option<u64> },
    Leave { who: Who },
    Adopt { from: Who, who: Who, ttl: Duration, floor: Floor, limit: Limit },
    TakeOver { who: Who, ttl: Duration, floor: Floor, limit: Limit },
    Break { who: Who, off_by: u64 },
    Inspect,
}

pub(super) fn session(number: u8) -> SessionId {
    SessionId::parse(&format!("5e55{number:012x}")).expect("16 hexadecimal digits")
}

/// Some sessions have two tokens. Their order is not that of their numbers.
pub(super) fn token(number: u8) -> Token {
    let random = u128::from(number.wrapping_mul(151)) << 120 | u128::from(number);
    let session = session(number % SESSIONS);
    Token::from_store(&format!("{random:032x}:{}:host%3A1:user:1:label{number}", session.as_str()))
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
    (prop::sample::select(&NAMES[..]), any::<bool>(), 0..1u8 << SESSIONS, events)
        .prop_map(|(name, has_flags, subscribed, events)| Story { name, has_flags, subscribed, events })
}

/// Mostly within the lives of leases and beats; past that of a queue (30 s) and that of a fence (a day); and back.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 1..50i64,
        8 => 50..1_200i64,
        8 => SECOND..4 * SECOND,
        2 => Just(31 * SECOND),
        1 => Just(HOUR),
        1 => Just(48 * HOUR),
        2 => -5 * SECOND..0,
        1 => Just(-HOUR),
    ]
}

fn who() -> impl Strategy<Value = Who> {
    (0..TOKENS).prop_map(Who::Token)
}

fn anyone() -> impl Strategy<Value = Who> {
    prop_oneof![4 => who(), 4 => Just(Who::Holder), 1 => Just(Who::FirstWaiter)]
}

/// Also some that are no whole milliseconds.
fn ttl() -> impl Strategy<Value = Duration> {
    prop_oneof![
        2 => (100..300u64).prop_map(Duration::from_millis),
        2 => (100_000..3_000_000u64).prop_map(Duration::from_micros),
        1 => Just(Duration::from_secs(1)),
        1 => Just(Duration::from_secs(10)),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        2 => Just(Place::None),
        4 => Just(Place::Join),
        4 => Just(Place::Known),
        1 => Just(Place::First),
        1 => (-3_000_000..3_000_000i64).prop_map(Place::Near),
    ]
}

fn floor() -> impl Strategy<Value = Floor> {
    prop_oneof![
        3 => Just(Floor::Zero),
        2 => (-200..200i64).prop_map(Floor::FromStart),
        1 => (-1_000..HOUR).prop_map(|ms| Floor::FromNow(ms * 1_000)),
    ]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![1 => Just(Limit::Late), 12 => Just(Limit::Ample), 2 => Just(Limit::Unknown)]
}

fn draft() -> impl Strategy<Value = Draft> {
    let polls = || prop::bool::weighted(0.2);
    prop_oneof![
        12 => (who(), ttl(), place(), polls(), floor(), limit()).prop_map(|(who, ttl, place, polls, floor, limit)| {
            Draft::Acquire { who, ttl, place, polls, floor, limit }
        }),
        2 => (anyone(), ttl()).prop_map(|(who, ttl)| Draft::Renew { who, ttl }),
        1 => (anyone(), ttl()).prop_map(|(who, ttl)| Draft::Detach { who, ttl }),
        4 => (anyone(), prop::option::weighted(0.8, 0..2 * RANGE))
            .prop_map(|(who, used)| Draft::Release { who, used }),
        2 => anyone().prop_map(|who| Draft::Leave { who }),
        1 => (anyone(), anyone(), ttl(), floor(), limit())
            .prop_map(|(from, who, ttl, floor, limit)| Draft::Adopt { from, who, ttl, floor, limit }),
        1 => (anyone(), ttl(), floor(), limit())
            .prop_map(|(who, ttl, floor, limit)| Draft::TakeOver { who, ttl, floor, limit }),
        2 => (anyone(), 0..2u64).prop_map(|(who, off_by)| Draft::Break { who, off_by }),
        2 => Just(Draft::Inspect),
    ]
}
