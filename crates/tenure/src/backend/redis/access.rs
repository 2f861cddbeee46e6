//! How the client connects: user, database, certificates and socket options.
//!
//! Tenure parses the URL itself, because the driver's parser ignores options that it does not know. The kernel notices a dead peer within
//! 3 s (keepalive, and a limit for unacknowledged data), and the supervisor's heartbeat notices it before that.

use std::path::Path;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, TlsCertificates,
};

use super::{fault, sentinel};
use crate::types::error::Error;
use crate::url::{Credentials, HostPort, RedisUrl, Tls};

const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVE_PROBES: u32 = 2;
const UNACKNOWLEDGED: Duration = Duration::from_secs(2);
/// The driver's queue of requests: longer than any client needs, because a request must be queued when it is first polled.
const MOST_REQUESTS: usize = 1 << 20;

/// Sections of PEM files.
const CERTIFICATE: &str = "CERTIFICATE";
const KEY: &str = "PRIVATE KEY";

/// How to connect to servers of one kind: user, database, certificates.
pub(super) struct Access {
    settings: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
}

impl Access {
    /// The certificates of the URL, with these credentials.
    pub(super) fn new(url: &RedisUrl, credentials: Option<&Credentials>, db: u32) -> Result<Self, Error> {
        let tls = url.tls().map(certificates).transpose()?;
        Ok(Access { settings: settings(credentials, db), tls })
    }

    pub(super) fn client(&self, server: &HostPort) -> Result<Client, Error> {
        self.client_at(self.addr(server), &sentinel::shown(server))
    }

    pub(super) fn addr(&self, server: &HostPort) -> ConnectionAddr {
        let (host, port) = (server.host.clone(), server.port);
        match self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        }
    }

    pub(super) fn client_at(&self, addr: ConnectionAddr, address: &str) -> Result<Client, Error> {
        let invalid = |error| fault::of_connecting(&error, address, None);
        let keepalive =
            TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(KEEPALIVE_PROBES);
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            .set_user_timeout(UNACKNOWLEDGED);
        let server = addr.into_connection_info().map_err(invalid)?;
        let server = server.set_tcp_settings(tcp).set_redis_settings(self.settings.clone());
        match &self.tls {
            None => Client::open(server).map_err(invalid),
            Some(tls) => Client::build_with_tls(server, tls.clone()).map_err(invalid),
        }
    }
}

/// Without the driver's timeouts: it would not close the connection.
pub(super) fn connection_config(on_push: impl Fn(PushInfo) + Send + Sync + 'static) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(MOST_REQUESTS)
        .set_push_sender(move |push: PushInfo| -> Result<(), std::convert::Infallible> {
            on_push(push);
            Ok(())
        })
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
    // Another part of the process may have chosen a provider; any works.
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

/// Reads a PEM file with at least one such section. The driver accepts a file without one as empty, and then trusts no server.
fn read(path: &Path, section: &str) -> Result<Vec<u8>, Error> {
    let file = format!("TLS file {} of the domain URL", path.display());
    let unreadable =
        |error: std::io::Error| Error::invalid(format!("cannot read {file}")).because(error.to_string());
    let content = std::fs::read(path).map_err(unreadable)?;
    let ending = format!("{section}-----");
    if !content.windows(ending.len()).any(|text| text == ending.as_bytes()) {
        return Err(Error::invalid(format!("{file} has no section {section}")).fix("write a file in PEM"));
    }
    Ok(content)
}
