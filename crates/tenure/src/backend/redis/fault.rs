//! What a refusal, a broken connection or a timeout means: an error that says what to do.
//!
//! The important difference is whether the server may have executed the request. It did not execute a request that it refused: the client
//! may send it again, and loses no lease. If there is no answer, the client repeats the request with the same token until the deadline.
//!
//! An error says what failed and names the server; its reason has the words of the server or the driver; its remedy says what to do.

use redis::{ConnectionAddr, RedisError, ServerError, Value};

use super::keys::Keys;
use crate::types::error::{Error, ErrorKind};

/// The server refused a command that uses the keys of this lock.
pub(super) fn refused_for(error: &ServerError, address: &str, lock: &str) -> Error {
    if error.code() != "WRONGTYPE" {
        return refused(error, address);
    }
    let [fence, queue, heartbeats] = Keys::beside(lock);
    match error.details() {
        Some(details) if details.contains("out of range") => {
            let what = format!("redis at {address} has a last fence in key `{fence}` that is out of range");
            Error::new(ErrorKind::Protocol, what).because("another program wrote it").fix("delete this key")
        }
        _ => {
            let what = format!(
                "redis at {address} holds something else than a lock in key `{lock}`, or in one of `{fence}`, `{queue}` and `{heartbeats}`"
            );
            Error::new(ErrorKind::Protocol, what).fix("use another name, or another `prefix` in the URL")
        }
    }
}

/// The server refused a command.
pub(super) fn refused(error: &ServerError, address: &str) -> Error {
    let said = said(error.code(), error.details());
    match error.code() {
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            Error::not_yet(format!("redis at {address} does not execute commands at the moment"))
                .because(said)
                .fix("try again")
        }
        _ if is_read_only(error) => Error::unavailable(format!("redis at {address} is a read-only replica"))
            .because(said)
            .fix("point the URL at the master"),
        "OOM" => Error::unavailable(format!("redis at {address} is out of memory"))
            .because(said)
            .fix("raise its maxmemory, or free memory; leases that are held stay held"),
        "MISCONF" => {
            Error::unavailable(format!("redis at {address} cannot write to its disk, and refuses changes"))
                .because(said)
                .fix("free its disk")
        }
        "NOREPLICAS" => Error::unavailable(format!(
            "redis at {address} has fewer replicas than its min-replicas-to-write demands"
        ))
        .because(said)
        .fix("bring them back"),
        "WRONGPASS" => wrong_password(address).because(said),
        "NOAUTH" => Error::new(ErrorKind::Denied, format!("redis at {address} requires a password"))
            .because("NOAUTH")
            .fix("put it into the URL, before the host: `:password@` for `requirepass`, or `user:password@`"),
        // The rest of its message explains the server's configuration at length.
        "DENIED" => protected_mode(address),
        "NOPERM" => not_permitted(address).because(said),
        "MOVED" | "ASK" | "CROSSSLOT" => Error::unsupported(format!(
            "redis at {address} is a node of a cluster, and does not have this name"
        ))
        .because(said)
        .fix("write redis+cluster:// in the URL"),
        // The slot of the keys is moving: the script removed a key and then looked for it again.
        _ if said.contains("non local key") => {
            Error::unanswered(format!("redis at {address} aborted a script, because its slot is moving"))
                .because(said)
                .fix("try again")
        }
        // Before Redis 7.2, and in Valkey, the error about a command inside a script has no code of its own.
        _ if said.contains("The user executing the script") || said.contains("ACL failure in script") => {
            not_permitted(address).because(said)
        }
        _ if said.contains("unknown command") => {
            Error::unsupported(format!("redis at {address} lacks a command that tenure needs"))
                .because(said)
                .fix("use Redis 6.2 or later")
        }
        _ => Error::new(ErrorKind::Protocol, format!("redis at {address} answered with an error"))
            .because(said),
    }
}

/// The server is a replica. Before Redis 7.0 the error comes from inside the script, and has no code of its own.
pub(super) fn is_read_only(error: &ServerError) -> bool {
    error.code() == "READONLY" || error.details().is_some_and(|details| details.contains(": -READONLY "))
}

/// The server has no password, and accepts connections from its own machine only.
pub(super) fn protected_mode(address: &str) -> Error {
    let what = format!("redis at {address} is in protected mode and refuses other machines");
    Error::new(ErrorKind::Denied, what).because("DENIED").fix("set a password on the server: requirepass")
}

fn not_permitted(address: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("redis at {address} says that the user lacks a permission"))
        .fix("docs/backends/redis.md lists the permissions")
}

fn wrong_password(address: &str) -> Error {
    Error::new(ErrorKind::Denied, format!("redis at {address} refused the user or the password of the URL"))
        .fix("correct them")
}

/// The client sent a command, and the connection broke before the answer.
pub(super) fn of_command(error: &RedisError, address: &str) -> Error {
    match server_error(error) {
        Some(refusal) => refused(&refusal, address),
        None => Error::unanswered(format!("redis at {address} did not answer before the connection broke"))
            .because(error.to_string())
            .fix("try again"),
    }
}

/// The client cannot connect to the server at this address.
pub(super) fn of_connecting(error: &RedisError, address: &str, addr: Option<&ConnectionAddr>) -> Error {
    if let Some(refusal) = server_error(error) {
        return refused(&refusal, address);
    }
    let said = error.to_string();
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => wrong_password(address),
        redis::ErrorKind::RESP3NotSupported => {
            Error::unsupported(format!("redis at {address} does not speak RESP3"))
                .fix("use Redis 6.2 or later, or Valkey")
        }
        redis::ErrorKind::InvalidClientConfig => {
            Error::invalid(format!("cannot connect to redis at {address} in this way")).because(said)
        }
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => {
            Error::unavailable(format!("the server at {address} is not a redis server, or expects TLS"))
                .fix("correct the host and the port, or write rediss://")
        }
        // Before the next case: the driver counts a refused connection as a dropped one.
        _ if error.is_connection_refusal() => cannot_reach(said, address),
        _ if error.is_connection_dropped() => dropped(said, address, addr),
        _ => of_certificates(&said, address).unwrap_or_else(|| match said.contains("lookup address") {
            true => unresolved(&said, address),
            false => cannot_reach(said, address),
        }),
    }
}

fn cannot_reach(said: String, address: &str) -> Error {
    Error::unavailable(format!("cannot reach redis at {address}")).because(said).fix("is it running?")
}

/// A server accepted the connection, and closed it before it answered.
fn dropped(said: String, address: &str, addr: Option<&ConnectionAddr>) -> Error {
    let fix = match addr {
        Some(ConnectionAddr::Tcp(..)) => {
            "try again; if it expects TLS, write rediss://; if it has no password, protected mode refuses other machines: set requirepass"
        }
        _ => "try again",
    };
    Error::not_yet(format!("redis at {address} closes new connections")).because(said).fix(fix)
}

/// What is wrong with the certificate of the server or of the client, if that is the reason.
fn of_certificates(said: &str, address: &str) -> Option<Error> {
    let name = subject_alt_name(host_of(address));
    let error = if said.contains("CertificateRequired") {
        Error::unavailable(format!("redis at {address} asks for a client certificate"))
            .fix("name its files in the URL: `tls_cert` and `tls_key`")
    } else if said.contains("received fatal alert") && said.contains("UnknownCA") {
        Error::unavailable(format!("redis at {address} does not trust the certificate in `tls_cert`"))
            .fix("use one of an authority that the server trusts (its tls-ca-cert-file)")
    } else if said.contains("CaUsedAsEndEntity") {
        Error::unavailable(format!(
            "redis at {address} uses the certificate of an authority (CA:TRUE), which cannot be that of a server"
        ))
        .fix(format!(
            "make one with `-addext basicConstraints=critical,CA:FALSE -addext subjectAltName={name}`, or one for the server that this authority signs"
        ))
    } else if said.contains("not valid for") {
        Error::unavailable(format!("redis at {address} has a certificate for other names")).fix(format!(
            "use a name of the certificate in the URL, or make one with `-addext subjectAltName={name}`"
        ))
    } else if said.contains("certificate") {
        Error::unavailable(format!("cannot trust redis at {address}"))
            .fix("name the authority of its certificate in the URL: `tls_ca`")
    } else {
        return None;
    };
    Some(error.because(said))
}

/// A host as a certificate names it.
fn subject_alt_name(host: &str) -> String {
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => format!("IP:{address}"),
        Err(_) => format!("DNS:{host}"),
    }
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn unresolved(said: &str, address: &str) -> Error {
    let why = said.rsplit_once("information: ").map_or(said, |(_, why)| why);
    Error::unavailable(format!("cannot resolve host `{}`", host_of(address)))
        .because(why)
        .fix("check the name or DNS")
}

/// The driver replaces the error of `SELECT` by its own, which has only the server's text.
pub(super) fn of_selecting(error: &RedisError, address: &str, db: u32) -> Option<Error> {
    let said = error.to_string();
    if !said.contains("refused to switch database") {
        return None;
    }
    Some(match said.contains("out of range") {
        true => Error::invalid(format!(
            "database `{db}` of the domain URL is out of range for redis at {address}"
        ))
        .fix("write a lower one, or raise its `databases`"),
        false => Error::new(ErrorKind::Denied, format!("cannot use database `{db}` of the domain URL"))
            .because(said)
            .fix("allow the user SELECT"),
    })
}

/// The server returned something that no version of these scripts returns.
pub(super) fn unexpected(value: &Value) -> Error {
    Error::new(ErrorKind::Protocol, format!("redis answered {value:?} to a script"))
        .fix("do clients of another version use this prefix?")
}

/// The server refused a floor that is this many µs ahead of its clock, and changed nothing.
pub(super) fn clock_behind(micros: u64, address: &str) -> Error {
    let days = micros / 86_400_000_000;
    Error::unavailable(format!("cannot use redis at {address}"))
        .because(format!("its clock is {days} days behind a fence that this process has seen"))
        .fix("set the clock right, or restart the process if the clock was ahead before")
}

/// The server's own words, if the server refused.
pub(super) fn server_error(error: &RedisError) -> Option<ServerError> {
    let errors = error.clone().into_server_errors()?;
    errors.first().map(|(_, error)| error.clone())
}

/// One of several errors in a list: what failed, and why in parentheses.
pub(super) fn listed(error: &Error) -> String {
    match error.reason() {
        Some(reason) => format!("{} ({reason})", error.what()),
        None => error.what().to_owned(),
    }
}

fn said(code: &str, details: Option<&str>) -> String {
    match details {
        Some(details) => format!("{code} {details}"),
        None => code.to_owned(),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn server_error(said: &str) -> ServerError {
        match redis::parse_redis_value(said.as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_in_protected_mode_needs_a_password() {
        let said = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default \
                    user. In this mode connections are only accepted from the loopback interface. [...]\r\n";
        let error = refused(&server_error(said), "host:6379");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "redis at host:6379 is in protected mode and refuses other machines: DENIED; set a password on the server: requirepass"
        );
    }

    // R0.5: the words of Redis 6.2.
    #[test]
    fn an_error_inside_a_script_shows_that_the_server_is_a_replica() {
        let said = "-ERR Error running script (call to f_5d0a): @user_script:203: @user_script: 203: -READONLY You can't write against \
                    a read only replica.\r\n";
        let error = server_error(said);
        assert!(is_read_only(&error));
        assert!(refused(&error, "host:6379").is_transient(), "{error}");
    }

    #[test]
    fn a_certificate_names_hosts_and_addresses_differently() {
        for (address, name) in [
            ("cache.example:6379", "DNS:cache.example"),
            ("127.0.0.1:6379", "IP:127.0.0.1"),
            ("[fd00::7]:6379", "IP:fd00::7"),
        ] {
            assert_eq!(subject_alt_name(host_of(address)), name);
        }
    }
}
