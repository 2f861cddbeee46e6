//! Why no Sentinel names a master, and what to do about it.

use std::time::Duration;

use crate::types::duration;
use crate::types::error::{Error, ErrorKind};

/// How many services are named to somebody who asked for another.
const MOST_SERVICES: usize = 5;

/// Why one of them names no master.
#[derive(Debug)]
pub(in super::super) enum Silence {
    Unreachable(String),
    Unanswered(Duration),
    Denied(String),
    /// It does not watch over this service, but over these.
    Unknown(Vec<String>),
    /// It is no Sentinel, or of no version that is known.
    Strange,
}

impl Silence {
    pub(super) fn of(meaning: &Error, error: &redis::RedisError) -> Self {
        Silence::refused(meaning, &error.to_string())
    }

    pub(super) fn refused(meaning: &Error, said: &str) -> Self {
        match meaning.kind() {
            ErrorKind::Denied => Silence::Denied(said.to_owned()),
            _ if said.contains("unknown command") => Silence::Strange,
            _ => Silence::Unreachable(said.to_owned()),
        }
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Silence::Unreachable(why) => write!(f, "can't be reached ({why})"),
            Silence::Unanswered(patience) => {
                write!(f, "did not answer within {}", duration::shown(*patience))
            }
            Silence::Denied(said) => write!(f, "refused the user or the password ({said})"),
            Silence::Unknown(others) => {
                f.write_str("does not know this service")?;
                let others: Vec<_> =
                    others.iter().take(MOST_SERVICES).map(|one| format!("`{one}`")).collect();
                if others.is_empty() { Ok(()) } else { write!(f, " (it knows {})", others.join(" and ")) }
            }
            Silence::Strange => f.write_str("is no sentinel"),
        }
    }
}

/// None of them names a master, each for its reason.
pub(super) fn of_all(service: &str, silences: &[(&str, &Silence)]) -> Error {
    let is = |kind: fn(&Silence) -> bool| move |(_, silence): &(&str, &Silence)| kind(silence);
    let is_unknown = is(|silence| matches!(silence, Silence::Unknown(_)));
    let (kind, fix) = if silences.iter().all(is_unknown) {
        (ErrorKind::Invalid, "correct the service in the URL: redis+sentinel://host/SERVICE")
    } else if silences.iter().any(is(|silence| matches!(silence, Silence::Denied(_)))) {
        let fix = "correct `sentinel_user` and `sentinel_password` in the URL; those before the host are for the servers";
        (ErrorKind::Denied, fix)
    } else if silences.iter().any(is_unknown) {
        (ErrorKind::Unavailable, "bring the others back, or correct the service in the URL")
    } else if silences.iter().all(is(|silence| matches!(silence, Silence::Strange))) {
        (ErrorKind::Invalid, "name sentinels, mostly at port 26379, or write redis:// for a server")
    } else if silences.iter().any(is(|silence| matches!(silence, Silence::Unanswered(_)))) {
        (ErrorKind::Unavailable, "are they running, at these ports, with TLS or without as the URL says?")
    } else {
        (ErrorKind::Unavailable, "are they running, at these ports?")
    };
    let each = silences.iter().map(|(address, silence)| format!("{address} {silence}"));
    let each = each.collect::<Vec<_>>().join(", ");
    Error::new(kind, format!("no sentinel names a master of `{service}`: {each}")).fix(fix)
}
