//! From text to a validated URL, outside in: characters, scheme, authority, path, options.
//!
//! The order matters for secrecy. A stray `@` is looked for before anything else is judged, and the authority before path and
//! options: an unescaped password is then refused as such before a piece of it can be taken for a database or an option.

use std::path::{Path, PathBuf};

use crate::core::deadlines::Margin;
use crate::types::error::Error;
use crate::url::hosts::{credentials, host_port, hosts};
use crate::url::options::Options;
use crate::url::scheme::{self, Kind, Scheme, Start};
use crate::url::text::{Echo, decode_path, decode_printable, stray_at};
use crate::url::{DEFAULT_FENCE_MEMORY, DEFAULT_PREFIX, DomainUrl, RedisUrl, Target, Topology};

pub(super) fn domain_url(text: &str, echo: Echo) -> Result<DomainUrl, Error> {
    check_characters(text)?;
    match scheme::split(text, echo.judge(text))? {
        Start::HostPort => old_form(text, echo),
        Start::Scheme(scheme, rest) if scheme.is_redis() => redis(scheme, rest, echo),
        Start::Scheme(_, rest) if rest.contains('@') => Err(stray_at()),
        Start::Scheme(scheme, rest) => local(scheme, rest, echo.judge(rest)),
    }
}

fn check_characters(text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(Error::invalid("domain URL is empty")
            .fix("write for example `redis://localhost`, `file:` or `memory:`"));
    }
    let is_forbidden = |c: char| c.is_whitespace() || c.is_control();
    if let Some(index) = text.chars().position(is_forbidden) {
        return Err(Error::invalid(format!(
            "whitespace or control character in domain URL, at character {}",
            index + 1
        ))
        .fix("leave it out, or write a blank as `%20`"));
    }
    if text.contains('#') {
        return Err(Error::invalid("unexpected `#` in domain URL, which has no fragment").fix(
            "inside a password write `%23` \
             (and `%2F` for `/`, `%3F` for `?`, `%40` for `@`)",
        ));
    }
    Ok(())
}

/// `host:port`, which stands for one Redis server. It takes nothing else, so that it can't be mistaken for a scheme.
fn old_form(text: &str, echo: Echo) -> Result<DomainUrl, Error> {
    if text.contains('@') {
        return Err(Error::invalid("no scheme before user and password in domain URL")
            .fix("write `redis://user:password@host:6379`"));
    }
    if text.contains(['/', '?', ',']) {
        return Err(Error::invalid("no known scheme in domain URL, and the form `host:port` takes no database, options or further hosts").fix("\
             write `redis://host:6379/0?ttl=10s`"));
    }
    match text.to_ascii_lowercase().as_str() {
        "memory" => {
            return Err(Error::invalid("no colon after `memory` in domain URL").fix("write `memory:`"));
        }
        "file" => {
            return Err(Error::invalid("no colon after `file` in domain URL").fix("write `file:`"));
        }
        _ => {}
    }
    let host = host_port(text, None, "host", echo.judge(text))?;
    let mut url = RedisUrl::new(Topology::Single);
    url.hosts = vec![host];
    Ok(DomainUrl { target: Target::Redis(Box::new(url)), ttl: None, timeout: None })
}

fn local(scheme: Scheme, rest: &str, echo: Echo) -> Result<DomainUrl, Error> {
    let (path, query) = split_query(rest)?;
    let target = match scheme.kind {
        Kind::Memory => Target::Memory { name: memory_name(path)? },
        _ => Target::File { dir: directory(path)?, network_fs_allowed: false },
    };
    let options = Options::parse(query, scheme, echo)?;
    let (ttl, timeout) = (options.ttl, options.timeout);
    let target = options.apply_to(target)?;
    Ok(DomainUrl { target, ttl, timeout })
}

fn memory_name(raw: &str) -> Result<Option<String>, Error> {
    if raw.starts_with("//") {
        return Err(Error::invalid("two slashes too many after `memory:` in domain URL")
            .fix("write `memory:` or `memory:name`"));
    }
    // The set is small so that a URL of another kind, with the wrong scheme, is not taken for a name and printed.
    let is_allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~%/".contains(c);
    if !raw.chars().all(is_allowed) {
        return Err(Error::invalid("unescaped punctuation in the name after `memory:` in domain URL")
            .fix("write letters, digits, `-._~/`, and all else as `%XX`"));
    }
    let name = decode_printable(raw, "the name")?;
    Ok((!name.is_empty()).then_some(name))
}

/// The directory of a file URL: nothing, `/path` or `///path`.
fn directory(raw: &str) -> Result<Option<PathBuf>, Error> {
    let path = match raw.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some("") => {
            return Err(Error::invalid("no path after `file://` in domain URL")
                .fix("write `file:///var/lock/app`, or `file:` for the default directory"));
        }
        Some(_) => {
            return Err(Error::invalid("host in a file URL")
                .fix("a directory of this machine has three slashes: `file:///var/lock/app`"));
        }
        None => raw,
    };
    if path.is_empty() {
        return Ok(None);
    }
    if !path.starts_with('/') {
        return Err(
            Error::invalid("relative path in domain URL").fix("write it absolute: `file:///var/lock/app`")
        );
    }
    let path = decode_path(path, "the path")?;
    if path == Path::new("/") {
        return Err(Error::invalid("the root directory can't hold locks")
            .fix("write `file:///var/lock/app`, or `file:` for the default directory"));
    }
    Ok(Some(path))
}

fn redis(scheme: Scheme, rest: &str, echo: Echo) -> Result<DomainUrl, Error> {
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (userinfo, list) = match authority.rsplit_once('@') {
        Some((userinfo, list)) => (Some(userinfo), list),
        None => (None, authority),
    };
    if tail.contains('@') || userinfo.is_some_and(|userinfo| userinfo.contains('@')) {
        return Err(stray_at());
    }
    let echo = echo.judge(list).judge(tail);
    let credentials = userinfo.map(credentials).transpose()?;
    let (path, query) = split_query(tail)?;

    let mut url = if scheme.kind == Kind::Unix {
        RedisUrl::new(socket(list, path)?)
    } else {
        if list.is_empty() && path.len() > 1 && scheme.kind == Kind::Single {
            return Err(Error::invalid("no host in domain URL")
                .fix("write `redis://host:6379/0`, or `redis+unix:///run/redis.sock` for a local socket"));
        }
        let hosts = hosts(list, scheme, echo)?;
        let (topology, db) = servers(scheme, path, echo)?;
        let mut url = RedisUrl::new(topology);
        (url.hosts, url.db) = (hosts, db);
        url
    };
    url.credentials = credentials;
    let options = Options::parse(query, scheme, echo)?;
    let (ttl, timeout) = (options.ttl, options.timeout);
    let target = options.apply_to(Target::Redis(Box::new(url)))?;
    Ok(DomainUrl { target, ttl, timeout })
}

impl RedisUrl {
    fn new(topology: Topology) -> Self {
        RedisUrl {
            topology,
            hosts: Vec::new(),
            tls: None,
            credentials: None,
            db: 0,
            prefix: DEFAULT_PREFIX.to_owned(),
            fence_memory: DEFAULT_FENCE_MEMORY,
            replicas: None,
            margin: Margin::default(),
            inner: None,
        }
    }
}

fn split_query(tail: &str) -> Result<(&str, Option<&str>), Error> {
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (tail, None),
    };
    if query.is_some_and(|query| query.contains('?')) {
        return Err(Error::invalid("second `?` in domain URL").fix(
            "options are separated by `&`, and inside a password or a nested URL `?` is written `%3F`",
        ));
    }
    // Without its `?` an option, perhaps a password, would become a part of the directory or the service.
    if path.contains(['=', '&']) {
        return Err(Error::invalid("unescaped `=` or `&` in the path of domain URL")
            .fix("options begin with `?`, and in a path write `%3D` and `%26`"));
    }
    Ok((path, query))
}

fn socket(list: &str, path: &str) -> Result<Topology, Error> {
    if !list.is_empty() {
        return Err(Error::invalid("host in the URL of a local socket")
            .fix("its path has three slashes: `redis+unix:///run/redis.sock`"));
    }
    let path = decode_path(path, "the path")?;
    if path.as_os_str().is_empty() || path == Path::new("/") {
        return Err(Error::invalid("no path in the URL of a local socket")
            .fix("write `redis+unix:///run/redis.sock`"));
    }
    Ok(Topology::Unix { path })
}

/// What the path says: the service for Sentinel, then the database.
fn servers(scheme: Scheme, path: &str, echo: Echo) -> Result<(Topology, u32), Error> {
    let mut segments = path.strip_prefix('/').unwrap_or(path).split('/');
    let topology = match scheme.kind {
        Kind::Sentinel => {
            let service = decode_printable(segments.next().unwrap_or_default(), "the service")?;
            if service.is_empty() {
                return Err(Error::invalid("no service in domain URL").fix(format!(
                    "write the name that Sentinel knows the master by: `{}`",
                    scheme.example()
                )));
            }
            Topology::Sentinel { service, credentials: None }
        }
        Kind::Cluster => Topology::Cluster,
        Kind::Quorum => Topology::Quorum,
        _ => Topology::Single,
    };
    let db = match segments.next() {
        None | Some("") => 0,
        Some(db) => database(db, "database", echo)?,
    };
    if segments.next().is_some() {
        return Err(Error::invalid(format!(
            "path of domain URL goes on after the database; write `{}{}`",
            scheme.example(),
            if scheme.kind == Kind::Cluster { "" } else { "/0" }
        )));
    }
    if scheme.kind == Kind::Cluster && db != 0 {
        return Err(Error::invalid(format!(
            "database{} in the URL of a cluster",
            echo.quote_number(&db.to_string())
        ))
        .fix("a cluster has only database 0, leave it out"));
    }
    Ok((topology, db))
}

/// The number of a database; `part` names where it stands.
pub(super) fn database(raw: &str, part: &str, echo: Echo) -> Result<u32, Error> {
    let is_word = raw.bytes().all(|b| b.is_ascii_alphanumeric() || b"-+._".contains(&b));
    let shown = if is_word { echo.quote(raw) } else { String::new() };
    let is_number = raw.bytes().all(|b| b.is_ascii_digit());
    let what = match (is_number, raw.starts_with('-')) {
        (true, _) => "out of range",
        (_, true) => "negative",
        _ => "not a number",
    };
    raw.parse().ok().filter(|_| is_number).ok_or_else(|| {
        Error::invalid(format!("{part}{shown} in domain URL is {what}"))
            .fix("write the number of a database, such as 0")
    })
}
