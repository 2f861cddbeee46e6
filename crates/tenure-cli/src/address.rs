//! Where names live, and who said so: a URL that is wrong may come from a profile that nobody thinks of.

use std::env;
use std::fmt;

use tenure::{Domain, DomainUrl, Error, ErrorKind};

use crate::args;
use crate::exit_code;
use crate::text::escaped;

/// The variable that is used without `--url`.
pub(crate) const VARIABLE: &str = "TENURE_URL";
/// The variable that says that a `tenure run` above had a URL and did not hand it down. Without this, a `tenure` in the command would use the
/// default, where the same names exclude nobody.
pub(crate) const WITHHELD: &str = "TENURE_URL_WITHHELD";
/// Where names live when nothing is said.
const DEFAULT: &str = "file:";

/// Who said where names live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `--url`.
    Option,
    /// `TENURE_URL`.
    Variable,
    /// Nobody.
    Default,
}

/// A URL that can't be used: what to say, and the exit code.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) message: String,
    pub(crate) code: u8,
}

/// The domain that was asked for; it connects when it is used.
pub(crate) fn domain(asked: &args::Domain) -> Result<(Domain, Source), Refused> {
    let (url, source) = url(asked)?;
    let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
    Ok((Domain::lazy(url).map_err(of_error)?, source))
}

/// Whether a `tenure run` above had a URL and did not hand it down, and nothing else is said.
pub(crate) fn is_withheld(asked: &args::Domain) -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    asked.url.is_none() && !is_set(VARIABLE) && is_set(WITHHELD)
}

/// The URL that was asked for.
pub(crate) fn url(asked: &args::Domain) -> Result<(DomainUrl, Source), Refused> {
    let (url, source) = match &asked.url {
        Some(url) => (url.clone(), Source::Option),
        None => match env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) => {
                let url = value.into_string().map_err(|_| {
                    Source::Variable.refused("URL is not UTF-8; escape other bytes as %XX", exit_code::USAGE)
                })?;
                (url, Source::Variable)
            }
            None if is_withheld(asked) => {
                let why = "domain is not known: this runs under `tenure run`, which hands no URL down; \
                           use --url, set TENURE_URL, or write `tenure run --pass-url` there";
                return Err(Source::Default.refused(why, exit_code::USAGE));
            }
            None => (DEFAULT.to_owned(), Source::Default),
        },
    };
    let of_error = |error: Error| source.refused(&error, exit_code::of_error(&error));
    let url = DomainUrl::parse(&url).map_err(of_error)?;
    if url.to_string().starts_with("memory:") {
        let why = "`memory:` is private to one process, so it would keep nobody out; use `file:`";
        return Err(source.refused(why, exit_code::USAGE));
    }
    Ok((url, source))
}

impl Source {
    /// What to say of an error, with who is to blame when it is the URL.
    pub(crate) fn blamed(self, error: &Error) -> String {
        let source = if error.kind() == ErrorKind::Unsupported { self } else { Source::Default };
        format!("{source}{}", escaped(&error.to_string()))
    }

    fn refused(self, why: impl fmt::Display, code: u8) -> Refused {
        Refused { message: format!("{self}{}", escaped(&why.to_string())), code }
    }
}

/// As it stands before a message.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Option => "--url: ",
            Source::Variable => "TENURE_URL: ",
            Source::Default => "",
        })
    }
}
