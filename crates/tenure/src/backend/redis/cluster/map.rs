//! Which node has which slots, as one node answers.
//!
//! The client asks `CLUSTER SLOTS`, which every version knows, and not `CLUSTER SHARDS`. A node names other nodes by the port that fits
//! the connection of the question. It may leave the host out, which then is the host that the client asked.

use redis::{ServerError, Value};

use super::super::connection::Connection;
use super::super::fault;
use super::super::sentinel::shown;
use super::super::server::{field, string};
use crate::types::error::Error;
use crate::url::HostPort;

/// A range of slots, and the nodes that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: HostPort,
    pub(super) replicas: Vec<HostPort>,
}

/// All slots, as one node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct SlotMap {
    pub(super) ranges: Vec<SlotRange>,
    /// Increases with every failover and every slot that moves.
    pub(super) epoch: u64,
    /// Whether the node executes commands.
    pub(super) is_up: bool,
}

impl SlotMap {
    /// Whether no node has a slot.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Every address in the map.
    pub(in super::super) fn hosts(&self) -> impl Iterator<Item = &HostPort> {
        self.ranges.iter().flat_map(|range| std::iter::once(&range.master).chain(&range.replicas))
    }
}

/// Asks on this connection, which leads to `asked`.
pub(super) async fn ask(connection: &mut Connection, asked: &HostPort) -> Result<SlotMap, Error> {
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
    let answers = connection.send_all(&questions).await;
    let answers = answers.map_err(|error| fault::of_command(&error, &shown(asked)))?;
    let [info, slots] = &answers[..] else { return Err(fault::unexpected(&Value::Array(answers))) };
    let info = string(info).unwrap_or_default();
    match slots {
        Value::Array(ranges) => {
            let ranges = ranges.iter().map(|answer| range(answer, asked)).collect::<Option<Vec<_>>>();
            let ranges = ranges.ok_or_else(|| fault::unexpected(slots))?;
            let epoch =
                field(info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
            // If the user may not ask, the node counts as up; a request will show whether it is.
            let is_up = field(info, "cluster_state").is_none_or(|state| state == "ok");
            Ok(SlotMap { ranges, epoch, is_up })
        }
        Value::ServerError(refusal) => Err(refused(refusal, asked)),
        _ => Err(fault::unexpected(slots)),
    }
}

/// The node refused to tell its slots.
fn refused(refusal: &ServerError, asked: &HostPort) -> Error {
    match refusal.details() {
        Some(why) if why.contains("cluster support disabled") => {
            Error::unsupported(format!("redis at {} is not part of a cluster", shown(asked)))
        }
        // A Sentinel, or another server that speaks the protocol.
        Some(why) if why.contains("unknown command") => {
            Error::unsupported(format!("redis at {} does not know the command CLUSTER", shown(asked)))
        }
        _ => fault::refused(refusal, &shown(asked)),
    }
}

fn range(answer: &Value, asked: &HostPort) -> Option<SlotRange> {
    let Value::Array(parts) = answer else { return None };
    let [Value::Int(first), Value::Int(last), master, replicas @ ..] = &parts[..] else { return None };
    Some(SlotRange {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok()?,
        master: host(master, asked)?,
        replicas: replicas.iter().filter_map(|replica| host(replica, asked)).collect(),
    })
}

fn host(answer: &Value, asked: &HostPort) -> Option<HostPort> {
    let Value::Array(parts) = answer else { return None };
    let [host, Value::Int(port), ..] = &parts[..] else { return None };
    Some(named(string(host), u16::try_from(*port).ok()?, asked))
}

/// A node without a host, or with an unknown one, has the host that the client asked.
fn named(host: Option<&str>, port: u16, asked: &HostPort) -> HostPort {
    let host = host.filter(|host| !host.is_empty() && *host != "?").unwrap_or(&asked.host);
    HostPort { host: host.to_ascii_lowercase(), port }
}

/// Where a node redirects a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The other node has the slot.
    Moved(HostPort),
    /// The slot is moving: its keys are on the other node already, or never existed.
    Ask(HostPort),
}

/// The redirection in this refusal by `asked`, if it is one.
pub(super) fn redirect(refusal: &ServerError, asked: &HostPort) -> Option<Redirect> {
    let redirect = match refusal.code() {
        "MOVED" => Redirect::Moved,
        "ASK" => Redirect::Ask,
        _ => return None,
    };
    let address = refusal.details()?.split(' ').nth(1)?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(redirect(named(Some(host), port.parse().ok()?, asked)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("id"), Value::Map(Vec::new())])
    }

    #[test]
    fn a_node_without_a_host_has_the_host_that_the_client_asked() {
        let asked = at("seed.example", 6379);
        for (host, shown) in [
            (text("10.0.0.7"), "10.0.0.7"),
            (text("Node-7.Example"), "node-7.example"),
            (text(""), "seed.example"),
            (text("?"), "seed.example"),
            (Value::Nil, "seed.example"),
            (text("fd00::7"), "fd00::7"),
        ] {
            let answer =
                Value::Array(vec![Value::Int(0), Value::Int(5), node(host, 7000), node(text("r"), 7001)]);
            let range = range(&answer, &asked).unwrap();
            assert_eq!((range.first, range.last), (0, 5));
            assert_eq!(range.master, at(shown, 7000));
            assert_eq!(range.replicas, [at("r", 7001)]);
        }
        assert_eq!(range(&Value::Array(vec![Value::Int(0), Value::Int(5)]), &asked), None);
    }

    #[test]
    fn a_redirection_names_the_next_node() {
        let said = |text: &str| match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) {
            Ok(Value::ServerError(refusal)) => redirect(&refusal, &at("asked.example", 6379)),
            other => panic!("{other:?}"),
        };
        for (text, host) in [
            ("10.0.0.7:7000", "10.0.0.7"),
            ("node.example:7000", "node.example"),
            (":7000", "asked.example"),
            ("?:7000", "asked.example"),
            ("fd00::7:7000", "fd00::7"),
            ("[fd00::7]:7000", "fd00::7"),
        ] {
            assert_eq!(said(&format!("MOVED 3999 {text}")), Some(Redirect::Moved(at(host, 7000))));
            assert_eq!(said(&format!("ASK 3999 {text}")), Some(Redirect::Ask(at(host, 7000))));
        }
        for other in ["MOVED", "MOVED 3999", "MOVED 3999 host", "TRYAGAIN 3999 host:1", "ERR 1 host:1"] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
