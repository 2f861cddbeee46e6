//! What one stripe holds: the records of its names, and how high their fences have been.

use super::platform::ClockIdentity;
use crate::bytes::{Bytes, Put};
use crate::name::Name;
use crate::record::{Now, Op, Record, Reply, Wake};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The clock that leases, beats and places are measured on.
    pub(super) clock: ClockIdentity,
    /// The highest fence of the records that were dropped.
    floor: u64,
    records: Vec<(Name, Record)>,
}

impl State {
    pub(super) fn new(clock: ClockIdentity) -> Self {
        State { clock, floor: 0, records: Vec::new() }
    }

    /// Applies an operation; a record that nobody uses after it is dropped, and so are those whose leases expired unnoticed.
    pub(super) fn apply(&mut self, name: &Name, op: Op, now: Now, wakes: &mut Vec<Wake>) -> Reply {
        let index = self.records.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
            self.records.push((name.clone(), Record::new(self.floor)));
            self.records.len() - 1
        });
        let reply = self.records[index].1.apply(op, now, wakes);
        self.drop_records(|record| record.is_idle(now));
        reply
    }

    /// Forgets all leases and queues, and keeps the fences: they were measured on a clock that is gone.
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

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn record(&self, name: &Name) -> Option<&Record> {
        self.records.iter().find(|(other, _)| other == name).map(|(_, record)| record)
    }

    /// The names that are held or waited for.
    pub(super) fn names(&self, now: Now) -> impl Iterator<Item = &Name> {
        self.records.iter().filter(move |(_, record)| !record.is_idle(now)).map(|(name, _)| name)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        self.clock.put(&mut out);
        out.put_u64(self.floor);
        out.put_u32(u32::try_from(self.records.len()).expect("fewer records than fit into a stripe"));
        for (name, record) in &self.records {
            out.put_text(name.as_str());
            record.put(&mut out);
        }
        out
    }

    /// `None` for bytes that are no state.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        let (clock, floor) = (ClockIdentity::take(&mut bytes)?, bytes.u64()?);
        let mut records = Vec::new();
        for _ in 0..bytes.u32()? {
            records.push((Name::new(bytes.text()?).ok()?, Record::take(&mut bytes)?));
        }
        bytes.is_empty().then_some(State { clock, floor, records })
    }
}
