//! Finds the master of a service through Sentinel, and hears of its successor.
//!
//! All Sentinels are asked at once, and the one whose configuration is newest is believed: one that was cut off together with an old
//! master goes on naming it. A majority of them is waited for, or all when the majority is older than what was known before. Whoever is
//! named must still say itself that it is a master. The driver's own Sentinel client is not used: it asks one after the other, and
//! believes the first.
//!
//! A failover is heard on one Sentinel (`watcher.rs`). It ends the connections to the master before by what the driver says of a connection
//! that broke, so that whoever uses one need not know of Sentinel.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, PushInfo, PushKind, Value};

use super::access::{Access, connection_config};
use super::fault;
use super::server::string;
use crate::error::{Error, ErrorKind};
use crate::sync::Mutex;
use crate::url::HostPort;

/// What a connection says unasked, or is made to say.
pub(super) type Hear = dyn Fn(PushInfo) + Send + Sync;

/// The Sentinels of one service.
pub(super) struct Sentinels {
    pub(super) service: String,
    pub(super) sentinels: Vec<Sentinel>,
    servers: Access,
    /// How long one may take to answer.
    pub(super) patience: Duration,
    /// The server that the commands go to.
    master: Mutex<Option<HostPort>>,
    /// Counts the masters.
    number: AtomicU64,
    /// The newest configuration that was heard of.
    newest: AtomicU64,
    /// The most replicas that one of them knew of.
    pub(super) replicas: AtomicU64,
    /// The connections to servers.
    connections: Mutex<Vec<(HostPort, Weak<Hear>)>>,
    pub(super) is_watched: AtomicBool,
}

/// One of them.
pub(super) struct Sentinel {
    pub(super) address: String,
    client: Client,
}

/// Who is the master, as one of them has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) master: HostPort,
    /// Grows with every failover.
    pub(super) epoch: u64,
    /// How many replicas it knows of, also those that are down.
    replicas: u64,
}

impl Sentinels {
    pub(super) fn new(
        service: &str,
        hosts: &[HostPort],
        sentinels: &Access,
        servers: Access,
        patience: Duration,
    ) -> Result<Self, Error> {
        let sentinels =
            hosts.iter().map(|host| Ok(Sentinel { address: shown(host), client: sentinels.client(host)? }));
        Ok(Sentinels {
            service: service.to_owned(),
            sentinels: sentinels.collect::<Result<_, Error>>()?,
            servers,
            patience,
            master: Mutex::new(None),
            number: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            replicas: AtomicU64::new(0),
            connections: Mutex::default(),
            is_watched: AtomicBool::new(false),
        })
    }

    /// Asks who is the master. The server is the one for commands from now on.
    pub(super) async fn find(&self) -> Result<(Client, HostPort), Error> {
        let master = self.ask_all().await?.master;
        let is_another = self.master.lock().replace(master.clone()).is_none_or(|before| before != master);
        if is_another {
            self.number.fetch_add(1, Ordering::AcqRel);
        }
        Ok((self.servers.client(&master)?, master))
    }

    /// The server that the commands go to; asks who it may be when there was none yet.
    pub(super) async fn standing(&self) -> Result<(Client, HostPort), Error> {
        let master = self.master();
        match master {
            Some(master) => Ok((self.servers.client(&master)?, master)),
            None => self.find().await,
        }
    }

    pub(super) fn master(&self) -> Option<HostPort> {
        self.master.lock().clone()
    }

    pub(super) fn addr(&self, server: &HostPort) -> ConnectionAddr {
        self.servers.addr(server)
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// A connection to this server is to end when another one is the master.
    pub(super) fn watch(&self, server: HostPort, hear: &Arc<Hear>) {
        let mut connections = self.connections.lock();
        connections.retain(|(_, hear)| hear.strong_count() > 0);
        connections.push((server, Arc::downgrade(hear)));
    }

    /// Whether the connection has not been ended.
    pub(super) fn watches(&self, hear: &Arc<Hear>) -> bool {
        self.connections.lock().iter().any(|(_, one)| one.ptr_eq(&Arc::downgrade(hear)))
    }

    /// One of them names a master: connections to another end, unless that is an older one.
    pub(super) fn heard(&self, named: &Named) {
        self.replicas.fetch_max(named.replicas, Ordering::AcqRel);
        if named.epoch < self.newest.fetch_max(named.epoch, Ordering::AcqRel) {
            return;
        }
        let ended: Vec<_> = {
            let mut connections = self.connections.lock();
            let (ended, kept) = std::mem::take(&mut *connections)
                .into_iter()
                .partition(|(server, _)| *server != named.master);
            *connections = kept;
            ended
        };
        for hear in ended.into_iter().filter_map(|(_, hear)| hear.upgrade()) {
            tracing::debug!(target: "tenure", master = shown(&named.master), "sentinel names another master");
            hear(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
        }
    }

    /// The newest answer of a majority; of all, where a newer one was heard before, or where no majority answers.
    async fn ask_all(&self) -> Result<Named, Error> {
        let newest = self.newest.load(Ordering::Acquire);
        let majority = self.sentinels.len() / 2 + 1;
        let mut asked: Vec<Option<Pin<Box<dyn Future<Output = _> + Send + '_>>>> = Vec::new();
        for sentinel in &self.sentinels {
            asked.push(Some(Box::pin(sentinel.ask(&self.service, self.patience))));
        }
        let mut answers: Vec<Option<Result<Named, Silence>>> = asked.iter().map(|_| None).collect();
        std::future::poll_fn(|cx| {
            for (asked, answer) in asked.iter_mut().zip(&mut answers) {
                if let Some(future) = asked
                    && let Poll::Ready(said) = future.as_mut().poll(cx)
                {
                    (*asked, *answer) = (None, Some(said));
                }
            }
            let named = answers.iter().flatten().flatten();
            let is_enough = named.clone().count() >= majority && named.clone().any(|one| one.epoch >= newest);
            match is_enough || answers.iter().all(Option::is_some) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        drop(asked);
        let best = answers
            .iter()
            .flatten()
            .flatten()
            .reduce(|best, one| if one.epoch > best.epoch { one } else { best });
        match best {
            Some(named) => {
                self.replicas.fetch_max(named.replicas, Ordering::AcqRel);
                self.newest.fetch_max(named.epoch, Ordering::AcqRel);
                Ok(named.clone())
            }
            None => Err(self.unnamed(answers.into_iter().flatten().filter_map(Result::err).collect())),
        }
    }

    /// None of them names a master.
    fn unnamed(&self, silences: Vec<Silence>) -> Error {
        let service = &self.service;
        let all = |kind: fn(&Silence) -> bool| silences.iter().all(kind);
        let (kind, fix) = if all(|silence| matches!(silence, Silence::Unknown)) {
            let fix = "correct the service in the URL: redis+sentinel://host/SERVICE";
            (ErrorKind::Invalid, fix)
        } else if silences.iter().any(|silence| matches!(silence, Silence::Denied(_))) {
            let fix = "correct `sentinel_user` and `sentinel_password` in the URL; those before the host are for the servers";
            (ErrorKind::Denied, fix)
        } else if silences.iter().any(|silence| matches!(silence, Silence::Unknown)) {
            (ErrorKind::Unavailable, "bring the others back, or correct the service in the URL")
        } else {
            (ErrorKind::Unavailable, "are they running, at these ports?")
        };
        let each = self.sentinels.iter().zip(&silences);
        let each = each.map(|(sentinel, silence)| format!("{} {silence}", sentinel.address));
        let each = each.collect::<Vec<_>>().join(", ");
        Error::new(kind, format!("no sentinel names a master of `{service}`: {each}; {fix}"))
    }
}

impl Sentinel {
    pub(super) async fn connect(
        &self,
        patience: Duration,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Silence> {
        let config = connection_config(hear);
        let connected = self.client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(patience, connected).await {
            Ok(connection) => {
                connection.map_err(|error| Silence::of(&fault::of_connecting(&error, &self.address), &error))
            }
            Err(_) => Err(Silence::Unanswered(patience)),
        }
    }

    /// On a connection of its own.
    async fn ask(&self, service: &str, patience: Duration) -> Result<Named, Silence> {
        let asked = pin!(async {
            let mut connection = self.connect(patience, |_| ()).await?;
            named(&mut connection, service).await
        });
        tokio::time::timeout(patience, asked).await.unwrap_or(Err(Silence::Unanswered(patience)))
    }
}

/// Asks on this connection who is the master.
pub(super) async fn named(connection: &mut MultiplexedConnection, service: &str) -> Result<Named, Silence> {
    let mut questions = redis::pipe();
    questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    questions.cmd("SENTINEL").arg("MASTER").arg(service);
    let answers = connection.send_packed_commands(&questions, 0, 2).await;
    let answers = answers.map_err(|error| Silence::of(&fault::of_command(&error), &error))?;
    let [address, details] = &answers[..] else { return Err(Silence::Strange) };
    let number = |wanted: &str| {
        fields(details).find_map(|(name, value)| (name == wanted).then(|| value.parse().ok())?).unwrap_or(0)
    };
    let (epoch, replicas) = (number("config-epoch"), number("num-slaves"));
    match address {
        Value::Nil => Err(Silence::Unknown),
        Value::ServerError(refusal) => Err(Silence::refused(&fault::refused(refusal), &refusal.to_string())),
        Value::Array(parts) => match &parts[..] {
            [host, port] => {
                let port = string(port).and_then(|port| port.parse().ok());
                let (host, port) = string(host).zip(port).ok_or(Silence::Strange)?;
                let master = HostPort { host: host.to_owned(), port };
                Ok(Named { master, epoch, replicas })
            }
            _ => Err(Silence::Strange),
        },
        _ => Err(Silence::Strange),
    }
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

/// Why one of them names no master.
#[derive(Debug)]
pub(super) enum Silence {
    Unreachable(String),
    Unanswered(Duration),
    Denied(String),
    /// It does not watch over this service.
    Unknown,
    /// It is no Sentinel, or of no version that is known.
    Strange,
}

impl Silence {
    fn of(meaning: &Error, error: &redis::RedisError) -> Self {
        Silence::refused(meaning, &error.to_string())
    }

    fn refused(meaning: &Error, said: &str) -> Self {
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
            Silence::Unanswered(patience) => write!(f, "did not answer within {patience:?}"),
            Silence::Denied(said) => write!(f, "refused the user or the password ({said})"),
            Silence::Unknown => f.write_str("does not know this service"),
            Silence::Strange => f.write_str("is no sentinel"),
        }
    }
}

pub(super) fn shown(host: &HostPort) -> String {
    format!("{}:{}", host.host, host.port)
}
