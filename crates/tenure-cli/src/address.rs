//! Where names live, and who said so: a URL that is wrong may come from a profile that nobody thinks of.

mod file;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use tenure::{Domain, DomainUrl, Error, ErrorKind};

use crate::args;
use crate::exit_code;
use crate::output::{say, say_more};
use crate::text::escaped;

pub(crate) use self::file::SYSTEM;

/// The variables that are used without `--url` and `--url-file`.
pub(crate) const VARIABLE: &str = "TENURE_URL";
pub(crate) const FILE_VARIABLE: &str = "TENURE_URL_FILE";
/// The variable that says that a `tenure run` above had a URL and did not hand it down. Without this, a `tenure` in the command would use the
/// default, where the same names exclude nobody.
pub(crate) const WITHHELD: &str = "TENURE_URL_WITHHELD";
/// The variable that does what `--shared-only` does.
const SHARED_ONLY: &str = "TENURE_SHARED_ONLY";
/// Where names live when nothing is said.
const DEFAULT: &str = "file:";

const NOT_UTF8: &str = "URL is not UTF-8; escape other bytes as %XX";

/// Who said where names live.
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
    /// A file of the user or of the machine.
    Found(PathBuf),
    /// Nobody.
    Default,
}

/// Where names live.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) url: DomainUrl,
    /// The URL as it was written, with its password.
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// A URL that can't be used: what to say, and the exit code.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) message: String,
    pub(crate) code: u8,
}

/// The domain that was asked for; it connects when it is used.
pub(crate) fn domain(asked: &args::Domain) -> Result<(Domain, Source), Refused> {
    let Located { url, source, .. } = locate(asked)?;
    let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
    Ok((Domain::lazy(url.clone()).map_err(of_error)?, source.clone()))
}

/// The domain that was asked for, for a command that acquires nothing. It does not make the directory that the URL names: one that is not there holds
/// nothing, and its name may be mistyped.
///
/// # Errors
/// The directory that is not there.
pub(crate) fn domain_as_it_is(asked: &args::Domain) -> Result<Result<(Domain, Source), PathBuf>, Refused> {
    match locate(asked)?.url.directory().filter(|directory| is_absent(directory)) {
        Some(directory) => Ok(Err(directory.to_owned())),
        None => domain(asked).map(Ok),
    }
}

/// The same for a command that only looks: of a layered domain whose inner directory is not there, the outer store knows all.
///
/// # Errors
/// The directory that is not there.
pub(crate) fn domain_to_look_at(asked: &args::Domain) -> Result<Result<(Domain, Source), PathBuf>, Refused> {
    let Located { url, source, .. } = locate(asked)?;
    match url.layers() {
        Some((outer, _)) if absent_inner(asked).is_some() => {
            let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
            Ok(Ok((Domain::lazy(outer).map_err(of_error)?, source.clone())))
        }
        _ => domain_as_it_is(asked),
    }
}

/// The inner directory of a layered domain, if it is not there.
pub(crate) fn absent_inner(asked: &args::Domain) -> Option<PathBuf> {
    let (_, inner) = locate(asked).ok()?.url.layers()?;
    inner.directory().filter(|directory| is_absent(directory)).map(Path::to_owned)
}

fn is_absent(directory: &Path) -> bool {
    directory.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Whether a `tenure run` above had a URL and did not hand it down, and nothing else is said. Files do not count: what they say may be another
/// domain than the one above.
pub(crate) fn is_withheld(asked: &args::Domain) -> bool {
    let is_said = asked.url.is_some() || asked.url_file.is_some();
    let is_set = |name| env::var_os(name).is_some();
    let is_withheld = env::var_os(WITHHELD).is_some_and(|value| !value.is_empty());
    is_withheld && !is_said && !is_set(VARIABLE) && !is_set(FILE_VARIABLE)
}

/// Where names live. It is found out once, and what is wrong with it is said once: a file may be a pipe, or change.
pub(crate) fn locate(asked: &args::Domain) -> Result<&Located, Refused> {
    if let Some(located) = asked.located.get() {
        return Ok(located);
    }
    let located = find(asked)?;
    asked.refuse_unshared(&located)?;
    say_more(format_args!("domain {located}"));
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
        (None, Some(path)) => Located::read(Source::VariableFile(path.into())),
        (None, None) if is_withheld(asked) => {
            let why = "domain is not known: this runs under `tenure run`, which hands no URL down; \
                       use --url or --url-file, set TENURE_URL, or write `tenure run --pass-url` there";
            Err(Refused::usage(why.to_owned()))
        }
        (None, None) => match file::places().find(|path| !file::is_missing(path)) {
            Some(path) => Located::read(Source::Found(path)),
            None => Located::parse(DEFAULT.to_owned(), Source::Default),
        },
    }
}

/// An empty value is most likely that of a variable which is not there, and its author means no default.
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
        let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
        let url = DomainUrl::parse(&text).map_err(of_error)?;
        if url.to_string().starts_with("memory:") {
            let why = "`memory:` is private to one process, so it would keep nobody out; use `file:`";
            return Err(source.refused(why, exit_code::USAGE));
        }
        Ok(Located { url, text, source })
    }

    /// What is in the file of this source.
    fn read(source: Source) -> Result<Self, Refused> {
        let path = source.file().expect("a source with a file");
        let contents = file::read(path).map_err(|why| source.refused(why, exit_code::USAGE))?;
        let (mode, shown) = (contents.mode, escaped(&path.to_string_lossy()));
        let located = Located::parse(contents.url, source)?;
        if contents.others & 0o4 != 0 && located.has_password() {
            say(format_args!(
                "every user of this machine can read the password in {shown} (mode {mode:03o}): chmod o= {shown}"
            ));
        }
        if contents.others & 0o2 != 0 {
            say(format_args!(
                "every user of this machine can change {shown} (mode {mode:03o}): chmod o-w {shown}"
            ));
        }
        Ok(located)
    }

    fn has_password(&self) -> bool {
        self.url.to_string().contains("***")
    }

    /// Whether names are on this machine, where no other one sees them.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.url.to_string().starts_with("file:")
    }
}

/// Without a password, and with where it came from.
impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.to_string();
        match &self.source {
            Source::Default => write!(f, "{} (by default)", escaped(&url)),
            source => write!(f, "{} (from {source})", escaped(&url)),
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

impl Source {
    /// What to say of an error, with who is to blame when it is the URL.
    pub(crate) fn blamed(&self, error: &Error) -> String {
        let source = if error.kind() == ErrorKind::Unsupported { self } else { &Source::Default };
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

/// As one writes it.
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
