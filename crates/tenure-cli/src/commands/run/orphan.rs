//! A command that goes on when its minder was killed (`--on-lost ignore`): its parent is the front now.
//!
//! The front passes signals on and exits as the command does, and `--max-hold` and `--wait-all` still count. Nobody renews: the name is free when its lease
//! has ended.

use rustix::process::{Signal, getpid, kill_process};

use super::child::Child;
use super::deadline::Moment;
use super::front::Front;
use super::signals;
use super::tree::{self, Change};
use super::wire::Relayed;
use crate::exit_code;
use crate::output::say_at_once;
use crate::text::rough;

impl Front<'_> {
    /// Stands until the command has ended; returns the exit code.
    pub(crate) fn stand_for_orphan(&self, mut child: Child, started_at: Moment) -> u8 {
        let limits = &self.run.limits;
        let too_long_at = limits.max_hold.map_or(Moment::FAR, |limit| started_at.after(limit));
        let mut kill_at = None;
        loop {
            let nothing_left = self.look_at_orphans(&mut child);
            match (kill_at, self.watch.facts.end()) {
                (Some(_), _) if nothing_left => return exit_code::TIMED_OUT,
                (Some(_), _) => {}
                (None, Some(end)) if nothing_left || !limits.wait_all => return end.code(),
                (None, Some(_)) => {}
                // The minder has seen its end, and took that along.
                (None, None) if nothing_left => return exit_code::LOST,
                (None, None) => {}
            }
            let now = Moment::now();
            if now >= too_long_at && kill_at.is_none() {
                let limit = rough(limits.max_hold.unwrap_or_default());
                say_at_once(format_args!("command ran for longer than --max-hold {limit}; it is stopped"));
                tree::ask_to_end(child.known(), None, &self.strangers);
                kill_at = Some(now.after(limits.notice_of_limit()));
            }
            if kill_at.is_some_and(|kill_at| now >= kill_at) {
                tree::kill(&[child.known()], &self.strangers);
            }
            let next = if kill_at.is_some() { now.after(tree::SWEEP) } else { too_long_at };
            self.sleep(next.since(now), false);
            while let Some((signal, from_terminal)) = self.signals.next() {
                let relayed = Relayed { signal, from_terminal };
                match signal {
                    Signal::CHILD => {}
                    signal if limits.wait_all && signals::ends_a_process(signal) => {
                        child.forward_to_all(relayed, &self.strangers);
                    }
                    _ => child.forward(relayed),
                }
            }
        }
    }

    /// Reaps what has ended; true when nothing is left below this process.
    fn look_at_orphans(&self, child: &mut Child) -> bool {
        loop {
            match tree::next_change() {
                Change::Of(pid, status) if pid == child.pid() => {
                    child.changed(status);
                    self.learn(pid, status);
                    if status.stopped() && child.own_group().is_none() {
                        let _ = kill_process(getpid(), Signal::STOP);
                    }
                }
                Change::Of(..) => {}
                Change::Nothing => return self.has_only_strangers(),
                Change::NoChild => return true,
            }
        }
    }
}
