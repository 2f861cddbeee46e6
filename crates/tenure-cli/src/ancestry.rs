//! The processes above this one, as /proc shows them to this user.
//!
//! A `tenure run` is two processes with one command line: the wrapper, and below it the holder, whose child is the command. A holder outlives a
//! wrapper that was killed. The variables that the holder gave its command may be gone from this process (`env -i`, sudo), but not from the
//! processes in between.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// No process tree is this deep. A limit is needed because pids may be reused meanwhile.
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
    /// Whether it is the holder process of a `tenure run`.
    pub(crate) is_holder: bool,
    name: Vec<u8>,
}

impl Process {
    /// The variables that it was started with; `None` if the process of another user does not show them.
    pub(crate) fn environment(&self) -> Option<Environment<'_>> {
        self.environment.as_deref().map(Environment)
    }

    /// Removes the dynamic loader from the command line (`ld.so [OPTION]... PROGRAM`).
    fn without_loader(mut self) -> Self {
        if !self.name.starts_with(b"ld-") && !self.name.starts_with(b"ld.so") {
            return self;
        }
        let words: Vec<&[u8]> = self.line.split(|byte| *byte == 0).collect();
        let is_program = |word: &[u8]| {
            let path = Path::new(OsStr::from_bytes(word));
            let is_named = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"tenure"));
            let pid = self.pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
            is_named || is_own_program(Path::new(&format!("/proc/{pid}/cwd")).join(path))
        };
        let program = (1..words.len()).find(|at| words.get(at + 1) == Some(&&b"run"[..]));
        if let Some(program) = program.filter(|at| is_program(words[*at])) {
            let line = words[program..].join(&0);
            (self.line, self.name) = (line, b"tenure".to_vec());
        }
        self
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
            is_holder: false,
            name: read("comm").unwrap_or_default(),
        };
        all.push(process.without_loader());
        match parent(&pid) {
            Some(parent) if parent != "0" => pid = parent,
            _ => break,
        }
    }
    mark_holders(&mut all);
    all
}

/// A holder has its wrapper above it, with the same command line, unless the wrapper was killed. A wrapper has its holder below it.
fn mark_holders(all: &mut [Process]) {
    let runs: Vec<bool> = all.iter().map(is_run).collect();
    let is_pair = |below: usize| {
        runs[below] && runs.get(below + 1) == Some(&true) && all[below].line == all[below + 1].line
    };
    let holders: Vec<bool> =
        (0..all.len()).map(|at| at > 0 && runs[at] && (is_pair(at) || !is_pair(at - 1))).collect();
    for (process, is_holder) in all.iter_mut().zip(holders) {
        process.is_holder = is_holder;
    }
}

/// Whether it is a `tenure run`, under any name. A shell that runs a script named `run` has such a command line, too.
fn is_run(process: &Process) -> bool {
    let is_ours = || {
        process.name.starts_with(b"tenure")
            || fs::read("/proc/self/comm").is_ok_and(|own| own == process.name)
            || process.pid.is_none_or(|pid| is_own_program(format!("/proc/{pid}/exe")))
    };
    process.line.split(|byte| *byte == 0).nth(1) == Some(b"run") && is_ours()
}

/// Whether this file is the program of this process.
fn is_own_program(file: impl AsRef<Path>) -> bool {
    let identity = |file: &Path| fs::metadata(file).map(|about| (about.dev(), about.ino())).ok();
    identity(file.as_ref()).is_some_and(|file| identity("/proc/self/exe".as_ref()) == Some(file))
}

/// The line is `pid (name) state parent …`, and a name may contain anything.
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
