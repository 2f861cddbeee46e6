//! Why no Sentinel names a master, and what to do about it.

use std::time::Duration;

use crate::types::duration;
use crate::types::error::{Error, ErrorKind};

/// How many services an error lists at most.
const MOST_SERVICES: usize = 5;

/// Why one Sentinel names no master.
#[derive(Debug)]
pub(in super::super) enum NoMaster {
    Unreachable(String),
    Unanswered(Duration),
    Denied(String),
    /// It does not monitor this service, but monitors these.
    Unknown(Vec<String>),
    /// It is not a Sentinel, or of an unknown version.
    Strange,
}

impl NoMaster {
    pub(super) fn of(meaning: &Error, error: &redis::RedisError) -> Self {
        NoMaster::refused(meaning, &error.to_string())
    }

    pub(super) fn refused(meaning: &Error, said: &str) -> Self {
        match meaning.kind() {
            ErrorKind::Denied => NoMaster::Denied(said.to_owned()),
            _ if said.contains("unknown command") => NoMaster::Strange,
            _ => NoMaster::Unreachable(said.to_owned()),
        }
    }
}

impl NoMaster {
    /// As one entry of a list of Sentinels.
    pub(in super::super) fn listed(&self, address: &str) -> String {
        match self {
            NoMaster::Unreachable(why) => format!("cannot reach {address} ({why})"),
            NoMaster::Unanswered(patience) => {
                format!("{address} did not answer within {}", duration::shown(*patience))
            }
            NoMaster::Denied(said) => format!("{address} refused the user or the password ({said})"),
            NoMaster::Unknown(others) => {
                let others: Vec<_> =
                    others.iter().take(MOST_SERVICES).map(|one| format!("`{one}`")).collect();
                match others.is_empty() {
                    true => format!("{address} does not know this service"),
                    false => {
                        format!("{address} does not know this service (it knows {})", others.join(" and "))
                    }
                }
            }
            NoMaster::Strange => format!("{address} is not a sentinel"),
        }
    }
}

/// No Sentinel names a master; the error has the reason of each.
pub(super) fn of_all(service: &str, reasons: &[(&str, &NoMaster)]) -> Error {
    let is = |kind: fn(&NoMaster) -> bool| move |(_, reason): &(&str, &NoMaster)| kind(reason);
    let is_unknown = is(|reason| matches!(reason, NoMaster::Unknown(_)));
    let (kind, fix) = if reasons.iter().all(is_unknown) {
        (ErrorKind::Invalid, "correct the service in the URL: redis+sentinel://host/SERVICE")
    } else if reasons.iter().any(is(|reason| matches!(reason, NoMaster::Denied(_)))) {
        let fix = "correct `sentinel_user` and `sentinel_password` in the URL; those before the host are for the servers";
        (ErrorKind::Denied, fix)
    } else if reasons.iter().any(is_unknown) {
        (ErrorKind::Unavailable, "bring the others back, or correct the service in the URL")
    } else if reasons.iter().all(is(|reason| matches!(reason, NoMaster::Strange))) {
        (ErrorKind::Invalid, "name sentinels, mostly at port 26379, or write redis:// for a server")
    } else if reasons.iter().any(is(|reason| matches!(reason, NoMaster::Unanswered(_)))) {
        (ErrorKind::Unavailable, "are they running, at these ports, with TLS or without as the URL says?")
    } else {
        (ErrorKind::Unavailable, "are they running, at these ports?")
    };
    let each: Vec<_> = reasons.iter().map(|(address, reason)| reason.listed(address)).collect();
    Error::new(kind, format!("no sentinel names a master of `{service}`")).because(each.join(", ")).fix(fix)
}
