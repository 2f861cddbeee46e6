//! Where names live, and where the URL came from: a wrong URL may come from a profile that nobody thinks of.

mod above;
mod file;
mod mistakes;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tenure::{Domain, DomainUrl, Error, ErrorKind};

use crate::args;
use crate::exit_code;
use crate::output::{say, say_more};
use crate::sys;
use crate::text::escaped;

pub(crate) use self::file::SYSTEM;

/// The variables that count without `--url` and `--url-file`.
pub(crate) const VARIABLE: &str = "TENURE_URL";
pub(crate) const FILE_VARIABLE: &str = "TENURE_URL_FILE";
/// Says that a `tenure run` above had a URL and did not pass it on. Without this, a `tenure` in the command would use the default domain, where the
/// same names exclude nobody.
pub(crate) const WITHHELD: &str = "TENURE_URL_WITHHELD";
/// The path of the file that a `tenure run` above found. It is not [`FILE_VARIABLE`]: a command that sets a URL for itself would then have two.
pub(crate) const FOUND: &str = "TENURE_URL_FOUND";
/// The same as `--shared-only`.
const SHARED_ONLY: &str = "TENURE_SHARED_ONLY";
/// The URL if none is given.
const DEFAULT: &str = "file:";

const NOT_UTF8: &str = "URL is not UTF-8; escape other bytes as %XX";

/// The directory of `file:` for a user.
fn default_directory(user: u32) -> String {
    format!("/run/lock/tenure-{user}")
}

/// Where a URL came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `--url`.
    Option,
    /// `--url-file`.
    OptionFile(PathBuf),
    /// `TENURE_URL`.
    Variable,
    /// `TENURE_URL_FILE`.
    VariableFile(PathBuf),
    /// A file of the user or of the machine, found by this process or by a `tenure run` above.
    Found(PathBuf),
    /// No URL was given.
    Default,
}

/// A URL, and where it came from.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) url: DomainUrl,
    /// The URL as it was written, with its password.
    pub(crate) text: String,
    pub(crate) source: Source,
    /// The files that come first and do not exist.
    absent: Vec<PathBuf>,
}

/// A URL that can't be used: the message and the exit code.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) message: String,
    pub(crate) code: u8,
}

/// The domain of the options. It connects when it is used.
pub(crate) fn domain(asked: &args::Domain) -> Result<(Domain, Source), Refused> {
    let Located { url, source, .. } = locate(asked)?;
    let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
    Ok((Domain::lazy(url.clone()).map_err(of_error)?, source.clone()))
}

/// The domain of the options, for a command that acquires nothing. It does not create the directory that the URL names: a missing directory holds
/// nothing, and its name may be mistyped.
///
/// # Errors
/// The missing directory.
pub(crate) fn existing_domain(asked: &args::Domain) -> Result<Result<(Domain, Source), PathBuf>, Refused> {
    let url = &locate(asked)?.url;
    let own = url.directory().filter(|directory| is_absent(directory)).map(Path::to_owned);
    match own.or_else(|| absent_inner_of(url)) {
        Some(directory) => Ok(Err(directory)),
        None => domain(asked).map(Ok),
    }
}

/// The same for a command that only reads. If the inner directory of a layered domain is missing, it is the outer store alone.
///
/// # Errors
/// The missing directory.
pub(crate) fn domain_read_only(asked: &args::Domain) -> Result<Result<(Domain, Source), PathBuf>, Refused> {
    let Located { url, source, .. } = locate(asked)?;
    match url.layers() {
        Some((outer, _)) if absent_inner_of(url).is_some() => {
            let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
            Ok(Ok((Domain::lazy(outer).map_err(of_error)?, source.clone())))
        }
        _ => existing_domain(asked),
    }
}

/// The inner directory of a layered domain, if it is missing.
pub(crate) fn absent_inner(asked: &args::Domain) -> Option<PathBuf> {
    absent_inner_of(&locate(asked).ok()?.url)
}

fn absent_inner_of(url: &DomainUrl) -> Option<PathBuf> {
    let (_, inner) = url.layers()?;
    inner.directory().filter(|directory| is_absent(directory)).map(Path::to_owned)
}

/// A domain that a command reads again and again. If the inner directory of a layered domain is missing, it is the outer store, until the directory
/// exists: only that one knows names that are held on this machine alone.
#[derive(Clone, Debug)]
pub(crate) struct ObservedDomain(Arc<Mutex<Observed>>);

#[derive(Debug)]
struct Observed {
    domain: Domain,
    /// The URL of a layered domain, while `domain` may be its outer store alone.
    whole: Option<DomainUrl>,
}

impl ObservedDomain {
    /// `domain` is that of [`domain_read_only`].
    pub(crate) fn new(asked: &args::Domain, domain: Domain) -> Self {
        let url = locate(asked).ok().map(|located| located.url.clone());
        let whole = url.filter(|url| url.layers().is_some());
        ObservedDomain(Arc::new(Mutex::new(Observed { domain, whole })))
    }

    /// The domain as it is now.
    ///
    /// # Errors
    /// Those of opening the inner store.
    pub(crate) fn domain(&self) -> Result<Domain, Error> {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(whole) = now.whole.take_if(|whole| absent_inner_of(whole).is_none()) {
            now.domain = Domain::lazy(whole)?;
        }
        Ok(now.domain.clone())
    }
}

fn is_absent(directory: &Path) -> bool {
    directory.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Whether a `tenure run` above had a URL and did not pass it on, and there is no option and no variable. Files do not count: they may name another
/// domain than the one above.
pub(crate) fn is_withheld(asked: &args::Domain) -> bool {
    let is_said = asked.url.is_some() || asked.url_file.is_some();
    let is_set = |name| env::var_os(name).is_some();
    let is_withheld = env::var_os(WITHHELD).is_some_and(|value| !value.is_empty());
    is_withheld && !is_said && !is_set(VARIABLE) && !is_set(FILE_VARIABLE)
}

/// The URL, and where it came from. It is read once, with one warning at most: a file may be a pipe, or change.
pub(crate) fn locate(asked: &args::Domain) -> Result<&Located, Refused> {
    if let Some(located) = asked.located.get() {
        return Ok(located);
    }
    let located = find(asked)?;
    asked.refuse_unshared(&located)?;
    say_more(format_args!("domain {located}"));
    located.absence().iter().for_each(say_more);
    Ok(asked.located.get_or_init(|| located))
}

fn find(asked: &args::Domain) -> Result<Located, Refused> {
    if let Some(url) = &asked.url {
        let url = not_empty("--url", OsStr::new(url), "leave it out")?;
        let located = Located::parse(text_of(url, &Source::Option)?, Source::Option)?;
        if located.has_password() {
            say(
                "every user of this machine can see the password in --url (ps); use TENURE_URL or --url-file",
            );
        }
        return Ok(located);
    }
    if let Some(path) = &asked.url_file {
        let path = not_empty("--url-file", path, "leave it out")?;
        return Located::read(Source::OptionFile(path.into()));
    }
    let [url, path] = [VARIABLE, FILE_VARIABLE]
        .map(|name| env::var_os(name).map(|value| not_empty(name, &value, "unset it").map(OsStr::to_owned)));
    match (url.transpose()?, path.transpose()?) {
        (Some(_), Some(_)) => {
            Err(Refused::usage("TENURE_URL and TENURE_URL_FILE are both set; unset one".to_owned()))
        }
        (Some(url), None) => Located::parse(text_of(&url, &Source::Variable)?, Source::Variable),
        (None, Some(path)) => {
            // Commands inherit it, and may run in another directory.
            let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
            Located::read(Source::VariableFile(path))
        }
        (None, None) if is_withheld(asked) => {
            let why = "domain is not known: this runs under `tenure run`, which passes no URL on; \
                       use --url or --url-file, set TENURE_URL, or write `tenure run --pass-url` there";
            Err(Refused::usage(why.to_owned()))
        }
        (None, None) => match env::var_os(FOUND).filter(|path| !path.is_empty()) {
            Some(path) => Located::read(Source::Found(path.into())),
            None => look_for_files(),
        },
    }
}

/// The URL in the first file that exists; else the default.
fn look_for_files() -> Result<Located, Refused> {
    let places = file::Places::of_this();
    let (mut found, mut absent) = (None, Vec::new());
    for path in places.all {
        match file::is_there(&path) {
            Ok(false) => absent.push(path),
            Ok(true) => {
                found = Some(path);
                break;
            }
            Err(why) => {
                let in_the_way =
                    file::unsearchable_above(&path).map(|directory| unsearchable(&path, directory));
                return Err(in_the_way.unwrap_or_else(|| Source::Found(path).refused(why, exit_code::USAGE)));
            }
        }
    }
    let mut located = match found {
        Some(path) => Located::read(Source::Found(path))?,
        None => Located::parse(DEFAULT.to_owned(), Source::Default)?,
    };
    located.absent = absent;
    if let Some(above) = above::find() {
        above.check(&located).map_err(Refused::usage)?;
    }
    if let Some(replaced) = places.replaced {
        located.warn_of_other(&replaced);
    }
    Ok(located)
}

/// The error for a file below a directory that this user may not search.
fn unsearchable(path: &Path, directory: &Path) -> Refused {
    let named = named_by(path).filter(|(_, value)| value.starts_with(directory));
    let directory = escaped(&directory.to_string_lossy());
    let Some((name, value)) = named else {
        let why = format!(
            "this user can't search {directory}; let this user search it, or name a file: --url-file"
        );
        return Source::Found(path.to_owned()).refused(format!("can't be read: {why}"), exit_code::USAGE);
    };
    let value = escaped(&value.to_string_lossy());
    Refused::usage(format!(
        "{name} is {value}, which this user can't search; {}, or name a file: --url-file",
        other_place(name)
    ))
}

/// The variable that names the directory of this file, and its value.
fn named_by(path: &Path) -> Option<(&'static str, PathBuf)> {
    let value = |name| Some((name, env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute())?));
    ["XDG_CONFIG_HOME", "HOME"].into_iter().filter_map(value).find(|(_, dir)| path.starts_with(dir))
}

/// How to make `tenure` look in another directory than this variable names.
fn other_place(variable: &str) -> &'static str {
    match variable {
        "HOME" => "set HOME to the directory of this user (sudo -H)",
        _ => "unset XDG_CONFIG_HOME",
    }
}

/// Refuses an empty value. Most likely a variable is missing, and its author does not mean the default.
fn not_empty<'a>(name: &str, value: &'a OsStr, otherwise: &str) -> Result<&'a OsStr, Refused> {
    if value.as_encoded_bytes().trim_ascii().is_empty() {
        return Err(Refused::usage(format!(
            "{name} is empty; give it a value, or {otherwise}; for this machine only, use --url file:"
        )));
    }
    Ok(value)
}

fn text_of(value: &OsStr, source: &Source) -> Result<String, Refused> {
    let is_text = value.to_os_string().into_string();
    is_text.map_err(|_: OsString| source.refused(NOT_UTF8, exit_code::USAGE))
}

impl Located {
    fn parse(text: String, source: Source) -> Result<Self, Refused> {
        if let Some(why) = mistakes::of(&text) {
            return Err(source.refused(why, exit_code::USAGE));
        }
        let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
        let url = DomainUrl::parse(&text).map_err(of_error)?;
        if url.to_string().starts_with("memory:") {
            let why = "`memory:` is private to one process, so it would keep nobody out; use `file:`";
            return Err(source.refused(why, exit_code::USAGE));
        }
        Ok(Located { url, text, source, absent: Vec::new() })
    }

    /// Reads the file of this source.
    fn read(source: Source) -> Result<Self, Refused> {
        let path = source.file().expect("a source with a file");
        let may_be_pipe = matches!(source, Source::OptionFile(_));
        let shown = escaped(&path.to_string_lossy());
        // A user who names a file wants that file. A file that `tenure` found must not be another user's, who could have put it there.
        let is_found = matches!(source, Source::Found(_));
        let warn_or_refuse = |what: String, fix: String, otherwise: &str| match is_found {
            true => Err(Refused::usage(format!("{what}; {fix}{otherwise}"))),
            false => {
                say(format_args!("{what}: {fix}"));
                Ok(())
            }
        };
        let belongs = |what: &str, owner: u32| {
            let [owner, user] = [owner, rustix::process::geteuid().as_raw()].map(sys::shown_user);
            let fix = match named_by(path).filter(|_| is_found) {
                Some((name, _)) => other_place(name).to_owned(),
                None => format!("chown -h root {what}"),
            };
            let what = format!("{what} belongs to user {owner}, who can change where user {user} locks");
            warn_or_refuse(what, fix, &format!(", or name the file: --url-file {shown}"))
        };
        let open = |what: &str, mode: u32| {
            let open = format!("every user of this machine can change {what} (mode {mode:03o})");
            warn_or_refuse(open, format!("chmod o-w {what}"), "")
        };
        match file::weakness_above(path).filter(|_| is_found) {
            Some(file::Weakness::Of(what, owner)) => belongs(&escaped(&what.to_string_lossy()), owner)?,
            Some(file::Weakness::Open(what, mode)) => open(&escaped(&what.to_string_lossy()), mode)?,
            None => {}
        }
        let contents = file::read(path, may_be_pipe).map_err(|why| source.refused(why, exit_code::USAGE))?;
        if let Some(owner) = contents.stranger() {
            belongs(&shown, owner)?;
        }
        if let Some(mode) = contents.mode_for_all(0o2) {
            open(&shown, mode)?;
        }
        let readable = contents.mode_for_all(0o4);
        let located = Located::parse(contents.url, source)?;
        if let Some(mode) = readable.filter(|_| located.has_password()) {
            say(format_args!(
                "every user of this machine can read the password in {shown} (mode {mode:03o}): chmod o= {shown}"
            ));
        }
        Ok(located)
    }

    /// Warns of the user's other file, which jobs with another environment use.
    fn warn_of_other(&self, other: &Path) {
        let is_same = |path| file::is_same(path, other);
        if matches!(file::is_there(other), Ok(false)) || self.source.file().is_some_and(is_same) {
            return;
        }
        if file::read(other, false).is_ok_and(|contents| contents.url == self.text) {
            return;
        }
        let other = escaped(&other.to_string_lossy());
        say(format_args!(
            "{other} is not used, because XDG_CONFIG_HOME is set; jobs without that variable (cron) use it, and lock elsewhere: \
             remove one of the files, or use --url-file"
        ));
    }

    /// Which files come first and do not exist.
    pub(crate) fn absence(&self) -> Option<String> {
        let absent: Vec<_> = self.absent.iter().map(|path| escaped(&path.to_string_lossy())).collect();
        let are = if absent.len() == 1 { "is" } else { "are" };
        (!absent.is_empty()).then(|| format!("{} {are} not there", absent.join(" and ")))
    }

    fn has_password(&self) -> bool {
        self.url.to_string().contains("***")
    }

    /// Whether names live on this machine only.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.url.to_string().starts_with("file:")
    }
}

/// The URL without its password, and where it came from.
impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.to_string();
        match &self.source {
            Source::Default => write!(f, "{} (by default", escaped(&url))?,
            source => write!(f, "{} (from {source}", escaped(&url))?,
        }
        match self.is_of_this_machine() && self.url.directory().is_none() {
            true => write!(f, ": {})", default_directory(rustix::process::geteuid().as_raw())),
            false => f.write_str(")"),
        }
    }
}

impl args::Domain {
    fn refuse_unshared(&self, located: &Located) -> Result<(), Refused> {
        let by = match (self.shared_only, env::var_os(SHARED_ONLY)) {
            (true, _) => "--shared-only",
            (false, Some(value)) if value == "1" => SHARED_ONLY,
            (false, Some(value)) if value != "0" => {
                let value = escaped(&value.to_string_lossy());
                return Err(Refused::usage(format!(
                    "{SHARED_ONLY} is `{value}`; write 1, or 0 to turn it off"
                )));
            }
            _ => return Ok(()),
        };
        if !located.is_of_this_machine() {
            return Ok(());
        }
        Err(Refused::usage(format!(
            "{by}: {located} excludes processes of this machine only; \
             give the URL of a server: --url, --url-file, TENURE_URL, or the file {SYSTEM}"
        )))
    }
}

impl Refused {
    fn usage(message: String) -> Self {
        Refused { message, code: exit_code::USAGE }
    }
}

/// Whether an error is about the name, label, ttl or ticket on the command line. All other wrong input that only a store can detect is its URL.
fn is_of_other_words(error: &Error) -> bool {
    ["lock name ", "label ", "ttl of ", "ticket "].iter().any(|word| error.what().starts_with(word))
}

impl Source {
    /// The message for an error. If the URL is wrong, it begins with where the URL came from.
    pub(crate) fn blamed(&self, error: &Error) -> String {
        let is_of_url = match error.kind() {
            ErrorKind::Unsupported => true,
            ErrorKind::Invalid => !is_of_other_words(error),
            _ => false,
        };
        let source = if is_of_url { self } else { &Source::Default };
        source.before(error)
    }

    fn refused(&self, why: impl fmt::Display, code: u8) -> Refused {
        Refused { message: self.before(why), code }
    }

    fn before(&self, why: impl fmt::Display) -> String {
        let why = why.to_string();
        match self {
            Source::Default => escaped(&why),
            source => format!("{source}: {}", escaped(&why)),
        }
    }

    fn file(&self) -> Option<&Path> {
        match self {
            Source::OptionFile(path) | Source::VariableFile(path) | Source::Found(path) => Some(path),
            Source::Option | Source::Variable | Source::Default => None,
        }
    }
}

/// As the user wrote it.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.file().map(Path::to_string_lossy).unwrap_or_default();
        let path = escaped(&path);
        match self {
            Source::Option => f.write_str("--url"),
            Source::OptionFile(_) => write!(f, "--url-file {path}"),
            Source::Variable => f.write_str(VARIABLE),
            Source::VariableFile(_) => write!(f, "{FILE_VARIABLE}={path}"),
            Source::Found(_) => write!(f, "{path}"),
            Source::Default => f.write_str("default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_is_blamed_only_for_its_own_errors() {
        let domain = Domain::open("memory:").await.unwrap();
        let long = "x".repeat(5_000);
        let short = std::time::Duration::from_millis(1);
        let errors = [
            domain.lock("").acquire().await.unwrap_err(),
            domain.lock(&long).acquire().await.unwrap_err(),
            domain.lock("a").label(&long).acquire().await.unwrap_err(),
            domain.lock("a").ttl(short).acquire().await.unwrap_err(),
            "no ticket".parse::<tenure::Ticket>().unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!Source::Option.blamed(&error).starts_with("--url: "), "{error}");
        }
        let error = Domain::open("memory:?a=b").await.unwrap_err();
        assert!(Source::Option.blamed(&error).starts_with("--url: "), "{error}");
    }
}
