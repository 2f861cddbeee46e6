//! Which server a client connects to: the one that the URL names, or the one that Sentinel or the cluster names. Also the first questions
//! on a new connection: they find out whether this server can hold locks.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::{Client, ConnectionAddr, PushInfo, PushKind, Value};
use tokio::sync::Notify;

use super::access::Access;
use super::connection::Connection;
use super::sentinel::{self, OnPush, Sentinels};
use super::server::{self, Server, string};
use super::{fault, greeting, watcher};
use crate::core::deadlines::{MAX_TTL, Margin};
use crate::sync::Mutex;
use crate::types::duration::shown;
use crate::types::error::Error;
use crate::url::{HostPort, RedisUrl, Tls, Topology};

/// The timeout for a request and for connecting, if the URL has none.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to one server.
pub(super) struct Connector {
    endpoint: Endpoint,
    db: u32,
    user: Option<String>,
    has_password: bool,
    tls: Option<Tls>,
    pub(super) timeout: Duration,
    /// How much the rates of two clocks may differ.
    pub(super) margin: Margin,
    /// The incarnation of the server that gets the commands, if the server says it.
    incarnation: Mutex<Option<Arc<str>>>,
}

enum Endpoint {
    Direct {
        client: Box<Client>,
        address: String,
    },
    /// A node of a cluster: another node may take its place.
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
        let endpoint = match (url.topology(), url.hosts()) {
            (Topology::Unix { path }, ..) => {
                let address = path.display().to_string();
                let client = Box::new(servers.client_at(ConnectionAddr::Unix(path.clone()), &address)?);
                Endpoint::Direct { client, address }
            }
            (Topology::Single, [server]) => Endpoint::Direct {
                client: Box::new(servers.client(server)?),
                address: sentinel::shown(server),
            },
            (Topology::Sentinel { service, credentials }, hosts) => {
                let theirs = Access::new(url, credentials.as_ref(), 0)?;
                Endpoint::Sentinel(Arc::new(Sentinels::new(service, hosts, &theirs, servers, timeout / 2)?))
            }
            _ => unreachable!("a backend of its own asks every server by itself"),
        };
        Ok(Connector::by(endpoint, url, timeout))
    }

    /// For this node of the cluster that the URL names.
    pub(super) fn of_node(
        url: &RedisUrl,
        access: &Access,
        host: &HostPort,
        timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        let endpoint =
            Endpoint::Node { client: Box::new(access.client(host)?), address: sentinel::shown(host) };
        Ok(Connector::by(endpoint, url, timeout.unwrap_or(TIMEOUT)))
    }

    fn by(endpoint: Endpoint, url: &RedisUrl, timeout: Duration) -> Self {
        let user = url.credentials().and_then(|credentials| credentials.user.clone());
        let has_password = url.credentials().is_some();
        let (margin, tls) = (url.margin(), url.tls().cloned());
        Connector {
            endpoint,
            db: url.db(),
            user,
            has_password,
            tls,
            timeout,
            margin,
            incarnation: Mutex::default(),
        }
    }

    /// Opens the connection for commands. Pushes go to `on_push`, which must not block. Each step may take `patience`.
    pub(super) async fn connect(
        &self,
        patience: Duration,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        match &self.endpoint {
            Endpoint::Direct { client, address } | Endpoint::Node { client, address } => {
                self.connect_to(client, address, patience, on_push).await
            }
            Endpoint::Sentinel(sentinels) => {
                watcher::start(sentinels);
                let (client, server) = sentinels.find().await?;
                self.connect_watched(sentinels, &client, server, patience, on_push).await
            }
        }
    }

    /// Opens another connection to the server that gets the commands. A host name may lead to several servers, and a former master may be
    /// a replica now: the server must say that it is a master of the same incarnation, if the user may ask.
    pub(super) async fn connect_to_same_server(
        &self,
        patience: Duration,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        let mut connection = match &self.endpoint {
            Endpoint::Direct { client, address } | Endpoint::Node { client, address } => {
                self.connect_to(client, address, patience, on_push).await?
            }
            Endpoint::Sentinel(sentinels) => {
                let (client, server) = sentinels.current().await?;
                self.connect_watched(sentinels, &client, server, patience, on_push).await?
            }
        };
        let mut questions = redis::pipe();
        questions.cmd("HELLO");
        questions.cmd("INFO").arg("server");
        let answers = connection.send_all(&questions);
        let answers = tokio::time::timeout(patience, answers).await.map_err(|_| self.silent())?;
        let answers =
            answers.map_err(|error| fault::of_connecting(&error, &self.address(), self.addr().as_ref()))?;
        let [hello, info] = &answers[..] else { return Err(fault::unexpected(&Value::Array(answers))) };
        if server::is_replica(hello) {
            return Err(self.demoted());
        }
        let incarnation = string(info).and_then(|info| server::field(info, "run_id"));
        match (self.incarnation.lock().as_deref(), incarnation) {
            (Some(known), Some(incarnation)) if known != incarnation => {
                Err(Error::not_yet(format!("another server than before answers at {}", self.address()))
                    .fix("try again"))
            }
            _ => Ok(connection),
        }
    }

    /// Identifies the server that gets the commands: the value changes with the server.
    pub(super) fn incarnation(&self) -> (u64, Option<Arc<str>>) {
        let number = match &self.endpoint {
            Endpoint::Direct { .. } | Endpoint::Node { .. } => 0,
            Endpoint::Sentinel(sentinels) => sentinels.number(),
        };
        (number, self.incarnation.lock().clone())
    }

    async fn connect_watched(
        &self,
        sentinels: &Sentinels,
        client: &Client,
        server: HostPort,
        patience: Duration,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        let (address, ended) = (sentinel::shown(&server), Arc::new(Notify::new()));
        let on_disconnect = Arc::clone(&ended);
        let on_push: Arc<OnPush> = Arc::new(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                on_disconnect.notify_one();
            }
            on_push(push);
        });
        // Before connecting: if Sentinel names another master meanwhile, the attempt ends.
        sentinels.watch(server, &on_push);
        let forward = Arc::clone(&on_push);
        let mut connecting = pin!(self.connect_to(client, &address, patience, move |push| forward(push)));
        let mut ended = pin!(ended.notified());
        let connected = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Ready(connected) => Poll::Ready(Some(connected)),
            Poll::Pending => ended.as_mut().poll(cx).map(|()| None),
        });
        let connected = match connected.await {
            Some(connected) => Some(connected),
            // The connection broke by itself, and the error says why.
            None if sentinels.watches(&on_push) => Some(connecting.await),
            None => None,
        };
        match connected {
            Some(Ok(_)) | None if !sentinels.watches(&on_push) => Err(Error::not_yet(format!(
                "sentinel named another master than {address} while the client connected to it"
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
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection, Error> {
        let error = match tokio::time::timeout(patience, Connection::new(client, on_push)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => return Err(self.silent()),
        };
        let addr = client.get_connection_info().addr();
        if error.is_connection_dropped() && !error.is_connection_refusal() && greeting::is_denied(addr).await
        {
            return Err(fault::protected_mode(address));
        }
        Err(fault::of_selecting(&error, address, self.db)
            .unwrap_or_else(|| fault::of_connecting(&error, address, Some(addr))))
    }

    /// Prepares a connection for commands. The server reports changes to tracked keys, except changes by this client.
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
        let answers =
            answers.map_err(|error| fault::of_connecting(&error, &self.address(), self.addr().as_ref()))?;
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
            let host = match self.addr() {
                Some(ConnectionAddr::Unix(_)) => "HOST:PORT",
                _ => &address,
            };
            return Err(Error::invalid(format!("the server at {address} is a sentinel"))
                .fix(format!("write redis+sentinel://{host}/SERVICE")));
        }
        if server.is_node && !matches!(self.endpoint, Endpoint::Node { .. }) {
            return Err(self.clustered());
        }
        // A server that started lately may have forgotten leases, unless it syncs every change to disk.
        if server.appends && server.uptime.is_some_and(|uptime| uptime < MAX_TTL) {
            server.keeps_all = self.syncs_every_change(connection).await;
        }
        if server.is_replica {
            return Err(self.demoted());
        }
        if let Endpoint::Sentinel(sentinels) = &self.endpoint {
            sentinels.confirm().await?;
        }
        self.incarnation.lock().clone_from(&server.run_id);
        Ok(server)
    }

    /// Whether the append-only file has every change before the server answers; false if the server does not say.
    async fn syncs_every_change(&self, connection: &mut Connection) -> bool {
        let mut config = redis::Cmd::new();
        config.arg("CONFIG").arg("GET").arg("appendfsync");
        let answer = tokio::time::timeout(self.timeout, connection.send(&config)).await;
        let Ok(Ok(Value::Map(fields))) = answer else { return false };
        fields.iter().any(|(_, value)| string(value) == Some("always"))
    }

    /// The server is a replica. If Sentinel or the cluster names the master, asking again is worth it.
    pub(super) fn demoted(&self) -> Error {
        let address = self.address();
        match &self.endpoint {
            Endpoint::Direct { .. } => {
                Error::unavailable(format!("redis at {address} is a read-only replica"))
                    .fix("point the URL at the master")
            }
            Endpoint::Node { .. } => Error::not_yet(format!("redis at {address} is a replica now"))
                .fix("try again when the cluster names its master"),
            Endpoint::Sentinel(sentinels) => Error::not_yet(format!(
                "redis at {address}, which sentinel names as the master of `{}`, is a replica",
                sentinels.service
            ))
            .fix("try again when the failover is over"),
        }
    }

    /// A client that does not know of the cluster would share queues with clients that do, and would miss their messages.
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

    /// Whether another server may take the place of this master.
    pub(super) fn has_successors(&self) -> bool {
        matches!(self.endpoint, Endpoint::Node { .. } | Endpoint::Sentinel(_))
    }

    /// The Sentinels that name the server.
    pub(super) fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match &self.endpoint {
            Endpoint::Direct { .. } | Endpoint::Node { .. } => None,
            Endpoint::Sentinel(sentinels) => Some(sentinels),
        }
    }

    /// The server's address, for messages.
    pub(super) fn address(&self) -> String {
        match &self.endpoint {
            Endpoint::Direct { address, .. } | Endpoint::Node { address, .. } => address.clone(),
            Endpoint::Sentinel(sentinels) => match sentinels.master() {
                Some(master) => sentinel::shown(&master),
                None => format!("the master of `{}`", sentinels.service),
            },
        }
    }

    /// The server's address for the driver; `None` until Sentinel has named a master.
    pub(super) fn addr(&self) -> Option<ConnectionAddr> {
        match &self.endpoint {
            Endpoint::Direct { client, .. } | Endpoint::Node { client, .. } => {
                Some(client.get_connection_info().addr().clone())
            }
            Endpoint::Sentinel(sentinels) => sentinels.master().map(|master| sentinels.addr(&master)),
        }
    }

    /// The user that the URL names.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether the URL has a password.
    pub(super) fn has_password(&self) -> bool {
        self.has_password
    }

    /// The certificates of the URL, if it has TLS.
    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    pub(super) fn silent(&self) -> Error {
        let fix = match self.addr() {
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
        .fix(fix)
    }
}
