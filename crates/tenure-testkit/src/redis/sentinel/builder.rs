//! How three Sentinels and their servers are started.

use super::super::authority::Authority;
use super::super::builder::Builder;
use super::super::server::RedisServer;
use super::{SERVICE, Trio};
use std::time::Duration;

/// What the servers and Sentinels are to be like.
#[derive(Debug, Clone)]
pub struct TrioBuilder {
    down_after: Duration,
    password: Option<String>,
    sentinel_password: Option<String>,
    has_tls: bool,
    is_ranked: bool,
}

impl Default for TrioBuilder {
    fn default() -> Self {
        let down_after = Duration::from_secs(60);
        TrioBuilder { down_after, password: None, sentinel_password: None, has_tls: false, is_ranked: false }
    }
}

impl TrioBuilder {
    /// So long a master may be silent before it is replaced: a minute, unless this says otherwise, so that a busy machine replaces none. A
    /// test in which Sentinels have to notice a death says less, and expects that they replace more than one.
    #[must_use]
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// The servers want a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The Sentinels want a password.
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Servers and Sentinels speak TLS with everyone, with certificates of one authority.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// Of two replicas the one that was started first is promoted, and not the one that has received most.
    #[must_use]
    pub fn ranked(mut self) -> Self {
        self.is_ranked = true;
        self
    }

    /// Starts them, and returns when they know of each other.
    ///
    /// # Panics
    /// When there is no redis-server, or they do not find each other.
    #[must_use]
    pub fn start(self) -> Trio {
        let authority = Authority::new(self.has_tls);
        let plain = || authority.certify(RedisServer::builder());
        let data = |rank: &str| {
            let builder = match &self.password {
                Some(password) => plain().password(password),
                None => plain(),
            };
            let builder = builder.config("repl-ping-replica-period", "1");
            if self.is_ranked { builder.config("replica-priority", rank) } else { builder }
        };
        let master = data("10").start();
        let at = format!("127.0.0.1 {}", authority.port(&master));
        let announced = |builder: Builder| builder.config("replicaof", &at).start();
        let servers = [master, announced(data("20")), announced(data("30"))];
        let sentinel = || {
            let mut builder = plain()
                .sentinel()
                .config("sentinel", &format!("monitor {SERVICE} {at} 2"))
                .config(
                    "sentinel",
                    &format!("down-after-milliseconds {SERVICE} {}", self.down_after.as_millis()),
                )
                .config("sentinel", &format!("failover-timeout {SERVICE} 3000"))
                .config("sentinel", &format!("parallel-syncs {SERVICE} 2"));
            if let Some(password) = &self.password {
                builder = builder.config("sentinel", &format!("auth-pass {SERVICE} {password}"));
            }
            if let Some(password) = &self.sentinel_password {
                let among = format!("sentinel-pass {password}");
                builder = builder.config("requirepass", password).config("sentinel", &among);
            }
            builder.start()
        };
        let sentinels = [sentinel(), sentinel(), sentinel()];
        let trio = Trio { sentinels, servers, authority, is_ranked: self.is_ranked };
        trio.wait_until_complete();
        trio
    }
}
