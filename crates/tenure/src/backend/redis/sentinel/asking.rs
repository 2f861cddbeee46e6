//! One Sentinel, and its answers about a service.

use std::pin::pin;
use std::time::{Duration, Instant};

use redis::{Client, Cmd, PushInfo, RedisError, Value};

use super::super::connection::Connection;
use super::super::fault;
use super::super::server::string;
use super::NoMaster;
use super::count::Count;
use crate::sync::Mutex;
use crate::url::HostPort;

pub(in super::super) struct Sentinel {
    pub(in super::super) address: String,
    client: Client,
    replicas: Mutex<Count>,
}

/// The configuration of a service, as one Sentinel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Named {
    pub(in super::super) master: HostPort,
    /// Increases with every failover.
    pub(super) epoch: u64,
    /// How many replicas it knows of, also those that are down; `None` if it does not say.
    pub(in super::super) replicas: Option<u64>,
    /// How many Sentinels must agree that the master is down, and how many it knows of, including itself.
    pub(in super::super) quorum: u64,
    pub(in super::super) sentinels: u64,
}

impl Sentinel {
    pub(super) fn new(address: String, client: Client) -> Self {
        Sentinel { address, client, replicas: Mutex::default() }
    }

    /// Notes how many replicas this Sentinel reports; `None` if it does not say.
    pub(super) fn counts(&self, replicas: Option<u64>) {
        self.replicas.lock().report(replicas, Instant::now());
    }

    /// The number of replicas that can be relied on.
    pub(super) fn counted(&self) -> Option<u64> {
        self.replicas.lock().known()
    }

    pub(in super::super) async fn connect(
        &self,
        patience: Duration,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, NoMaster> {
        match tokio::time::timeout(patience, Connection::new(&self.client, on_push)).await {
            Ok(connection) => {
                let addr = self.client.get_connection_info().addr();
                let meaning = |error: &RedisError| fault::of_connecting(error, &self.address, Some(addr));
                connection.map_err(|error| NoMaster::of(&meaning(&error), &error))
            }
            Err(_) => Err(NoMaster::Unanswered(patience)),
        }
    }

    /// Asks on a new connection.
    pub(super) async fn ask(&self, service: &str, patience: Duration) -> Result<Named, NoMaster> {
        let asked = pin!(async {
            let mut connection = self.connect(patience, |_| ()).await?;
            named(&mut connection, service).await
        });
        tokio::time::timeout(patience, asked).await.unwrap_or(Err(NoMaster::Unanswered(patience)))
    }
}

/// Asks on this connection for the master.
pub(in super::super) async fn named(connection: &mut Connection, service: &str) -> Result<Named, NoMaster> {
    let mut questions = redis::pipe();
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    questions.cmd("SENTINEL").arg("MASTER").arg(service);
    let answers = connection.send_all(&questions).await;
    let answers = answers.map_err(|error| NoMaster::of(&fault::of_command(&error, service), &error))?;
    let [address, details] = &answers[..] else { return Err(NoMaster::Strange) };
    let number = |wanted: &str| {
        fields(details).find_map(|(name, value)| (name == wanted).then(|| value.parse::<u64>().ok())?)
    };
    let (epoch, replicas) = (number("config-epoch").unwrap_or(0), number("num-slaves"));
    let (quorum, others) = (number("quorum").unwrap_or(0), number("num-other-sentinels").unwrap_or(0));
    match address {
        Value::Nil => Err(NoMaster::Unknown(services(connection).await)),
        Value::ServerError(refusal) => {
            Err(NoMaster::refused(&fault::refused(refusal, service), &refusal.to_string()))
        }
        Value::Array(parts) => match &parts[..] {
            [host, port] => {
                let port = string(port).and_then(|port| port.parse().ok());
                let (host, port) = string(host).zip(port).ok_or(NoMaster::Strange)?;
                let master = HostPort { host: host.to_owned(), port };
                Ok(Named { master, epoch, replicas, quorum, sentinels: others + 1 })
            }
            _ => Err(NoMaster::Strange),
        },
        _ => Err(NoMaster::Strange),
    }
}

/// The services that this Sentinel monitors; empty if the user may not ask.
async fn services(connection: &mut Connection) -> Vec<String> {
    let mut question = Cmd::new();
    question.arg("SENTINEL").arg("MASTERS");
    let Ok(Value::Array(masters)) = connection.send(&question).await else {
        return Vec::new();
    };
    let name = |master| fields(master).find_map(|(field, value)| (field == "name").then(|| value.to_owned()));
    masters.iter().filter_map(name).collect()
}

fn fields(details: &Value) -> Box<dyn Iterator<Item = (&str, &str)> + '_> {
    match details {
        Value::Map(fields) => {
            Box::new(fields.iter().filter_map(|(name, value)| string(name).zip(string(value))))
        }
        Value::Array(words) => {
            Box::new(words.chunks_exact(2).filter_map(|pair| string(&pair[0]).zip(string(&pair[1]))))
        }
        _ => Box::new(std::iter::empty()),
    }
}
