//! What follows from the answers of a server: one function for each check, without I/O.

use std::net::IpAddr;
use std::time::Duration;

use redis::ConnectionAddr;

use super::super::connect::Connector;
use super::facts::{ClockFact, Facts};
use super::remedy::Remedies;
use crate::backend::self_test::shown;
use crate::types::finding::{FENCES_GROW, Finding, TWO_HOLD};

/// The oldest version that works, and the oldest one with flags for scripts.
const OLDEST: (u32, u32) = (6, 2);
const WITH_FLAGS: (u32, u32) = (7, 0);
/// The difference between clocks from which a finding is doubtful.
const FAR_APART: Duration = Duration::from_secs(1);
/// The share of connections in use from which a finding is doubtful, in per cent.
const NARROW: u64 = 80;

pub(super) fn version(facts: &Facts) -> Finding {
    let product = facts.product();
    match facts.version() {
        None => Finding::doubtful("version", "the server does not say its version")
            .remedy("allow the user INFO; use Redis 7 or later, or Valkey"),
        Some(version) if version < OLDEST => {
            Finding::unfit("version", format!("{product} lacks commands that scripts use"))
                .remedy("use Redis 7 or later, or Valkey")
        }
        Some(version) if version < WITH_FLAGS => Finding::fit(
            "version",
            format!("{product}; before 7.0 a server that is out of memory may refuse a release"),
        ),
        Some(_) => Finding::fit("version", product),
    }
}

pub(super) fn role(facts: &Facts) -> Finding {
    match facts.field("role") {
        // The client refuses to connect to a replica, but a master can become one later.
        Some("slave") => {
            Finding::unfit("role", "it is a read-only replica now").remedy("point the URL at the master")
        }
        _ => Finding::fit("role", "master"),
    }
}

pub(super) fn encryption(connector: &Connector) -> Finding {
    const CHECK: &str = "encryption";
    match connector.addr() {
        Some(ConnectionAddr::TcpTls { .. }) => {
            Finding::fit(CHECK, "TLS, and the certificate of the server is checked")
        }
        Some(ConnectionAddr::Tcp(host, _)) if !is_this_machine(&host) => {
            let reason = format!(
                "plain connection to {host}: everyone on the way can read and change it, also the password"
            );
            Finding::doubtful(CHECK, reason)
                .remedy("write rediss:// instead of redis:// in the URL, and give the server a tls-port")
        }
        Some(ConnectionAddr::Unix(_)) => Finding::fit(CHECK, "none needed: a local socket"),
        _ => Finding::fit(CHECK, "none needed: the connection stays on this machine"),
    }
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(super) fn user(facts: &Facts, connector: &Connector, remedies: &Remedies) -> Finding {
    let is_remote = match connector.addr() {
        Some(ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => !is_this_machine(&host),
        _ => false,
    };
    let user = match facts.user.as_deref().or(connector.user()) {
        Some(user) => format!("user {user}"),
        None => "the default user".to_owned(),
    };
    // Such a server accepts the password of the URL too.
    let password = match (connector.has_password(), facts.is_without_password) {
        (true, Some(false)) => return Finding::fit("user", format!("{user}, with a password")),
        (true, None) => return Finding::fit("user", format!("{user}, and the URL has a password")),
        (true, Some(true)) => "without a password on the server, which ignores that of the URL",
        (false, _) => "without a password",
    };
    if !is_remote {
        return Finding::fit("user", format!("{user}, {password}, from this machine"));
    }
    let reason = format!("{user}, {password}: everyone who reaches the server can end every lock");
    Finding::doubtful("user", reason).remedy(remedies.set_password())
}

/// Only if the server refuses `INFO`.
pub(super) fn info(facts: &Facts, remedies: &Remedies) -> Option<Finding> {
    let is_hidden = facts.info.is_none();
    is_hidden.then(|| {
        Finding::doubtful(
            "info",
            "the user may not ask INFO: eviction, persistence, replicas and connections are not known",
        )
        .remedy(remedies.permit(""))
    })
}

pub(super) fn clock(clock: &ClockFact) -> Finding {
    let side = if clock.is_ahead { "ahead of" } else { "behind" };
    let offset = format!("{} {side} this machine's clock, ±{}", shown(clock.apart), shown(clock.within));
    if clock.apart <= FAR_APART + clock.within {
        return Finding::fit("clock", offset);
    }
    let reason = format!(
        "{offset}: leases do not depend on that; fences, and since when a name is held, are dated by the server's clock"
    );
    Finding::doubtful("clock", reason).remedy("set the clocks of both machines: `timedatectl set-ntp true`")
}

pub(super) fn eviction(facts: &Facts, remedies: &Remedies) -> Option<Finding> {
    const CHECK: &str = "eviction";
    let policy = facts.field("maxmemory_policy")?;
    let most = facts.field("maxmemory_human").unwrap_or("a limit");
    Some(match (policy, facts.number("maxmemory")) {
        ("noeviction", _) => Finding::fit(CHECK, "noeviction: no lock is given up for memory"),
        (_, Some(0)) => Finding::doubtful(
            CHECK,
            format!("{policy} evicts locks once a maxmemory is set and reached; none is set"),
        )
        .remedy(remedies.set(&[("maxmemory-policy", "noeviction")])),
        _ => {
            Finding::unfit(CHECK, format!("{policy} evicts locks when {most} of memory are full, {TWO_HOLD}"))
                .remedy(remedies.set(&[("maxmemory-policy", "noeviction")]))
        }
    })
}

pub(super) fn persistence(facts: &Facts, remedies: &Remedies) -> Option<Finding> {
    const CHECK: &str = "persistence";
    let has_log = facts.number("aof_enabled")? == 1;
    let synced = facts.setting("appendfsync");
    let forgotten = match (has_log, synced, facts.setting("save")) {
        (true, Some("always"), _) => {
            return Some(Finding::fit(CHECK, "append-only file, synced always: a crash forgets no lock"));
        }
        (true, Some("everysec"), _) => {
            "append-only file, synced every second: a crash forgets the locks of the last seconds"
        }
        (true, Some(_), _) => {
            "append-only file, synced when the system likes: a crash of the machine forgets the last locks"
        }
        (true, None, _) => {
            "append-only file, and how often it is synced may not be asked (locks do not need `config|get`): a crash may forget the last locks"
        }
        (false, _, Some("")) => "nothing is saved: a restart forgets every lock",
        (false, ..) => {
            "no append-only file, snapshots at most: a restart forgets the locks since the last one"
        }
    };
    let remedy = match (has_log, synced) {
        (true, None) => remedies.permit_settings(),
        _ => remedies.set(&[("appendonly", "yes"), ("appendfsync", "always")]),
    };
    Some(Finding::doubtful(CHECK, format!("{forgotten}; {FENCES_GROW}")).remedy(remedy))
}

pub(super) fn connections(facts: &Facts, remedies: &Remedies) -> Option<Finding> {
    const CHECK: &str = "connections";
    let (used, most) = (facts.number("connected_clients")?, facts.number("maxclients")?);
    let reason = format!("{used} of {most} are in use; a process that waits has two");
    Some(match used * 100 >= most * NARROW {
        false => Finding::fit(CHECK, reason),
        true => Finding::doubtful(CHECK, format!("{reason}: the next may be refused"))
            .remedy(remedies.set(&[("maxclients", &(most * 2).to_string())])),
    })
}

/// Only `list` needs this.
pub(super) fn listing(facts: &Facts, remedies: &Remedies) -> Finding {
    match &facts.scan_refused {
        None => Finding::fit("listing", "names can be listed"),
        Some(why) => Finding::doubtful("listing", format!("names can't be listed ({why})"))
            .remedy(remedies.permit(why)),
    }
}
