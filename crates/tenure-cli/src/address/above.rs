//! Which domain a `tenure run` uses that this process runs under.
//!
//! A command that empties its environment (`env -i`), changes the user (sudo) or HOME loses what that `tenure run` handed down. A `tenure` in it would
//! find another file, or none, and lock elsewhere than the one around it. So what it finds by itself is compared with what the processes above
//! show; if it is not the same, it must be named. What they show is never used in its place: they may be another user's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::{FILE_VARIABLE, FOUND, Located, Source, VARIABLE, WITHHELD, file};
use crate::ancestry::{self, Environment, Process};
use crate::args::{Cli, Command};
use crate::commands::run::enclosing;
use crate::output::say;
use crate::sys;
use crate::text::escaped;

/// A `tenure run` that this process runs under.
#[derive(Debug)]
pub(super) struct Above {
    pid: u32,
    user: u32,
    domain: Domain,
}

/// Where it got its URL from.
#[derive(Debug)]
enum Domain {
    /// It was given a URL, and hands none down.
    Given,
    /// From this file.
    File(PathBuf),
    /// From nowhere: it is the default of its user.
    Default,
    /// It belongs to another user, and does not show its environment.
    Unknown,
}

/// The nearest `tenure run` above.
pub(super) fn find() -> Option<Above> {
    let mut handed = None;
    let mut nearest: Option<Above> = None;
    for process in ancestry::upwards() {
        let Some(pid) = process.pid.filter(|_| process.is_minder) else {
            handed = handed.or_else(|| handed_down(process.environment()?));
            continue;
        };
        let known = handed.take().or_else(|| given_to(&process));
        let is_known = known.is_some();
        let user = process.user;
        // One that was given nothing uses what the next one above uses, or what it finds itself.
        match &mut nearest {
            None => {
                let domain = known.unwrap_or_else(|| found_by(&process));
                nearest = Some(Above { pid, user, domain });
            }
            Some(nearest) => nearest.domain = known.unwrap_or_else(|| found_by(&process)),
        }
        if is_known {
            break;
        }
    }
    nearest
}

/// What a command was handed.
fn handed_down(environment: Environment<'_>) -> Option<Domain> {
    environment.get(enclosing::NAME)?;
    let is_set = |name| environment.get(name).is_some_and(|value| !value.is_empty());
    let path = || environment.get(FILE_VARIABLE).or_else(|| environment.get(FOUND));
    Some(match path() {
        _ if is_set(WITHHELD) || is_set(VARIABLE) => Domain::Given,
        Some(path) => Domain::File(path.into()),
        None => Domain::Default,
    })
}

/// What a `tenure run` was given by its command line or its variables.
fn given_to(process: &Process) -> Option<Domain> {
    let words = process.line.strip_suffix(&[0]).unwrap_or(&process.line).split(|byte| *byte == 0);
    if let Ok(Cli { command: Command::Run(run) }) =
        Cli::read(words.map(|word| OsString::from_vec(word.to_vec())))
        && (run.domain.url.is_some() || run.domain.url_file.is_some())
    {
        return Some(Domain::Given);
    }
    let environment = process.environment()?;
    environment.get(VARIABLE).map(|_| Domain::Given).or_else(|| {
        let path = environment.get(FILE_VARIABLE).or_else(|| environment.get(FOUND))?;
        Some(Domain::File(path.into()))
    })
}

/// What a `tenure run` that was given nothing has found.
fn found_by(process: &Process) -> Domain {
    let Some(environment) = process.environment() else { return Domain::Unknown };
    let is_ours = process.user == rustix::process::geteuid().as_raw();
    if !is_ours && environment.get("HOME").is_none() {
        return Domain::Unknown;
    }
    let places = file::Places::of(|name| environment.get(name).map(Into::into));
    match places.all.into_iter().find(|path| !matches!(file::is_there(path), Ok(false))) {
        Some(path) => Domain::File(path),
        None => Domain::Default,
    }
}

impl Above {
    /// Refuses what was found by this process if the one above uses something else.
    ///
    /// # Errors
    /// Says why, and what to do.
    pub(super) fn check(&self, found: &Located) -> Result<(), String> {
        let (pid, user) = (self.pid, sys::shown_user(self.user));
        let is_ours = self.user == rustix::process::geteuid().as_raw();
        let this = format!("this runs under `tenure run` (pid {pid}, user {user})");
        let would = format!("this process would use {found}");
        Err(match (&self.domain, &found.source) {
            (Domain::File(path), Source::Found(own)) if file::is_same(path, own) => return Ok(()),
            (Domain::Default, Source::Default) if is_ours => return Ok(()),
            (Domain::Unknown, Source::Found(_)) => {
                say(format_args!(
                    "{this}, whose URL is not shown to this user; {would}; to be sure, name it: --url-file"
                ));
                return Ok(());
            }
            (Domain::Given | Domain::Unknown, _) => format!(
                "domain is not known: {this}, whose URL did not reach this process; \
                 use --url or --url-file, or set TENURE_URL"
            ),
            (Domain::File(path), _) => {
                let path = escaped(&path.to_string_lossy());
                format!(
                    "domain is not known: {this}, which uses the URL in {path}, and {would}; \
                     for the same domain use --url-file {path}, for another one --url"
                )
            }
            (Domain::Default, Source::Default) => format!(
                "domain is not known: {this}, which uses the default directory of that user, and {would}, \
                 which is another directory; use --url file: for it, or share one: --url file:///path"
            ),
            (Domain::Default, _) => format!(
                "domain is not known: {this}, which uses file: (by default), and {would}; \
                 for the same domain use --url file:, for the other one --url-file"
            ),
        })
    }
}
