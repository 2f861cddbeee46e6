//! One Sentinel, and what it says of a service.

use std::pin::pin;
use std::time::{Duration, Instant};

use redis::{Client, Cmd, PushInfo, Value};

use super::super::connection::Connection;
use super::super::fault;
use super::super::server::string;
use super::Silence;
use super::count::Count;
use crate::sync::Mutex;
use crate::url::HostPort;

/// One of them.
pub(in super::super) struct Sentinel {
    pub(in super::super) address: String,
    client: Client,
    replicas: Mutex<Count>,
}

/// Who is the master, as one of them has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Named {
    pub(in super::super) master: HostPort,
    /// Grows with every failover.
    pub(super) epoch: u64,
    /// How many replicas it knows of, also those that are down; nothing, if it does not say.
    pub(in super::super) replicas: Option<u64>,
    /// How many must agree that the master is down, and how many it knows of, with itself.
    pub(in super::super) quorum: u64,
    pub(in super::super) sentinels: u64,
}

impl Sentinel {
    pub(super) fn new(address: String, client: Client) -> Self {
        Sentinel { address, client, replicas: Mutex::default() }
    }

    /// It knows of so many replicas, or does not say.
    pub(super) fn counts(&self, replicas: Option<u64>) {
        self.replicas.lock().hears(replicas, Instant::now());
    }

    /// How many it knows of, as far as it can be believed.
    pub(super) fn counted(&self) -> Option<u64> {
        self.replicas.lock().known()
    }

    pub(in super::super) async fn connect(
        &self,
        patience: Duration,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Silence> {
        match tokio::time::timeout(patience, Connection::new(&self.client, hear)).await {
            Ok(connection) => {
                connection.map_err(|error| Silence::of(&fault::of_connecting(&error, &self.address), &error))
            }
            Err(_) => Err(Silence::Unanswered(patience)),
        }
    }

    /// On a connection of its own.
    pub(super) async fn ask(&self, service: &str, patience: Duration) -> Result<Named, Silence> {
        let asked = pin!(async {
            let mut connection = self.connect(patience, |_| ()).await?;
            named(&mut connection, service).await
        });
        tokio::time::timeout(patience, asked).await.unwrap_or(Err(Silence::Unanswered(patience)))
    }
}

/// Asks on this connection who is the master.
pub(in super::super) async fn named(connection: &mut Connection, service: &str) -> Result<Named, Silence> {
    let mut questions = redis::pipe();
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    questions.cmd("SENTINEL").arg("MASTER").arg(service);
    let answers = connection.send_all(&questions).await;
    let answers = answers.map_err(|error| Silence::of(&fault::of_command(&error, service), &error))?;
    let [address, details] = &answers[..] else { return Err(Silence::Strange) };
    let number = |wanted: &str| {
        fields(details).find_map(|(name, value)| (name == wanted).then(|| value.parse::<u64>().ok())?)
    };
    let (epoch, replicas) = (number("config-epoch").unwrap_or(0), number("num-slaves"));
    let (quorum, others) = (number("quorum").unwrap_or(0), number("num-other-sentinels").unwrap_or(0));
    match address {
        Value::Nil => Err(Silence::Unknown(services(connection).await)),
        Value::ServerError(refusal) => {
            Err(Silence::refused(&fault::refused(refusal, service), &refusal.to_string()))
        }
        Value::Array(parts) => match &parts[..] {
            [host, port] => {
                let port = string(port).and_then(|port| port.parse().ok());
                let (host, port) = string(host).zip(port).ok_or(Silence::Strange)?;
                let master = HostPort { host: host.to_owned(), port };
                Ok(Named { master, epoch, replicas, quorum, sentinels: others + 1 })
            }
            _ => Err(Silence::Strange),
        },
        _ => Err(Silence::Strange),
    }
}

/// The services that it does watch over; none when it may not be asked.
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
