//! Whether a `tenure run` above this process holds a name.
//!
//! A lock is not re-entrant: a script that takes a name twice would wait for itself. A command gets its fence with the name. If the holder of the
//! name has that fence, it is above this process, in any domain. All processes above are checked, because the nearest may have been started with an
//! empty environment or under another name.
//!
//! A command that empties its own environment (`env -i`) or changes the user (sudo) shows no fence. Then the holder is recognised by its host and
//! pid: they are those of a `tenure run` of this name above this process.

use tenure::{Fence, Holder};

use crate::ancestry::{self, Environment};
use crate::presence;

/// The variables that tell a command its name and fence.
pub(crate) const NAME: &str = "TENURE_NAME";
pub(crate) const FENCE: &str = "TENURE_FENCE";

/// What the processes above this one say of a name.
#[derive(Debug, Default)]
pub(crate) struct Enclosing {
    /// The fences in the environments of the processes above.
    pub(crate) fences: Vec<Fence>,
    /// The holder processes above that hold it.
    holders: Vec<u32>,
}

impl Enclosing {
    pub(crate) fn of(name: &str) -> Self {
        let mut found = Enclosing::default();
        for process in ancestry::upwards() {
            found.fences.extend(process.environment().and_then(|environment| fence_in(environment, name)));
            let is_holder = process.is_holder && is_run_of(&process.line, name);
            found.holders.extend(process.pid.filter(|_| is_holder));
        }
        found
    }

    /// Whether no process above has to do with the name.
    pub(crate) fn is_empty(&self) -> bool {
        self.fences.is_empty() && self.holders.is_empty()
    }

    /// Whether this holder of the name is above this process.
    pub(crate) fn has(&self, holder: &Holder) -> bool {
        let is_holder = |pid| self.holders.contains(&pid) && presence::is_on_this_machine(&holder.owner);
        self.fences.contains(&holder.fence) || holder.owner.pid().is_some_and(is_holder)
    }
}

/// Whether a command line is one of `tenure run` with this name.
fn is_run_of(line: &[u8], name: &str) -> bool {
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"run") && words.any(|word| word == name.as_bytes())
}

/// The fence in an environment, if it is of this name.
fn fence_in(environment: Environment<'_>, name: &str) -> Option<Fence> {
    if environment.get(NAME)? != name {
        return None;
    }
    Some(Fence::new(environment.get(FENCE)?.to_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fence_of_this_name_counts() {
        let environment = Environment(b"A=1\0TENURE_FENCE=7\0TENURE_NAME=a b\0TENURE_NAMES=c\0");
        assert_eq!(fence_in(environment, "a b"), Some(Fence::new(7)));
        for name in ["a", "b", "", "c"] {
            assert_eq!(fence_in(environment, name), None, "{name}");
        }
        assert_eq!(fence_in(Environment(b"TENURE_NAME=a\0"), "a"), None);
        assert_eq!(fence_in(Environment(b"TENURE_NAME=a\0TENURE_FENCE=x"), "a"), None);
    }

    #[test]
    fn only_a_run_of_this_name_counts() {
        assert!(is_run_of(b"/bin/tenure\0run\0-n\0a b\0true\0", "a b"));
        for line in [&b"tenure\0run\0a\0b\0"[..], b"tenure\0hold\0a b\0", b"run\0a b\0", b""] {
            assert!(!is_run_of(line, "a b"), "{line:?}");
        }
    }
}
