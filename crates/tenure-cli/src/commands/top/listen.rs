//! Keys and signals as inputs, each read by its own thread.
//!
//! Signals are blocked and read from a descriptor, as in `run`. They are blocked before the first thread starts, so that every thread inherits that.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Signal;

use super::{Input, screen};
use crate::exit_code;
use crate::sys::{ENDING, Mask, SignalFd};

/// How long the loop may take to end after a signal. It may hang in a write to a halted terminal.
const GRACE: Duration = Duration::from_secs(1);

/// Blocks the signals that `top` handles; returns them, and the mask before.
pub(super) fn catch() -> (Mask, Mask) {
    let caught = Mask::of(ENDING.into_iter().chain([Signal::TSTP, Signal::CONT]));
    let free = caught.block();
    (caught, free)
}

/// Starts to read signals.
pub(super) fn to_signals(caught: &Mask, events: Sender<Input>) -> io::Result<()> {
    let signals = SignalFd::new(caught)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            // An interruption does not matter: it polls again.
            let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
            while let Some((signal, _)) = signals.next() {
                let is_enabled = events.send(Input::Signal(signal)).is_ok();
                if ENDING.contains(&signal) {
                    if is_enabled {
                        thread::sleep(GRACE);
                    }
                    screen::restore_modes();
                    std::process::exit(exit_code::by_signal(signal.as_raw()).into());
                }
            }
        }
    })?;
    Ok(())
}

/// Starts to read keys and changes of size.
pub(super) fn to_keys(events: Sender<Input>) -> io::Result<()> {
    thread::Builder::new().name("keys".to_owned()).spawn(move || {
        loop {
            let event = match event::read() {
                Ok(event::Event::Key(key)) => Input::Key(key),
                Ok(event::Event::Resize(..)) => Input::Resized,
                Ok(_) => continue,
                Err(error) => Input::NoKeys(error),
            };
            let is_last = matches!(event, Input::NoKeys(_));
            if events.send(event).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(())
}
