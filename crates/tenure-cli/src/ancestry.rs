//! The processes above this one, as /proc shows them to this user.
//!
//! A `tenure run` is two processes with one command line: the front, and below it the minder, whose children are the command. What the minder handed
//! to its command may be gone from the environment of this process (`env -i`, sudo), but not from those in between.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

/// No tree of processes is this deep; the numbers of processes that end meanwhile may be used again.
const MOST: usize = 1_000;

/// This process, or one above it.
#[derive(Debug)]
pub(crate) struct Process {
    /// `None` for this process.
    pub(crate) pid: Option<u32>,
    pub(crate) user: u32,
    /// The command line, each word with a NUL after it.
    pub(crate) line: Vec<u8>,
    environment: Option<Vec<u8>>,
    /// Whether it is the minder of a `tenure run`.
    pub(crate) is_minder: bool,
    name: Vec<u8>,
}

impl Process {
    /// The variables that it was started with; `None` if another user's process does not show them.
    pub(crate) fn environment(&self) -> Option<Environment<'_>> {
        self.environment.as_deref().map(Environment)
    }
}

/// The variables of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment<'a>(pub(crate) &'a [u8]);

impl<'a> Environment<'a> {
    /// The value of a variable.
    pub(crate) fn get(self, name: &str) -> Option<&'a OsStr> {
        self.0.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(value))
        })
    }
}

/// This process and those above it, the nearest first.
pub(crate) fn upwards() -> Vec<Process> {
    let mut all: Vec<Process> = Vec::new();
    let mut pid = "self".to_owned();
    while all.len() < MOST {
        let read = |file| fs::read(format!("/proc/{pid}/{file}"));
        let process = Process {
            pid: pid.parse().ok(),
            user: fs::metadata(format!("/proc/{pid}")).map_or(u32::MAX, |about| about.uid()),
            line: read("cmdline").unwrap_or_default(),
            environment: read("environ").ok(),
            is_minder: false,
            name: read("comm").unwrap_or_default(),
        };
        // This process may be a minder itself, and its front holds nothing.
        if let Some(below) = all.last_mut().filter(|below| below.pid.is_some()) {
            below.is_minder = below.line == process.line && is_run(below) && is_run(&process);
        }
        all.push(process);
        match parent(&pid) {
            Some(parent) if parent != "0" => pid = parent,
            _ => break,
        }
    }
    all
}

/// Whether it is a `tenure run`. A shell that runs a script with the name `run` has such a command line, too.
fn is_run(process: &Process) -> bool {
    let is_ours = process.name.starts_with(b"tenure")
        || fs::read("/proc/self/comm").is_ok_and(|own| own == process.name);
    is_ours && process.line.split(|byte| *byte == 0).nth(1) == Some(b"run")
}

/// The line is `pid (name) state parent …`, and a name may have anything in it.
fn parent(pid: &str) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processes_above_are_found() {
        let parent_of_this = std::os::unix::process::parent_id().to_string();
        assert_eq!(parent("self"), Some(parent_of_this));
    }

    #[test]
    fn this_process_comes_first() {
        let all = upwards();
        assert!(all.len() > 1 && all[0].pid.is_none() && all[1].pid.is_some());
        assert_eq!(all[0].user, rustix::process::geteuid().as_raw());
    }
}
