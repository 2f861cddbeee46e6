//! The command line. Letters and meaning are those of flock(1).

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Hold a name while a command runs
#[derive(Debug, Parser)]
#[command(name = "tenure", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `tenure` is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
}

/// Hold NAME while COMMAND runs
#[derive(Debug, Args)]
#[command(
    override_usage = "tenure run [OPTIONS] NAME [--] COMMAND [ARG]...",
    after_help = "\
Waits until nobody else holds NAME, runs COMMAND, gives NAME back, and exits as COMMAND did.
When the lease is lost, COMMAND is stopped before anybody else can get NAME.

Exit codes: that of COMMAND, or 128 + n when signal n killed it; 75 not acquired; 79 lost; 69 store
unavailable; 77 denied; 64 usage; 71 no process, descriptor or memory to be had; 126 COMMAND can't be executed;
127 not found; 130, 143 interrupted while waiting.

COMMAND gets TENURE_NAME and TENURE_FENCE. Durations: 30, .5, 500ms, 30s, 2m30s, 1h."
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) domain: Domain,

    /// Do not wait: fail at once when NAME is held
    #[arg(short, long)]
    pub(crate) nonblock: bool,

    /// Wait no longer than this; 0 is --nonblock
    #[arg(
        short,
        long,
        value_name = "DURATION",
        value_parser = duration,
        allow_hyphen_values = true,
        conflicts_with = "nonblock"
    )]
    wait: Option<Duration>,

    /// Exit with this code instead of 75 when NAME is not acquired
    #[arg(
        short = 'E',
        long,
        value_name = "CODE",
        value_parser = code,
        allow_hyphen_values = true,
        default_value_t = crate::exit_code::BUSY,
        hide_default_value = true
    )]
    pub(crate) conflict_exit_code: u8,

    /// How long the lease lasts if it is not renewed: 100ms to 24h [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// What others are told when they find NAME held: at most 200 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) label: String,

    /// What to hold: any text of up to 1,000 bytes
    pub(crate) name: String,

    /// What to run while it is held, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

/// Where names live.
#[derive(Debug, Args)]
pub(crate) struct Domain {
    /// Where names live [env: TENURE_URL] [default: file:, a directory of this user on this machine]
    #[arg(long)]
    pub(crate) url: Option<String>,
}

/// A duration. Options take what begins with a dash, so that `-1` is told to be negative rather than to be no option.
fn duration(text: &str) -> Result<Duration, String> {
    no_option(text)?;
    tenure::parse_duration(text).map_err(|error| error.to_string())
}

fn code(text: &str) -> Result<u8, String> {
    no_option(text)?;
    text.parse().map_err(|_| "write a number from 0 to 255".to_owned())
}

fn no_option(text: &str) -> Result<(), String> {
    match text.strip_prefix('-') {
        Some(rest) if !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            Err("the value is missing, and an option follows".to_owned())
        }
        _ => Ok(()),
    }
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with it, or the help that was asked for.
    pub(crate) fn read(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let mut cli = Cli::try_parse_from(words)?;
        let Command::Run(run) = &mut cli.command;
        // After a `--` before NAME, clap takes the one after it for COMMAND.
        if run.command[0] == "--" {
            run.command.remove(0);
        }
        if run.command.is_empty() {
            let why = "COMMAND is missing; write it after NAME, with its arguments\n";
            return Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, why));
        }
        Ok(cli)
    }
}

impl Run {
    /// How long to wait; `None` is for as long as it takes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Run, clap::Error> {
        let words = ["tenure", "run"].into_iter().chain(line.split(' '));
        Cli::read(words).map(|cli| match cli.command {
            Command::Run(run) => run,
        })
    }

    #[test]
    fn the_definition_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_stands_after_the_name_belongs_to_the_command() {
        for line in ["-n hello -- echo -n -w x", "-n hello echo -n -w x", "hello -n echo -n -w x"] {
            let run = parse(line).unwrap();
            assert_eq!(run.command, ["echo", "-n", "-w", "x"], "{line}");
            assert_eq!((run.name.as_str(), run.patience()), ("hello", Some(Duration::ZERO)), "{line}");
        }
        let inner = parse("a -- b -- c").unwrap();
        assert_eq!(inner.command, ["b", "--", "c"], "the command's own `--` stays");
        for line in ["-- -n -- b -- c", "-- -n b -- c"] {
            let run = parse(line).unwrap();
            assert_eq!((run.name.as_str(), run.patience()), ("-n", None), "{line}");
            assert_eq!(run.command, ["b", "--", "c"], "{line}");
        }
    }

    // R4.1
    #[test]
    fn patience_as_flock_has_it() {
        assert_eq!(parse("a b").unwrap().patience(), None);
        assert_eq!(parse("-w 2m30s a b").unwrap().patience(), Some(Duration::from_secs(150)));
        assert_eq!(parse("-w .5 a b").unwrap().patience(), Some(Duration::from_millis(500)));
        assert_eq!(parse("-w 0 a b").unwrap().patience(), parse("-n a b").unwrap().patience());
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for line in [
            "-n -w 3 a b",
            "-w soon a b",
            "-E 256 a b",
            "--ttl 1m30 a b",
            "a",
            "a --",
            "-- a --",
            "--bogus a b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
