//! Whether a name is held by a `tenure run` that this process runs under.
//!
//! A lock is not re-entrant: a script that takes a name twice would wait for itself. The sign is the fence that a command is given with the name:
//! a name whose holder has that very fence is held above this process, in whatever domain, and no URL has to be handed down to know it. All
//! processes above are asked, for the nearest may have been started with an empty environment, or under another name.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use tenure::Fence;

/// The variables that a command is told its lease with.
pub(crate) const NAME: &str = "TENURE_NAME";
pub(crate) const FENCE: &str = "TENURE_FENCE";

/// No tree of processes is this deep; the numbers of processes that end meanwhile may be used again.
const MOST_ANCESTORS: usize = 1_000;

/// The fences under which the name was held above this process when what is there was started.
pub(crate) fn fences(name: &str) -> Vec<Fence> {
    let mut fences = Vec::new();
    let mut pid = "self".to_owned();
    for _ in 0..MOST_ANCESTORS {
        // That of another user can't be read.
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        fences.extend(fence_in(&environment, name));
        match parent(&pid) {
            Some(parent) if parent != "0" => pid = parent,
            _ => break,
        }
    }
    fences
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
    fn the_processes_above_are_found() {
        let parent_of_this = std::os::unix::process::parent_id().to_string();
        assert_eq!(parent("self"), Some(parent_of_this));
    }
}
