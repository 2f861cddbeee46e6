//! Which domain the `tenure run` above this process uses.
//!
//! A command that empties its environment (`env -i`) or changes the user (sudo) or HOME loses the variables of that `tenure run`. A `tenure` in it
//! would find another file, or none, and lock in another domain. So `tenure` compares what it finds with what the processes above show, and refuses
//! a difference: the user must name the domain. It never uses what they show, because they may belong to another user.

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
    /// `None` if only its variables are left.
    pid: Option<u32>,
    user: u32,
    domain: Domain,
}

/// Where it got its URL from.
#[derive(Debug)]
enum Domain {
    /// From an option or a variable. It passes no URL on.
    Given,
    /// From this file.
    File(PathBuf),
    /// It has none, and uses the default of its user.
    Default,
    /// It belongs to another user, and does not show its environment.
    Unknown,
}

/// The nearest `tenure run` above.
pub(super) fn find() -> Option<Above> {
    let mut handed: Option<Above> = None;
    let mut nearest: Option<Above> = None;
    for process in ancestry::upwards() {
        let user = process.user;
        let Some(pid) = process.pid.filter(|_| process.is_holder) else {
            // The command itself has all variables; its descendants may have lost some.
            let domain = process.environment().and_then(handed_down);
            handed = domain.map(|domain| Above { pid: None, user, domain }).or(handed);
            continue;
        };
        // What the holder process shows comes first: a command may keep one variable and lose another.
        let handed = handed.take().map(|handed| handed.domain);
        let known = given_to(&process, handed);
        let is_known = known.is_some();
        // Without a URL, it uses that of the next `tenure run` above, or what it finds itself.
        let domain = known.unwrap_or_else(|| found_by(&process));
        match &mut nearest {
            None => nearest = Some(Above { pid: Some(pid), user, domain }),
            Some(nearest) => nearest.domain = domain,
        }
        if is_known {
            break;
        }
    }
    // A `tenure run` that is not recognised, or gone, still left its variables.
    nearest.or(handed)
}

/// The domain in a command's variables. A missing URL says nothing: the command may have lost the variable.
fn handed_down(environment: Environment<'_>) -> Option<Domain> {
    environment.get(enclosing::NAME)?;
    let is_set = |name| environment.get(name).is_some_and(|value| !value.is_empty());
    if is_set(WITHHELD) || is_set(VARIABLE) {
        return Some(Domain::Given);
    }
    file_in(environment)
}

/// The file that variables name. A relative path is useless without the working directory of its process.
fn file_in(environment: Environment<'_>) -> Option<Domain> {
    let value = |name| environment.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = value(FILE_VARIABLE).or_else(|| value(FOUND))?;
    Some(if path.is_absolute() { Domain::File(path) } else { Domain::Given })
}

/// The domain in the command line or the variables of a `tenure run`; else the one that it passed on.
fn given_to(process: &Process, handed: Option<Domain>) -> Option<Domain> {
    let words = process.line.strip_suffix(&[0]).unwrap_or(&process.line).split(|byte| *byte == 0);
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    match Cli::read(words) {
        Ok(Cli { command: Command::Run(run) }) => {
            if run.domain.url.is_some() || run.domain.url_file.is_some() {
                return Some(Domain::Given);
            }
        }
        // Of another version.
        _ => return Some(Domain::Unknown),
    }
    let by_variables = |environment: Environment<'_>| {
        environment.get(VARIABLE).map(|_| Domain::Given).or_else(|| file_in(environment))
    };
    process.environment().and_then(by_variables).or(handed)
}

/// What a `tenure run` without a URL has found.
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
    /// Refuses the URL that this process found if the `tenure run` above uses another.
    ///
    /// # Errors
    /// Says why, and what to do.
    pub(super) fn check(&self, found: &Located) -> Result<(), String> {
        let is_ours = self.user == rustix::process::geteuid().as_raw();
        let user = sys::shown_user(self.user);
        let who = self.pid.map(|pid| format!(" (pid {pid}, user {user})")).unwrap_or_default();
        let this = format!("this runs under `tenure run`{who}");
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
                "domain is not known: {this}, which uses file: (by default: {}), and {would}; \
                 for the same domain use --url file:, for the other one --url-file",
                super::default_directory(self.user)
            ),
        })
    }
}
