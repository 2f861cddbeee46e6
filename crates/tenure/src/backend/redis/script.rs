//! An operation as a call of its script, and the answer of the script.
//!
//! The client calls scripts by their hash, and sends a script whole if the server does not know it: after a restart, a failover or a
//! `SCRIPT FLUSH`. Servers from 7.0 on get a first line with the script's flags. Without it, a script on a read-only replica may read
//! before the server refuses it, and answer a false "not held". With it, release and renewal work when the server is out of memory.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, RedisWrite, Value};

use super::fault;
use super::keys::Keys;
use crate::backend::Answer;
use crate::core::record::{Holding, Op, Reply, Wait};
use crate::types::duration::millis;
use crate::types::error::Error;
use crate::types::fence::FENCE_END;
use crate::types::name::Name;
use crate::types::owner::Token;

/// The capacity to reserve for a command: words, and bytes besides the lock's key.
const MOST_WORDS: usize = 17;
const USUAL_BYTES: usize = 320;

/// The same script for servers with and without flags.
struct Scripts {
    flagged: Script,
    plain: Script,
}

struct Script {
    code: &'static str,
    hash: String,
}

impl Script {
    fn new(code: &'static str) -> Self {
        Script { code, hash: redis::Script::new(code).get_hash().to_owned() }
    }
}

macro_rules! scripts {
    ($($name:ident = $flags:literal, $($file:literal),+;)*) => {
        $(
            static $name: LazyLock<Scripts> = LazyLock::new(|| Scripts {
                flagged: Script::new(concat!("#!lua", $flags, "\n", $(include_str!(concat!("scripts/", $file))),+)),
                plain: Script::new(concat!($(include_str!(concat!("scripts/", $file))),+)),
            });
        )*
    };
}

scripts! {
    ACQUIRE = "", "clock.lua", "acquire_fast.lua", "record.lua", "acquire.lua";
    RENEW = " flags=allow-oom", "clock.lua", "renew.lua";
    RELEASE = " flags=allow-oom", "release_fast.lua", "clock.lua", "record.lua", "release.lua";
    LEAVE = " flags=allow-oom", "clock.lua", "record.lua", "leave.lua";
    RAISE = " flags=allow-oom", "clock.lua", "record.lua", "raise.lua";
    ADOPT = "", "clock.lua", "record.lua", "adopt.lua";
    TAKE_OVER = "", "clock.lua", "record.lua", "take_over.lua";
    BREAK = " flags=allow-oom", "clock.lua", "record.lua", "break.lua";
    INSPECT = " flags=no-writes", "clock.lua", "inspect.lua";
    KEEP = " flags=allow-oom", "keep.lua";
}

/// An operation on a name, ready to be sent.
pub(super) struct Call {
    script: &'static Scripts,
    lock: String,
    /// The channel name up to the session's id; `None` if each name has a channel.
    channels: Option<Arc<str>>,
    /// How long the last fence is remembered after the lease, in ms.
    fence_memory: u64,
    op: Op,
    /// Whether it goes to a node that does not have the name's slot yet (`ASKING`).
    pub(super) is_asking: bool,
}

impl Call {
    pub(super) fn new(keys: &Keys, name: &Name, op: Op) -> Self {
        let script = match &op {
            Op::Acquire { .. } => &ACQUIRE,
            Op::Renew { .. } | Op::Detach { .. } => &RENEW,
            Op::Release { .. } => &RELEASE,
            Op::Raise { .. } => &RAISE,
            Op::Leave { .. } | Op::Death { .. } => &LEAVE,
            Op::Adopt { .. } => &ADOPT,
            Op::TakeOver { .. } => &TAKE_OVER,
            Op::Break { .. } => &BREAK,
            Op::Inspect => &INSPECT,
        };
        let (lock, channels) = (keys.lock(name), keys.channels().cloned());
        Call { script, lock, channels, fence_memory: keys.fence_memory(), op, is_asking: false }
    }

    pub(super) fn is_renewal(&self) -> bool {
        matches!(self.op, Op::Renew { .. } | Op::Detach { .. })
    }

    /// Whether the answer grants or extends a lease, which replicas must know of.
    pub(super) fn leases(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Granted { .. } => true,
            Reply::Done => self.is_renewal(),
            _ => false,
        }
    }

    /// The ttl of the lease.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match &self.op {
            Op::Acquire { ttl, .. }
            | Op::Renew { ttl, .. }
            | Op::Detach { ttl, .. }
            | Op::Adopt { ttl, .. }
            | Op::TakeOver { ttl, .. } => Some(*ttl),
            _ => None,
        }
    }

    /// Whether its ttl is at most that of its token: the server shortens a longer lease.
    pub(super) fn is_within_its_token(&self) -> bool {
        match &self.op {
            Op::Acquire { token, ttl, .. }
            | Op::Renew { token, ttl }
            | Op::Detach { token, ttl }
            | Op::Adopt { token, ttl, .. }
            | Op::TakeOver { token, ttl, .. } => token.ttl().is_none_or(|longest| *ttl <= longest),
            _ => true,
        }
    }

    pub(super) fn lock(&self) -> &str {
        &self.lock
    }

    /// The time on the server's clock after which it refuses the call, if there is one.
    pub(super) fn not_after(&self) -> Option<u64> {
        match &self.op {
            Op::Acquire { not_after, .. } | Op::Adopt { not_after, .. } | Op::TakeOver { not_after, .. } => {
                Some(*not_after)
            }
            _ => None,
        }
    }

    /// Adapts its times to a server whose clock is ahead by this many µs.
    pub(super) fn for_clock_ahead(&mut self, micros: i64) {
        if let Op::Acquire { not_after, .. } | Op::Adopt { not_after, .. } | Op::TakeOver { not_after, .. } =
            &mut self.op
            && *not_after < u64::MAX
        {
            *not_after = not_after.saturating_add_signed(micros);
        }
    }

    /// Makes the node execute the next command although it does not have the slot yet.
    pub(super) fn ask(&self, commands: &mut redis::Pipeline) {
        if self.is_asking {
            commands.cmd("ASKING");
        }
    }

    /// The command that keeps the last fence beyond its lease. It never shortens its life.
    pub(super) fn keep_fence(&self, has_flags: bool) -> Cmd {
        // `GT` is as old as the flags of scripts.
        if !has_flags {
            return self.keep_fence_by_a_write(has_flags);
        }
        let mut cmd = Cmd::with_capacity(4, self.lock.len() + USUAL_BYTES);
        cmd.arg("PEXPIRE").write_arg_fmt(&Keys::beside(&self.lock)[0]);
        cmd.arg(self.fence_life()).arg("GT");
        cmd
    }

    /// The same by a command that always writes.
    pub(super) fn keep_fence_by_a_write(&self, has_flags: bool) -> Cmd {
        let code = if has_flags { KEEP.flagged.code } else { KEEP.plain.code };
        let mut cmd = Cmd::with_capacity(5, code.len() + self.lock.len() + USUAL_BYTES);
        cmd.arg("EVAL").arg(code).arg(1).write_arg_fmt(&Keys::beside(&self.lock)[0]);
        cmd.arg(self.fence_life());
        cmd
    }

    /// The life of the last fence from now on, in ms.
    fn fence_life(&self) -> u64 {
        self.ttl().map_or(0, millis) + self.fence_memory
    }

    /// The command that calls the script by its hash.
    pub(super) fn by_hash(&self, has_flags: bool) -> Cmd {
        self.command("EVALSHA", &self.script(has_flags).hash, 0)
    }

    /// The command that sends the whole script, which the server then knows.
    pub(super) fn whole(&self, has_flags: bool) -> Cmd {
        let code = self.script(has_flags).code;
        self.command("EVAL", code, code.len())
    }

    fn script(&self, has_flags: bool) -> &Script {
        if has_flags { &self.script.flagged } else { &self.script.plain }
    }

    fn command(&self, verb: &str, script: &str, more: usize) -> Cmd {
        let mut cmd = Cmd::with_capacity(MOST_WORDS, more + 5 * self.lock.len() + USUAL_BYTES);
        cmd.arg(verb).arg(script);
        if let Op::Renew { token, ttl } | Op::Detach { token, ttl } = &self.op {
            cmd.arg(1).arg(&self.lock).arg(token.as_str()).arg(millis(*ttl));
            return cmd;
        }
        let tells_of_force = matches!(self.op, Op::TakeOver { .. } | Op::Break { .. } | Op::Inspect);
        cmd.arg(if tells_of_force { 5 } else { 4 }).arg(&self.lock);
        for key in Keys::beside(&self.lock) {
            cmd.write_arg_fmt(key);
        }
        if tells_of_force {
            cmd.write_arg_fmt(Keys::broken(&self.lock));
        }
        match &self.channels {
            Some(channels) => drop(cmd.arg(&**channels)),
            None => cmd.write_arg_fmt(Keys::channels_beside(&self.lock)),
        }
        match &self.op {
            Op::Acquire { token, ttl, wait, polls, floor, not_after } => {
                cmd.arg(token.as_str()).arg(millis(*ttl));
                match wait {
                    Wait::No => cmd.arg("no"),
                    Wait::Join => cmd.arg("join"),
                    Wait::Keep { joined_at } => cmd.arg(joined_at),
                };
                cmd.arg(u8::from(*polls)).arg(floor).arg(not_after).arg(self.fence_life())
            }
            Op::Release { token, used } => cmd.arg(token.as_str()).arg(used),
            Op::Leave { token } | Op::Death { token } => cmd.arg(token.as_str()),
            Op::Adopt { from, token, ttl, floor, not_after } => {
                cmd.arg(from.as_str()).arg(token.as_str()).arg(millis(*ttl)).arg(floor).arg(not_after)
            }
            Op::TakeOver { token, ttl, floor, not_after } => {
                cmd.arg(token.as_str()).arg(millis(*ttl)).arg(floor).arg(not_after)
            }
            Op::Break { token, fence } | Op::Raise { token, fence } => cmd.arg(token.as_str()).arg(fence),
            Op::Renew { .. } | Op::Detach { .. } | Op::Inspect => return cmd,
        };
        cmd.arg(self.fence_memory);
        cmd
    }
}

/// The answer of a script, and the reason if it could not publish a grant. The server executed a script whose answer is not understood:
/// the caller releases what it may have taken.
pub(super) fn answer(value: Value) -> Result<(Answer, Option<String>), Error> {
    understood(value).map_err(Error::half_way)
}

fn understood(value: Value) -> Result<(Answer, Option<String>), Error> {
    let parts = match value {
        Value::Array(parts) => parts,
        // The two most common answers are numbers.
        Value::Int(0) => return Ok((Answer::new(Reply::Done, None), None)),
        Value::Int(time) if time > 0 => {
            let fence = time.cast_unsigned();
            return Ok((Answer::new(Reply::Granted { fence }, Some(fence)), None));
        }
        other => return Err(fault::unexpected(&other)),
    };
    let mut parts = AnswerParts(parts.into_iter());
    let server = parts.number_or_nil()?;
    let reply = match &*parts.text()? {
        "granted" => Reply::Granted { fence: parts.fence()? },
        "done" => Reply::Done,
        "late" => Reply::TooLate,
        "ahead" => Reply::Ahead { by: parts.number()? },
        "not_held" => Reply::NotHeld { holder: parts.token()? },
        "waiting" => {
            let (joined_at, ahead) = (parts.number()?, parts.number()?);
            Reply::Waiting {
                joined_at,
                ahead: ahead.try_into().unwrap_or(usize::MAX),
                holding: parts.holding()?,
            }
        }
        "busy" => {
            let waiters = parts.number()?.try_into().unwrap_or(usize::MAX);
            Reply::Busy { waiters, holding: parts.holding()? }
        }
        "seen" => {
            let holder = parts.token()?;
            let (fence, left) = (parts.number()?, parts.left()?);
            let holding = holder.map(|token| Holding { token, fence, left });
            Reply::Seen { holding, waiters: parts.waiters()?, broken: parts.number_or_nil()? }
        }
        other => return Err(fault::unexpected(&Value::SimpleString(other.to_owned()))),
    };
    let unpublished = parts.text().ok();
    Ok((Answer::new(reply, server), unpublished))
}

/// The elements of an answer, in order.
struct AnswerParts(std::vec::IntoIter<Value>);

impl AnswerParts {
    fn number(&mut self) -> Result<u64, Error> {
        match self.0.next() {
            Some(Value::Int(number)) if number >= 0 => Ok(number.cast_unsigned()),
            other => Err(fault::unexpected(&other.unwrap_or(Value::Nil))),
        }
    }

    /// A fence that scripts cannot increment would become the floor of other names.
    fn fence(&mut self) -> Result<u64, Error> {
        match self.number()? {
            fence if fence < FENCE_END => Ok(fence),
            fence => Err(fault::unexpected(&Value::Int(fence.cast_signed()))),
        }
    }

    fn number_or_nil(&mut self) -> Result<Option<u64>, Error> {
        match self.0.as_slice().first() {
            Some(Value::Nil) => Ok(self.0.next().and(None)),
            _ => self.number().map(Some),
        }
    }

    fn text(&mut self) -> Result<String, Error> {
        match self.0.next() {
            Some(Value::BulkString(bytes)) => Ok(text(bytes)),
            Some(Value::SimpleString(text)) => Ok(text),
            other => Err(fault::unexpected(&other.unwrap_or(Value::Nil))),
        }
    }

    fn token(&mut self) -> Result<Option<Token>, Error> {
        match self.0.next() {
            Some(Value::Nil) => Ok(None),
            Some(token) => token_from(token).map(Some),
            None => Err(fault::unexpected(&Value::Nil)),
        }
    }

    /// Tokens, each with the time when it joined. A time that another program wrote counts as 0.
    fn waiters(&mut self) -> Result<Vec<(Token, u64)>, Error> {
        let parts = match self.0.next() {
            Some(Value::Array(parts)) => parts,
            other => return Err(fault::unexpected(&other.unwrap_or(Value::Nil))),
        };
        let mut parts = parts.into_iter();
        let mut waiters = Vec::with_capacity(parts.len() / 2);
        while let Some(token) = parts.next() {
            match parts.next() {
                Some(Value::Int(joined_at)) => {
                    waiters.push((token_from(token)?, joined_at.max(0).cast_unsigned()))
                }
                other => return Err(fault::unexpected(&other.unwrap_or(Value::Nil))),
            }
        }
        Ok(waiters)
    }

    /// The answer to `PTTL`. A key without expiry is another program's, and lasts forever.
    fn left(&mut self) -> Result<Duration, Error> {
        match self.0.next() {
            Some(Value::Int(-1)) => Ok(Duration::MAX),
            Some(Value::Int(millis)) => Ok(Duration::from_millis(millis.max(0).cast_unsigned())),
            other => Err(fault::unexpected(&other.unwrap_or(Value::Nil))),
        }
    }

    fn holding(&mut self) -> Result<Holding, Error> {
        let token = self.token()?.ok_or_else(|| fault::unexpected(&Value::Nil))?;
        Ok(Holding { token, fence: self.number()?, left: self.left()? })
    }
}

fn token_from(value: Value) -> Result<Token, Error> {
    match value {
        Value::BulkString(bytes) => Ok(Token::from_store(&text(bytes))),
        other => Err(fault::unexpected(&other)),
    }
}

/// Tokens of other libraries may have any bytes.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::types::error::ErrorKind;

    // I5: the server has granted a fence that cannot be incremented: the caller releases the name.
    #[test]
    fn an_unknown_answer_may_have_granted_a_lease() {
        let granted = |fence| {
            Value::Array(vec![Value::Int(1), Value::SimpleString("granted".into()), Value::Int(fence)])
        };
        assert!(answer(granted((1 << 53) - 1)).is_ok());
        for value in [granted(1 << 53), granted(-1), Value::Nil, Value::Array(vec![Value::Int(1)])] {
            let error = answer(value).map(|_| ()).expect_err("no answer of ours");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert!(error.may_have_run() && !error.is_worth_asking_again(), "{error}");
        }
    }
}
