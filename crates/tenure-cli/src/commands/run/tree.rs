//! The command and all that came of it.
//!
//! Front and minder are subreapers: a process below them whose parent has ended becomes their child, and not that of init. So whatever
//! the command started stays below them, in whatever process group or session, and *no child is left* means that nothing is.
//!
//! The front may have children that are none of the command's: whoever became `tenure` by exec had started them, as a shell does with
//! `exec tenure … > >(logger)`. These *strangers*, and what comes of them, are left alone.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    wait, waitid,
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

/// Asks all below this process to end, but for `spared` itself. The stopped are continued, or they would not hear of it.
pub(crate) fn ask_to_end(spared: Option<Pid>, strangers: &[Pid]) {
    for process in descendants(strangers).into_iter().filter(|process| Some(process.pid) != spared) {
        // It may be gone, or belong to another user.
        let _ = kill_process(process.pid, Signal::TERM);
        let _ = kill_process(process.pid, Signal::CONT);
    }
}

/// Kills all below this process, and `group` as a whole while it is among them: in one step, which a process that forks all the time
/// can't outrun. To be repeated until there is no child, for what was started meanwhile.
pub(crate) fn kill(group: Option<Pid>, strangers: &[Pid]) {
    let found = descendants(strangers);
    if let Some(group) = group.filter(|group| found.iter().any(|process| process.group == group.as_raw_pid()))
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for process in found {
        let _ = kill_process(process.pid, Signal::KILL);
    }
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
