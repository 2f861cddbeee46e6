//! Whose certificates servers that belong together have, if they speak TLS with each other and with their clients.

use super::builder::Builder;
use super::server::RedisServer;
use std::path::PathBuf;

/// A server that is there for its certificates alone; none among servers without TLS.
#[derive(Debug)]
pub(super) struct Authority(Option<RedisServer>);

impl Authority {
    pub(super) fn new(has_tls: bool) -> Self {
        Authority(has_tls.then(|| RedisServer::builder().tls().start()))
    }

    /// With its certificates.
    pub(super) fn certify(&self, server: Builder) -> Builder {
        let Some(authority) = &self.0 else { return server };
        let file = |name: &str| authority.ca_path().with_file_name(name).display().to_string();
        server
            .tls()
            .config("tls-replication", "yes")
            .config("tls-ca-cert-file", &file("ca.crt"))
            .config("tls-cert-file", &file("server.crt"))
            .config("tls-key-file", &file("server.key"))
            .config("tls-client-cert-file", &file("client.crt"))
            .config("tls-client-key-file", &file("client.key"))
    }

    /// The port that others use.
    pub(super) fn port(&self, server: &RedisServer) -> u16 {
        if self.0.is_some() { server.tls_port() } else { server.port() }
    }

    /// How the URL of servers like these begins.
    pub(super) fn scheme(&self) -> &'static str {
        if self.0.is_some() { "rediss" } else { "redis" }
    }

    pub(super) fn ca_path(&self) -> PathBuf {
        self.0.as_ref().expect("servers that were started with `.tls()`").ca_path()
    }
}
