//! What a client can say, and when it says it.
//!
//! Every event that ends or lengthens a belief carries the fence, because a client may hold one name many
//! times in a row and the fence is what tells one tenure from the next. A client is a task; its id is
//! `process/task`, so that one `killed` or `fault` can concern a whole process.

use std::fmt;

/// A moment of CLOCK_MONOTONIC, in nanoseconds.
pub type Nanos = u64;

/// One line of a log: who said what, when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was said, on the clock that all clients of the host share.
    pub at: Nanos,
    /// Who said it. Never used again after a kill.
    pub client: String,
    /// What was said.
    pub what: What,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields mean the same in every variant, and are explained in `log`")]
pub enum What {
    /// An acquire is about to be called.
    Requested { name: String },
    /// The acquire returned a guard. `since`: the store can't have granted it earlier, if that is known.
    Granted { name: String, fence: u64, deadline: Nanos, since: Option<Nanos> },
    /// The believed deadline is now this one.
    Renewed { name: String, fence: u64, deadline: Nanos },
    /// The release is about to be called.
    Released { name: String, fence: u64 },
    /// The holder was told that it lost the lease.
    Lost { name: String, fence: u64 },
    /// The acquire ended without a grant.
    GaveUp { name: String },
    /// SIGKILL is about to be sent to a client, or to all clients of a process.
    Killed { victim: String },
    /// A fault begins; it concerns everyone, or one victim, or one name.
    Fault { kind: String, victim: Option<String>, name: Option<String> },
    /// The fault of the same kind, victim and name is over.
    Healed { kind: String, victim: Option<String>, name: Option<String> },
    /// The protected resource took a write, as its `seq`th.
    Accepted { name: String, fence: u64, seq: u64 },
    /// The protected resource refused a write, because it had taken one with the fence `last`.
    Rejected { name: String, fence: u64, last: u64 },
    /// The unfenced counter was read.
    Read { name: String, value: u64 },
    /// The unfenced counter was written.
    Wrote { name: String, value: u64 },
    /// What the unfenced counter says after everyone has gone.
    Final { name: String, value: u64 },
}

impl Event {
    /// Whether this concerns `client`: its id, or the process that it belongs to, was named.
    #[must_use]
    pub fn concerns(victim: &str, client: &str) -> bool {
        client.strip_prefix(victim).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// The line of the log, so that a person can search for it.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::log::encode(self))
    }
}
