//! A command that goes on after its holder was killed (`--on-lost ignore`). Its parent is now the wrapper.
//!
//! The wrapper passes signals on and exits as the command does; `--max-hold` and `--wait-all` still count. Nobody renews the lease: the name is free
//! when it ends.

use rustix::process::{Signal, getpid, kill_process};

use super::child::Child;
use super::deadline::Moment;
use super::messages::RelayedSignal;
use super::process_tree::{self, Change};
use super::signals;
use super::wrapper::Wrapper;
use crate::exit_code;
use crate::output::say_in_background;
use crate::text::rough;

impl Wrapper<'_> {
    /// Waits until the command has ended; returns the exit code.
    pub(crate) fn wait_without_holder(&self, mut child: Child, started_at: Moment) -> u8 {
        let limits = &self.run.limits;
        let too_long_at = limits.max_hold.map_or(Moment::FAR, |limit| started_at.after(limit));
        let mut kill_at = None;
        loop {
            let nothing_left = self.reap_children(&mut child);
            match (kill_at, self.shared.facts.end()) {
                (Some(_), _) if nothing_left => return exit_code::TIMED_OUT,
                (Some(_), _) => {}
                (None, Some(end)) if nothing_left || !limits.wait_all => return end.code(),
                (None, Some(_)) => {}
                // The holder reaped the command, and died before it recorded how the command ended.
                (None, None) if nothing_left => return exit_code::LOST,
                (None, None) => {}
            }
            let now = Moment::now();
            if now >= too_long_at && kill_at.is_none() {
                let limit = rough(limits.max_hold.unwrap_or_default());
                say_in_background(format_args!(
                    "command ran for longer than --max-hold {limit}; it is stopped"
                ));
                process_tree::terminate(child.known(), None, &self.unrelated);
                kill_at = Some(now.after(limits.grace_after_limit()));
            }
            if kill_at.is_some_and(|kill_at| now >= kill_at) {
                process_tree::kill(&[child.known()], &self.unrelated);
            }
            let next = if kill_at.is_some() { now.after(process_tree::SWEEP) } else { too_long_at };
            self.sleep(next.since(now), false);
            while let Some((signal, from_terminal)) = self.signals.next() {
                let relayed = RelayedSignal { signal, from_terminal };
                match signal {
                    Signal::CHILD => {}
                    signal if limits.wait_all && signals::ends_a_process(signal) => {
                        child.forward_to_all(relayed, &self.unrelated);
                    }
                    _ => child.forward(relayed),
                }
            }
        }
    }

    /// Reaps children that have ended; true if no process of the command is left.
    fn reap_children(&self, child: &mut Child) -> bool {
        loop {
            match process_tree::next_change() {
                Change::Of(pid, status) if pid == child.pid() => {
                    child.changed(status);
                    self.learn(pid, status);
                    if status.stopped() && child.own_group().is_none() {
                        let _ = kill_process(getpid(), Signal::STOP);
                    }
                }
                Change::Of(..) => {}
                Change::Nothing => return self.has_only_unrelated(),
                Change::NoChild => return true,
            }
        }
    }
}
