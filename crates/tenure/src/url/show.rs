//! The canonical, redacted form of a URL.
//!
//! Defaults are left out, except for ports. Everything that could be mistaken for syntax is escaped, so what is printed parses
//! back to an equal value, unless it has a password: `***` is refused by the parser, lest a URL copied from a log be used.

use std::fmt;
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::core::deadlines::Margin;
use crate::types::duration;
use crate::url::scheme::{Kind, Scheme};
use crate::url::text::REDACTED;
use crate::url::{
    Credentials, DEFAULT_FENCE_MEMORY, DEFAULT_PREFIX, Degrade, DomainUrl, HostPort, RedisUrl, Replicas,
    Target, Topology,
};

/// What is escaped in a user and in a name.
const WORD: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What is escaped in a path.
const PATH: &AsciiSet = &WORD.remove(b'/');
/// What is escaped in the value of an option.
const VALUE: &AsciiSet = &PATH.remove(b':');

impl fmt::Display for DomainUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        match &self.target {
            Target::Memory { name } => {
                let name = name.as_deref().unwrap_or_default();
                // Two slashes would look like `memory://`, which is refused.
                let escaped = if name.starts_with("//") { WORD } else { PATH };
                write!(f, "memory:{}", utf8_percent_encode(name, escaped))?;
            }
            Target::File { dir, network_fs_allowed } => {
                f.write_str("file:")?;
                if let Some(dir) = dir {
                    write!(f, "//{}", utf8_percent_encode(&utf8(dir), PATH))?;
                }
                if *network_fs_allowed {
                    options.push(("network_fs", "allow".to_owned()));
                }
            }
            Target::Redis(url) => {
                write_servers(f, url)?;
                options = redis_options(url);
            }
        }
        let times = [("ttl", self.ttl), ("timeout", self.timeout)];
        let times = times.into_iter().filter_map(|(name, time)| Some((name, duration::show(time?))));
        for (index, (name, value)) in times.chain(options).enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            // The stars of a redacted password are to be seen as such.
            let value = match name {
                "sentinel_password" => value,
                _ => utf8_percent_encode(&value, VALUE).to_string(),
            };
            write!(f, "{separator}{name}={value}")?;
        }
        Ok(())
    }
}

fn write_servers(f: &mut fmt::Formatter<'_>, url: &RedisUrl) -> fmt::Result {
    let kind = match url.topology {
        Topology::Single => Kind::Single,
        Topology::Unix { .. } => Kind::Unix,
        Topology::Sentinel { .. } => Kind::Sentinel,
        Topology::Cluster => Kind::Cluster,
        Topology::Quorum => Kind::Quorum,
    };
    let tls = url.tls.is_some();
    f.write_str(Scheme { kind, tls }.as_str())?;
    if let Some(Credentials { user, .. }) = &url.credentials {
        let user = user.as_deref().unwrap_or_default();
        write!(f, "{}:{REDACTED}@", utf8_percent_encode(user, WORD))?;
    }
    for (index, host) in url.hosts.iter().enumerate() {
        let separator = if index == 0 { "" } else { "," };
        write!(f, "{separator}{host}")?;
    }
    match &url.topology {
        Topology::Unix { path } => return write!(f, "{}", utf8_percent_encode(&utf8(path), PATH)),
        Topology::Sentinel { service, .. } => write!(f, "/{}", utf8_percent_encode(service, WORD))?,
        Topology::Single | Topology::Cluster | Topology::Quorum => {}
    }
    if url.db != 0 {
        write!(f, "/{}", url.db)?;
    }
    Ok(())
}

fn redis_options(url: &RedisUrl) -> Vec<(&'static str, String)> {
    let mut options = Vec::new();
    if url.prefix != DEFAULT_PREFIX {
        options.push(("prefix", url.prefix.clone()));
    }
    if url.fence_memory != DEFAULT_FENCE_MEMORY {
        options.push(("fence_memory", duration::show(url.fence_memory)));
    }
    match url.replicas {
        Some(Replicas::AtLeast(number)) => options.push(("replicas", number.to_string())),
        Some(Replicas::All) => options.push(("replicas", "all".to_owned())),
        None => {}
    }
    if url.margin != Margin::default() {
        options.push(("margin", url.margin.percent().to_string()));
    }
    if let Some(inner) = &url.inner {
        options.push(("inner", inner.url.to_string()));
        if inner.degrade == Degrade::Allow {
            options.push(("degrade", "allow".to_owned()));
        }
    }
    if let Some(tls) = &url.tls {
        let client = tls.client.as_ref();
        let files = [
            ("tls_ca", tls.ca.as_ref()),
            ("tls_cert", client.map(|client| &client.cert)),
            ("tls_key", client.map(|client| &client.key)),
        ];
        options.extend(files.into_iter().filter_map(|(name, path)| Some((name, utf8(path?)))));
    }
    match &url.topology {
        Topology::Sentinel { credentials: Some(credentials), .. } => {
            if let Some(user) = &credentials.user {
                options.push(("sentinel_user", user.clone()));
            }
            options.push(("sentinel_password", REDACTED.to_owned()));
        }
        Topology::Unix { .. } if url.db != 0 => options.push(("db", url.db.to_string())),
        _ => {}
    }
    options
}

/// A path of ours was parsed from a string: nothing is lost.
fn utf8(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
