//! Domain URLs: where names live, as one line of configuration. Parse, validate, redact; no I/O.
//!
//! The parser is our own. The `url` crate refuses `h1:1,h2:2`, and the driver's parser ignores options that it does not know: a
//! mistyped `?tll=` would then be a lock with another ttl than the one that was written down. Here nothing is dropped or replaced
//! by a default in silence (R0.6).
//!
//! A password is kept out of every message in two ways. Values: a [`Secret`] can't be printed. Errors: they are born before it is
//! known what is a password, so they quote a piece of the input only when it can't be one ([`text::Echo`]), never the URL. For the
//! same reason an `@` is accepted in one place only, at the end of user and password: wherever else it stands, some part of a
//! password that was not escaped is probably being taken for a host, a database or an option.
//!
//! Invalid combinations can't be expressed: TLS files live in [`Tls`], the degrade policy in [`Inner`]. Every scheme has a
//! store: there are no cargo features that leave one out.

mod hosts;
mod options;
mod parse;
mod scheme;
mod show;
mod text;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::core::deadlines::Margin;
use crate::types::error::Error;

/// What stands before every key in Redis, unless the URL says otherwise.
pub(crate) const DEFAULT_PREFIX: &str = "tenure:";
/// How long Redis remembers the last fence of a name after its lease, unless the URL says otherwise.
pub(crate) const DEFAULT_FENCE_MEMORY: Duration = Duration::from_secs(10 * 60);

/// A validated domain URL.
///
/// It prints in one canonical form, in which passwords are `***`; a URL without a password parses back to an equal value.
///
/// # Examples
/// ```
/// use tenure::DomainUrl;
///
/// let url: DomainUrl = "rediss://bob:hunter2@Example.com/2?ttl=.5".parse()?;
/// assert_eq!(url.to_string(), "rediss://bob:***@example.com:6379/2?ttl=500ms");
///
/// let error = DomainUrl::parse("memory:?tll=3s").unwrap_err();
/// assert!(error.to_string().starts_with("unknown option `tll` in domain URL"));
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct DomainUrl {
    target: Target,
    ttl: Option<Duration>,
    timeout: Option<Duration>,
}

impl DomainUrl {
    /// Parses and validates a URL. No I/O.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid), with a message that names what is wrong and never contains a password.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse::domain_url(text, text::Echo::Allowed)
    }

    /// Two URLs as one: `inner`, a directory of this machine, is held underneath `outer`, which is Redis. As the options `inner` and `degrade` of
    /// `outer` say it; see [`Domain::layered`](crate::Domain::layered).
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when one of them is bad, or can't stand where it does.
    ///
    /// # Examples
    /// ```
    /// use tenure::{Degrade, DomainUrl};
    ///
    /// let url = DomainUrl::layered("redis://localhost", "file:///var/lock/app", Degrade::Allow)?;
    /// assert_eq!(url.to_string(), "redis://localhost:6379?inner=file:///var/lock/app&degrade=allow");
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn layered<O, I>(outer: O, inner: I, degrade: Degrade) -> Result<Self, Error>
    where
        O: TryInto<DomainUrl>,
        I: TryInto<DomainUrl>,
        Error: From<O::Error> + From<I::Error>,
    {
        let (mut outer, inner): (DomainUrl, DomainUrl) = (outer.try_into()?, inner.try_into()?);
        let Target::Redis(server) = &mut outer.target else {
            return Err(Error::invalid("outer store of a layered domain is not Redis")
                .fix("write `redis://host:6379`"));
        };
        if server.inner.is_some() {
            return Err(Error::invalid("outer store of a layered domain has an inner one already")
                .fix("leave the option `inner` out"));
        }
        server.inner = Some(Inner::new(inner, degrade)?);
        Ok(outer)
    }

    /// The URLs of the two stores of a [layered domain](crate::Domain::layered): the outer one, then the inner one. `None` where there is one store.
    ///
    /// # Examples
    /// ```
    /// let url = tenure::DomainUrl::parse("redis://localhost?inner=file:///var/lock/app&degrade=allow")?;
    /// let (outer, inner) = url.layers().expect("two stores");
    /// assert_eq!(outer.to_string(), "redis://localhost:6379");
    /// assert_eq!(inner.to_string(), "file:///var/lock/app");
    /// assert_eq!(outer.layers(), None);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    #[must_use]
    pub fn layers(&self) -> Option<(DomainUrl, DomainUrl)> {
        let mut outer = self.clone();
        let Target::Redis(server) = &mut outer.target else { return None };
        let inner = server.inner.take()?;
        Some((outer, *inner.url))
    }

    /// The directory that a `file:` URL names; `None` for the default directory, and for other stores.
    ///
    /// # Examples
    /// ```
    /// # use std::path::Path;
    /// let url = tenure::DomainUrl::parse("file:///var/lock/app")?;
    /// assert_eq!(url.directory(), Some(Path::new("/var/lock/app")));
    /// assert_eq!(tenure::DomainUrl::parse("file:")?.directory(), None);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match &self.target {
            Target::File { dir, .. } => dir.as_deref(),
            Target::Memory { .. } | Target::Redis(_) => None,
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The ttl of its locks, 100 ms to 24 h, where the lock itself does not say; `None` when the URL does not say either.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// let url = tenure::DomainUrl::parse("redis://localhost?ttl=30s")?;
    /// assert_eq!(url.ttl(), Some(Duration::from_secs(30)));
    /// # Ok::<(), tenure::Error>(())
    /// ```
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        self.ttl
    }

    /// How long one command to the store may take; never zero.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How far the rates of clocks may differ. On one machine there is one.
    pub(crate) fn margin(&self) -> Margin {
        match &self.target {
            Target::Redis(url) => url.margin(),
            Target::Memory { .. } | Target::File { .. } => Margin::default(),
        }
    }
}

impl FromStr for DomainUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        DomainUrl::parse(text)
    }
}

impl TryFrom<&str> for DomainUrl {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        DomainUrl::parse(text)
    }
}

impl TryFrom<&String> for DomainUrl {
    type Error = Error;

    fn try_from(text: &String) -> Result<Self, Error> {
        DomainUrl::parse(text)
    }
}

impl TryFrom<String> for DomainUrl {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        DomainUrl::parse(&text)
    }
}

impl fmt::Debug for DomainUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainUrl({self})")
    }
}

/// The store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Private without a name; shared by name inside the process.
    Memory {
        name: Option<String>,
    },
    /// A directory, absolute; the default one for `None`.
    File {
        dir: Option<PathBuf>,
        network_fs_allowed: bool,
    },
    Redis(Box<RedisUrl>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisUrl {
    topology: Topology,
    /// In the order given, without duplicates. Empty for a local socket; exactly one for a single server; 3 or more for a quorum.
    hosts: Vec<HostPort>,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
    db: u32,
    prefix: String,
    fence_memory: Duration,
    replicas: Option<Replicas>,
    margin: Margin,
    inner: Option<Inner>,
}

impl RedisUrl {
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The servers, or the Sentinels.
    pub(crate) fn hosts(&self) -> &[HostPort] {
        &self.hosts
    }

    /// Every server by itself, as if the URL named that one alone.
    pub(crate) fn members(&self) -> Vec<RedisUrl> {
        let alone = |host: &HostPort| RedisUrl {
            topology: Topology::Single,
            hosts: vec![host.clone()],
            replicas: None,
            inner: None,
            ..self.clone()
        };
        self.hosts.iter().map(alone).collect()
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// For the servers. Those for Sentinel are in [`Topology::Sentinel`].
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    pub(crate) fn db(&self) -> u32 {
        self.db
    }

    /// May be empty; has no braces.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// How long the last fence of a name is remembered after its lease.
    pub(crate) fn fence_memory(&self) -> Duration {
        self.fence_memory
    }

    pub(crate) fn replicas(&self) -> Option<Replicas> {
        self.replicas
    }

    /// How far the rates of the clocks of servers and clients may differ.
    pub(crate) fn margin(&self) -> Margin {
        self.margin
    }

    pub(crate) fn inner(&self) -> Option<&Inner> {
        self.inner.as_ref()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    Single,
    Unix { path: PathBuf },
    Sentinel { service: String, credentials: Option<Credentials> },
    Cluster,
    Quorum,
}

/// A host in lower case, an IPv6 address without its brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// TLS is wanted; its files, all absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) client: Option<ClientCertificate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// `None` is the server's default user.
    pub(crate) user: Option<String>,
    pub(crate) password: Secret,
}

/// A string that does not print.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(text::REDACTED)
    }
}

/// How many replicas must have acknowledged a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replicas {
    AtLeast(NonZeroU32),
    All,
}

/// The file domain underneath, which every holder on this host holds as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    url: Box<DomainUrl>,
    degrade: Degrade,
}

impl Inner {
    fn new(url: DomainUrl, degrade: Degrade) -> Result<Self, Error> {
        if !matches!(url.target, Target::File { .. }) {
            return Err(Error::invalid("inner store of a layered domain is no directory")
                .fix("write `file:///var/lock/app`, or `file:` for the default one"));
        }
        let options = [("ttl", url.ttl), ("timeout", url.timeout)];
        match options.iter().find(|(_, time)| time.is_some()) {
            // A lease has one ttl, in both stores.
            Some((option, _)) => {
                Err(Error::invalid(format!("option `{option}` in the inner URL of a layered domain"))
                    .fix("write it in the outer one, for both"))
            }
            None => Ok(Inner { url: Box::new(url), degrade }),
        }
    }

    /// The directory; the default one for `None`.
    pub(crate) fn dir(&self) -> (Option<PathBuf>, bool) {
        match self.url.target() {
            Target::File { dir, network_fs_allowed } => (dir.clone(), *network_fs_allowed),
            Target::Memory { .. } | Target::Redis(_) => unreachable!("checked when it was parsed"),
        }
    }

    pub(crate) fn degrade(&self) -> Degrade {
        self.degrade
    }
}

/// What happens in a [layered domain](crate::Domain::layered) while its outer store is out of reach.
///
/// # Examples
/// ```
/// use tenure::Degrade;
///
/// assert_eq!(Degrade::default(), Degrade::Never);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Degrade {
    /// Nothing is acquired, and what is held is lost by its deadline: a lock excludes everyone, or is not there.
    #[default]
    Never,
    /// It is gone on with the inner store alone: locks exclude the processes of this machine, and [say so](crate::Lease::is_degraded).
    Allow,
}
