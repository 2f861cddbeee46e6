//! What a server says of itself when it is connected to: its version, and whether it is fit to hold locks.
//!
//! `HELLO` tells the version and the role, which decide how scripts are written and whether this server is the one to use at all.
//! `INFO` tells the rest; a user may lack the permission for it, and then nothing is said. `TIME` tells its clock, so that already the
//! first request can be refused when it comes too late.

use std::sync::Arc;
use std::time::Duration;

use redis::{ServerError, Value};

use super::replicas;

/// A server, as it was when it was connected to.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Major and minor.
    pub(super) version: Option<(u32, u32)>,
    pub(super) is_replica: bool,
    /// It keeps nothing, and names others.
    pub(super) is_sentinel: bool,
    /// It has some of the names of a cluster, and tells of grants as those do who know that.
    pub(super) is_node: bool,
    /// Its clock then, in µs.
    pub(super) time: Option<u64>,
    /// Why the server does not tell of changed keys; `None` when it does.
    pub(super) tracking_refused: Option<String>,
    /// How many replicas it has, where it says that.
    pub(super) replicas: Option<u64>,
    /// Which run of which server it is.
    pub(super) run_id: Option<Arc<str>>,
    /// How long it had been running, at least, where it says that.
    pub(super) uptime: Option<Duration>,
    /// It keeps an append-only file.
    pub(super) appends: bool,
    /// It has every change on its disk before it answers.
    pub(super) keeps_all: bool,
    eviction: Option<String>,
    description: String,
}

impl Server {
    /// From what it answered to `HELLO`, `INFO` and `TIME`, and from its refusal to track keys.
    pub(super) fn new(
        hello: &Value,
        info: &Value,
        time: &Value,
        tracking_refused: Option<&ServerError>,
    ) -> Self {
        let tracking_refused = tracking_refused.map(ServerError::to_string);
        let mut server = Server { tracking_refused, time: micros(time), ..Server::default() };
        server.is_replica = is_replica(hello);
        let mut text = String::new();
        if let Value::Map(fields) = hello {
            for (field, value) in fields {
                match (string(field), string(value)) {
                    (Some("version"), Some(version)) => {
                        server.version = parse_version(version);
                        text = version.to_owned();
                    }
                    (Some("mode"), Some(mode)) => {
                        (server.is_sentinel, server.is_node) = (mode == "sentinel", mode == "cluster");
                    }
                    _ => {}
                }
            }
        }
        let info = string(info).unwrap_or_default();
        let field = |name: &str| field(info, name).map(str::to_owned);
        let product = match field("valkey_version") {
            Some(version) => format!("valkey {version}"),
            None => format!("redis {}", field("redis_version").unwrap_or(text)),
        };
        let persistence = match field("aof_enabled").as_deref() {
            Some("1") => "append-only file",
            Some(_) => "no append-only file",
            None => "persistence unknown",
        };
        server.replicas = replicas::connected(info);
        server.run_id = field("run_id").map(Arc::from);
        // Both ends were rounded down to seconds.
        let uptime = field("uptime_in_seconds").and_then(|seconds| seconds.parse::<u64>().ok());
        server.uptime = uptime.map(|seconds| Duration::from_secs(seconds.saturating_sub(1)));
        server.appends = field("aof_enabled").as_deref() == Some("1");
        server.eviction = field("maxmemory_policy");
        let eviction = server.eviction.as_deref().unwrap_or("eviction policy unknown");
        server.description = format!("{product}, {eviction}, {persistence}");
        server
    }

    /// Whether its scripts may begin with a line of flags.
    pub(super) fn knows_flags(&self) -> bool {
        self.version.is_none_or(|version| version >= (7, 0))
    }

    /// Whether it is surely the same server, still running.
    pub(super) fn is(&self, other: &Server) -> bool {
        self.run_id.is_some() && self.run_id == other.run_id
    }

    /// Whether it is surely the one that says this of itself in `INFO`.
    pub(super) fn says(&self, info: &str) -> bool {
        self.run_id.is_some() && self.run_id.as_deref() == field(info, "run_id")
    }

    /// Product and version, eviction policy, persistence.
    pub(super) fn description(&self) -> &str {
        &self.description
    }

    /// What makes it less fit to hold locks.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(policy) = self.eviction.as_deref().filter(|policy| *policy != "noeviction") {
            warnings.push(format!(
                "redis may evict locks when its memory is full (maxmemory-policy {policy}); use noeviction"
            ));
        }
        if let Some(why) = &self.tracking_refused {
            warnings.push(format!(
                "redis does not tell of keys that are deleted or overwritten ({why}); such a loss is noticed by the next renewal"
            ));
        }
        warnings
    }
}

/// Whether it says in `HELLO` that it is one.
pub(super) fn is_replica(hello: &Value) -> bool {
    let Value::Map(fields) = hello else { return false };
    let role = fields.iter().find(|(field, _)| string(field) == Some("role"));
    role.and_then(|(_, role)| string(role)).is_some_and(|role| role != "master")
}

/// A field of what `INFO` said.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

pub(super) fn string(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// Seconds and microseconds.
pub(super) fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let mut numbers = parts.iter().map(|part| string(part)?.parse::<u64>().ok());
    numbers.next()??.checked_mul(1_000_000)?.checked_add(numbers.next()??)
}

pub(super) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}
