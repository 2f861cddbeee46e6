//! The command and its descendants.
//!
//! The wrapper and the holder are subreapers: an orphan below them becomes their child instead of init's. So everything that the command starts
//! stays below them, in any process group or session, and *no child is left* means that no descendant is left.
//!
//! The wrapper may have children that do not belong to the command, such as those of a shell that became `tenure` (`exec tenure … > >(logger)`).
//! These *unrelated* processes and their descendants are never signalled.
//!
//! All processes except the command and its group are found only in /proc, so `tenure` starts nothing without it. The command and its group are
//! signalled by number, because /proc may disappear while the command runs.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    kill_process_group, wait, waitid, waitpid,
};

/// How often the processes that are left are killed again.
pub(crate) const SWEEP: Duration = Duration::from_millis(5);

/// To find out whether a child has ended, without reaping it.
const LOOKING: WaitIdOptions =
    WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);

/// Makes orphans below this process its children.
pub(crate) fn adopt_orphans() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// A change of a child.
pub(crate) enum Change {
    /// A child ended, was stopped, or goes on.
    Of(Pid, WaitStatus),
    /// Nothing for now.
    Nothing,
    /// There is no child.
    NoChild,
}

/// The next change of a child. A child that ended is reaped.
pub(crate) fn next_change() -> Change {
    match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
        Ok(Some((pid, status))) => Change::Of(pid, status),
        Err(Errno::CHILD) => Change::NoChild,
        _ => Change::Nothing,
    }
}

/// Whether /proc shows this process, under the number that it has for itself and its parent.
pub(crate) fn is_visible() -> bool {
    let this = getpid();
    let is_link = fs::read_link("/proc/self").is_ok_and(|link| link.as_os_str() == this.to_string().as_str());
    // In another namespace the pid may belong to another process, but hardly with the same parent.
    let parent = Pid::as_raw(getppid());
    is_link && Process::read(&this.to_string()).is_some_and(|process| process.parent == parent)
}

/// A process whose number is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownProcess {
    pub(crate) pid: Pid,
    /// Its process group, when it leads one of its own.
    pub(crate) group: Option<Pid>,
}

impl KnownProcess {
    /// Whether it is a child of this process that was not reaped. Until then, no other process has its pid or process group.
    fn is_child(&self) -> bool {
        !matches!(waitid(WaitId::Pid(self.pid), LOOKING), Err(Errno::CHILD))
    }

    /// Whether a signal to it, or to its group, reaches this process.
    fn has(&self, process: &Process) -> bool {
        self.pid == process.pid || Pid::as_raw(self.group) == process.group && self.group.is_some()
    }
}

/// Sends TERM to `command`, its group and everything below this process, except `spared`. Stopped processes are continued, because they could not
/// handle TERM.
pub(crate) fn terminate(command: KnownProcess, spared: Option<Pid>, unrelated: &[Pid]) {
    let found = descendants(unrelated);
    let is_child = command.is_child();
    for signal in [Signal::TERM, Signal::CONT] {
        // It may be gone, or belong to another user.
        let _ = match command.group {
            Some(group) if is_child => kill_process_group(group, signal),
            None if is_child => kill_process(command.pid, signal),
            _ => Ok(()),
        };
        for process in &found {
            if Some(process.pid) != spared && !(is_child && command.has(process)) {
                let _ = kill_process(process.pid, signal);
            }
        }
    }
}

/// Sends a signal to everything below this process, except the processes that have it already (by pid and group).
pub(crate) fn signal_others(signal: Signal, unrelated: &[Pid], has_it: impl Fn(Pid, i32) -> bool) {
    for process in descendants(unrelated) {
        if !has_it(process.pid, process.group) {
            let _ = kill_process(process.pid, signal);
        }
    }
}

/// The processes below this one.
pub(crate) fn below() -> Vec<Pid> {
    descendants(&[]).into_iter().filter(|process| !process.has_ended).map(|process| process.pid).collect()
}

/// Kills `known`, their groups and everything below this process. A process that forks all the time can't escape from its group, which is killed in
/// one step. Repeat it until there is no child, for processes that were started meanwhile.
pub(crate) fn kill(known: &[KnownProcess], unrelated: &[Pid]) {
    let found = descendants(unrelated);
    for known in known {
        let is_child = known.is_child();
        let is_in = |group: &Pid| found.iter().any(|process| process.group == group.as_raw_pid());
        if let Some(group) = known.group.filter(|group| is_child || is_in(group)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        if is_child {
            let _ = kill_process(known.pid, Signal::KILL);
        }
    }
    for process in found {
        let _ = kill_process(process.pid, Signal::KILL);
    }
}

/// Reaps this child if it has ended; whether it is gone.
pub(crate) fn reap(child: Pid) -> bool {
    matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_)) | Err(Errno::CHILD))
}

/// The children of this process. Usually there are none, which one system call tells.
pub(crate) fn children() -> Vec<Pid> {
    if matches!(waitid(WaitId::All, LOOKING), Err(Errno::CHILD)) {
        return Vec::new();
    }
    let this = getpid().as_raw_pid();
    let found = descendants(&[]).into_iter().filter(|process| process.parent == this);
    found.map(|process| process.pid).collect()
}

/// The children of this process except `one`; `None` if `one` has ended. That is checked last: if `one` still lives, the list has none of its
/// children.
pub(crate) fn children_beside(one: Pid) -> Option<Vec<Pid>> {
    let mut others = children();
    others.retain(|pid| *pid != one);
    matches!(waitid(WaitId::Pid(one), LOOKING), Ok(None)).then_some(others)
}

/// Whether there is a process below this one besides `unrelated`.
pub(crate) fn has_any(unrelated: &[Pid]) -> bool {
    !descendants(unrelated).is_empty()
}

/// Whether a process below this one is in the group, and has not ended.
pub(crate) fn has_group(group: Pid) -> bool {
    descendants(&[]).iter().any(|process| process.group == group.as_raw_pid() && !process.has_ended)
}

struct Process {
    pid: Pid,
    parent: i32,
    group: i32,
    has_ended: bool,
}

/// All processes below this one, except `unrelated` and their descendants.
fn descendants(unrelated: &[Pid]) -> Vec<Process> {
    let mut others: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| Process::read(entry.ok()?.file_name().to_str()?))
        .filter(|process| !unrelated.contains(&process.pid))
        .collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parent = getpid().as_raw_pid();
    let mut next = 0;
    loop {
        found.extend(others.extract_if(.., |process| process.parent == parent));
        match found.get(next) {
            Some(process) => parent = process.pid.as_raw_pid(),
            None => return found,
        }
        next += 1;
    }
}

impl Process {
    /// A process by the name of its folder in /proc; `None` when it is no process, or gone.
    fn read(folder: &str) -> Option<Self> {
        let pid = Pid::from_raw(folder.parse().ok()?)?;
        let stat = fs::read(format!("/proc/{folder}/stat")).ok()?;
        Process::parse(pid, &String::from_utf8_lossy(&stat))
    }

    /// The line is `pid (name) state parent group …`, and a name may have anything in it.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let mut number = || fields.next()?.parse().ok();
        Some(Process { pid, parent: number()?, group: number()?, has_ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_anything_in_it() {
        let pid = Pid::from_raw(7).unwrap();
        let process = Process::parse(pid, "7 (a) R 1 (b) S 3 4 5 0 -1").unwrap();
        assert_eq!((process.parent, process.group, process.has_ended), (3, 4, false));
        assert!(Process::parse(pid, "7 (a) Z 3 4").unwrap().has_ended);
        assert!(Process::parse(pid, "7 (a").is_none());
    }

    #[test]
    fn a_child_and_its_child_are_found() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        let found: Vec<i32> = descendants(&[]).iter().map(|process| process.pid.as_raw_pid()).collect();
        let child_id = i32::try_from(child.id()).unwrap();
        assert!(found.contains(&child_id) && found.contains(&grandchild), "{found:?}");
        let _ = kill_process(Pid::from_raw(grandchild).unwrap(), Signal::KILL);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
