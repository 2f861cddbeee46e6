//! Messages for people: on stderr, one fact a line, after `tenure: `.
//!
//! Each line is one write, so that the lines of several processes do not mix on a terminal. Names and labels come from other users, so control
//! characters in them are escaped.

mod refusal;
mod usage;

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tenure::{Error, Fence};

use crate::args;
use crate::exit_code;
use crate::json;
use crate::stdout;
use crate::text::{escaped, rough};

pub(crate) use self::refusal::{busy, enclosing, word};
pub(crate) use self::usage::{WHERE_TICKETS_COME_FROM, usage};

/// How long a message may delay the stopping of a command.
const LONGEST_MESSAGE_WAIT: Duration = Duration::from_millis(2);
const WRITER_STACK: usize = 64 * 1_024;
/// How long a process waits at its end for its messages.
const LONGEST_FLUSH: Duration = Duration::from_secs(1);

/// How many lines are not written yet.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// How many messages there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Verbosity {
    /// Only errors of the command line.
    Quiet,
    /// Also errors, and that `tenure` waits.
    Usual,
    /// Also what `tenure` does.
    Verbose,
}

/// For this process and its forks.
static LOUDNESS: AtomicU8 = AtomicU8::new(Verbosity::Usual as u8);

/// Sets the verbosity for all messages from here on.
pub(crate) fn set_verbosity(loudness: Verbosity) {
    LOUDNESS.store(loudness as u8, Ordering::Relaxed);
}

/// Whether only errors of the command line are printed.
pub(crate) fn is_quiet() -> bool {
    !is_enabled(Verbosity::Usual)
}

fn is_enabled(least: Verbosity) -> bool {
    LOUDNESS.load(Ordering::Relaxed) >= least as u8
}

/// Prints one fact. Not for a process that has a command to stop: stderr may be a pipe that nobody reads, or a terminal that was halted.
pub(crate) fn say(fact: impl Display) {
    if !is_quiet() {
        say_always(fact);
    }
}

/// Prints one fact, only with `-v`.
pub(crate) fn say_more(fact: impl Display) {
    if is_enabled(Verbosity::Verbose) {
        say_without_blocking(fact);
    }
}

/// The message for a lease that excludes this machine only.
pub(crate) fn degraded(name: &str) -> String {
    format!("outer store is out of reach: `{}` is held on this machine only", crate::text::escaped(name))
}

/// Prints an error. An error of the command line is printed with `-q`, too.
pub(crate) fn failed(code: u8, why: impl Display) {
    if code == exit_code::USAGE { say_always(why) } else { say(why) }
}

/// Prints one fact, with `-q`, too.
fn say_always(fact: impl Display) {
    // stderr may be closed; nothing else can be done then.
    let _ = std::io::stderr().write_all(line(fact).as_bytes());
}

/// Prints one fact, unless that would block.
pub(crate) fn say_without_blocking(fact: impl Display) {
    if !is_quiet() {
        write_at_once(&line(fact));
    }
}

/// Writes to stderr unless that would block; whether it did. A terminal or a pipe with any room has room for a line.
pub(crate) fn write_at_once(text: &str) -> bool {
    let mut stderr = std::io::stderr();
    let mut room = [PollFd::new(&stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let has_room = poll(&mut room, Some(&at_once)).is_ok() && room[0].revents().contains(PollFlags::OUT);
    has_room && stderr.write_all(text.as_bytes()).is_ok()
}

/// Prints one fact in a thread, and waits only briefly: the caller has something more urgent to do.
pub(crate) fn say_in_background(fact: impl Display) {
    say_in_background_and(fact, || ());
}

/// The same; then calls `written`, also if the message is not wanted.
pub(crate) fn say_in_background_and(fact: impl Display, written: impl FnOnce() + Send + 'static) {
    if is_quiet() {
        return written();
    }
    let line = line(fact).into_bytes();
    // The thread may wait for its reader for as long as this process lives.
    let (said, is_said) = std::sync::mpsc::channel();
    PENDING.fetch_add(1, Ordering::SeqCst);
    let speaker = std::thread::Builder::new().stack_size(WRITER_STACK).spawn(move || {
        let _ = std::io::stderr().write_all(&line);
        written();
        PENDING.fetch_sub(1, Ordering::SeqCst);
        let _ = said.send(());
    });
    if speaker.is_ok() {
        let _ = is_said.recv_timeout(LONGEST_MESSAGE_WAIT);
    } else {
        PENDING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for the messages of [`say_in_background`] before the process ends. On a busy machine its threads may not have run yet.
pub(crate) fn flush_messages() {
    let start = std::time::Instant::now();
    while PENDING.load(Ordering::SeqCst) > 0 && start.elapsed() < LONGEST_FLUSH {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn line(fact: impl Display) -> String {
    format!("tenure: {fact}\n")
}

/// What failed and why, without what to do about it.
pub(crate) fn without_remedy(error: &Error) -> String {
    match error.reason() {
        Some(reason) => format!("{}: {reason}", error.what()),
        None => error.what().to_owned(),
    }
}

/// The message for a lease that was lost because `tenure` could neither renew it nor stop the command in time.
pub(crate) fn overslept(name: &str) -> String {
    let name = escaped(name);
    format!(
        "lease on `{name}` was not renewed in time, because `tenure` was stopped or got no time to run, or the machine slept; the command is killed"
    )
}

/// Prints which resource the operating system lacks.
pub(crate) fn refused_by_system(error: &std::io::Error) {
    let fix = match error.raw_os_error() {
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        Some(libc::EAGAIN) => "; raise the limit of processes (ulimit -u)",
        _ => "",
    };
    say(format_args!("operating system refused what is needed to start a command: {error}{fix}"));
}

/// Prints with `-v` that a name was acquired, and always if the lease excludes this machine only.
pub(crate) fn acquired(guard: &tenure::Guard, waited: Duration) {
    let (name, fence) = (escaped(guard.name()), guard.fence());
    say_more(format_args!("acquired `{name}` with fence {fence}, after {}", rough(waited)));
    if guard.is_degraded() {
        say_in_background(degraded(guard.name()));
    }
}

/// Prints that a name could not be given back, for how long the store may keep its lease, and how to free it. It does not block: the process is
/// about to end.
pub(crate) fn not_given_back(name: &str, fence: Fence, asked: &args::Domain, left: Duration, why: &str) {
    let (shown, why) = (escaped(name), escaped(why));
    if left.is_zero() {
        say_in_background(format_args!(
            "`{shown}` could not be given back, and its lease has ended by itself: {why}"
        ));
        return;
    }
    say_in_background(format_args!(
        "`{shown}` could not be given back, and may stay held for up to {}: {why}",
        rough(left)
    ));
    let command = refusal::typed("break", name, asked, &format!(" --fence {fence}"));
    say_in_background(format_args!("to free it when the store answers again: {command}"));
}

/// Prints that the store may have executed an abandoned request for a name, and for how long that may hold the name.
pub(crate) fn not_undone(name: &str, asked: &args::Domain, left: Duration) {
    let (shown, command) = (escaped(name), refusal::typed("status", name, asked, ""));
    say_in_background(format_args!(
        "`{shown}` may stay held for up to {}: the store may have executed a request for it, and does not answer",
        rough(left)
    ));
    say_in_background(format_args!("to see whether it is held, when the store answers again: {command}"));
}

/// Prints a result; returns the exit code.
pub(crate) fn print(what: &str, bytes: &[u8]) -> u8 {
    written(what, bytes).err().unwrap_or(0)
}

/// Prints a result, with colours if the terminal or the environment asks for them.
///
/// # Errors
/// With the exit code, if it can't be written: 0 if its reader closed the pipe.
pub(crate) fn show(what: &str, text: &str) -> Result<(), u8> {
    written(what, coloured(text).as_bytes())
}

/// The same, for a command that handles signals meanwhile.
///
/// # Errors
/// As [`show`].
pub(crate) async fn show_aside(what: &str, text: &str) -> Result<(), u8> {
    stdout::write_aside(coloured(text)).await.map_err(|error| unwritten(what, &error))
}

/// Prints one JSON object as a line.
///
/// # Errors
/// As [`show`].
pub(crate) fn object(what: &str, object: &impl Serialize) -> Result<(), u8> {
    written(what, (json::to_line(object) + "\n").as_bytes())
}

fn coloured(text: &str) -> String {
    match AutoStream::choice(&std::io::stdout()) {
        ColorChoice::Never => strip_str(text).to_string(),
        _ => text.to_owned(),
    }
}

fn written(what: &str, bytes: &[u8]) -> Result<(), u8> {
    stdout::write(bytes).map_err(|error| unwritten(what, &error))
}

fn unwritten(what: &str, error: &std::io::Error) -> u8 {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return 0;
    }
    say(format_args!("{what} could not be written to stdout: {error}"));
    exit_code::IO
}

/// Builtins of shells that people type as if they were programs.
const OF_SHELLS: [&str; 16] = [
    ".", ":", "alias", "cd", "eval", "exec", "exit", "export", "for", "if", "set", "source", "trap",
    "ulimit", "umask", "while",
];

/// Prints why a command could not be started.
pub(crate) fn not_started(name: &str, command: &str, error: &std::io::Error) {
    if exit_code::of_start(error) == exit_code::OS {
        return refused_by_system(error);
    }
    // exec reports a directory as a file that is not executable.
    let is_directory = command.contains('/') && Path::new(command).is_dir();
    let is_there = command.contains('/') && Path::new(command).exists();
    let command = escaped(command);
    match error.kind() {
        _ if command.is_empty() => say("command is empty; write what to run after NAME"),
        _ if is_directory => {
            say(format_args!("command `{command}` is a directory; give the path of a program in it"));
        }
        std::io::ErrorKind::NotFound if OF_SHELLS.contains(&&*command) => {
            say(format_args!("command `{command}` is a builtin of the shell; use -c '{command} …'"));
        }
        std::io::ErrorKind::NotFound if command.contains(' ') && !is_there => {
            say(format_args!("command `{command}` not found; if it is a line for the shell, use -c"));
        }
        std::io::ErrorKind::NotFound if is_there => {
            say(format_args!(
                "command `{command}` can't be started: its interpreter (the first line of the file) or its loader does not exist"
            ));
        }
        std::io::ErrorKind::NotFound if command.contains('/') => {
            say(format_args!("command `{command}` not found; check its path"));
        }
        std::io::ErrorKind::NotFound => {
            say(format_args!("command `{command}` not found; give its path, or add its folder to PATH"));
            say(format_args!("NAME is `{}`; if that is not all of it, quote it", escaped(name)));
        }
        std::io::ErrorKind::PermissionDenied => {
            say(format_args!("command `{command}` is not executable; chmod +x it, or name its interpreter"));
        }
        _ => say(format_args!("command `{command}` could not be started: {error}")),
    }
}
