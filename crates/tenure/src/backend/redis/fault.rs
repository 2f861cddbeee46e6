//! What a server's refusal, or its silence, means: an error that says what to do.
//!
//! The difference that matters is whether the request may have been executed. A refusal was not: whoever asked may ask again, and no
//! lease is lost by it. Silence tells nothing: the request is sent again with the same token, until the deadline.

use redis::{RedisError, ServerError, Value};

use super::keys::Keys;
use crate::types::error::{Error, ErrorKind};

/// The server refused a command that uses the keys of this lock.
pub(super) fn refused_for(error: &ServerError, address: &str, lock: &str) -> Error {
    if error.code() != "WRONGTYPE" {
        return refused(error, address);
    }
    let [fence, queue, beats] = Keys::beside(lock);
    let message = match error.details() {
        Some(details) if details.contains("out of range") => format!(
            "redis at {address} has a last fence in key `{fence}` that is out of range: something else wrote it; delete this key"
        ),
        _ => format!(
            "redis at {address} holds something else than a lock in key `{lock}`, or in one of `{fence}`, `{queue}` and `{beats}`; use another name, or another `prefix` in the URL"
        ),
    };
    Error::new(ErrorKind::Protocol, message)
}

/// The server refused a command.
pub(super) fn refused(error: &ServerError, address: &str) -> Error {
    let said = said(error.code(), error.details());
    match error.code() {
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => {
            Error::not_yet(format!("redis at {address} does not execute commands at the moment ({said})"))
                .fix("try again")
        }
        _ if is_read_only(error) => {
            Error::unavailable(format!("redis at {address} is a read-only replica ({said})"))
                .fix("point the URL at the master")
        }
        "OOM" => Error::unavailable(format!("redis at {address} is out of memory ({said})"))
            .fix("raise its maxmemory, or free some: leases that are held go on"),
        "MISCONF" => Error::unavailable(format!(
            "redis at {address} can't write to its disk, and refuses changes ({said})"
        ))
        .fix("free its disk"),
        "NOREPLICAS" => Error::unavailable(format!(
            "redis at {address} has fewer replicas than its min-replicas-to-write demands ({said})"
        ))
        .fix("bring them back"),
        "WRONGPASS" => Error::new(
            ErrorKind::Denied,
            format!("redis at {address} refused the user or the password of the URL ({said})"),
        )
        .fix("correct them"),
        "NOAUTH" => {
            let fix = "write redis://:password@host for `requirepass`, or redis://user:password@host, and keep that URL in a file: \
                       /etc/tenure/url or --url-file";
            Error::new(ErrorKind::Denied, format!("redis at {address} requires a password (NOAUTH)")).fix(fix)
        }
        // It goes on to explain its configuration at length.
        "DENIED" => Error::new(
            ErrorKind::Denied,
            format!("redis at {address} is in protected mode and refuses other machines (DENIED)"),
        )
        .fix("set a password on the server: requirepass"),
        "NOPERM" => not_permitted(&said, address),
        "MOVED" | "ASK" | "CROSSSLOT" => Error::unsupported(format!(
            "redis at {address} is a node of a cluster, and has other names than this one ({said})"
        ))
        .fix("write redis+cluster:// in the URL"),
        // The slot of its keys is being moved, and it removed one of them and looked for it again.
        _ if said.contains("non local key") => Error::unanswered(format!(
            "redis at {address} broke a script off, because its slot is being moved ({said})"
        ))
        .fix("try again"),
        // What a script may not do has no code of its own before Redis 7.2, and none in Valkey.
        _ if said.contains("The user executing the script") || said.contains("ACL failure in script") => {
            not_permitted(&said, address)
        }
        _ if said.contains("unknown command") => {
            Error::unsupported(format!("redis at {address} can't run what tenure needs ({said})"))
                .fix("use Redis 6.2 or later")
        }
        _ => Error::new(ErrorKind::Protocol, format!("redis at {address} answered with an error: {said}")),
    }
}

/// The server is a replica. Before Redis 7.0 a script finds that out by itself, and its error has no code of its own.
pub(super) fn is_read_only(error: &ServerError) -> bool {
    error.code() == "READONLY" || error.details().is_some_and(|details| details.contains(": -READONLY "))
}

fn not_permitted(said: &str, address: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("redis at {address} says that the user lacks a permission ({said})"),
    )
    .fix("docs/backends/redis.md lists what it needs")
}

/// A command was sent, and something else than an answer came.
pub(super) fn of_command(error: &RedisError, address: &str) -> Error {
    match server_error(error) {
        Some(refusal) => refused(&refusal, address),
        None => Error::unanswered(format!(
            "redis at {address} did not answer before the connection broke ({error})"
        ))
        .fix("try again"),
    }
}

/// A connection could not be made.
pub(super) fn of_connecting(error: &RedisError, address: &str) -> Error {
    if let Some(refusal) = server_error(error) {
        return refused(&refusal, address);
    }
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => Error::new(
            ErrorKind::Denied,
            format!("redis at {address} refused the user or the password of the URL"),
        ),
        redis::ErrorKind::RESP3NotSupported => Error::unsupported(format!("redis at {address} does not speak RESP3")).fix("use Redis 6.2 or later, or Valkey"),
        redis::ErrorKind::InvalidClientConfig => {
            Error::invalid(format!("redis at {address} can't be connected to like this: {error}"))
        }
        redis::ErrorKind::Parse | redis::ErrorKind::UnexpectedReturnType => Error::unavailable(format!("what answers at {address} is no redis server, or expects TLS")).fix("correct the host and the port, or write rediss://"),
        // Told first: the driver counts it among the connections that broke.
        _ if error.is_connection_refusal() => not_there(error, address),
        // It is there, or something is, but the connection broke while it was made.
        _ if error.is_connection_dropped() => Error::not_yet(format!("redis at {address} breaks connections off ({error})")).fix("try again, or write rediss:// if it expects TLS"),
        _ if error.to_string().contains("CaUsedAsEndEntity") => Error::unavailable(format!("redis at {address} has the certificate of an authority (CA:TRUE), which can't be that of a server")).fix("\
             make one with `-addext basicConstraints=critical,CA:FALSE`, or one for the server that this authority signs"),
        _ if error.to_string().contains("certificate") => Error::unavailable(format!("redis at {address} can't be trusted ({error})")).fix("name the authority of its certificate with `tls_ca`, and the host as it does"),
        _ if error.to_string().contains("lookup address") => unresolved(error, address),
        _ => not_there(error, address),
    }
}

/// The name of the host leads nowhere.
fn unresolved(error: &RedisError, address: &str) -> Error {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let said = error.to_string();
    let why = said.rsplit_once("information: ").map_or(said.as_str(), |(_, why)| why);
    Error::unavailable(format!("cannot resolve host `{host}` ({why})")).fix("check the name or DNS")
}

fn not_there(error: &RedisError, address: &str) -> Error {
    Error::unavailable(format!("redis at {address} can't be reached ({error})")).fix("is it running?")
}

/// The driver has its own words for a database that could not be selected, and keeps of the server's only the text.
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
        false => {
            Error::new(ErrorKind::Denied, format!("database `{db}` of the domain URL can't be used ({said})"))
                .fix("allow the user SELECT")
        }
    })
}

/// The server answered something that no version of these scripts answers.
pub(super) fn unexpected(value: &Value) -> Error {
    Error::new(ErrorKind::Protocol, format!("redis answered {value:?} to a script"))
        .fix("do clients of another version use this prefix?")
}

/// The server refused a floor that is so many µs ahead, and changed nothing.
pub(super) fn clock_behind(micros: u64, address: &str) -> Error {
    let days = micros / 86_400_000_000;
    Error::unavailable(format!(
        "redis at {address} can't be used: its clock is {days} days behind a fence that this process has seen"
    ))
    .fix("set the clock right, or restart the process if the clock was ahead before")
}

/// The server's own words, when it was the server that refused.
pub(super) fn server_error(error: &RedisError) -> Option<ServerError> {
    let errors = error.clone().into_server_errors()?;
    errors.first().map(|(_, error)| error.clone())
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

    #[test]
    fn a_server_in_protected_mode_needs_a_password_of_its_own() {
        let said = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default \
                    user. In this mode connections are only accepted from the loopback interface. [...]\r\n";
        let Ok(Value::ServerError(error)) = redis::parse_redis_value(said.as_bytes()) else {
            panic!("{said}")
        };
        let error = refused(&error, "host:6379");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "redis at host:6379 is in protected mode and refuses other machines (DENIED); set a password on the server: requirepass"
        );
    }

    // R0.5: as Redis 6.2 says it.
    #[test]
    fn a_replica_is_known_by_what_its_scripts_say() {
        let said = "-ERR Error running script (call to f_5d0a): @user_script:203: @user_script: 203: -READONLY You can't write against \
                    a read only replica.\r\n";
        let Ok(Value::ServerError(error)) = redis::parse_redis_value(said.as_bytes()) else {
            panic!("{said}")
        };
        assert!(is_read_only(&error));
        assert!(refused(&error, "host:6379").is_transient(), "{error}");
    }
}
