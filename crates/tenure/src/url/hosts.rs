//! The authority of a Redis URL: user, password and hosts.
//!
//! Errors say which host by its number, and quote a host or a port only after it has proved to be one: what stands in the place
//! of a port may be a password whose `@host` is missing.

use std::net::Ipv6Addr;

use crate::types::error::Error;
use crate::url::scheme::{Kind, Scheme};
use crate::url::text::{Echo, REDACTED, decode, decode_printable};
use crate::url::{Credentials, HostPort, Secret};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// A majority of two is two: it would tolerate no failure, and be less available than one server.
const MIN_QUORUM: usize = 3;

/// What stands before the `@`.
pub(super) fn credentials(userinfo: &str) -> Result<Credentials, Error> {
    if userinfo.contains(',') {
        return Err(Error::invalid("unescaped `,` in user or password of domain URL")
            .fix("write `%2C`, and write user and password once, before the first host"));
    }
    let Some((user, password)) = userinfo.split_once(':') else {
        return Err(Error::invalid("no password before `@` in domain URL")
            .fix("write `user:password@host`, or `:password@host` for a password alone"));
    };
    let user = decode_printable(user, "the user")?;
    Ok(Credentials { user: (!user.is_empty()).then_some(user), password: secret(password, "the password")? })
}

/// A password as it is written, which is never quoted.
pub(super) fn secret(raw: &str, part: &str) -> Result<Secret, Error> {
    if raw.is_empty() {
        return Err(Error::invalid(format!("{part} of domain URL is empty"))
            .fix("write it, or leave it out altogether"));
    }
    if raw == REDACTED {
        return Err(Error::invalid(format!("{part} of domain URL is `***`, as in a redacted URL"))
            .fix("write the real one (three stars themselves are `%2A%2A%2A`)"));
    }
    Ok(Secret(decode(raw, part)?))
}

/// The hosts, separated by commas.
pub(super) fn hosts(list: &str, scheme: Scheme, echo: Echo) -> Result<Vec<HostPort>, Error> {
    let takes_several = matches!(scheme.kind, Kind::Sentinel | Kind::Cluster | Kind::Quorum);
    if list.contains(',') && !takes_several {
        let several = Scheme::list(|other| {
            other.tls == scheme.tls && matches!(other.kind, Kind::Sentinel | Kind::Cluster | Kind::Quorum)
        });
        return Err(Error::invalid("several hosts in domain URL")
            .fix(format!("{} takes one, and those that take several are {several}", scheme.as_str())));
    }
    if list.is_empty() {
        return Err(Error::invalid("no host in domain URL").fix(format!("write `{}`", scheme.example())));
    }
    let default_port = match scheme.kind {
        Kind::Sentinel => SENTINEL_PORT,
        _ => PORT,
    };
    let is_one = !list.contains(',');
    let mut hosts: Vec<HostPort> = Vec::new();
    for (index, item) in list.split(',').enumerate() {
        let which = if is_one { "host".to_owned() } else { format!("host {}", index + 1) };
        let host = host_port(item, Some(default_port), &which, echo)?;
        if hosts.contains(&host) {
            let shown = echo.quote(&host.to_string());
            return Err(Error::invalid(format!("{which}{shown} is twice in domain URL"))
                .fix("name every server once"));
        }
        hosts.push(host);
    }
    if scheme.kind == Kind::Quorum && hosts.len() < MIN_QUORUM {
        return Err(Error::invalid(format!("{} needs at least {MIN_QUORUM} hosts", scheme.as_str()))
            .fix("a majority of two is both, which tolerates no failure"));
    }
    Ok(hosts)
}

/// One host and its port, which may only be missing where there is a default.
pub(super) fn host_port(
    item: &str,
    default_port: Option<u16>,
    which: &str,
    echo: Echo,
) -> Result<HostPort, Error> {
    let (host, port) = if let Some(bracketed) = item.strip_prefix('[') {
        let address = bracketed.split_once(']').and_then(|(address, after)| {
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            Some((address.parse::<Ipv6Addr>().ok()?.to_string(), port))
        });
        address.ok_or_else(|| {
            Error::invalid(format!("{which} of domain URL is no IPv6 address"))
                .fix("write it as `[::1]` or `[::1]:6379`, without a zone")
        })?
    } else {
        let (host, port) = match item.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(Error::invalid(format!("several colons in {which} of domain URL"))
                    .fix("write an IPv6 address in brackets, `[::1]:6379`, and end a password with `@`"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (item, None),
        };
        (host_name(host, which)?, port)
    };
    let port = match (port, default_port) {
        (Some(port), _) => port_number(port, which, echo)?,
        (None, Some(port)) => port,
        (None, None) => {
            return Err(Error::invalid("no scheme and no port in domain URL")
                .fix("write `redis://host`, or `host:6379`"));
        }
    };
    Ok(HostPort { host, port })
}

fn host_name(host: &str, which: &str) -> Result<String, Error> {
    if host.is_empty() {
        return Err(Error::invalid(format!("{which} of domain URL is empty"))
            .fix("write a name or an address, as in `localhost:6379`"));
    }
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if !host.bytes().all(is_allowed) || host.starts_with(['.', '-']) {
        return Err(Error::invalid(format!("{which} of domain URL is no host name")).fix(
            "it has letters, digits, `.`, `-` and `_` \
             (an international name is written in its `xn--` form)",
        ));
    }
    Ok(host.to_ascii_lowercase())
}

fn port_number(port: &str, which: &str, echo: Echo) -> Result<u16, Error> {
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let number = port.parse().ok().filter(|&number: &u16| is_number && number != 0);
    number.ok_or_else(|| {
        let what = match (port.is_empty(), is_number) {
            (true, _) => "missing after its colon",
            (_, true) => "out of range",
            (_, false) => "not a number",
        };
        Error::invalid(format!("port{} of {which} in domain URL is {what}", echo.quote_number(port)))
            .fix("write a number from 1 to 65535")
    })
}
