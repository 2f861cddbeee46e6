//! To whom commands go: the server that the URL names, or the one that somebody else does; and what a new connection is asked first.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::{Client, ConnectionAddr, PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::access::Access;
use super::connection::Connection;
use super::sentinel::{self, Hear, Sentinels};
use super::server::{self, Server, string};
use super::{fault, watcher};
use crate::core::deadlines::{MAX_TTL, Margin};
use crate::sync::Mutex;
use crate::types::duration::shown;
use crate::types::error::Error;
use crate::url::{HostPort, RedisUrl, Tls, Topology};

/// How long a request, or a connection, may take where the URL does not say.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Makes connections to one server: the one that the URL names, or that Sentinel does.
pub(super) struct Connector {
    way: Way,
    db: u32,
    user: Option<String>,
    has_password: bool,
    tls: Option<Tls>,
    pub(super) timeout: Duration,
    /// How far the rates of clocks may differ.
    pub(super) margin: Margin,
    /// The run of the server that the commands go to, where it is known.
    run: Mutex<Option<Arc<str>>>,
}

enum Way {
    Direct {
        client: Box<Client>,
        address: String,
    },
    /// One of several that a cluster has: another may take its place.
    Node {
        client: Box<Client>,
        address: String,
    },
    Sentinel(Arc<Sentinels>),
}

impl Connector {
    pub(super) fn new(url: &RedisUrl, timeout: Option<Duration>) -> Result<Self, Error> {
        let timeout = timeout.unwrap_or(TIMEOUT);
        let servers = Access::new(url, url.credentials(), url.db())?;
        let way = match (url.topology(), url.hosts()) {
            (Topology::Unix { path }, ..) => {
                let address = path.display().to_string();
                let client = Box::new(servers.client_at(ConnectionAddr::Unix(path.clone()), &address)?);
                Way::Direct { client, address }
            }
            (Topology::Single, [server]) => {
                Way::Direct { client: Box::new(servers.client(server)?), address: sentinel::shown(server) }
            }
            (Topology::Sentinel { service, credentials }, hosts) => {
                let theirs = Access::new(url, credentials.as_ref(), 0)?;
                Way::Sentinel(Arc::new(Sentinels::new(service, hosts, &theirs, servers, timeout / 2)?))
            }
            _ => unreachable!("a backend of its own asks every server by itself"),
        };
        Ok(Connector::by(way, url, timeout))
    }

    /// To this node of the cluster that the URL names.
    pub(super) fn of_node(
        url: &RedisUrl,
        access: &Access,
        host: &HostPort,
        timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        let way = Way::Node { client: Box::new(access.client(host)?), address: sentinel::shown(host) };
        Ok(Connector::by(way, url, timeout.unwrap_or(TIMEOUT)))
    }

    fn by(way: Way, url: &RedisUrl, timeout: Duration) -> Self {
        let user = url.credentials().and_then(|credentials| credentials.user.clone());
        let has_password = url.credentials().is_some();
        let (margin, tls) = (url.margin(), url.tls().cloned());
        Connector { way, db: url.db(), user, has_password, tls, timeout, margin, run: Mutex::default() }
    }

    /// Connects the commands, and hands what the server says unasked to `hear`, which must not block. The server may take this long.
    pub(super) async fn connect(
        &self,
        patience: Duration,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        match &self.way {
            Way::Direct { client, address } | Way::Node { client, address } => {
                self.connect_to(client, address, patience, hear).await
            }
            Way::Sentinel(sentinels) => {
                watcher::start(sentinels);
                let (client, server) = sentinels.find().await?;
                self.connect_watched(sentinels, &client, server, patience, hear).await
            }
        }
    }

    /// The same to the server that the commands go to. A name may lead to several, and one that was a master may be none any more: it must
    /// say itself that it is one, and be the same run, as far as it may be asked.
    pub(super) async fn join(
        &self,
        patience: Duration,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        let mut connection = match &self.way {
            Way::Direct { client, address } | Way::Node { client, address } => {
                self.connect_to(client, address, patience, hear).await?
            }
            Way::Sentinel(sentinels) => {
                let (client, server) = sentinels.standing().await?;
                self.connect_watched(sentinels, &client, server, patience, hear).await?
            }
        };
        let mut questions = redis::pipe();
        questions.cmd("HELLO");
        questions.cmd("INFO").arg("server");
        let answers = connection.send_all(&questions);
        let answers = tokio::time::timeout(patience, answers).await.map_err(|_| self.silent())?;
        let answers = answers.map_err(|error| fault::of_connecting(&error, &self.address()))?;
        let [hello, info] = &answers[..] else { return Err(fault::unexpected(&Value::Array(answers))) };
        if server::is_replica(hello) {
            return Err(self.demoted());
        }
        let run = string(info).and_then(|info| server::field(info, "run_id"));
        match (self.run.lock().as_deref(), run) {
            (Some(known), Some(run)) if known != run => {
                Err(Error::not_yet(format!("another server than before answers at {}", self.address()))
                    .fix("try again"))
            }
            _ => Ok(connection),
        }
    }

    /// Which server the commands go to: another one where this changes.
    pub(super) fn run(&self) -> (u64, Option<Arc<str>>) {
        let number = match &self.way {
            Way::Direct { .. } | Way::Node { .. } => 0,
            Way::Sentinel(sentinels) => sentinels.number(),
        };
        (number, self.run.lock().clone())
    }

    async fn connect_watched(
        &self,
        sentinels: &Sentinels,
        client: &Client,
        server: HostPort,
        patience: Duration,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        let (address, ended) = (sentinel::shown(&server), Arc::new(Notify::new()));
        let rung = Arc::clone(&ended);
        let hear: Arc<Hear> = Arc::new(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                rung.notify_one();
            }
            hear(push);
        });
        // Before it is connected to: it may be followed by another in between, and is then not waited for.
        sentinels.watch(server, &hear);
        let heard = Arc::clone(&hear);
        let mut connecting = pin!(self.connect_to(client, &address, patience, move |push| heard(push)));
        let mut ended = pin!(ended.notified());
        let connected = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(connected) => Poll::Ready(Some(connected)),
            Poll::Pending => ended.as_mut().poll(cx).map(|()| None),
        });
        let connected = match connected.await {
            Some(connected) => Some(connected),
            // It broke off by itself, and says why.
            None if sentinels.watches(&hear) => Some(connecting.await),
            None => None,
        };
        match connected {
            Some(Ok(_)) | None if !sentinels.watches(&hear) => Err(Error::not_yet(format!(
                "sentinel named another master than {address} while it was connected to"
            ))
            .fix("try again")),
            Some(connected) => connected,
            None => Err(self.silent()),
        }
    }

    async fn connect_to(
        &self,
        client: &Client,
        address: &str,
        patience: Duration,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        match tokio::time::timeout(patience, Connection::new(client, hear)).await {
            Ok(connection) => connection.map_err(|error| {
                fault::of_selecting(&error, address, self.db)
                    .unwrap_or_else(|| fault::of_connecting(&error, address))
            }),
            Err(_) => Err(self.silent()),
        }
    }

    /// Prepares a connection for commands: the server tells of changes to the keys that are asked for, but for our own.
    pub(super) async fn prepare(
        &self,
        connection: &mut Connection,
        patience: Duration,
    ) -> Result<Server, Error> {
        let mut setup = redis::pipe();
        setup.cmd("HELLO");
        setup.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
        setup.cmd("CLIENT").arg("CACHING").arg("YES");
        setup.cmd("INFO");
        setup.cmd("TIME");
        let answers = tokio::time::timeout(patience, connection.send_all(&setup)).await;
        let answers = answers.map_err(|_| self.silent())?;
        let answers = answers.map_err(|error| fault::of_connecting(&error, &self.address()))?;
        let [hello, tracking, caching, info, time] = &answers[..] else {
            return Err(fault::unexpected(&Value::Array(answers)));
        };
        let refusals = [tracking, caching].map(|answer| match answer {
            Value::ServerError(refusal) => Some(refusal),
            _ => None,
        });
        let refusal = refusals.into_iter().flatten().next();
        if let Some(error) =
            refusal.map(|refusal| fault::refused(refusal, &self.address())).filter(Error::is_transient)
        {
            return Err(error);
        }
        let mut server = Server::new(hello, info, time, refusal);
        if server.is_sentinel {
            let address = self.address();
            let place = match self.addr() {
                Some(ConnectionAddr::Unix(_)) => "HOST:PORT",
                _ => &address,
            };
            return Err(Error::invalid(format!("what answers at {address} is a sentinel"))
                .fix(format!("write redis+sentinel://{place}/SERVICE")));
        }
        if server.is_node && !matches!(self.way, Way::Node { .. }) {
            return Err(self.clustered());
        }
        // What was started lately may have forgotten something, unless this.
        if server.appends && server.uptime.is_some_and(|uptime| uptime < MAX_TTL) {
            server.keeps_all = self.asks_for_every_change(connection).await;
        }
        if server.is_replica {
            return Err(self.demoted());
        }
        if let Way::Sentinel(sentinels) = &self.way {
            sentinels.confirm().await?;
        }
        self.run.lock().clone_from(&server.run_id);
        Ok(server)
    }

    /// Whether the append-only file has every change before it is answered; no, where the server does not say.
    async fn asks_for_every_change(&self, connection: &mut Connection) -> bool {
        let mut config = redis::Cmd::new();
        config.arg("CONFIG").arg("GET").arg("appendfsync");
        let answer = tokio::time::timeout(self.timeout, connection.send(&config)).await;
        let Ok(Ok(Value::Map(fields))) = answer else { return false };
        fields.iter().any(|(_, value)| string(value) == Some("always"))
    }

    /// The server takes no writes. Where somebody knows which one does, that is worth asking again.
    pub(super) fn demoted(&self) -> Error {
        let address = self.address();
        match &self.way {
            Way::Direct { .. } => Error::unavailable(format!("redis at {address} is a read-only replica"))
                .fix("point the URL at the master"),
            Way::Node { .. } => Error::not_yet(format!("redis at {address} is a replica now"))
                .fix("try again when the cluster names its master"),
            Way::Sentinel(sentinels) => Error::not_yet(format!(
                "redis at {address}, which sentinel names as the master of `{}`, is a replica",
                sentinels.service
            ))
            .fix("try again when the failover is over"),
        }
    }

    /// Whoever does not know that the server is one of several would share its queues with those who do, and miss their messages.
    fn clustered(&self) -> Error {
        let (address, addr) = (self.address(), self.addr());
        let scheme = match addr {
            Some(ConnectionAddr::TcpTls { .. }) => "rediss+cluster",
            _ => "redis+cluster",
        };
        let host = match addr {
            Some(ConnectionAddr::Unix(_)) => "HOST:PORT",
            _ => &address,
        };
        Error::invalid(format!("redis at {address} is a node of a cluster, and has only some of the names"))
            .fix(format!("write {scheme}://{host}"))
    }

    /// Whether there may be another server when this one is not the master any more.
    pub(super) fn has_successors(&self) -> bool {
        matches!(self.way, Way::Node { .. } | Way::Sentinel(_))
    }

    /// Who names the server.
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.way {
            Way::Direct { .. } | Way::Node { .. } => None,
            Way::Sentinel(sentinels) => Some(sentinels),
        }
    }

    /// What to call the server in a message.
    pub(super) fn address(&self) -> String {
        match &self.way {
            Way::Direct { address, .. } | Way::Node { address, .. } => address.clone(),
            Way::Sentinel(sentinels) => match sentinels.master() {
                Some(master) => sentinel::shown(&master),
                None => format!("the master of `{}`", sentinels.service),
            },
        }
    }

    /// Where the server is; nowhere when nobody named it yet.
    pub(super) fn addr(&self) -> Option<ConnectionAddr> {
        match &self.way {
            Way::Direct { client, .. } | Way::Node { client, .. } => {
                Some(client.get_connection_info().addr().clone())
            }
            Way::Sentinel(sentinels) => sentinels.master().map(|master| sentinels.addr(&master)),
        }
    }

    /// The user that the URL names.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the URL has one.
    pub(super) fn has_password(&self) -> bool {
        self.has_password
    }

    /// The certificates of the URL, if it has TLS.
    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(super) fn silent(&self) -> Error {
        let why = match self.addr() {
            Some(ConnectionAddr::TcpTls { .. }) => {
                "is it overloaded, cut off, or does it expect redis:// without TLS?"
            }
            _ => "is it overloaded or cut off?",
        };
        Error::unavailable(format!(
            "redis at {} did not answer within {}",
            self.address(),
            shown(self.timeout)
        ))
        .fix(why)
    }
}
