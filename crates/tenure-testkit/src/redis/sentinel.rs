//! Three Sentinels that watch over one master and its two replicas.
//!
//! It takes about two seconds until they know of each other, and as long until they have replaced a master; so a test does several
//! things with one.

mod builder;

pub use self::builder::TrioBuilder;
use super::authority::Authority;
use super::server::RedisServer;
use crate::patience::block_until;
use std::path::PathBuf;

/// What they call the service.
const SERVICE: &str = "main";

/// Three Sentinels, and three servers of which one is the master. They die with this value, and with this process.
#[derive(Debug)]
pub struct Trio {
    sentinels: [RedisServer; 3],
    servers: [RedisServer; 3],
    authority: Authority,
    is_ranked: bool,
}

impl Trio {
    /// Without passwords and TLS.
    #[must_use]
    pub fn start() -> Self {
        Trio::builder().start()
    }

    /// With settings.
    #[must_use]
    pub fn builder() -> TrioBuilder {
        TrioBuilder::default()
    }

    /// As a domain is opened with, without passwords.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", self.port(sentinel)));
        format!("{}+sentinel://{}/{SERVICE}", self.authority.scheme(), hosts.join(","))
    }

    /// The certificate of the authority.
    ///
    /// # Panics
    /// When it was started without [`TrioBuilder::tls`].
    #[must_use]
    pub fn ca_path(&self) -> PathBuf {
        self.authority.ca_path()
    }

    /// The Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer; 3] {
        &self.sentinels
    }

    /// What they call the service.
    #[must_use]
    pub fn service(&self) -> &'static str {
        SERVICE
    }

    /// The servers, whatever their role.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer; 3] {
        &self.servers
    }

    /// The server that the first Sentinel names.
    ///
    /// # Panics
    /// When it names none of these.
    #[must_use]
    pub fn master(&self) -> &RedisServer {
        let named = self.sentinels[0].command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
        let port = named.items()[1].text();
        let master = self.servers.iter().find(|server| self.port(server).to_string() == port);
        master.expect("one of the servers")
    }

    /// Returns when all Sentinels name another master than this one, and it says that it is.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_for_another_than(&self, port: u16) {
        self.wait_until("a failover", || {
            let names_another = |sentinel: &RedisServer| {
                let named = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
                let named = named.items()[1].text();
                self.servers
                    .iter()
                    .any(|server| server.port() != port && self.port(server).to_string() == named)
            };
            self.sentinels.iter().all(names_another)
                && self.master().question(&["ROLE"]).items()[0].text() == "master"
        });
    }

    /// The same by the word of one Sentinel: others may be stopped.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_for_successor(&self, port: u16) {
        self.wait_until("a failover", || {
            let master = self.master();
            master.port() != port && master.question(&["ROLE"]).items()[0].text() == "master"
        });
    }

    /// The servers that are not the master.
    #[must_use]
    pub fn replicas(&self) -> Vec<&RedisServer> {
        let master = self.master().port();
        self.servers.iter().filter(|server| server.port() != master).collect()
    }

    /// The replica that is promoted next, however far it is behind.
    ///
    /// # Panics
    /// When it was started without [`TrioBuilder::ranked`].
    #[must_use]
    pub fn preferred(&self) -> &RedisServer {
        assert!(self.is_ranked, "a trio that was started with `.ranked()`");
        self.replicas()[0]
    }

    /// Makes a server follow the present master, as Sentinel does after some time: whoever was connected to it is not any more.
    pub fn make_follow(&self, server: &RedisServer) {
        let port = self.port(self.master()).to_string();
        server.command(&["REPLICAOF", "127.0.0.1", &port]);
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    }

    fn port(&self, server: &RedisServer) -> u16 {
        self.authority.port(server)
    }

    /// Returns when all Sentinels know of each other, of one master and of two replicas that follow it.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_until_complete(&self) {
        let is_complete = |sentinel: &RedisServer| {
            let known = sentinel.command(&["SENTINEL", "MASTER", SERVICE]);
            let words: Vec<_> = known.items().iter().map(super::resp::Reply::text).collect();
            let has = |name: &str, value: &str| words.chunks(2).any(|pair| pair == [name, value]);
            has("num-slaves", "2")
                && has("num-other-sentinels", "2")
                && has("flags", "master")
                && has("port", &self.port(self.master()).to_string())
        };
        let is_master = |server: &RedisServer| server.question(&["ROLE"]).items()[0].text() == "master";
        let is_synced = |server: &RedisServer| {
            let role = server.question(&["ROLE"]);
            let items = role.items();
            items[0].text() == "master" || items[3].text() == "connected"
        };
        self.wait_until("servers that know each other", || {
            let masters = self.servers.iter().filter(|server| is_master(server)).count();
            masters == 1 && self.servers.iter().all(is_synced) && self.sentinels.iter().all(is_complete)
        });
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        block_until(what, is_so, || self.sentinels[0].log());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn replaces_a_master_that_is_killed() {
        let trio = Trio::builder().down_after(Duration::from_secs(1)).start();
        let port = trio.master().port();
        trio.master().kill();
        trio.wait_for_another_than(port);
        assert_ne!(trio.master().port(), port);
        assert_eq!(trio.master().command(&["SET", "a", "1"]).text(), "OK");
    }
}
