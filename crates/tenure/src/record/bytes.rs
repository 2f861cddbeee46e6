//! A [`Record`] as bytes, for stores that keep it in a file.

use std::time::Duration;

use super::{Holder, Record, Waiter};
use crate::bytes::{Bytes, Put};
use crate::owner::Token;

const FREE: u8 = 0;
const HELD: u8 = 1;
const DETACHED: u8 = 2;

impl Record {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.last);
        match &self.holder {
            None => out.put_u8(FREE),
            Some(holder) => {
                out.put_u8(if holder.detached { DETACHED } else { HELD });
                out.put_text(holder.token.as_str());
                out.put_u64(holder.expires);
            }
        }
        out.put_u32(u32::try_from(self.queue.len()).expect("fewer waiters than fit into a store"));
        for waiter in &self.queue {
            out.put_text(waiter.token.as_str());
            out.put_u64(waiter.place);
            out.put_u64(waiter.beat);
            out.put_u64(u64::try_from(waiter.ttl.as_nanos()).unwrap_or(u64::MAX));
            out.put_u8(waiter.polls.into());
        }
    }

    /// `None` for bytes that are no record.
    pub(crate) fn take(bytes: &mut Bytes<'_>) -> Option<Self> {
        let last = bytes.u64()?;
        let holder = match bytes.u8()? {
            FREE => None,
            kind @ (HELD | DETACHED) => Some(Holder {
                token: Token::from_store(bytes.text()?),
                expires: bytes.u64()?,
                detached: kind == DETACHED,
            }),
            _ => return None,
        };
        let mut queue = Vec::new();
        for _ in 0..bytes.u32()? {
            queue.push(Waiter {
                token: Token::from_store(bytes.text()?),
                place: bytes.u64()?,
                beat: bytes.u64()?,
                ttl: Duration::from_nanos(bytes.u64()?),
                polls: bytes.u8()? != 0,
            });
        }
        queue.is_sorted_by(|a, b| a.rank() < b.rank()).then_some(Record { last, holder, queue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Now, Op, Wait};

    fn token(text: &str) -> Token {
        Token::from_store(text)
    }

    fn contended() -> Record {
        let mut record = Record::new(7);
        for (at, name) in [(1_000, "a"), (2_000, "b"), (3_000, "c")] {
            let op = Op::Acquire {
                token: token(name),
                ttl: Duration::from_millis(10_500),
                wait: Wait::Join,
                polls: name == "c",
                floor: 0,
                not_after: u64::MAX,
            };
            record.apply(op, Now { lease: at, wall: 1_700_000_000_000_000 + at }, &mut Vec::new());
        }
        record
    }

    #[test]
    fn a_record_survives_the_way_through_bytes() {
        let mut detached = contended();
        let now = Now { lease: 4_000, wall: 4_000 };
        detached.apply(Op::Detach { token: token("a"), ttl: Duration::from_secs(1) }, now, &mut Vec::new());
        for record in [Record::new(0), Record::new(u64::MAX), contended(), detached] {
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            let mut rest = Bytes(&bytes);
            assert_eq!(Record::take(&mut rest).as_ref(), Some(&record));
            assert!(rest.is_empty());
            for len in 0..bytes.len() {
                assert_eq!(Record::take(&mut Bytes(&bytes[..len])), None, "cut off after {len} bytes");
            }
        }
    }

    #[test]
    fn a_queue_out_of_order_is_no_record() {
        let mut record = contended();
        record.queue.reverse();
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        assert_eq!(Record::take(&mut Bytes(&bytes)), None);
    }
}
