//! Options: which there are, for which schemes, and what they may say.
//!
//! One table says where an option makes sense. An option that is unknown, doubled, without a value, of the wrong type or in the
//! wrong place is an error that names it (R0.6). Their values are quoted as written, never decoded, and only if [`Echo`] allows.

use std::path::PathBuf;
use std::time::Duration;

use crate::core::deadlines::{MAX_TTL, MIN_TTL, Margin};
use crate::types::duration;
use crate::types::error::Error;
use crate::url::hosts::secret;
use crate::url::parse::{database, domain_url};
use crate::url::scheme::{Kind, Scheme};
use crate::url::text::{Echo, decode_path, decode_printable, nearest};
use crate::url::{
    ClientCertificate, Credentials, Degrade, DomainUrl, Inner, Replicas, Secret, Target, Tls, Topology,
};

const LEAST_FENCE_MEMORY: Duration = Duration::from_secs(1);
const MOST_FENCE_MEMORY: Duration = Duration::from_secs(24 * 60 * 60);

/// An option, and the schemes for which it makes sense.
type Known = (&'static str, fn(Scheme) -> bool);

const KNOWN: [Known; 15] = [
    ("ttl", |_| true),
    ("timeout", |_| true),
    ("prefix", Scheme::is_redis),
    ("fence_memory", Scheme::is_redis),
    ("replicas", |scheme| scheme.is_redis() && scheme.kind != Kind::Quorum),
    ("margin", Scheme::is_redis),
    ("inner", Scheme::is_redis),
    ("degrade", Scheme::is_redis),
    ("tls_ca", |scheme| scheme.tls),
    ("tls_cert", |scheme| scheme.tls),
    ("tls_key", |scheme| scheme.tls),
    ("sentinel_user", |scheme| scheme.kind == Kind::Sentinel),
    ("sentinel_password", |scheme| scheme.kind == Kind::Sentinel),
    ("db", |scheme| scheme.kind == Kind::Unix),
    ("network_fs", |scheme| scheme.kind == Kind::File),
];

/// The options of one URL, each validated by itself.
#[derive(Default)]
pub(super) struct Options {
    pub(super) ttl: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    prefix: Option<String>,
    fence_memory: Option<Duration>,
    replicas: Option<Replicas>,
    margin: Option<Margin>,
    inner: Option<DomainUrl>,
    degrade: Option<Degrade>,
    tls: Option<Tls>,
    sentinel: Option<Credentials>,
    db: Option<u32>,
    network_fs_allowed: bool,
}

impl Options {
    pub(super) fn parse(query: Option<&str>, scheme: Scheme, echo: Echo) -> Result<Self, Error> {
        let mut given: Vec<(&'static str, &str)> = Vec::new();
        for (index, item) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
            let option = known(item, index, scheme, echo)?;
            if given.iter().any(|(name, _)| *name == option.0) {
                return Err(Error::invalid(format!("option `{}` is twice in domain URL", option.0))
                    .fix("write it once"));
            }
            given.push(option);
        }
        let given = Given { given, echo };
        Ok(Options {
            ttl: given.read("ttl", ttl)?,
            timeout: given.read("timeout", timeout)?,
            prefix: given.read("prefix", prefix)?,
            fence_memory: given.read("fence_memory", fence_memory)?,
            replicas: given.read("replicas", replicas)?,
            margin: given.read("margin", margin)?,
            inner: given.read("inner", inner)?,
            degrade: given.read("degrade", degrade)?,
            tls: if scheme.tls { Some(tls(&given)?) } else { None },
            sentinel: sentinel(&given)?,
            db: given.read("db", |value| database(value.raw, "option `db`", value.echo))?,
            network_fs_allowed: given.read("network_fs", network_fs)?.is_some(),
        })
    }

    /// Adds what the options say to what the rest of the URL said, and checks them against each other.
    pub(super) fn apply_to(self, mut target: Target) -> Result<Target, Error> {
        let inner = match (self.inner, self.degrade) {
            (Some(url), degrade) => Some(Inner::new(url, degrade.unwrap_or_default())?),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Error::invalid("option `degrade` without `inner` in domain URL")
                    .fix("name the file domain to fall back on: `inner=file:///var/lock/app`"));
            }
        };
        match &mut target {
            Target::Memory { .. } => {}
            Target::File { network_fs_allowed, .. } => *network_fs_allowed = self.network_fs_allowed,
            Target::Redis(url) => {
                if let Topology::Sentinel { credentials, .. } = &mut url.topology {
                    *credentials = self.sentinel;
                }
                url.tls = self.tls;
                url.replicas = self.replicas;
                url.margin = self.margin.unwrap_or_default();
                url.inner = inner;
                url.prefix = self.prefix.unwrap_or_else(|| url.prefix.clone());
                url.fence_memory = self.fence_memory.unwrap_or(url.fence_memory);
                url.db = self.db.unwrap_or(url.db);
            }
        }
        Ok(target)
    }
}

/// The known option that `item` is, and its value as written.
fn known(item: &str, index: usize, scheme: Scheme, echo: Echo) -> Result<(&'static str, &str), Error> {
    if item.is_empty() {
        return Err(Error::invalid(format!("option {} in domain URL is empty", index + 1))
            .fix("write `name=value`, separated by `&`"));
    }
    let (word, value) = match item.split_once('=') {
        Some((word, value)) => (word, Some(value)),
        None => (item, None),
    };
    let Some((name, is_for)) = KNOWN.iter().find(|(name, _)| *name == word) else {
        return Err(unknown(word, index, scheme, echo));
    };
    if !is_for(scheme) {
        let instead = match (*name, scheme.kind) {
            ("db", Kind::Sentinel) => "; write the database after the service: `/service/2`",
            ("db", Kind::Single | Kind::Quorum) => "; write the database after the host: `/2`",
            _ => "",
        };
        return Err(Error::invalid(format!(
            "option `{name}` in domain URL is not for {}, but for {}{instead}",
            scheme.as_str(),
            Scheme::list(is_for)
        )));
    }
    match value {
        Some(value) if !value.is_empty() || *name == "prefix" => Ok((name, value)),
        _ => Err(Error::invalid(format!("option `{name}` in domain URL has no value"))
            .fix(format!("write `{name}=…`, or leave it out"))),
    }
}

fn unknown(word: &str, index: usize, scheme: Scheme, echo: Echo) -> Error {
    let here = || KNOWN.iter().filter(|(_, is_for)| is_for(scheme)).map(|(name, _)| *name);
    let expected = here().collect::<Vec<_>>().join(", ");
    let is_credential = scheme.is_redis() && ["user", "username", "password"].contains(&word);
    let is_tls = scheme.is_redis() && ["tls", "ssl", "use_tls", "use_ssl"].contains(&word);
    let hint = match nearest(word, here()) {
        _ if is_tls && scheme.kind == Kind::Unix => " (there is no TLS over a local socket)".to_owned(),
        _ if is_tls && scheme.tls => format!(" (`{}` is TLS already)", scheme.as_str()),
        _ if is_tls => {
            let with_tls = Scheme { tls: true, ..scheme };
            format!(" (for TLS write `{}` in place of `{}`)", with_tls.as_str(), scheme.as_str())
        }
        _ if is_credential => " (user and password stand before the host: `user:password@host`)".to_owned(),
        Some(near) => format!(" (did you mean `{near}`?)"),
        None => String::new(),
    };
    // A name is quoted only if it looks like one: what an unescaped `&` cut off from a password seldom does.
    let is_word = word.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
    let shown = match (is_credential, is_word) {
        (true, _) => Echo::Allowed.quote(word),
        (_, true) => echo.quote(word),
        (_, false) => String::new(),
    };
    let which = if shown.is_empty() { format!(" {}", index + 1) } else { shown };
    Error::invalid(format!("unknown option{which} in domain URL"))
        .fix(format!("expected one of {expected}{hint}"))
}

/// The options that were given, as written.
struct Given<'a> {
    given: Vec<(&'static str, &'a str)>,
    echo: Echo,
}

/// One of them.
#[derive(Clone, Copy)]
struct Value<'a> {
    name: &'static str,
    raw: &'a str,
    echo: Echo,
}

impl<'a> Given<'a> {
    fn read<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(Value<'a>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let found = self.given.iter().find(|(given, _)| *given == name);
        let value = found.map(|&(name, raw)| Value { name, raw, echo: self.echo });
        value.map(parse).transpose()
    }
}

impl Value<'_> {
    fn decode(self) -> Result<String, Error> {
        decode_printable(self.raw, &format!("option `{}`", self.name))
    }

    /// ``option `ttl` in domain URL is `5ms`, which …``
    fn wrong(self, why: &str) -> Error {
        let shown = match self.echo.quote(self.raw) {
            shown if shown.is_empty() => String::new(),
            shown => format!(" is{shown}, which"),
        };
        Error::invalid(format!("option `{}` in domain URL{shown} {why}", self.name))
    }
}

fn any_duration(value: Value<'_>) -> Result<Duration, Error> {
    let text = value.decode()?;
    duration::parse(&text).map_err(|why| value.wrong(&format!("{why}; {}", duration::FORMS)))
}

fn ttl(value: Value<'_>) -> Result<Duration, Error> {
    let ttl = any_duration(value)?;
    if (MIN_TTL..=MAX_TTL).contains(&ttl) {
        Ok(ttl)
    } else {
        Err(value.wrong("is out of range; write a duration from 100ms to 24h"))
    }
}

fn timeout(value: Value<'_>) -> Result<Duration, Error> {
    let timeout = any_duration(value)?;
    if timeout.is_zero() {
        return Err(value.wrong("is zero; write a duration above it, or leave it out"));
    }
    Ok(timeout)
}

fn prefix(value: Value<'_>) -> Result<String, Error> {
    let prefix = value.decode()?;
    if prefix.contains(['{', '}']) {
        return Err(
            value.wrong("has braces; leave them out, they would scatter the keys of a name over a cluster")
        );
    }
    Ok(prefix)
}

fn fence_memory(value: Value<'_>) -> Result<Duration, Error> {
    let memory = any_duration(value)?;
    if (LEAST_FENCE_MEMORY..=MOST_FENCE_MEMORY).contains(&memory) {
        Ok(memory)
    } else {
        Err(value.wrong("is out of range; write a duration from 1s to 24h"))
    }
}

fn replicas(value: Value<'_>) -> Result<Replicas, Error> {
    if value.raw == "all" {
        return Ok(Replicas::All);
    }
    let is_number = value.raw.bytes().all(|b| b.is_ascii_digit());
    let number = value.raw.parse().ok().filter(|_| is_number);
    number
        .map(Replicas::AtLeast)
        .ok_or_else(|| value.wrong("is neither a number above zero nor `all`; to wait for none leave it out"))
}

fn margin(value: Value<'_>) -> Result<Margin, Error> {
    let is_number = value.raw.bytes().all(|b| b.is_ascii_digit());
    let number = value.raw.parse().ok().filter(|_| is_number);
    number
        .and_then(Margin::new)
        .ok_or_else(|| value.wrong("is no whole number of per cent from 1 to 25; write it as `margin=16`"))
}

fn inner(value: Value<'_>) -> Result<DomainUrl, Error> {
    let text = value.decode()?;
    let not_a_file =
        "is not a file URL; write `inner=file:///var/lock/app`, or `inner=file:` for the default directory";
    // Looked at before it is parsed, so that a URL of another kind gets this error and not one about its hosts.
    let is_file = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:"));
    if !is_file {
        let quiet = Value { echo: Echo::Forbidden, ..value };
        return Err(quiet.wrong(not_a_file));
    }
    domain_url(&text, value.echo)
        .map_err(|error| Error::invalid(format!("option `inner` in domain URL: {error}")))
}

fn degrade(value: Value<'_>) -> Result<Degrade, Error> {
    match value.raw {
        "never" => Ok(Degrade::Never),
        "allow" => Ok(Degrade::Allow),
        _ => Err(value.wrong("is neither `never` nor `allow`")),
    }
}

fn network_fs(value: Value<'_>) -> Result<(), Error> {
    match value.raw {
        "allow" => Ok(()),
        _ => Err(value.wrong("is not `allow`; leave it out to refuse network file systems")),
    }
}

fn absolute_path(value: Value<'_>) -> Result<PathBuf, Error> {
    let path = decode_path(value.raw, &format!("option `{}`", value.name))?;
    if path.is_relative() {
        return Err(value.wrong("is a relative path; write it absolute, beginning with `/`"));
    }
    Ok(path)
}

fn tls(given: &Given<'_>) -> Result<Tls, Error> {
    let ca = given.read("tls_ca", absolute_path)?;
    let cert = given.read("tls_cert", absolute_path)?;
    let key = given.read("tls_key", absolute_path)?;
    let client = match (cert, key) {
        (Some(cert), Some(key)) => Some(ClientCertificate { cert, key }),
        (None, None) => None,
        (Some(_), None) => {
            return Err(Error::invalid("option `tls_cert` without `tls_key` in domain URL")
                .fix("a client certificate needs both"));
        }
        (None, Some(_)) => {
            return Err(Error::invalid("option `tls_key` without `tls_cert` in domain URL")
                .fix("a client certificate needs both"));
        }
    };
    Ok(Tls { ca, client })
}

fn sentinel(given: &Given<'_>) -> Result<Option<Credentials>, Error> {
    let user = given.read("sentinel_user", Value::decode)?;
    let password: Option<Secret> =
        given.read("sentinel_password", |value| secret(value.raw, "option `sentinel_password`"))?;
    match (user, password) {
        (user, Some(password)) => Ok(Some(Credentials { user, password })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(Error::invalid("option `sentinel_user` without `sentinel_password` in domain URL")
                .fix("write both"))
        }
    }
}
