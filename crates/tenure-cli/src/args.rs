//! The command line: the commands, and the options that several of them have. Letters and meaning are those of flock(1).

use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueHint};

use crate::address::Located;
use crate::commands::{
    acquire, bench, break_lock, completions, doctor, hold, ls, man, release, renew, run, status, top, watch,
};
use crate::glob::Glob;
use crate::notes;
use crate::output::{self, Verbosity};

/// A shorter interval would give the store more work than the locks do.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// One at a time: hold a name while a command runs, on one machine or many
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What `tenure` is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Run),
    Ls(ls::Ls),
    Status(status::Status),
    Watch(watch::Watch),
    Top(top::Top),
    Acquire(acquire::Acquire),
    Renew(renew::Renew),
    Release(release::Release),
    Hold(hold::Hold),
    #[command(name = "break")]
    Break(break_lock::Break),
    Doctor(doctor::Doctor),
    Bench(bench::Bench),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Where names live.
#[derive(Debug, Default, Args)]
pub(crate) struct Domain {
    /// Where names live [env: TENURE_URL] [default: see below]
    #[arg(long)]
    pub(crate) url: Option<String>,

    /// A file with the URL in it [env: TENURE_URL_FILE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "url")]
    pub(crate) url_file: Option<OsString>,

    /// Refuse file:, this machine only [env: TENURE_SHARED_ONLY=1]
    #[arg(long)]
    pub(crate) shared_only: bool,

    /// The URL that these options lead to.
    #[arg(skip)]
    pub(crate) located: OnceLock<Located>,
}

/// How long to wait, and the exit code if that was not long enough.
#[derive(Debug, Args)]
pub(crate) struct WaitOptions {
    /// Do not wait: fail at once when NAME is held
    // flock(1) has these aliases, of this option and of the next.
    #[arg(short, long, visible_alias = "nb")]
    pub(crate) nonblock: bool,

    /// Wait this long for NAME or the store; 0 is -n
    #[arg(
        short,
        long,
        visible_alias = "timeout",
        value_name = "DURATION",
        value_parser = duration,
        allow_hyphen_values = true
    )]
    wait: Option<Duration>,

    /// How long to wait out an outage of the store [default: --wait]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration,
        allow_hyphen_values = true,
        conflicts_with = "nonblock"
    )]
    max_outage: Option<Duration>,

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
}

impl WaitOptions {
    /// The claim with `--max-outage`.
    pub(crate) fn through_outages(&self, lock: &tenure::Lock) -> tenure::Lock {
        let lock = lock.clone();
        match self.max_outage {
            Some(max_outage) => lock.max_outage(max_outage),
            None => lock,
        }
    }

    /// How long to wait; `None` is without limit.
    pub(crate) fn limit(&self) -> Option<Duration> {
        if self.nonblock { Some(Duration::ZERO) } else { self.wait }
    }

    /// Refuses `-n` together with a time to wait. `-n -w 0` says the same twice.
    fn check_limit(&self) -> Result<(), clap::Error> {
        match self.wait {
            Some(wait) if self.nonblock && !wait.is_zero() => {
                let why = "-n does not wait, and -w says how long to wait; leave one of them out\n";
                Err(clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, why))
            }
            _ => Ok(()),
        }
    }

    /// Refuses `-E 0` for a command whose caller goes on after exit code 0. `run` accepts it: it starts nothing without NAME.
    fn check_failure_shows(&self) -> Result<(), clap::Error> {
        if self.conflict_exit_code != 0 {
            return Ok(());
        }
        let why = "-E 0 is for `tenure run` alone: here a script would go on as if it held NAME; \
                   use another code, or leave it out\n";
        Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, why))
    }
}

/// The terms of a claim.
#[derive(Debug, Args)]
pub(crate) struct Terms {
    /// How long an unrenewed lease lasts: 100ms to 24h [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// What others see when they find NAME held: at most 200 bytes
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

impl Terms {
    /// The claim on a name under these terms.
    pub(crate) fn lock(&self, domain: &tenure::Domain, name: &str) -> tenure::Lock {
        let lock = domain.lock(name).label(self.label.as_deref().unwrap_or_default());
        self.ttl.map_or(lock.clone(), |ttl| lock.ttl(ttl))
    }
}

/// How many messages go to stderr.
#[derive(Debug, Args)]
pub(crate) struct VerbosityOptions {
    /// Say what happens: waiting, acquired, given back
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Say nothing on stderr but errors of the command line
    #[arg(short, long)]
    quiet: bool,
}

impl VerbosityOptions {
    /// Applies to all messages from here on.
    pub(crate) fn take_effect(&self) {
        match (self.verbose, self.quiet) {
            (true, _) => output::set_verbosity(Verbosity::Verbose),
            (_, true) => output::set_verbosity(Verbosity::Quiet),
            _ => {}
        }
    }
}

/// The format of the output.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// One JSON object a line, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which names to read, and how often.
#[derive(Debug, Args)]
pub(crate) struct Polling {
    /// How often to ask the store: 50ms or more
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = interval,
        allow_hyphen_values = true,
        default_value = "250ms"
    )]
    pub(crate) interval: Duration,

    /// Which names: `*`, `?` and `[a-z]` as in a shell [default: all]
    #[arg(value_parser = Glob::parse)]
    glob: Option<Glob>,
}

impl Polling {
    pub(crate) fn glob(&self) -> Glob {
        self.glob.clone().unwrap_or_else(Glob::all)
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < SHORTEST_INTERVAL {
        return Err("too short; use 50ms or more".to_owned());
    }
    Ok(interval)
}

/// The fence of a lease.
pub(crate) fn fence(text: &str) -> Result<u64, String> {
    no_option(text)?;
    text.parse().map_err(|_| "write the number that `tenure status` shows as fence".to_owned())
}

/// A duration. Options accept values that begin with a dash, so that the error for `-1` is that it is negative.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    no_option(text)?;
    tenure::parse_duration(text).map_err(|error| error.to_string())
}

/// How long a lease lasts. The library checks the range, too, but does not know how the value was written.
pub(crate) fn ttl(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);
    let ttl = duration(text)?;
    if range.contains(&ttl) { Ok(ttl) } else { Err("it is out of range; write 100ms to 24h".to_owned()) }
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
    /// The definition of the command line, with the notes to every command.
    pub(crate) fn definition() -> clap::Command {
        notes::add(Cli::command())
    }

    /// Reads a command line.
    ///
    /// # Errors
    /// The error, or the help that the user asked for.
    pub(crate) fn read(
        words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let mut matches = Cli::definition().try_get_matches_from(words)?;
        let mut cli = Cli::from_arg_matches_mut(&mut matches)?;
        match &mut cli.command {
            Command::Run(run) => {
                run.wait_options.check_limit()?;
                run.complete()?;
            }
            Command::Acquire(acquire::Acquire { wait_options, .. })
            | Command::Hold(hold::Hold { wait_options, .. }) => {
                wait_options.check_limit()?;
                wait_options.check_failure_shows()?;
            }
            _ => {}
        }
        Ok(cli)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::definition().debug_assert();
    }
}
