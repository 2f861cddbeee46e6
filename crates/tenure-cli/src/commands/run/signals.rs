//! Signals on their way to the command, and what else the minder hears of.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll};

use rustix::process::{Pid, Signal, getppid, kill_process};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::wire::{self, Relayed};
use crate::sys;

/// Those that the command gets in place of `tenure`. Others have their default action: what ends `tenure` ends the command.
const FORWARDED: [Signal; 10] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::TERM,
    Signal::CONT,
    Signal::TSTP,
    Signal::WINCH,
];

/// The signals to forward, without those that are to be ignored by `tenure` and so by the command.
pub(crate) fn forwarded() -> impl Iterator<Item = Signal> {
    FORWARDED.into_iter().filter(|signal| !sys::is_ignored(*signal))
}

/// Whether whoever sends it wants a process to end.
pub(crate) fn ends_a_process(signal: Signal) -> bool {
    sys::ENDING.contains(&signal)
}

/// Something that the minder hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A signal for the command.
    Signal(Relayed),
    /// A child ended, was stopped, or goes on.
    Child,
    /// The front was killed.
    FrontGone,
}

/// What the minder hears from the front, and its own signals.
pub(crate) struct Events {
    front: Option<UnixStream>,
    front_pid: Pid,
    /// The front was stopped from here, and not continued.
    is_front_stopped: bool,
    signals: Vec<(Signal, Stream)>,
    child: Stream,
}

impl Events {
    pub(crate) fn new(front: StdStream, front_pid: Pid) -> io::Result<Self> {
        front.set_nonblocking(true)?;
        let stream = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        let signals = forwarded().map(|signal| Ok((signal, stream(signal)?))).collect::<io::Result<_>>()?;
        let (front, child) = (UnixStream::from_std(front)?, signal(SignalKind::child())?);
        Ok(Events { front: Some(front), front_pid, is_front_stopped: false, signals, child })
    }

    /// The next event. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Event {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Stops the front, as the command was, so that the shell sees it. It is not asked to: it might do so only after it was continued.
    pub(crate) fn suspend_front(&mut self) {
        self.is_front_stopped = self.signal_front(Signal::STOP);
    }

    /// Continues the front, if it was stopped from here.
    pub(crate) fn resume_front(&mut self) {
        if self.is_front_stopped {
            self.is_front_stopped = !self.signal_front(Signal::CONT);
        }
    }

    /// Whether there is a front. The number of one that is gone may be another's.
    fn signal_front(&self, signal: Signal) -> bool {
        getppid() == Some(self.front_pid) && kill_process(self.front_pid, signal).is_ok()
    }

    /// Gives the front the descriptor that keeps the session alive.
    pub(crate) fn give_lifeline(&self, lifeline: &OwnedFd) {
        if let Some(front) = &self.front {
            wire::send_lifeline(front, lifeline);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.child.poll_recv(cx).is_ready() {
            return Poll::Ready(Event::Child);
        }
        for (signal, stream) in &mut self.signals {
            if stream.poll_recv(cx).is_ready() {
                // The minder is in no terminal's foreground: whoever sent it meant this process.
                return Poll::Ready(Event::Signal(Relayed { signal: *signal, from_terminal: false }));
            }
        }
        while let Some(front) = &self.front {
            let mut byte = [0];
            match front.try_read(&mut byte) {
                Ok(1) => match Relayed::decode(byte[0]) {
                    Some(relayed) => return Poll::Ready(Event::Signal(relayed)),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if front.poll_read_ready(cx).is_pending() {
                        break;
                    }
                }
                _ => {
                    self.front = None;
                    return Poll::Ready(Event::FrontGone);
                }
            }
        }
        Poll::Pending
    }
}
