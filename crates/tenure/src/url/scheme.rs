//! Schemes: `store[s][+topology]`, ours and the spellings of others.
//!
//! A foreign spelling is recognised word by word (`redis-sentinel`, `sentinel+tls`, `valkey_cluster`) rather than from a list, so
//! that the error can name ours for all of them. Suggestions are built from our own examples, never from the user's hosts.

use crate::types::error::Error;
use crate::url::text::{Echo, nearest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Memory,
    File,
    Single,
    Unix,
    Sentinel,
    Cluster,
    Quorum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) kind: Kind,
    pub(super) tls: bool,
}

const fn plain(kind: Kind) -> Scheme {
    Scheme { kind, tls: false }
}

const fn tls(kind: Kind) -> Scheme {
    Scheme { kind, tls: true }
}

/// Every scheme, as it is written and as an example; what most users need comes first in messages.
const KNOWN: [(&str, Scheme, &str); 11] = [
    ("redis://", plain(Kind::Single), "redis://host:6379"),
    ("rediss://", tls(Kind::Single), "rediss://host:6379"),
    ("file:", plain(Kind::File), "file:///var/lock/app"),
    ("redis+unix://", plain(Kind::Unix), "redis+unix:///run/redis.sock"),
    ("redis+sentinel://", plain(Kind::Sentinel), "redis+sentinel://host1,host2/service"),
    ("rediss+sentinel://", tls(Kind::Sentinel), "rediss+sentinel://host1,host2/service"),
    ("redis+cluster://", plain(Kind::Cluster), "redis+cluster://host1,host2"),
    ("rediss+cluster://", tls(Kind::Cluster), "rediss+cluster://host1,host2"),
    ("redis+quorum://", plain(Kind::Quorum), "redis+quorum://host1,host2,host3"),
    ("rediss+quorum://", tls(Kind::Quorum), "rediss+quorum://host1,host2,host3"),
    ("memory:", plain(Kind::Memory), "memory:name"),
];

impl Scheme {
    pub(super) fn is_redis(self) -> bool {
        !matches!(self.kind, Kind::Memory | Kind::File)
    }

    /// With its colon and slashes: `redis://`.
    pub(super) fn as_str(self) -> &'static str {
        self.entry().0
    }

    pub(super) fn example(self) -> &'static str {
        self.entry().2
    }

    fn entry(self) -> &'static (&'static str, Scheme, &'static str) {
        let mut known = KNOWN.iter();
        known.find(|(_, scheme, _)| *scheme == self).expect("a scheme is only made from this table")
    }

    /// A scheme of ours, in lower case and without its colon; `valkey` stands wherever `redis` does.
    fn known(word: &str) -> Option<Scheme> {
        let word = match word.strip_prefix("valkey") {
            Some(rest) => format!("redis{rest}"),
            None => word.to_owned(),
        };
        let is_it = |written: &str| written.trim_end_matches(['/', ':']) == word;
        KNOWN.iter().find(|(written, ..)| is_it(written)).map(|(_, scheme, _)| *scheme)
    }

    /// The schemes for which `is_wanted`, as a list in prose.
    pub(super) fn list(is_wanted: impl Fn(Scheme) -> bool) -> String {
        let wanted = KNOWN.iter().filter(|(_, scheme, _)| is_wanted(*scheme));
        wanted.map(|(written, ..)| *written).collect::<Vec<_>>().join(", ")
    }
}

/// What a URL begins with.
#[derive(Debug)]
pub(super) enum Start<'a> {
    /// A scheme, and what follows its colon, or its slashes for Redis.
    Scheme(Scheme, &'a str),
    /// No scheme: perhaps the old `host:port`.
    HostPort,
}

/// Finds the scheme. `echo` has judged the whole text.
pub(super) fn split(text: &str, echo: Echo) -> Result<Start<'_>, Error> {
    if text.starts_with('[') {
        return Ok(Start::HostPort);
    }
    if text.starts_with(['/', '.', '~', '\\']) {
        return Err(Error::invalid("domain URL is a path")
            .fix("write it absolute and with its scheme: `file:///var/lock/app`"));
    }
    let Some((word, rest)) = text.split_once(':') else {
        return Ok(Start::HostPort);
    };
    // A container is often called `redis`, so `redis:6379` is a host and a port.
    let is_port = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    let lower = word.to_ascii_lowercase();
    let scheme = Scheme::known(&lower);
    match (scheme, rest.strip_prefix("//")) {
        (Some(scheme), Some(rest)) if scheme.is_redis() => Ok(Start::Scheme(scheme, rest)),
        (Some(scheme), _) if !scheme.is_redis() => Ok(Start::Scheme(scheme, rest)),
        _ if is_port => Ok(Start::HostPort),
        (Some(scheme), _) => {
            let slashes = if rest.starts_with('/') { "one slash is" } else { "two slashes are" };
            Err(Error::invalid(format!("{slashes} missing after the scheme of domain URL"))
                .fix(format!("write `{}`", scheme.example())))
        }
        (None, slashes) => match foreign(&lower) {
            Some(error) => Err(error),
            None if slashes.is_some() => Err(unknown(&lower, echo)),
            None => Ok(Start::HostPort),
        },
    }
}

fn unknown(word: &str, echo: Echo) -> Error {
    let words = KNOWN.iter().map(|(written, ..)| *written);
    let expected = match nearest(&format!("{word}://"), words) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            format!("expected one of {}, or `valkey` in place of `redis`", Scheme::list(|_| true))
        }
    };
    Error::invalid(format!("unknown scheme{} in domain URL", echo.quote(word))).fix(expected)
}

/// The error for a spelling that is in use elsewhere: all of its words are known, their combination is not.
fn foreign(word: &str) -> Option<Error> {
    if word.is_empty() {
        return None;
    }
    let mut kind = Kind::Single;
    let mut tls = false;
    let mut is_valkey = false;
    for part in word.split(['+', '-', '_', '.']).filter(|part| !part.is_empty()) {
        match part {
            "redis" | "tcp" | "in" => {}
            "valkey" => is_valkey = true,
            "rediss" | "tls" | "ssl" | "rustls" => tls = true,
            "valkeys" => (is_valkey, tls) = (true, true),
            "sentinel" | "sentinels" => kind = Kind::Sentinel,
            "cluster" => kind = Kind::Cluster,
            "quorum" | "redlock" | "majority" => kind = Kind::Quorum,
            "unix" | "unixs" | "socket" | "sock" | "uds" => kind = Kind::Unix,
            "mem" | "memory" | "inmemory" => kind = Kind::Memory,
            "file" | "files" | "fs" | "dir" | "path" | "flock" | "lockfile" => kind = Kind::File,
            _ => return None,
        }
    }
    if tls && kind == Kind::Unix {
        return Some(
            Error::invalid("no TLS over a local socket").fix("write `redis+unix:///run/redis.sock`"),
        );
    }
    let tls = tls && !matches!(kind, Kind::Memory | Kind::File);
    let mut ours = Scheme { kind, tls }.example().to_owned();
    if is_valkey {
        ours = ours.replacen("redis", "valkey", 1);
    }
    // Made of words that are known, so it is no password.
    let shown = Echo::Allowed.quote(word);
    Some(Error::invalid(format!("unknown scheme{shown} in domain URL")).fix(format!("write `{ours}`")))
}
