//! The parts of a record, read from and written to its bytes in a file: these are complete, and need no further access to the record.

use std::time::Duration;

use crate::core::record::{Holding, RANGE, Record};
use crate::types::bytes::{Bytes, Put as _};
use crate::types::owner::Token;

/// Everything in a record except whether a lease is detached: Redis does not know that, because no death ends a lease there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordParts {
    pub(super) last: u64,
    /// The token, and the last millisecond of its lease.
    pub(super) holder: Option<(String, u64)>,
    pub(super) queue: Vec<Waiter>,
    /// The fence that was last broken, and the last millisecond at which that is remembered.
    pub(super) broken: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiter {
    pub(super) token: String,
    pub(super) joined_at: u64,
    pub(super) heartbeat: u64,
    /// In ns.
    pub(super) ttl: u64,
    pub(super) polls: bool,
}

impl RecordParts {
    pub(super) fn of(record: &Record) -> Self {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        RecordParts::read(&mut Bytes(&bytes)).expect("the bytes of a record")
    }

    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let (last, is_held) = (bytes.u64()?, bytes.u8()? != 0);
        let holder = if is_held { Some((bytes.text()?.to_owned(), bytes.u64()?)) } else { None };
        let broken = if bytes.u8()? != 0 { Some((bytes.u64()?, bytes.u64()?)) } else { None };
        let waiters = 0..bytes.u32()?;
        let queue = waiters.map(|_| {
            let (token, joined_at, heartbeat) = (bytes.text()?.to_owned(), bytes.u64()?, bytes.u64()?);
            Some(Waiter { token, joined_at, heartbeat, ttl: bytes.u64()?, polls: bytes.u8()? != 0 })
        });
        let queue = queue.collect::<Option<_>>()?;
        Some(RecordParts { last, holder, queue, broken })
    }

    pub(super) fn record(&self) -> Record {
        let mut bytes = Vec::new();
        bytes.put_u64(self.last);
        bytes.put_u8(self.holder.is_some().into());
        if let Some((token, expires)) = &self.holder {
            bytes.put_text(token);
            bytes.put_u64(*expires);
        }
        bytes.put_u8(self.broken.is_some().into());
        if let Some((fence, until)) = self.broken {
            bytes.put_u64(fence);
            bytes.put_u64(until);
        }
        bytes.put_u32(u32::try_from(self.queue.len()).expect("a short queue"));
        for waiter in &self.queue {
            bytes.put_text(&waiter.token);
            bytes.put_u64(waiter.joined_at);
            bytes.put_u64(waiter.heartbeat);
            bytes.put_u64(waiter.ttl);
            bytes.put_u8(waiter.polls.into());
        }
        Record::take(&mut Bytes(&bytes), &mut |text| std::str::from_utf8(text).ok().map(Token::from_store))
            .expect("a record")
    }

    pub(super) fn start(&self) -> u64 {
        self.last.saturating_sub(RANGE - 1)
    }

    pub(super) fn holding(&self, now: u64) -> Option<Holding> {
        let (token, expires) = self.holder.as_ref()?;
        let left = Duration::from_millis(expires.saturating_sub(now / 1_000));
        Some(Holding { token: Token::from_store(token), fence: self.start(), left })
    }

    /// How many waiters are ahead of a token; zero if it does not wait.
    pub(super) fn ahead_of(&self, token: &Token) -> usize {
        self.queue.iter().position(|waiter| waiter.token == token.as_str()).unwrap_or(0)
    }
}
