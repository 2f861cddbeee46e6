//! One line at the bottom of a terminal, which is redrawn and erased.
//!
//! The cursor stays in the first column, and the screen is erased from there to its end. That also removes a line that a narrower terminal broke in
//! two, or a `^C`. No mode of the terminal is changed, so none has to be restored.
//!
//! Several processes may share a terminal: the line is drawn only while `tenure` is in the foreground. A write never blocks: a halted terminal (Ctrl-S)
//! must not stop a process that keeps its position in the queue, or a lease.

use std::cell::Cell;
use std::convert::Infallible;

use rustix::process::{Pid, Signal, getpid, kill_process};
use rustix::termios::{isatty, tcgetpgrp};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::output::{is_quiet, write_at_once};
use crate::sys;
use crate::table::terminal_width;
use crate::text::is_dumb;

/// For a terminal that does not tell its width.
const USUAL_WIDTH: usize = 80;

/// The terminal on stderr, if there is one.
pub(crate) struct Screen {
    /// The process group that is in the foreground if `tenure` is; `None` without a terminal.
    group: Option<Pid>,
    is_paused: Cell<bool>,
    is_drawn: Cell<bool>,
    changed: Notify,
}

impl Screen {
    /// `group` is that of the process that the user started.
    pub(crate) fn new(group: Option<Pid>) -> Self {
        // A shell without job control starts background jobs in its own group, with SIGINT ignored.
        let is_in_background = sys::is_ignored(Signal::INT);
        let has_screen = isatty(std::io::stderr()) && !is_dumb() && !is_in_background;
        Screen {
            group: group.filter(|_| has_screen),
            is_paused: Cell::new(false),
            is_drawn: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// Erases the line before the process stops, and draws nothing until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.erase();
        self.is_paused.set(true);
    }

    /// The process was continued.
    pub(crate) fn resume(&self) {
        self.is_paused.set(false);
        self.redraw();
    }

    /// The terminal has another size.
    pub(crate) fn redraw(&self) {
        self.changed.notify_one();
    }

    /// Stops this process on Ctrl-Z, with the line erased. Poll it beside the wait, and only once: after that, the signal has its default action
    /// again.
    pub(crate) async fn obey_stops(&self) -> Infallible {
        let kind = SignalKind::from_raw(Signal::TSTP.as_raw());
        let stops = Some(kind).filter(|_| self.group.is_some() && !sys::is_ignored(Signal::TSTP));
        let Some(mut stops) = stops.and_then(|kind| signal(kind).ok()) else {
            return std::future::pending().await;
        };
        let _caught = Caught;
        loop {
            stops.recv().await;
            self.pause();
            let _ = kill_process(getpid(), Signal::STOP);
            self.resume();
        }
    }

    /// Until the line must be drawn again.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether the process is about to stop, or stopped.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// Whether there is a terminal, and this process is in its foreground.
    pub(super) fn is_fit(&self) -> bool {
        !self.is_paused() && !is_quiet() && self.is_in_foreground()
    }

    fn is_in_foreground(&self) -> bool {
        self.group.is_some_and(|group| tcgetpgrp(std::io::stderr()) == Ok(group))
    }

    /// How many columns a line may have. After the last column, some terminals wrap.
    pub(super) fn width(&self) -> usize {
        terminal_width(std::io::stderr()).unwrap_or(USUAL_WIDTH) - 1
    }

    /// Draws the line in place of the one before. It must not be wider than [`width`](Self::width).
    pub(super) fn draw(&self, line: &str) {
        if write_at_once(&format!("\r{line}\x1b[J\r")) {
            self.is_drawn.set(true);
        }
    }

    fn erase(&self) {
        // In the background the line is no longer the last one: a shell has written below it.
        if self.is_drawn.replace(false) && self.is_in_foreground() {
            write_at_once("\r\x1b[J");
        }
    }

    /// Erases the line when it is dropped.
    pub(super) fn erased_at_end(&self) -> impl Drop {
        Erased(self)
    }
}

/// SIGTSTP is caught until this is dropped.
struct Caught;

impl Drop for Caught {
    fn drop(&mut self) {
        sys::catch_no_more(Signal::TSTP);
    }
}

struct Erased<'a>(&'a Screen);

impl Drop for Erased<'_> {
    fn drop(&mut self) {
        self.0.erase();
    }
}
