//! Whether a name is held by a `tenure run` that this process runs under.
//!
//! A lock is not re-entrant: a script that takes a name twice would wait for itself. The sign is the fence that a command is given with the name:
//! a name whose holder has that very fence is held above this process, in whatever domain, and no URL has to be handed down to know it. All
//! processes above are asked, for the nearest may have been started with an empty environment, or under another name.
//!
//! A command that empties its environment itself (`env -i`), or that changes the user (sudo), leaves no fence to be found. Then the sign is that the
//! holder has the number of a minder above, on a machine with this one's name, whose command line is a `run` of this name.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use tenure::{Fence, Holder};

use crate::presence;

/// The variables that a command is told its lease with.
pub(crate) const NAME: &str = "TENURE_NAME";
pub(crate) const FENCE: &str = "TENURE_FENCE";

/// No tree of processes is this deep; the numbers of processes that end meanwhile may be used again.
const MOST_ANCESTORS: usize = 1_000;

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
        let mut pid = "self".to_owned();
        let mut below = (None, Vec::new());
        for _ in 0..MOST_ANCESTORS {
            // That of another user can't be read.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            found.fences.extend(fence_in(&environment, name));
            // A minder has the command line of its front, which is its parent. This process may be one itself, and its front holds nothing.
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.minders.extend(below.0.filter(|_| below.1 == line && is_run_of(&line, name)));
            below = (pid.parse::<u32>().ok(), line);
            match parent(&pid) {
                Some(parent) if parent != "0" => pid = parent,
                _ => break,
            }
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

/// The line is `pid (name) state parent …`, and a name may have anything in it.
fn parent(pid: &str) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.to_owned())
}

/// The fence in an environment that tells of this name.
fn fence_in(environment: &[u8], name: &str) -> Option<Fence> {
    let value = |variable: &str| {
        environment.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(value))
        })
    };
    if value(NAME)? != name {
        return None;
    }
    Some(Fence::new(value(FENCE)?.to_str()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_fence_of_this_name_counts() {
        let environment = b"A=1\0TENURE_FENCE=7\0TENURE_NAME=a b\0TENURE_NAMES=c\0";
        assert_eq!(fence_in(environment, "a b"), Some(Fence::new(7)));
        for name in ["a", "b", "", "c"] {
            assert_eq!(fence_in(environment, name), None, "{name}");
        }
        assert_eq!(fence_in(b"TENURE_NAME=a\0", "a"), None);
        assert_eq!(fence_in(b"TENURE_NAME=a\0TENURE_FENCE=x", "a"), None);
    }

    #[test]
    fn only_a_run_of_this_name_counts() {
        assert!(is_run_of(b"/bin/tenure\0run\0-n\0a b\0true\0", "a b"));
        for line in [&b"tenure\0run\0a\0b\0"[..], b"tenure\0hold\0a b\0", b"run\0a b\0", b""] {
            assert!(!is_run_of(line, "a b"), "{line:?}");
        }
    }

    #[test]
    fn the_processes_above_are_found() {
        let parent_of_this = std::os::unix::process::parent_id().to_string();
        assert_eq!(parent("self"), Some(parent_of_this));
    }
}
