//! The options of `tenure run` for how long NAME is held, how COMMAND is stopped, and where the outcome is written.

use std::os::fd::RawFd;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::args::duration;

/// How long between TERM and KILL for `--max-hold`, unless `-k` says otherwise: the upper limit for a lost lease as well.
const USUAL_GRACE: Duration = super::deadline::LONGEST_LEAD;

/// What happens to COMMAND when its lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM, then KILL
    Term,
    /// KILL, as late as is safe
    Kill,
    /// COMMAND goes on without the lease
    Ignore,
}

/// How long NAME is held, and how COMMAND is stopped.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Limits {
    /// Keep NAME at least this long, also when COMMAND ends before
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) min_hold: Option<Duration>,

    /// Stop COMMAND after this time, and exit with 124
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,

    /// Hold NAME until all that COMMAND started has ended, too
    #[arg(long)]
    pub(crate) wait_all: bool,

    /// From TERM to KILL when COMMAND is stopped; 0 is KILL at once
    #[arg(short, long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) kill_after: Option<Duration>,

    /// When lost: term (then KILL), kill, or ignore [default: term]
    #[arg(
        long,
        value_name = "ACTION",
        default_value = "term",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) on_lost: OnLost,

    /// At the end, write the outcome to this descriptor: a line of JSON
    #[arg(long, value_name = "N", value_parser = descriptor, allow_hyphen_values = true)]
    pub(crate) status_fd: Option<RawFd>,
}

impl Limits {
    /// Checks them together.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.max_hold == Some(Duration::ZERO) {
            return Err(
                "--max-hold of 0 would stop COMMAND before it did anything; leave it out for no limit",
            );
        }
        match (self.min_hold, self.max_hold) {
            (Some(least), Some(most)) if least > most => {
                Err("--min-hold is longer than --max-hold; a name can't be kept that long")
            }
            _ => Ok(()),
        }
    }

    /// Whether COMMAND goes on when its lease is lost.
    pub(crate) fn ignores_loss(&self) -> bool {
        self.on_lost == OnLost::Ignore
    }

    /// The time from TERM to KILL when a lease is lost, if one was given.
    pub(crate) fn grace_after_loss(&self) -> Option<Duration> {
        if self.on_lost == OnLost::Kill { Some(Duration::ZERO) } else { self.kill_after }
    }

    /// The time from TERM to KILL when COMMAND ran for too long.
    pub(crate) fn grace_after_limit(&self) -> Duration {
        self.kill_after.unwrap_or(USUAL_GRACE)
    }
}

fn descriptor(text: &str) -> Result<RawFd, String> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| "write the number of an open descriptor, as 3 in `3>status`".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        limits: Limits,
    }

    fn parse(line: &str) -> Limits {
        Line::try_parse_from(["tenure"].into_iter().chain(line.split_whitespace())).unwrap().limits
    }

    #[test]
    fn a_name_cannot_be_kept_longer_than_its_command_may_run() {
        assert!(parse("--min-hold 2s --max-hold 1999ms").check().is_err());
        assert!(parse("--min-hold 2s --max-hold 2s").check().is_ok());
        assert!(parse("--min-hold 2s").check().is_ok());
        assert!(parse("--max-hold 0").check().is_err());
    }

    #[test]
    fn how_long_from_term_to_kill() {
        let (usual, given) = (parse(""), parse("-k 30s"));
        assert_eq!((usual.grace_after_loss(), usual.grace_after_limit()), (None, Duration::from_secs(5)));
        assert_eq!(given.grace_after_loss(), Some(Duration::from_secs(30)));
        assert_eq!(given.grace_after_limit(), Duration::from_secs(30));
        let killing = parse("-k 30s --on-lost kill");
        assert_eq!(killing.grace_after_loss(), Some(Duration::ZERO), "there is no TERM");
        assert_eq!(killing.grace_after_limit(), Duration::from_secs(30), "it is for a loss alone");
    }
}
