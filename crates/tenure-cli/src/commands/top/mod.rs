//! `tenure top`: a live screen.
//!
//! Three threads feed one loop: keys, signals, and the store. Only the loop has the state and the terminal, and it waits only for inputs, so a slow store
//! freezes nothing. [`state`] and [`keys`] say what an input changes, [`view`] what is drawn. These are pure, and tested without a terminal.

mod filter;
#[cfg(test)]
mod fixtures;
mod keys;
mod listen;
mod row;
mod screen;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime};

use clap::Args;
use ratatui::crossterm::event::KeyEvent;
use rustix::process::Signal;

use self::keys::Effect;
use self::screen::{Screen, Stop};
use self::state::{Poll, State};
use self::store::Store;
use self::view::Palette;
use crate::address::{self, ObservedDomain, Refused, Source};
use crate::args::{Domain, Polling};
use crate::exit_code;
use crate::output::say;
use crate::sys::Mask;
use crate::text::is_dumb;

/// How often the screen is drawn without an input, for its clock.
const CLOCK: Duration = Duration::from_millis(500);

/// Live screen of names, holders and queues
#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    polling: Polling,
}

/// An input of the loop.
#[derive(Debug)]
enum Input {
    Key(KeyEvent),
    Resized,
    /// Keys can no longer be read.
    NoKeys(io::Error),
    Signal(Signal),
    Polled(Poll),
    /// The result of breaking a lease.
    Broken(String),
}

/// Why the screen is closed.
enum Exit {
    Quit,
    Signal(Signal),
    /// The store refuses, and will refuse again.
    Refused(tenure::Error),
}

impl Top {
    /// Shows the screen until it is left; returns the exit code.
    pub(crate) fn execute(&self) -> u8 {
        if is_dumb() || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            say(
                "`top` needs a terminal on stdin and stdout, and its name in TERM; use `tenure ls` or `tenure watch --json`",
            );
            return exit_code::USAGE;
        }
        match self.shown() {
            Ok(code) => code,
            Err(Refused { message, code }) => {
                say(message);
                code
            }
        }
    }

    fn shown(&self) -> Result<u8, Refused> {
        let (domain, source) = match address::domain_read_only(&self.domain)? {
            Ok(domain) => domain,
            Err(directory) => return Ok(super::no_directory(&directory)),
        };
        let url = address::locate(&self.domain)?.url.to_string();
        let state = State::new(url, self.polling.interval, SystemTime::now());
        let refused = |error: io::Error| Refused {
            message: format!("screen can't be shown: {error}"),
            code: exit_code::OS,
        };
        let end = self.run(ObservedDomain::new(&self.domain, domain), state).map_err(refused)?;
        Ok(end.code(&source))
    }

    /// Shows the screen; the terminal is as it was when this returns.
    fn run(&self, observed: ObservedDomain, state: State) -> io::Result<Exit> {
        let (caught, free) = listen::catch();
        let (sender, events) = mpsc::channel();
        listen::to_signals(&caught, sender.clone())?;
        let store = Store::start(observed, &self.polling, sender.clone())?;
        let screen = Screen::open(Palette::of_terminal())?;
        listen::to_keys(sender)?;
        let mut showing = Loop { events, store, screen, caught, free, state };
        let end = showing.run();
        let Loop { store, screen, .. } = showing;
        // Restore the terminal before the store is closed, which may take a while.
        drop(screen);
        store.close();
        end
    }
}

struct Loop {
    events: Receiver<Input>,
    store: Store,
    screen: Screen,
    caught: Mask,
    /// The mask of signals before they were caught.
    free: Mask,
    state: State,
}

impl Loop {
    fn run(&mut self) -> io::Result<Exit> {
        loop {
            self.state.now = SystemTime::now();
            self.screen.draw(&mut self.state)?;
            let mut next = self.events.recv_timeout(CLOCK).ok();
            // Handle all inputs before the next drawing: repeated keys, pasted text.
            while let Some(event) = next {
                if let Some(end) = self.take(event)? {
                    return Ok(end);
                }
                next = self.events.try_recv().ok();
            }
        }
    }

    fn take(&mut self, event: Input) -> io::Result<Option<Exit>> {
        match event {
            Input::Key(key) => match self.state.press(key) {
                Some(Effect::Quit) => return Ok(Some(Exit::Quit)),
                Some(Effect::Suspend) => self.screen.stop(Stop::Group, &self.free, &self.caught)?,
                Some(Effect::Redraw) => self.screen.retake()?,
                Some(Effect::Break { name, holder }) => self.store.break_lock(name, holder),
                None => {}
            },
            // The next drawing uses the new size.
            Input::Resized => {}
            Input::NoKeys(error) => return Err(error),
            Input::Signal(Signal::TSTP) => self.screen.stop(Stop::Process, &self.free, &self.caught)?,
            Input::Signal(Signal::CONT) => self.screen.retake()?,
            Input::Signal(signal) => return Ok(Some(Exit::Signal(signal))),
            Input::Polled(Poll { answer: Err(error), .. })
                if !error.is_transient() && self.state.round_trip().is_none() =>
            {
                return Ok(Some(Exit::Refused(error)));
            }
            Input::Polled(look) => self.state.look(look),
            Input::Broken(outcome) => self.state.message = Some(outcome),
        }
        Ok(None)
    }
}

impl Exit {
    fn code(&self, source: &Source) -> u8 {
        match self {
            Exit::Quit => 0,
            Exit::Signal(signal) => exit_code::by_signal(signal.as_raw()),
            Exit::Refused(error) => super::failed(source, error),
        }
    }
}
