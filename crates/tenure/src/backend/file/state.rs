//! The content of one stripe: the records of its names, and the highest fence of the records that were dropped.

use std::sync::Arc;
use std::time::Duration;

use super::platform::ClockIdentity;
use crate::core::deadlines::MAX_TTL;
use crate::core::record::{Notice, Now, Op, Record, Reply};
use crate::types::bytes::{Bytes, Put};
use crate::types::name::Name;
use crate::types::owner::Token;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The clock of leases, heartbeats and queue positions.
    pub(super) clock: ClockIdentity,
    /// The highest fence of the dropped records.
    floor: u64,
    records: Vec<(Name, Record)>,
}

impl State {
    pub(super) fn new(clock: ClockIdentity) -> Self {
        State { clock, floor: 0, records: Vec::new() }
    }

    /// Applies an operation, then drops every record that no client uses any more.
    pub(super) fn apply(&mut self, name: &Name, op: Op, now: Now, notices: &mut Vec<Notice>) -> Reply {
        let index = self.records.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
            self.records.push((name.clone(), Record::new(self.floor)));
            self.records.len() - 1
        });
        let reply = self.records[index].1.apply(op, now, notices);
        self.drop_records(|record| record.is_over(now));
        reply
    }

    /// Drops all leases and queues, because their clock is gone, and keeps the fences.
    pub(super) fn void(&mut self, clock: ClockIdentity) {
        self.clock = clock;
        self.drop_records(|_| true);
    }

    fn drop_records(&mut self, is_over: impl Fn(&Record) -> bool) {
        let floor = &mut self.floor;
        self.records.retain(|(_, record)| {
            let stays = !is_over(record);
            if !stays {
                *floor = record.last_fence().max(*floor);
            }
            stays
        });
    }

    /// Whether no record has a holder or a waiter; a record may still show that a lease was broken.
    pub(super) fn is_vacant(&self) -> bool {
        self.records.iter().all(|(_, record)| record.is_vacant())
    }

    /// The longest time that a detached lease has left, if there is one.
    pub(super) fn detached_for(&self, now: Now) -> Option<Duration> {
        let left = self.records.iter().filter_map(|(_, record)| record.detached_for(now)).max();
        // No client can ask for more: such a lease was measured on a clock that is gone.
        left.filter(|left| *left <= MAX_TTL)
    }

    pub(super) fn record(&self, name: &Name) -> Option<&Record> {
        self.records.iter().find(|(other, _)| other == name).map(|(_, record)| record)
    }

    /// The names that are held or waited for.
    pub(super) fn names(&self, now: Now) -> impl Iterator<Item = &Name> {
        self.records.iter().filter(move |(_, record)| !record.is_idle(now)).map(|(name, _)| name)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_like(0)
    }

    /// The same, with room for about this many bytes.
    pub(super) fn to_bytes_like(&self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 512);
        self.clock.put(&mut out);
        out.put_u64(self.floor);
        out.put_u32(u32::try_from(self.records.len()).expect("fewer records than fit into a stripe"));
        for (name, record) in &self.records {
            out.put_text(name.as_str());
            record.put(&mut out);
        }
        out
    }

    /// `None` if the bytes are not a state.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let (clock, floor, count) = (ClockIdentity::take(&mut bytes)?, bytes.u64()?, bytes.u32()?);
        let (mut rest, mut texts) = (bytes, String::with_capacity(bytes.0.len()));
        for _ in 0..count {
            rest.text()?;
            Record::skim(&mut rest, |text| texts.push_str(text))?;
        }
        let (texts, mut end) = (Arc::from(texts), 0);
        // The same texts, in the same order.
        let mut tokens = |text: &[u8]| {
            let start = end;
            end += text.len();
            Token::part_of(&texts, start..end)
        };
        let mut records = Vec::new();
        for _ in 0..count {
            records.push((Name::new(bytes.text()?).ok()?, Record::take(&mut bytes, &mut tokens)?));
        }
        bytes.is_empty().then_some(State { clock, floor, records })
    }

    pub(super) fn clock_of(bytes: &[u8]) -> Option<ClockIdentity> {
        ClockIdentity::take(&mut Bytes(bytes))
    }

    /// Whether these bytes, or a part from their beginning, show that a token holds a name with this fence; `None` if the part is too short.
    pub(super) fn says_granted(bytes: &[u8], name: &Name, token: &Token, fence: u64) -> Option<bool> {
        let mut bytes = Bytes(bytes);
        ClockIdentity::take(&mut bytes)?;
        bytes.u64()?;
        for _ in 0..bytes.u32()? {
            if bytes.text()? == name.as_str() {
                return Some(Record::skim_holder(&mut bytes)? == (Some(token.as_str()), fence));
            }
            Record::skim(&mut bytes, |_| ())?;
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::record::Wait;

    /// As docs/protocol.md describes them, for other implementations.
    // R2.8
    #[test]
    fn the_bytes_are_those_of_the_protocol() {
        let clock = ClockIdentity::of_this_process().unwrap();
        let mut state = State::new(clock);
        let name = Name::new("orders/42").unwrap();
        for (at, token) in [(1_000_000, "a"), (2_000_000, "bc")] {
            let op = Op::Acquire {
                token: Token::from_store(token),
                ttl: Duration::from_millis(10_500),
                wait: Wait::Join,
                polls: false,
                floor: 0,
                not_after: u64::MAX,
            };
            state.apply(&name, op, Now { lease: at, wall: 1_700_000_000_000_000 }, &mut Vec::new());
        }
        let mut expected = clock.boot.to_vec();
        expected.extend([0; 8]); // no time namespace
        expected.extend(0_u64.to_le_bytes()); // floor
        expected.extend(1_u32.to_le_bytes()); // one record
        expected.extend(9_u32.to_le_bytes());
        expected.extend(b"orders/42");
        expected.extend(1_700_000_000_000_063_u64.to_le_bytes()); // the end of a range of 64
        expected.push(1); // held
        expected.extend(1_u32.to_le_bytes());
        expected.extend(b"a");
        expected.extend(11_500_u64.to_le_bytes()); // expires, ms
        expected.push(0); // nothing was broken
        expected.extend(1_u32.to_le_bytes()); // one waiter
        expected.extend(2_u32.to_le_bytes());
        expected.extend(b"bc");
        expected.extend(2_000_000_u64.to_le_bytes()); // position
        expected.extend(2_000_000_u64.to_le_bytes()); // heartbeat, µs
        expected.extend(10_500_000_000_u64.to_le_bytes()); // ttl, ns
        expected.push(0); // does not poll
        assert_eq!(state.to_bytes(), expected);
        assert_eq!(State::from_bytes(&expected), Some(state));
    }

    #[test]
    fn a_dropped_record_leaves_its_fence() {
        let clock = ClockIdentity::of_this_process().unwrap();
        let mut state = State::new(clock);
        let name = Name::new("orders/42").unwrap();
        let now = Now { lease: 1_000_000, wall: 7_000 };
        let take = |token| Op::TakeOver {
            token: Token::from_store(token),
            ttl: Duration::from_secs(1),
            floor: 0,
            not_after: u64::MAX,
        };
        state.apply(&name, take("a"), now, &mut Vec::new());
        state.void(clock);
        assert_eq!(state.records, []);
        let back = Now { wall: 5, ..now };
        let reply = state.apply(&name, take("b"), back, &mut Vec::new());
        assert_eq!(
            reply,
            Reply::Granted { fence: 7_064 },
            "the wall clock was set back, and fences still grow"
        );
    }

    // R4.2
    #[test]
    fn a_broken_lease_is_remembered_and_not_listed() {
        let clock = ClockIdentity::of_this_process().unwrap();
        let mut state = State::new(clock);
        let (name, other) = (Name::new("orders/42").unwrap(), Name::new("orders/1").unwrap());
        let at = |ms: u64| Now { lease: ms * 1_000, wall: 7_000 };
        let (token, ttl, not_after) = (Token::from_store("a"), Duration::from_secs(1), u64::MAX);
        let take = Op::TakeOver { token: token.clone(), ttl, floor: 0, not_after };
        state.apply(&name, take, at(1), &mut Vec::new());
        state.apply(&name, Op::Break { token, fence: 7_000 }, at(2), &mut Vec::new());
        assert_eq!(state.names(at(2)).count(), 0, "no holder");
        assert!(state.is_vacant() && state.record(&name).is_some(), "but remembered");
        let state = State::from_bytes(&state.to_bytes()).unwrap();
        let broken = |mut state: State, ms| match state.apply(&name, Op::Inspect, at(ms), &mut Vec::new()) {
            Reply::Seen { broken, .. } => broken,
            reply => panic!("{reply:?}"),
        };
        assert_eq!(broken(state.clone(), 60_002), Some(7_000));
        assert_eq!(broken(state.clone(), 60_003), None);
        let mut touched = state.clone();
        touched.apply(&other, Op::Leave { token: Token::from_store("b") }, at(60_003), &mut Vec::new());
        assert_eq!(touched.records, [], "an operation on the stripe drops it");
        let mut rebooted = state;
        rebooted.void(clock);
        assert_eq!(broken(rebooted, 3), None, "its clock is gone");
    }
}
