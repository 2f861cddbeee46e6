//! The keys of a name and the channel of a session; and the name of a key.
//!
//! The lock's key is exactly the prefix and the name, so that a lock of another library on the same key and ours exclude each other (B6).
//! The side keys have it in braces, which puts them into the same slot on a cluster. Names have `{`, `}` and `%` encoded, and a prefix
//! has no braces: so a lock's key has no tag of its own, and never looks like a side key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::types::duration::millis;
use crate::types::name::Name;
use crate::types::owner::SessionId;
use crate::url::DEFAULT_FENCE_MEMORY;

/// The characters that a glob pattern of `SCAN` must quote.
const GLOB: [char; 6] = ['*', '?', '[', ']', '^', '\\'];

/// The names of keys and channels of a domain.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    /// The channel name up to the session's id; `None` if each name has a channel, in its slot.
    channels: Option<Arc<str>>,
    /// How long the last fence of a name is remembered after its lease, in ms.
    fence_memory: u64,
}

/// A side key of a lock's key.
pub(super) struct Beside<'a> {
    lock: &'a str,
    what: &'static str,
}

impl fmt::Display for Beside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Beside { lock, what } = self;
        write!(f, "{{{lock}}}:{what}")
    }
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let (channels, fence_memory) =
            (Some(format!("{prefix}grants:").into()), millis(DEFAULT_FENCE_MEMORY));
        Keys { prefix: prefix.to_owned(), channels, fence_memory }
    }

    /// For a cluster, where a channel belongs to a slot.
    pub(super) fn sharded(prefix: &str) -> Self {
        Keys { channels: None, ..Keys::new(prefix) }
    }

    pub(super) fn remembering(self, fence_memory: Duration) -> Self {
        Keys { fence_memory: millis(fence_memory), ..self }
    }

    pub(super) fn fence_memory(&self) -> u64 {
        self.fence_memory
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key that holds the token.
    pub(super) fn lock(&self, name: &Name) -> String {
        self.encoded(name.as_str())
    }

    /// The side keys of a lock's key: its last fence, its queue, the heartbeats of its waiters.
    pub(super) fn beside(lock: &str) -> [Beside<'_>; 3] {
        ["fence", "queue", "beats"].map(|what| Beside { lock, what })
    }

    /// The side key that remembers which lease was ended by force. Only force and inspection use it.
    pub(super) fn broken(lock: &str) -> Beside<'_> {
        Beside { lock, what: "broken" }
    }

    /// The channel name up to the session's id, if one channel serves all names.
    pub(super) fn channels(&self) -> Option<&Arc<str>> {
        self.channels.as_ref()
    }

    /// The channel name up to the session's id, for this lock's key.
    pub(super) fn channels_beside(lock: &str) -> Beside<'_> {
        Beside { lock, what: "grants:" }
    }

    /// The command by which scripts publish.
    pub(super) fn publishes_by(&self) -> &'static str {
        if self.channels.is_some() { "PUBLISH" } else { "SPUBLISH" }
    }

    /// The channel for grants to a session, for this lock's key.
    pub(super) fn channel(&self, session: &SessionId, lock: &str) -> String {
        match &self.channels {
            Some(channels) => format!("{channels}{}", session.as_str()),
            None => format!("{}{}", Keys::channels_beside(lock), session.as_str()),
        }
    }

    /// The name of this lock key; `None` if it is not a lock of this domain.
    pub(super) fn name(&self, lock: &str) -> Option<Name> {
        let encoded = lock.strip_prefix(&self.prefix)?;
        let name = percent_decode_str(encoded).decode_utf8().ok()?;
        // A key that we would encode differently is not ours.
        Name::new(&name).ok().filter(|name| self.lock(name) == lock)
    }

    /// The name of this queue key.
    pub(super) fn name_of_queue(&self, queue: &str) -> Option<Name> {
        self.name(queue.strip_prefix('{')?.strip_suffix("}:queue")?)
    }

    /// Patterns for the lock keys and the queue keys of names that start with `prefix`.
    pub(super) fn patterns(&self, prefix: &str) -> [String; 2] {
        let mut quoted = String::new();
        for c in self.encoded(prefix).chars() {
            if GLOB.contains(&c) {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        [format!("{quoted}*"), format!("{{{quoted}*}}:queue")]
    }

    fn encoded(&self, name: &str) -> String {
        let mut key = String::with_capacity(self.prefix.len() + name.len());
        key.push_str(&self.prefix);
        for c in name.chars() {
            // Everything else stays readable, whatever its alphabet.
            match c {
                '{' => key.push_str("%7B"),
                '}' => key.push_str("%7D"),
                '%' => key.push_str("%25"),
                _ => key.push(c),
            }
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    // R2.8, R0.7
    #[test]
    fn the_keys_are_these() {
        let keys = Keys::new("tenure:");
        let lock = keys.lock(&name("orders/42"));
        assert_eq!(lock, "tenure:orders/42");
        assert_eq!(
            Keys::beside(&lock).map(|key| key.to_string()),
            ["{tenure:orders/42}:fence", "{tenure:orders/42}:queue", "{tenure:orders/42}:beats"]
        );
        assert_eq!(Keys::broken(&lock).to_string(), "{tenure:orders/42}:broken");
        assert_eq!(
            keys.channel(&SessionId::parse("0123456789abcdef").unwrap(), &lock),
            "tenure:grants:0123456789abcdef"
        );
    }

    #[test]
    fn a_key_leads_back_to_its_name_and_no_two_names_share_one() {
        let keys = Keys::new("tenure:");
        let mut locks = std::collections::HashSet::new();
        for text in
            ["a", "{a}", "a}:queue", "{a", "%7Ba", "100%", "ü ñ\n\0", "{}", "}{", "tenure:a", "a:fence"]
        {
            let lock = keys.lock(&name(text));
            assert!(!lock.contains(['{', '}']), "{lock} has a tag of its own");
            assert_eq!(keys.name(&lock), Some(name(text)));
            assert_eq!(keys.name_of_queue(&Keys::beside(&lock)[1].to_string()), Some(name(text)));
            assert!(locks.insert(lock.clone()), "{lock} twice");
        }
    }

    // B6
    #[test]
    fn keys_of_other_programs_are_not_names() {
        let keys = Keys::new("");
        assert_eq!(keys.name("orders/42"), Some(name("orders/42")), "a lock of another library is a lock");
        for other in ["{orders/42}:fence", "{orders/42}:broken", "%7b", "100%", "", "a{b}"] {
            assert_eq!(keys.name(other), None, "{other}");
        }
        assert_eq!(Keys::new("tenure:").name("other:a"), None);
    }

    #[test]
    fn patterns_match_what_they_say() {
        let [locks, queues] = Keys::new("a*:").patterns("b[1]?");
        assert_eq!(locks, "a\\*:b\\[1\\]\\?*");
        assert_eq!(queues, "{a\\*:b\\[1\\]\\?*}:queue");
    }
}
