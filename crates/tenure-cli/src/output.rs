//! What people read: on stderr, one fact a line, each with `tenure: ` before it.
//!
//! A line is one write, so that the lines of several processes on one terminal do not mix. Names and labels come from others: control
//! characters in them are escaped.

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::error::{ContextKind, ErrorKind};
use tenure::Busy;

use crate::args::{Cli, Patience};
use crate::exit_code;
use crate::stdout;
use crate::text::{escaped, owner, rough, utc};

/// How long a command that is to be stopped runs on for what is said of it.
const LONGEST_SPEECH: Duration = Duration::from_millis(2);
const SPEAKER_STACK: usize = 64 * 1_024;

/// Says one fact. Not for whoever has a command to stop: stderr may be a pipe that nobody reads, or a terminal that was halted.
pub(crate) fn say(fact: impl Display) {
    // stderr may be closed, and there is nobody else to tell.
    let _ = std::io::stderr().write_all(line(fact).as_bytes());
}

/// Says one fact, if that takes no time: what is to be done is more urgent than that it is said.
pub(crate) fn say_at_once(fact: impl Display) {
    let line = line(fact).into_bytes();
    // The write is another thread's, which may wait for its reader as long as this process lives.
    let (said, is_said) = std::sync::mpsc::channel();
    let speaker = std::thread::Builder::new().stack_size(SPEAKER_STACK).spawn(move || {
        let _ = std::io::stderr().write_all(&line);
        let _ = said.send(());
    });
    if speaker.is_ok() {
        let _ = is_said.recv_timeout(LONGEST_SPEECH);
    }
}

fn line(fact: impl Display) -> String {
    format!("tenure: {fact}\n")
}

/// Says what the parser of the command line has to say; returns the exit code.
pub(crate) fn usage(mut refused: clap::Error) -> u8 {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help that nobody reads to its end is no failure.
            let _ = refused.print();
            return 0;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refused.print();
            return exit_code::USAGE;
        }
        ErrorKind::InvalidSubcommand => {
            say(unknown_command(&refused));
            return exit_code::USAGE;
        }
        _ => {}
    }
    // Nobody who mistypes an option means to name a lock after it.
    refused.remove(ContextKind::Suggested);
    let text = refused.to_string();
    for line in text.strip_prefix("error: ").unwrap_or(&text).lines().filter(|line| !line.is_empty()) {
        say(line);
    }
    exit_code::USAGE
}

fn unknown_command(refused: &clap::Error) -> String {
    let of = |kind| refused.get(kind).map(ToString::to_string).unwrap_or_default();
    let (word, near) = (of(ContextKind::InvalidSubcommand), of(ContextKind::SuggestedSubcommand));
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let cli = <Cli as clap::CommandFactory>::command();
    let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
    // What clap takes for similar does not include letters in a wrong order.
    let swapped = commands.iter().find(|command| sorted(command) == sorted(&word));
    let near = swapped.map_or(near, ToString::to_string);
    let word = escaped(&word);
    if near.is_empty() {
        format!("unknown command `{word}`; expected one of {}", commands.join(", "))
    } else {
        format!("unknown command `{word}`; did you mean `{near}`?")
    }
}

/// Says who holds the name that was not acquired, since when, and what to change to wait for it. Says nothing when a conflict counts as
/// success: cron would mail it.
pub(crate) fn busy(name: &str, patience: &Patience, busy: &Busy) {
    if patience.conflict_exit_code == 0 {
        return;
    }
    let name = escaped(name);
    match &busy.holder {
        // Since when is not known.
        Some(holder) if holder.owner.is_foreign() => {
            say(format_args!("`{name}` is held by {}", owner(&holder.owner)))
        }
        Some(holder) => {
            say(format_args!("`{name}` is held by {}", owner(&holder.owner)));
            let ago = SystemTime::now().duration_since(holder.since).unwrap_or_default();
            say(format_args!("held since {}, for {}", utc(holder.since), rough(ago)));
        }
        None => say(format_args!("`{name}` is held by someone else")),
    }
    if busy.waiters > 0 {
        say(format_args!("{} waiting for it", busy.waiters));
    }
    if patience.limit().is_some_and(|limit| limit.is_zero()) {
        let option = if patience.nonblock { "-n" } else { "-w 0" };
        say(format_args!("to wait for it up to a minute, use -w 60s instead of {option}"));
    } else {
        say("to wait for as long as it takes, leave out -w");
    }
}

/// Why a lease was lost, when whoever was to renew it or to stop the command in time could do neither.
pub(crate) fn overslept(name: &str) -> String {
    let name = escaped(name);
    format!(
        "lease on `{name}` was not renewed in time, because `tenure` was stopped or got no time to run; the command is killed"
    )
}

/// Says what the operating system is short of.
pub(crate) fn refused_by_system(error: &std::io::Error) {
    let fix = match error.raw_os_error() {
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        Some(libc::EAGAIN) => "; raise the limit of processes (ulimit -u)",
        _ => "",
    };
    say(format_args!("operating system refused what is needed to start a command: {error}{fix}"));
}

/// Says that a name was not given back, and what becomes of it.
pub(crate) fn not_given_back(name: &str, error: &tenure::Error) {
    let (name, error) = (escaped(name), escaped(&error.to_string()));
    say(format_args!("`{name}` could not be given back, and is free when its lease has ended: {error}"));
}

/// Prints what was asked for; returns the exit code.
pub(crate) fn print(what: &str, bytes: &[u8]) -> u8 {
    match stdout::write(bytes) {
        // Whoever reads no further has what it wants.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            say(format_args!("{what} could not be written to stdout: {error}"));
            exit_code::IO
        }
        _ => 0,
    }
}

/// Says why a command could not be started.
pub(crate) fn not_started(command: &str, error: &std::io::Error) {
    if exit_code::of_start(error) == exit_code::OS {
        return refused_by_system(error);
    }
    // A directory is told as a file that is not executable.
    let is_directory = command.contains('/') && Path::new(command).is_dir();
    let command = escaped(command);
    match error.kind() {
        _ if command.is_empty() => say("command is empty; write what to run after NAME"),
        _ if is_directory => {
            say(format_args!("command `{command}` is a directory; give the path of a program in it"));
        }
        std::io::ErrorKind::NotFound => {
            say(format_args!("command `{command}` not found; give its path, or add its folder to PATH"));
        }
        std::io::ErrorKind::PermissionDenied => {
            say(format_args!("command `{command}` is not executable; chmod +x it, or name its interpreter"));
        }
        _ => say(format_args!("command `{command}` could not be started: {error}")),
    }
}
