//! What a server says about itself on a new connection: its version, and whether it is fit to hold locks.
//!
//! `HELLO` has the version and the role, which decide how scripts are sent and whether this server can be used at all. `INFO` has the
//! rest, if the user may ask for it. `TIME` has its clock, so that even the first request can carry the time after which the server
//! refuses it.

use std::sync::Arc;
use std::time::Duration;

use redis::{ServerError, Value};

use super::replicas;

/// A server as it was when the client connected.
#[derive(Debug, Default)]
pub(super) struct Server {
    /// Major and minor.
    pub(super) version: Option<(u32, u32)>,
    pub(super) is_replica: bool,
    /// It is a Sentinel.
    pub(super) is_sentinel: bool,
    /// It is a node of a cluster.
    pub(super) is_node: bool,
    /// Its clock at that time, in µs.
    pub(super) time: Option<u64>,
    /// Why the server does not report changed keys; `None` if it does.
    pub(super) tracking_refused: Option<String>,
    /// How many replicas it has, if it says that.
    pub(super) replicas: Option<u64>,
    /// The incarnation: changes with every start of the server.
    pub(super) run_id: Option<Arc<str>>,
    /// How long it had been running, at least; `None` if it does not say.
    pub(super) uptime: Option<Duration>,
    /// It has an append-only file.
    pub(super) appends: bool,
    /// It syncs every change to disk before it answers.
    pub(super) keeps_all: bool,
    eviction: Option<String>,
    description: String,
}

impl Server {
    /// From its answers to `HELLO`, `INFO` and `TIME`, and its refusal to track keys.
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
        // The server rounds start and present time down to seconds.
        let uptime = field("uptime_in_seconds").and_then(|seconds| seconds.parse::<u64>().ok());
        server.uptime = uptime.map(|seconds| Duration::from_secs(seconds.saturating_sub(1)));
        server.appends = field("aof_enabled").as_deref() == Some("1");
        server.eviction = field("maxmemory_policy");
        let eviction = server.eviction.as_deref().unwrap_or("eviction policy unknown");
        server.description = format!("{product}, {eviction}, {persistence}");
        server
    }

    /// Whether it accepts a first line with flags in scripts.
    pub(super) fn knows_flags(&self) -> bool {
        self.version.is_none_or(|version| version >= (7, 0))
    }

    /// Whether it is known to be the same incarnation.
    pub(super) fn is_same(&self, other: &Server) -> bool {
        self.run_id.is_some() && self.run_id == other.run_id
    }

    /// Whether this `INFO` is known to come from the same incarnation.
    pub(super) fn is_described_by(&self, info: &str) -> bool {
        self.run_id.is_some() && self.run_id.as_deref() == field(info, "run_id")
    }

    /// Product and version, eviction policy, persistence.
    pub(super) fn description(&self) -> &str {
        &self.description
    }

    /// Why it is less fit to hold locks.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(policy) = self.eviction.as_deref().filter(|policy| *policy != "noeviction") {
            warnings.push(format!(
                "redis may evict locks when its memory is full (maxmemory-policy {policy}); use noeviction"
            ));
        }
        if let Some(why) = &self.tracking_refused {
            warnings.push(format!(
                "redis does not report deleted or overwritten keys ({why}); the next renewal finds such a loss"
            ));
        }
        warnings
    }
}

/// Whether this answer to `HELLO` comes from a replica.
pub(super) fn is_replica(hello: &Value) -> bool {
    let Value::Map(fields) = hello else { return false };
    let role = fields.iter().find(|(field, _)| string(field) == Some("role"));
    role.and_then(|(_, role)| string(role)).is_some_and(|role| role != "master")
}

/// A field of `INFO`.
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

/// The answer to `TIME`, in µs.
pub(super) fn micros(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let mut numbers = parts.iter().map(|part| string(part)?.parse::<u64>().ok());
    numbers.next()??.checked_mul(1_000_000)?.checked_add(numbers.next()??)
}

pub(super) fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}
