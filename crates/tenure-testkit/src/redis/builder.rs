//! What a server is to be like.

use super::clock::Clock;
use super::port::Port;
use super::server::RedisServer;
use super::tls::Tls;
use crate::directory::Directory;
use std::fmt::Write as _;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// So many ports are tried.
const ATTEMPTS: u32 = 20;

/// What the server that is to be started is like.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    settings: Vec<(String, String)>,
    tls_names: Vec<String>,
    has_clock: bool,
    age: Duration,
    is_sentinel: bool,
    is_node: bool,
}

impl Builder {
    /// A line of redis.conf. The last one for a name counts, also against the defaults.
    #[must_use]
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Every write is on disk before it is answered, so that [`RedisServer::restart`] loses nothing.
    #[must_use]
    pub fn aof_always(self) -> Self {
        self.config("appendonly", "yes").config("appendfsync", "always")
    }

    /// It has a port for TLS as well, with a certificate for `localhost` and 127.0.0.1. Clients may show theirs;
    /// with `.config("tls-auth-clients", "yes")` they must.
    #[must_use]
    pub fn tls(self) -> Self {
        self.tls_for(&["DNS:localhost", "IP:127.0.0.1"])
    }

    /// As [`Builder::tls`], with a certificate for these names, such as `DNS:another.example`.
    #[must_use]
    pub fn tls_for(mut self, names: &[&str]) -> Self {
        self.tls_names = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// It wants this password from everyone, and has it for its master.
    #[must_use]
    pub(super) fn password(self, password: &str) -> Self {
        self.config("requirepass", password).config("masterauth", password)
    }

    /// Its wall clock can be moved: [`RedisServer::set_clock_offset`].
    #[must_use]
    pub fn clock(mut self) -> Self {
        self.has_clock = true;
        self
    }

    /// It says that it started that long ago: its wall clock is behind while it starts. After a restart it says its true age.
    #[must_use]
    pub fn aged(mut self, age: Duration) -> Self {
        self.age = age;
        self.clock()
    }

    /// It watches over other servers, and keeps nothing.
    #[must_use]
    pub(super) fn sentinel(mut self) -> Self {
        self.is_sentinel = true;
        self
    }

    /// It can be part of a cluster. Where it speaks with the others is of its own choice: the usual port, 10,000 higher, may be anybody's.
    #[must_use]
    pub fn cluster_node(mut self) -> Self {
        self.is_node = true;
        self.config("cluster-enabled", "yes")
    }

    /// Starts it, and returns when it answers.
    ///
    /// # Panics
    /// When there is no redis-server, or it does not start: with what it said.
    #[must_use]
    pub fn start(self) -> RedisServer {
        for _ in 0..ATTEMPTS {
            let directory = Directory::new();
            let port = Port::free();
            let clock = self.has_clock.then(|| Clock::new(directory.path()));
            let behind = -i64::try_from(self.age.as_micros()).expect("an age in microseconds");
            clock.iter().for_each(|clock| clock.set(behind));
            let is_tls = !self.tls_names.is_empty();
            let tls = is_tls.then(|| Tls::issue(directory.path(), Port::free(), &self.tls_names));
            let bus = self.is_node.then(Port::free);
            std::fs::write(
                directory.file("redis.conf"),
                self.lines(port.number(), bus.as_ref(), tls.as_ref()),
            )
            .expect("a configuration");
            let password = self.settings.iter().rfind(|(name, _)| name == "requirepass");
            let password = password.map(|(_, value)| value.clone());
            // Otherwise somebody else was faster to bind a port.
            let server = RedisServer::launch(directory, port, bus, password, tls, clock, self.is_sentinel);
            if let Some(server) = server {
                if self.has_clock {
                    server.set_clock_offset(0);
                    server.wait_until_aged(self.age);
                }
                return server;
            }
        }
        panic!("redis-server did not start: {ATTEMPTS} ports were all taken");
    }

    fn lines(&self, port: u16, bus: Option<&Port>, tls: Option<&Tls>) -> String {
        let defaults = [
            ("bind", "127.0.0.1"),
            ("port", &port.to_string()),
            ("unixsocket", "redis.sock"),
            ("save", ""),
            ("appendonly", "no"),
            ("repl-diskless-sync-delay", "0"),
        ];
        // Before, everybody may.
        let for_debug = (major_version() >= 7).then(|| ("enable-debug-command", "yes".to_owned()));
        let for_tls = tls.map(Tls::settings).into_iter().flatten();
        let settings = defaults.map(|(name, value)| (name, value.to_owned())).into_iter().chain(for_debug);
        let settings = settings.chain(for_tls);
        let settings = settings.chain(bus.map(|bus| ("cluster-port", bus.number().to_string())));
        let settings =
            settings.chain(self.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
        let mut lines = String::new();
        for (name, value) in settings {
            let value = if value.is_empty() { "\"\"" } else { &value };
            writeln!(lines, "{name} {value}").expect("a string takes it");
        }
        lines
    }
}

/// Of the server that is first on PATH.
fn major_version() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let said = Command::new("redis-server")
            .arg("--version")
            .output()
            .expect("redis-server; `make test` installs it");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let version =
            said.split_whitespace().find_map(|word| word.strip_prefix("v=")?.split('.').next()?.parse().ok());
        version.unwrap_or_else(|| panic!("redis-server says no version: {said}"))
    })
}
