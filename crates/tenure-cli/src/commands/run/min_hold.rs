//! `--min-hold`: keeps the name after the command has ended.
//!
//! Hosts that start a job at the same time have different clocks. A host whose clock is a second late must still find the name held, even if the
//! job was short; otherwise it runs the job again.

use std::pin::pin;

use rustix::process::Signal;
use tenure::{ErrorKind, Guard};

use super::deadline::{CLOCK_CHECK, Moment};
use super::process_tree::{self, Change};
use super::signals::{self, Events, RunEvent};

/// How the keeping ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The time is over, or a signal cut it short. The name must be given back.
    Over {
        /// After the command ended, the store confirmed that the lease is ours. So it was ours while the command ran.
        is_proved: bool,
    },
    /// The lease was lost, after the command had ended.
    Lost,
}

/// Keeps the name until `until`, until a signal that would end a process, or until the wrapper is gone.
pub(crate) async fn keep(guard: &Guard, events: &mut Events, until: Moment) -> Kept {
    // One renewal proves that the lease covered the command. A loss after that says nothing about the time in which the command ran.
    let mut renewal = pin!(guard.renew());
    let (mut has_answer, mut is_proved) = (false, false);
    loop {
        let now = Moment::now();
        if now >= until {
            return Kept::Over { is_proved };
        }
        tokio::select! {
            biased;
            event = events.next() => match event {
                RunEvent::WrapperGone => return Kept::Over { is_proved },
                event if ends(event, events) => return Kept::Over { is_proved },
                _ => {}
            },
            answer = &mut renewal, if !has_answer => {
                has_answer = true;
                is_proved = answer.is_ok();
                if answer.is_err_and(|error| error.kind() == ErrorKind::Lost) {
                    return Kept::Over { is_proved };
                }
            }
            _ = guard.lost(), if has_answer => {
                return if is_proved { Kept::Lost } else { Kept::Over { is_proved } };
            }
            () = tokio::time::sleep(until.since(now).min(CLOCK_CHECK)) => {}
        }
    }
}

/// Returns on a signal that would end a process.
pub(crate) async fn until_told_to_end(events: &mut Events) {
    loop {
        let event = events.next().await;
        if ends(event, events) {
            return;
        }
    }
}

/// Handles an event after the command has ended; true for a signal that would end a process.
fn ends(event: RunEvent, events: &mut Events) -> bool {
    match event {
        RunEvent::Signal(relayed) if signals::ends_a_process(relayed.signal) => return true,
        RunEvent::Signal(relayed) if relayed.signal == Signal::TSTP => events.suspend_wrapper(),
        RunEvent::Signal(relayed) if relayed.signal == Signal::CONT => events.resume_wrapper(),
        // Processes that the command left behind are reaped here.
        RunEvent::Child => while let Change::Of(..) = process_tree::next_change() {},
        RunEvent::Signal(_) | RunEvent::WrapperGone => {}
    }
    false
}
