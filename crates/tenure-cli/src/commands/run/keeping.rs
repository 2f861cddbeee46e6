//! `--min-hold`: the name is kept after the command has ended.
//!
//! The clocks of the hosts that start a job at the same time differ. A host whose clock is late by a second must find the name held, however
//! short the job was; else it does the job again.

use std::pin::pin;

use rustix::process::Signal;
use tenure::{ErrorKind, Guard};

use super::deadline::{LOOK_AGAIN, Moment};
use super::signals::{self, Event, Events};
use super::tree::{self, Change};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The time is over, or it was cut short, and the name is to be given back.
    Over {
        /// The store said after the end of the command that the lease is ours: it was when the command ended.
        is_proved: bool,
    },
    /// The lease was lost, after the command had ended.
    Lost,
}

/// Keeps the name until that moment, until a signal that would end a process, or until the front is gone.
pub(crate) async fn keep(guard: &Guard, events: &mut Events, until: Moment) -> Kept {
    // Whatever is learnt of a loss later says nothing about the time in which the command ran.
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
                Event::FrontGone => return Kept::Over { is_proved },
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
            () = tokio::time::sleep(until.since(now).min(LOOK_AGAIN)) => {}
        }
    }
}

/// Returns when a signal comes that would end a process.
pub(crate) async fn until_told_to_end(events: &mut Events) {
    loop {
        let event = events.next().await;
        if ends(event, events) {
            return;
        }
    }
}

/// Does what follows from an event after the command has ended; true for a signal that would end a process.
fn ends(event: Event, events: &mut Events) -> bool {
    match event {
        Event::Signal(relayed) if signals::ends_a_process(relayed.signal) => return true,
        Event::Signal(relayed) if relayed.signal == Signal::TSTP => events.suspend_front(),
        Event::Signal(relayed) if relayed.signal == Signal::CONT => events.resume_front(),
        // What the command left behind ends here.
        Event::Child => while let Change::Of(..) = tree::next_change() {},
        Event::Signal(_) | Event::FrontGone => {}
    }
    false
}
