//! The options of `tenure run`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;

use super::limits::Limits;
use crate::args::{Domain, Terms, VerbosityOptions, WaitOptions};

/// In bytes, as the library has it.
const LONGEST_LABEL: usize = 200;

/// Hold NAME while COMMAND runs
#[derive(Debug, Args)]
#[command(
    override_usage = "tenure run [OPTIONS] NAME [--] COMMAND [ARG]...\n       tenure run [OPTIONS] NAME -c LINE",
    after_help = "\
Waits until nobody else holds NAME, runs COMMAND, gives NAME back, and exits as COMMAND did.
If the lease is lost, `tenure` stops COMMAND before anybody else can get NAME.

COMMAND gets TENURE_NAME, TENURE_FENCE and TENURE_WAITED_MS, and no TENURE_URL;
TENURE_DEGRADED=1 if only processes of this machine are excluded.
Durations: 30, .5, 500ms, 30s, 2m30s, 1h."
)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) domain: Domain,

    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,

    #[command(flatten)]
    pub(crate) terms: Terms,

    #[command(flatten)]
    pub(crate) limits: Limits,

    #[command(flatten)]
    pub(crate) verbosity: VerbosityOptions,

    /// Pass the URL to COMMAND in TENURE_URL, for a `tenure` in it
    #[arg(long)]
    pub(crate) pass_url: bool,

    /// Run this line with $SHELL -c, or /bin/sh -c, in place of COMMAND
    #[arg(
        short = 'c',
        long = "command",
        value_name = "LINE",
        conflicts_with = "command",
        allow_hyphen_values = true
    )]
    line: Option<OsString>,

    /// What to hold: any text of up to 1,000 bytes
    pub(crate) name: String,

    /// What to run while it is held, with its arguments
    #[arg(required_unless_present = "line", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

impl Run {
    /// Does what clap can't.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn complete(&mut self) -> Result<(), clap::Error> {
        if let Some(line) = self.line.take() {
            if line.as_encoded_bytes().trim_ascii().is_empty() {
                let why = "LINE of -c is empty, so nothing would run; write a line for the shell\n";
                return Err(clap::Error::raw(clap::error::ErrorKind::InvalidValue, why));
            }
            let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
            self.command = vec![shell.unwrap_or_else(|| "/bin/sh".into()), "-c".into(), line];
        } else if self.command[0] == "--" {
            // After a `--` before NAME, clap takes the one after it for COMMAND.
            self.command.remove(0);
        }
        if self.command.is_empty() {
            let why = "COMMAND is missing; write it after NAME, with its arguments\n";
            return Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, why));
        }
        self.terms.label.get_or_insert_with(|| program(&self.command[0]));
        Ok(())
    }
}

/// The name of a command's program, as a label. Never its arguments: they may contain a password, and every user of the store can read labels.
fn program(command: &OsStr) -> String {
    let name = Path::new(command).file_name().unwrap_or_default().to_string_lossy();
    let fits = |end: &usize| name.is_char_boundary(*end);
    let end = (0..=LONGEST_LABEL.min(name.len())).rev().find(fits).unwrap_or_default();
    name[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::args::{Cli, Command};

    fn parse(line: &str) -> Result<Run, clap::Error> {
        let words = ["tenure", "run"].into_iter().chain(line.split(' '));
        Cli::read(words).map(|cli| match cli.command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn everything_after_the_command_is_its_arguments() {
        for line in ["-n hello -- echo -n -w x", "-n hello echo -n -w x", "hello -n echo -n -w x"] {
            let run = parse(line).unwrap();
            assert_eq!(run.command, ["echo", "-n", "-w", "x"], "{line}");
            assert_eq!(
                (run.name.as_str(), run.wait_options.limit()),
                ("hello", Some(Duration::ZERO)),
                "{line}"
            );
        }
        let inner = parse("a -- b -- c").unwrap();
        assert_eq!(inner.command, ["b", "--", "c"], "the command's own `--` stays");
        for line in ["-- -n -- b -- c", "-- -n b -- c"] {
            let run = parse(line).unwrap();
            assert_eq!((run.name.as_str(), run.wait_options.limit()), ("-n", None), "{line}");
            assert_eq!(run.command, ["b", "--", "c"], "{line}");
        }
    }

    // R4.1
    #[test]
    fn a_line_for_the_shell_is_a_command() {
        for line in ["-c echo*x a", "a -c echo*x", "a --command=echo*x", "-ncecho*x a"] {
            let run = parse(line).unwrap();
            assert_eq!((run.name.as_str(), run.command.len()), ("a", 3), "{line}");
            assert_eq!(run.command[1..], ["-c", "echo*x"], "{line}");
        }
        assert_eq!(parse("a b -c x").unwrap().command, ["b", "-c", "x"]);
        assert_eq!(parse("a -- -c x").unwrap().command, ["-c", "x"]);
    }

    // R4.1
    #[test]
    fn wait_options_of_flock() {
        let limit = |line| parse(line).unwrap().wait_options.limit();
        assert_eq!(limit("a b"), None);
        assert_eq!(limit("-w 2m30s a b"), Some(Duration::from_secs(150)));
        assert_eq!(limit("-w .5 a b"), Some(Duration::from_millis(500)));
        assert_eq!(limit("-w 0 a b"), limit("-n a b"));
        assert_eq!(limit("-n -w 0 a b"), limit("-n a b"));
        assert_eq!(limit("--timeout 3 a b"), limit("-w 3 a b"));
        assert_eq!(limit("--nb a b"), limit("-n a b"));
    }

    #[test]
    fn a_command_is_its_own_label() {
        let label = |line| parse(line).unwrap().terms.label.unwrap();
        assert_eq!(label("a /usr/bin/pg_dump --password=secret"), "pg_dump");
        assert_eq!(label("a -- ./backup.sh secret"), "backup.sh");
        assert_eq!(label("--label mine a backup.sh"), "mine");
        assert_eq!(label("--label= a backup.sh"), "");
        assert_eq!(label("a /"), "");
        assert_eq!(label(&format!("a {}", "ü".repeat(150))), "ü".repeat(100));
        let line = parse("a -c secret").unwrap();
        assert!(!line.terms.label.unwrap().contains("secret"));
    }

    #[test]
    fn wrong_options_are_refused() {
        for line in [
            "-n -w 3 a b",
            "-w soon a b",
            "-E 256 a b",
            "--ttl 1m30 a b",
            "a",
            "a --",
            "-- a --",
            "--bogus a b",
            "-c",
            "a -c",
            "-c x",
            "a -c x y",
            "-v -q a b",
            "a --command=",
            "-n --max-outage 3 a b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
