//! From a URL to a connection.
//!
//! Our own URL decides; the driver's parser is not used, because it ignores what it does not know. A dead peer is noticed by the
//! kernel within 3 s (keepalive, and a limit for what is not acknowledged), and by the supervisor's heartbeat before that.

use std::path::Path;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, TlsCertificates, Value,
};

use super::fault;
use super::server::Server;
use crate::error::Error;
use crate::url::{Credentials, RedisUrl, Tls, Topology};

/// How long a request, or a connection, may take where the URL does not say.
const TIMEOUT: Duration = Duration::from_secs(2);
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVE_PROBES: u32 = 2;
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);
/// How many requests may wait to be written. More than anyone has: a request must be on its way when it was first polled.
const MOST_REQUESTS: usize = 1 << 20;

/// Sections of PEM files.
const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// Makes connections to one server.
pub(super) struct Connector {
    client: Client,
    /// What to call the server in a message.
    pub(super) address: String,
    db: u32,
    pub(super) timeout: Duration,
}

impl Connector {
    pub(super) fn new(url: &RedisUrl, timeout: Option<Duration>) -> Result<Self, Error> {
        let (addr, address) = match (url.topology(), url.hosts(), url.tls()) {
            (Topology::Unix { path }, ..) => (ConnectionAddr::Unix(path.clone()), path.display().to_string()),
            (Topology::Single, [server], tls) => {
                let (host, port) = (server.host.clone(), server.port);
                let address = format!("{host}:{port}");
                match tls {
                    None => (ConnectionAddr::Tcp(host, port), address),
                    Some(_) => {
                        (ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }, address)
                    }
                }
            }
            _ => return Err(not_yet("Sentinel, Cluster and quorum")),
        };
        if url.replicas().is_some() {
            return Err(not_yet("the option `replicas`"));
        }
        let invalid = |error| fault::of_connecting(&error, &address);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(
                TcpKeepalive::new()
                    .with_time(KEEPALIVE)
                    .with_interval(KEEPALIVE)
                    .with_retries(KEEPALIVE_PROBES),
            )
            .set_user_timeout(UNACKNOWLEDGED);
        let settings = settings(url.credentials(), url.db());
        let server = addr.into_connection_info().map_err(invalid)?;
        let server = server.set_tcp_settings(tcp).set_redis_settings(settings);
        let client = match url.tls() {
            None => Client::open(server).map_err(invalid)?,
            Some(tls) => Client::build_with_tls(server, certificates(tls)?).map_err(invalid)?,
        };
        Ok(Connector { client, address, db: url.db(), timeout: timeout.unwrap_or(TIMEOUT) })
    }

    /// Connects, and hands what the server says unasked to `hear`, which must not block.
    pub(super) async fn connect(
        &self,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MOST_REQUESTS)
            .set_push_sender(move |push: PushInfo| -> Result<(), std::convert::Infallible> {
                hear(push);
                Ok(())
            });
        let connected = self.client.get_multiplexed_async_connection_with_config(&config);
        match tokio::time::timeout(self.timeout, connected).await {
            Ok(connection) => connection.map_err(|error| {
                fault::of_selecting(&error, &self.address, self.db)
                    .unwrap_or_else(|| fault::of_connecting(&error, &self.address))
            }),
            Err(_) => Err(self.silent()),
        }
    }

    /// Prepares a connection for commands: the server tells of changes to the keys that are asked for, but for our own.
    pub(super) async fn prepare(&self, connection: &mut MultiplexedConnection) -> Result<Server, Error> {
        let mut setup = redis::pipe();
        setup.cmd("HELLO");
        setup.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").arg("NOLOOP");
        setup.cmd("CLIENT").arg("CACHING").arg("YES");
        setup.cmd("INFO");
        setup.cmd("TIME");
        let answers = tokio::time::timeout(self.timeout, connection.send_packed_commands(&setup, 0, 5)).await;
        let answers = answers.map_err(|_| self.silent())?;
        let answers = answers.map_err(|error| fault::of_connecting(&error, &self.address))?;
        let [hello, tracking, caching, info, time] = &answers[..] else {
            return Err(fault::unexpected(&Value::Array(answers)));
        };
        let refusals = [tracking, caching].map(|answer| match answer {
            Value::ServerError(refusal) => Some(refusal),
            _ => None,
        });
        let refusal = refusals.into_iter().flatten().next();
        if let Some(error) = refusal.map(fault::refused).filter(Error::is_transient) {
            return Err(error);
        }
        let server = Server::new(hello, info, time, refusal);
        if server.is_replica {
            return Err(Error::unavailable(format!(
                "redis at {} is a read-only replica; point the URL at the master",
                self.address
            )));
        }
        Ok(server)
    }

    pub(super) fn addr(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// The user that the URL names.
    pub(super) fn user(&self) -> Option<&str> {
        self.client.get_connection_info().redis_settings().username()
    }

    /// Whether the URL has one.
    pub(super) fn has_password(&self) -> bool {
        self.client.get_connection_info().redis_settings().password().is_some()
    }

    pub(super) fn silent(&self) -> Error {
        let why = match self.addr() {
            ConnectionAddr::TcpTls { .. } => {
                "is it overloaded, cut off, or does it expect redis:// without TLS?"
            }
            _ => "is it overloaded or cut off?",
        };
        Error::unavailable(format!(
            "redis at {} did not answer within {:?}; {why}",
            self.address, self.timeout
        ))
    }
}

fn not_yet(what: &str) -> Error {
    Error::unsupported(format!("{what} are not in this version of tenure; use one server: redis://host"))
}

fn settings(credentials: Option<&Credentials>, db: u32) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_db(db.into());
    settings = settings.set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
    if let Some(Credentials { user, password }) = credentials {
        settings = settings.set_password(password.reveal());
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
    }
    settings
}

fn certificates(tls: &Tls) -> Result<TlsCertificates, Error> {
    // Someone else may have chosen one for the process; any will do.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client_tls = match &tls.client {
        Some(client) => {
            let (client_cert, client_key) = (read(&client.cert, CERTIFICATE)?, read(&client.key, KEY)?);
            Some(ClientTlsConfig { client_cert, client_key })
        }
        None => None,
    };
    Ok(TlsCertificates {
        client_tls,
        root_cert: tls.ca.as_deref().map(|ca| read(ca, CERTIFICATE)).transpose()?,
    })
}

/// A PEM file with at least one such section: the driver takes one without for an empty one, and then trusts nobody.
fn read(path: &Path, section: &str) -> Result<Vec<u8>, Error> {
    let invalid =
        |why: String| Error::invalid(format!("TLS file {} of the domain URL {why}", path.display()));
    let content = std::fs::read(path).map_err(|error| invalid(format!("can't be read: {error}")))?;
    let ending = format!("{section}-----");
    if !content.windows(ending.len()).any(|text| text == ending.as_bytes()) {
        return Err(invalid(format!("has no section {section} in it; write a file in PEM")));
    }
    Ok(content)
}
