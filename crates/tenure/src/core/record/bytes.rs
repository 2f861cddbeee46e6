//! A [`Record`] as bytes, for stores that keep it in a file.

use std::time::Duration;

use super::{Holder, RANGE, Record, Trace, Waiter};
use crate::types::bytes::{Bytes, Put};
use crate::types::owner::Token;

const FREE: u8 = 0;
const HELD: u8 = 1;
const DETACHED: u8 = 2;

/// A waiter whose token has no text: four numbers and the length of the text.
const SHORTEST_WAITER: usize = 4 + WAITER;
/// A waiter's bytes behind its token.
const WAITER: usize = 8 + 8 + 8 + 1;

const UNBROKEN: u8 = 0;
const BROKEN: u8 = 1;

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
        match &self.broken {
            None => out.put_u8(UNBROKEN),
            Some(trace) => {
                out.put_u8(BROKEN);
                out.put_u64(trace.fence);
                out.put_u64(trace.until);
            }
        }
        out.put_u32(u32::try_from(self.queue.len()).expect("fewer waiters than fit into a store"));
        for waiter in &self.queue {
            out.put_text(waiter.token.as_str());
            out.put_u64(waiter.joined_at);
            out.put_u64(waiter.beat);
            out.put_u64(u64::try_from(waiter.ttl.as_nanos()).unwrap_or(u64::MAX));
            out.put_u8(waiter.polls.into());
        }
    }

    /// `None` for bytes that are no record. `tokens` makes a token of each text, in the order of [`skim`](Self::skim).
    pub(crate) fn take(
        bytes: &mut Bytes<'_>,
        tokens: &mut impl FnMut(&[u8]) -> Option<Token>,
    ) -> Option<Self> {
        let last = bytes.u64()?;
        let holder = match bytes.u8()? {
            FREE => None,
            kind @ (HELD | DETACHED) => Some(Holder {
                token: tokens(bytes.text_bytes()?)?,
                expires: bytes.u64()?,
                detached: kind == DETACHED,
            }),
            _ => return None,
        };
        let broken = match bytes.u8()? {
            UNBROKEN => None,
            BROKEN => Some(Trace { fence: bytes.u64()?, until: bytes.u64()? }),
            _ => return None,
        };
        let waiters = bytes.u32()?;
        let most = bytes.0.len() / SHORTEST_WAITER;
        let mut queue = Vec::with_capacity(most.min(waiters as usize));
        for _ in 0..waiters {
            queue.push(Waiter {
                token: tokens(bytes.text_bytes()?)?,
                joined_at: bytes.u64()?,
                beat: bytes.u64()?,
                ttl: Duration::from_nanos(bytes.u64()?),
                polls: bytes.u8()? != 0,
            });
        }
        queue.is_sorted_by(|a, b| a.rank() < b.rank()).then_some(Record { last, holder, queue, broken })
    }

    /// Reads past a record, and passes on the texts of its tokens, the holder's first. Returns that, if the name is held, and where
    /// its range of fences starts.
    pub(crate) fn skim<'a>(
        bytes: &mut Bytes<'a>,
        mut each: impl FnMut(&'a str),
    ) -> Option<(Option<&'a str>, u64)> {
        let held = Record::skim_holder(bytes)?;
        held.0.into_iter().for_each(&mut each);
        for _ in 0..bytes.u32()? {
            each(bytes.text()?);
            bytes.take(WAITER)?;
        }
        Some(held)
    }

    /// The same, up to the queue.
    pub(crate) fn skim_holder<'a>(bytes: &mut Bytes<'a>) -> Option<(Option<&'a str>, u64)> {
        let start = bytes.u64()?.saturating_sub(RANGE - 1);
        let mut holder = None;
        if bytes.u8()? != FREE {
            holder = Some(bytes.text()?);
            bytes.u64()?;
        }
        if bytes.u8()? != UNBROKEN {
            bytes.take(8 + 8)?;
        }
        Some((holder, start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::record::{Now, Op, Wait};

    fn token(text: &str) -> Token {
        Token::from_store(text)
    }

    fn tokens(text: &[u8]) -> Option<Token> {
        std::str::from_utf8(text).ok().map(token)
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
        let mut broken = contended();
        let fence = broken.range_start();
        broken.apply(Op::Break { token: token("a"), fence }, now, &mut Vec::new());
        assert_eq!(broken.broken(now), Some(fence));
        for record in [Record::new(0), Record::new(u64::MAX), contended(), detached, broken] {
            let mut bytes = Vec::new();
            record.put(&mut bytes);
            let mut rest = Bytes(&bytes);
            assert_eq!(Record::take(&mut rest, &mut tokens).as_ref(), Some(&record));
            assert!(rest.is_empty());
            let (mut rest, mut texts) = (Bytes(&bytes), Vec::new());
            let holder = record.holder.as_ref().map(|holder| holder.token.as_str());
            assert_eq!(
                Record::skim(&mut rest, |text| texts.push(text)),
                Some((holder, record.range_start()))
            );
            assert!(rest.is_empty());
            let queue = record.queue.iter().map(|waiter| waiter.token.as_str());
            assert_eq!(texts, holder.into_iter().chain(queue).collect::<Vec<_>>());
            for len in 0..bytes.len() {
                let cut = &bytes[..len];
                assert_eq!(Record::take(&mut Bytes(cut), &mut tokens), None, "cut off after {len} bytes");
                assert_eq!(Record::skim(&mut Bytes(cut), |_| ()), None, "cut off after {len} bytes");
            }
        }
    }

    #[test]
    fn a_queue_out_of_order_is_no_record() {
        let mut record = contended();
        record.queue.reverse();
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        assert_eq!(Record::take(&mut Bytes(&bytes), &mut tokens), None);
    }
}
