//! Termination signals for a program that must undo something first. They are blocked, and polled.
//!
//! They are blocked before the first connection. A signal goes to any thread that accepts it, such as one that resolves a host name; threads and
//! processes that start later inherit the mask.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Domain, Error};

use crate::exit_code;
use crate::output;
use crate::sys::{self, Mask, SignalFd};

const POLL: Duration = Duration::from_millis(10);

/// Blocks the signals, except those that the program was started to ignore. Dropped, it unblocks them.
pub(crate) struct BlockedSignals {
    signals: SignalFd,
    before: Mask,
    came: Option<Signal>,
}

impl BlockedSignals {
    fn new() -> io::Result<Self> {
        let mask = Mask::of(sys::termination_signals());
        let signals = SignalFd::new(&mask)?;
        Ok(BlockedSignals { signals, before: mask.block(), came: None })
    }

    pub(crate) fn has_come(&mut self) -> bool {
        if self.came.is_none() {
            self.came = self.signals.next().map(|(signal, _)| signal);
        }
        self.came.is_some()
    }

    /// The exit code for the signal, if one came.
    fn code(&mut self) -> Option<u8> {
        self.has_come();
        self.came.map(|signal| exit_code::by_signal(signal.as_raw()))
    }

    async fn next(&mut self) -> u8 {
        loop {
            if let Some(code) = self.code() {
                return code;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        self.before.set();
    }
}

/// Connects, and does the work. A signal interrupts the connecting, but not the work, which polls for signals itself if it takes long.
///
/// Returns the result; or the exit code, after a signal. `work` must not print: a reader that does not read would block it.
///
/// # Errors
/// Those of the store.
pub(crate) async fn uninterrupted<T>(
    domain: &Domain,
    work: impl AsyncFnOnce(&mut BlockedSignals) -> Result<T, Error>,
) -> Result<Result<T, u8>, Error> {
    let mut blocked = match BlockedSignals::new() {
        Ok(blocked) => blocked,
        Err(error) => {
            output::refused_by_system(&error);
            return Ok(Err(exit_code::OS));
        }
    };
    tokio::select! {
        biased;
        connected = domain.capabilities() => drop(connected?),
        code = blocked.next() => return Ok(Err(code)),
    }
    let done = work(&mut blocked).await?;
    Ok(blocked.code().map_or(Ok(done), Err))
}
