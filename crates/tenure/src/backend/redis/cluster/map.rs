//! Which node has which slots, as one of them says.
//!
//! `CLUSTER SLOTS` is asked, which every version knows, and not `CLUSTER SHARDS`. A node names others by the port that fits the connection it
//! was asked on, and may leave the host out: that is then the one that was asked.

use redis::{ServerError, Value};

use super::super::connection::Connection;
use super::super::fault;
use super::super::sentinel::shown;
use super::super::server::{field, string};
use crate::types::error::{Error, ErrorKind};
use crate::url::HostPort;

/// The slots of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) master: HostPort,
    pub(super) replicas: Vec<HostPort>,
}

/// All of them, as one node has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Map {
    pub(super) ranges: Vec<Range>,
    /// Grows with every failover and every slot that moves.
    pub(super) epoch: u64,
    /// Whether it would execute commands.
    pub(super) is_up: bool,
}

impl Map {
    /// Whether anybody has a slot.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Every address in it.
    pub(in super::super) fn hosts(&self) -> impl Iterator<Item = &HostPort> {
        self.ranges.iter().flat_map(|range| std::iter::once(&range.master).chain(&range.replicas))
    }
}

/// Asks on this connection, which goes to `asked`.
pub(super) async fn ask(connection: &mut Connection, asked: &HostPort) -> Result<Map, Error> {
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
            // Where it may not be asked, what comes of it will show.
            let is_up = field(info, "cluster_state").is_none_or(|state| state == "ok");
            Ok(Map { ranges, epoch, is_up })
        }
        Value::ServerError(refusal) => Err(refused(refusal, asked)),
        _ => Err(fault::unexpected(slots)),
    }
}

/// It does not say.
fn refused(refusal: &ServerError, asked: &HostPort) -> Error {
    match refusal.details() {
        Some(why) if why.contains("cluster support disabled") => {
            Error::new(ErrorKind::Unsupported, "is not part of a cluster")
        }
        // A sentinel, or something that only speaks the protocol.
        Some(why) if why.contains("unknown command") => {
            Error::new(ErrorKind::Unsupported, "does not know the command CLUSTER")
        }
        _ => fault::refused(refusal, &shown(asked)),
    }
}

fn range(answer: &Value, asked: &HostPort) -> Option<Range> {
    let Value::Array(parts) = answer else { return None };
    let [Value::Int(first), Value::Int(last), master, replicas @ ..] = &parts[..] else { return None };
    Some(Range {
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

/// A node without a name, or with an unknown one, is where the one is that was asked.
fn named(host: Option<&str>, port: u16, asked: &HostPort) -> HostPort {
    let host = host.filter(|host| !host.is_empty() && *host != "?").unwrap_or(&asked.host);
    HostPort { host: host.to_ascii_lowercase(), port }
}

/// To whom a node sends a request on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    /// The slot is there, for good.
    Moved(HostPort),
    /// The slot is on its way, and its keys are there already, or were never here.
    Ask(HostPort),
}

/// What `asked` said, if that is to ask another.
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
    fn a_node_without_a_host_is_where_the_one_is_that_was_asked() {
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
    fn whoever_is_named_is_asked() {
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
