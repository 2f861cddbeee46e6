//! Signals on their way to the command, and the other events of the holder.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::task::{Context, Poll};

use rustix::process::{Pid, Signal, getppid, kill_process};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::messages::{self, RelayedSignal};
use crate::sys;

/// Signals that `tenure` passes on to the command. The others have their default action: a signal that ends `tenure` ends the command.
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

/// The signals to forward, without those that `tenure`, and so the command, was started to ignore.
pub(crate) fn forwarded() -> impl Iterator<Item = Signal> {
    FORWARDED.into_iter().filter(|signal| !sys::is_ignored(*signal))
}

/// Whether its sender wants a process to end.
pub(crate) fn ends_a_process(signal: Signal) -> bool {
    sys::ENDING.contains(&signal)
}

/// An event of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEvent {
    /// A signal for the command.
    Signal(RelayedSignal),
    /// A child ended, was stopped, or goes on.
    Child,
    /// The wrapper was killed.
    WrapperGone,
}

/// Messages of the wrapper, and the holder's own signals.
pub(crate) struct Events {
    wrapper: Option<UnixStream>,
    wrapper_pid: Pid,
    /// The holder stopped the wrapper, and has not continued it.
    is_wrapper_stopped: bool,
    signals: Vec<(Signal, Stream)>,
    child: Stream,
}

impl Events {
    pub(crate) fn new(wrapper: StdStream, wrapper_pid: Pid) -> io::Result<Self> {
        wrapper.set_nonblocking(true)?;
        let stream = |number: Signal| signal(SignalKind::from_raw(number.as_raw()));
        let signals = forwarded().map(|signal| Ok((signal, stream(signal)?))).collect::<io::Result<_>>()?;
        let (wrapper, child) = (UnixStream::from_std(wrapper)?, signal(SignalKind::child())?);
        Ok(Events { wrapper: Some(wrapper), wrapper_pid, is_wrapper_stopped: false, signals, child })
    }

    /// The next event. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> RunEvent {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Stops the wrapper when the command was stopped, so that the shell sees it. A message could arrive too late, after the command was continued.
    pub(crate) fn suspend_wrapper(&mut self) {
        self.is_wrapper_stopped = self.signal_wrapper(Signal::STOP);
    }

    /// Continues the wrapper, if the holder stopped it.
    pub(crate) fn resume_wrapper(&mut self) {
        if self.is_wrapper_stopped {
            self.is_wrapper_stopped = !self.signal_wrapper(Signal::CONT);
        }
    }

    /// Signals the wrapper; false if it is gone. Its pid may then belong to another process.
    fn signal_wrapper(&self, signal: Signal) -> bool {
        getppid() == Some(self.wrapper_pid) && kill_process(self.wrapper_pid, signal).is_ok()
    }

    /// Gives the wrapper the descriptor that keeps the session alive.
    pub(crate) fn give_lifeline(&self, lifeline: &OwnedFd) {
        if let Some(wrapper) = &self.wrapper {
            messages::send_lifeline(wrapper, lifeline);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RunEvent> {
        if self.child.poll_recv(cx).is_ready() {
            return Poll::Ready(RunEvent::Child);
        }
        for (signal, stream) in &mut self.signals {
            if stream.poll_recv(cx).is_ready() {
                // The holder is in no foreground group, so no terminal sent it.
                return Poll::Ready(RunEvent::Signal(RelayedSignal {
                    signal: *signal,
                    from_terminal: false,
                }));
            }
        }
        while let Some(wrapper) = &self.wrapper {
            let mut byte = [0];
            match wrapper.try_read(&mut byte) {
                Ok(1) => match RelayedSignal::decode(byte[0]) {
                    Some(relayed) => return Poll::Ready(RunEvent::Signal(relayed)),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if wrapper.poll_read_ready(cx).is_pending() {
                        break;
                    }
                }
                _ => {
                    self.wrapper = None;
                    return Poll::Ready(RunEvent::WrapperGone);
                }
            }
        }
        Poll::Pending
    }
}
