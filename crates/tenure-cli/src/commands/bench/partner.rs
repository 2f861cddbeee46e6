//! The other process of a measurement: this program, started again. Its stdin is a pipe that closes when the measuring process is done or killed; then
//! it gives back its name and ends. Ctrl-C reaches both, but the partner inherits the signals blocked. It prints its turns to stdout at its end.

use std::io::{self, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tenure::{Domain, Error};

use super::turns::{Turn, take_turns};
use crate::address;
use crate::args;
use crate::exit_code;
use crate::stdout;

/// The process that was started.
pub(super) struct Partner(Child);

impl Partner {
    pub(super) fn start(domain: &args::Domain, name: &str, turn: Duration) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let turn = format!("{}ms", turn.as_micros().div_ceil(1_000));
        command.args(["bench", "--partner", name, "--turn", &turn]);
        // Not as an argument: ps(1) would show its password.
        if let Ok(located) = address::locate(domain) {
            command.env(address::VARIABLE, &located.text).env_remove(address::FILE_VARIABLE);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Partner)
    }

    /// Ends it; returns its turns, unless it failed.
    pub(super) fn end(mut self) -> Option<Vec<Turn>> {
        drop(self.0.stdin.take());
        let mut text = String::new();
        self.0.stdout.take()?.read_to_string(&mut text).ok()?;
        let is_fine = self.0.wait().is_ok_and(|status| status.success());
        is_fine.then(|| text.lines().map(Turn::from_line).collect::<Option<_>>()).flatten()
    }
}

/// Is the other process.
pub(super) async fn be(domain: &Domain, name: &str, turn: Duration) -> Result<u8, Error> {
    let turns = take_turns(domain, name, turn, is_stdin_closed).await?;
    let text: String = turns.into_iter().map(Turn::to_line).collect();
    Ok(if stdout::write(text.as_bytes()).is_ok() { 0 } else { exit_code::IO })
}

fn is_stdin_closed() -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}
