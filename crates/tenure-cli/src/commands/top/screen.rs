//! The terminal while the screen is open, and how it is restored: on return, on an error, on a panic, on a signal, on Ctrl-Z.
//!
//! [`restore`] takes no lock and allocates nothing, so that the panic hook can call it from any thread, before a release build aborts. It writes only while
//! the screen is open, so that it can be called twice.

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Hide;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};

use super::state::State;
use super::view::{self, Palette};
use crate::sys::Mask;

/// Plain attributes, the alternate screen left, the cursor shown.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?1049l\x1b[?25h";

static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Which processes stop on Ctrl-Z or SIGTSTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The whole process group, as the terminal would have done: a shell that waits for this process may be in it.
    Group,
    /// Only this process, which got the signal.
    Process,
}

/// The terminal, while the screen is on it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<File>>>,
    palette: Palette,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open(palette: Palette) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let say = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                say(panic);
            }));
        });
        // Not std's stdout: the panic hook might wait for its lock.
        let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut screen = Screen {
            terminal: Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(1 << 16, stdout)))?,
            palette,
        };
        screen.take()?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, state: &mut State) -> io::Result<()> {
        let palette = self.palette;
        self.terminal.draw(|frame| {
            state.fit(view::room(frame.area(), state));
            view::draw(frame, state, palette);
        })?;
        Ok(())
    }

    /// Takes the terminal again, after a shell or another program wrote on it. The next drawing is complete.
    pub(super) fn retake(&mut self) -> io::Result<()> {
        // The shell may have changed the modes, although crossterm believes that they are still set.
        disable_raw_mode()?;
        self.take()?;
        let size = self.terminal.size()?;
        // Not `clear`, which asks the terminal for the cursor position: the thread that reads keys would get the answer.
        self.terminal.resize(size.into())
    }

    /// Restores the terminal, stops until continued, and takes it again. `free` is the mask of signals before they were caught, `caught` the usual one.
    /// If no shell could continue the process, the kernel does not stop it.
    pub(super) fn stop(&mut self, who: Stop, free: &Mask, caught: &Mask) -> io::Result<()> {
        restore();
        free.set();
        let stopped = match who {
            Stop::Group => kill_current_process_group(Signal::TSTP),
            Stop::Process => kill_process(getpid(), Signal::TSTP),
        };
        caught.block();
        stopped?;
        self.retake()
    }

    fn take(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        IS_OPEN.store(true, Ordering::SeqCst);
        execute!(self.terminal.backend_mut(), EnterAlternateScreen, Hide, Clear(ClearType::All))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal.
pub(super) fn restore() {
    if IS_OPEN.swap(false, Ordering::SeqCst) {
        // The terminal may be gone.
        let _ = rustix::io::write(io::stdout().as_fd(), LEAVE);
        let _ = disable_raw_mode();
    }
}

/// Restores the modes alone, for a terminal that accepts no output (Ctrl-S).
pub(super) fn restore_modes() {
    let _ = disable_raw_mode();
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// As in a release build: a panic of any thread aborts.
    #[test]
    #[ignore = "aborts; run on a terminal by the test below"]
    fn panics_with_the_screen_open() {
        let _screen = Screen::open(Palette::of_terminal()).unwrap();
        let _ = std::thread::spawn(|| panic!("on purpose")).join();
        std::process::abort();
    }

    #[test]
    fn a_panic_is_told_on_a_terminal_that_was_given_back() {
        let program = std::env::current_exe().unwrap();
        let name = "commands::top::screen::tests::panics_with_the_screen_open";
        let command = format!("{} --exact {name} --ignored --nocapture; stty -a", program.display());
        let script = Command::new("script")
            .args(["-q", "-c", &command, "/dev/null"])
            .stdin(Stdio::null())
            .output()
            .expect("script(1) is installed");
        let output = String::from_utf8_lossy(&script.stdout).into_owned();
        let (drawn, after) = output.split_once("\x1b[0m\x1b[?1049l\x1b[?25h").expect(&output);
        assert!(drawn.contains("\x1b[?1049h") && !drawn.contains("on purpose"), "{output:?}");
        assert!(after.contains("on purpose") && !after.contains("\x1b[?1049h"), "{output:?}");
        assert!(after.contains(" icanon ") && after.contains(" echo "), "{output:?}");
    }
}
