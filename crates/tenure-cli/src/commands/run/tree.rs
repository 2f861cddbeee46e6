//! The command and all that came of it.
//!
//! Front and minder are subreapers: a process below them whose parent has ended becomes their child, and not that of init. So whatever
//! the command started stays below them, in whatever process group or session, and *no child is left* means that nothing is.
//!
//! The front may have children that are none of the command's: whoever became `tenure` by exec had started them, as a shell does with
//! `exec tenure … > >(logger)`. These *strangers*, and what comes of them, are left alone.
//!
//! All but the command itself and its group is found in /proc alone, so that nothing is started without it. Those two are signalled by their
//! number in any case: /proc may be taken away while the command runs.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, getppid, kill_process,
    kill_process_group, wait, waitid, waitpid,
};

/// How often all that is left is looked at, or killed, again.
pub(crate) const SWEEP: Duration = Duration::from_millis(5);

/// Whether there is a child that has ended; it is not reaped.
const LOOKING: WaitIdOptions =
    WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);

/// Makes orphans below this process its children.
pub(crate) fn adopt_orphans() -> std::io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(getpid()))?)
}

/// Something that became of a child.
pub(crate) enum Change {
    /// A child ended, was stopped, or goes on.
    Of(Pid, WaitStatus),
    /// Nothing for now.
    Nothing,
    /// There is no child.
    NoChild,
}

/// The next thing that became of a child; those that ended are reaped.
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
    // The same number may be another's in another namespace; that of its parent as well is no accident.
    let parent = Pid::as_raw(getppid());
    is_link && Process::read(&this.to_string()).is_some_and(|process| process.parent == parent)
}

/// A process whose number is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) pid: Pid,
    /// Its process group, when it leads one of its own.
    pub(crate) group: Option<Pid>,
}

impl Known {
    /// Whether it is a child of this process that was not reaped: until then its number, and that of its group, are no other's.
    fn is_child(&self) -> bool {
        !matches!(waitid(WaitId::Pid(self.pid), LOOKING), Err(Errno::CHILD))
    }

    /// Whether a signal to it, or to its group, reaches this process.
    fn has(&self, process: &Process) -> bool {
        self.pid == process.pid || Pid::as_raw(self.group) == process.group && self.group.is_some()
    }
}

/// Asks `command`, its group and all below this process to end, but for `spared` itself. The stopped are continued, or they would not hear
/// of it.
pub(crate) fn ask_to_end(command: Known, spared: Option<Pid>, strangers: &[Pid]) {
    let found = descendants(strangers);
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

/// Sends a signal to all below this process, but for those that have it already, which is asked by number and group.
pub(crate) fn signal_others(signal: Signal, strangers: &[Pid], has_it: impl Fn(Pid, i32) -> bool) {
    for process in descendants(strangers) {
        if !has_it(process.pid, process.group) {
            let _ = kill_process(process.pid, signal);
        }
    }
}

/// The processes below this one.
pub(crate) fn below() -> Vec<Pid> {
    descendants(&[]).into_iter().filter(|process| !process.has_ended).map(|process| process.pid).collect()
}

/// Kills `known`, their groups and all below this process. A group is killed in one step, which a process that forks all the time
/// can't outrun. To be repeated until there is no child, for what was started meanwhile.
pub(crate) fn kill(known: &[Known], strangers: &[Pid]) {
    let found = descendants(strangers);
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

/// Reaps a child if it has ended, and no other; whether it is gone.
pub(crate) fn reap(child: Pid) -> bool {
    matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(Some(_)) | Err(Errno::CHILD))
}

/// The children of this process. Mostly there are none, which the kernel says at once.
pub(crate) fn children() -> Vec<Pid> {
    if matches!(waitid(WaitId::All, LOOKING), Err(Errno::CHILD)) {
        return Vec::new();
    }
    let this = getpid().as_raw_pid();
    let found = descendants(&[]).into_iter().filter(|process| process.parent == this);
    found.map(|process| process.pid).collect()
}

/// The children of this process but for one; `None` when that one has ended. It is asked last: when it lives then, none of its own children were
/// among those found.
pub(crate) fn children_beside(one: Pid) -> Option<Vec<Pid>> {
    let mut others = children();
    others.retain(|pid| *pid != one);
    matches!(waitid(WaitId::Pid(one), LOOKING), Ok(None)).then_some(others)
}

/// Whether there is a process below this one besides `strangers`.
pub(crate) fn has_any(strangers: &[Pid]) -> bool {
    !descendants(strangers).is_empty()
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

/// All processes below this one, but for `strangers` and what is below them.
fn descendants(strangers: &[Pid]) -> Vec<Process> {
    let mut others: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| Process::read(entry.ok()?.file_name().to_str()?))
        .filter(|process| !strangers.contains(&process.pid))
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
