//! Whether a name is held by a `tenure run` that this process runs under.
//!
//! A lock is not re-entrant: a script that takes a name twice would wait for itself. The sign is the fence that a command is given with the name:
//! a name whose holder has that very fence is held above this process, in whatever domain, and no URL has to be handed down to know it. All
//! processes above are asked, for the nearest may have been started with an empty environment, or under another name.
//!
//! A command that empties its environment itself (`env -i`), or that changes the user (sudo), leaves no fence to be found. Then the sign is that the
//! holder has the number of a minder above, on a machine with this one's name, whose command line is a `run` of this name.

use tenure::{Fence, Holder};

use crate::ancestry::{self, Environment};
use crate::presence;

/// The variables that a command is told its lease with.
pub(crate) const NAME: &str = "TENURE_NAME";
pub(crate) const FENCE: &str = "TENURE_FENCE";

/// What the processes above this one say of a name.
#[derive(Debug, Default)]
pub(crate) struct Enclosing {
    /// Those under which it was held when what is there was started.
    pub(crate) fences: Vec<Fence>,
    /// Those that run something under it.
    minders: Vec<u32>,
}

impl Enclosing {
    pub(crate) fn of(name: &str) -> Self {
        let mut found = Enclosing::default();
        for process in ancestry::upwards() {
            found.fences.extend(process.environment().and_then(|environment| fence_in(environment, name)));
            let is_minder = process.is_minder && is_run_of(&process.line, name);
            found.minders.extend(process.pid.filter(|_| is_minder));
        }
        found
    }

    /// Nothing above has to do with the name.
    pub(crate) fn is_empty(&self) -> bool {
        self.fences.is_empty() && self.minders.is_empty()
    }

    /// Whether this holder of the name is above this process.
    pub(crate) fn has(&self, holder: &Holder) -> bool {
        let is_minder = |pid| self.minders.contains(&pid) && presence::is_on_this_machine(&holder.owner);
        self.fences.contains(&holder.fence) || holder.owner.pid().is_some_and(is_minder)
    }
}

/// Whether a command line is one of `tenure run` with this name.
fn is_run_of(line: &[u8], name: &str) -> bool {
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"run") && words.any(|word| word == name.as_bytes())
}

/// The fence in an environment that tells of this name.
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
