//! A redis-server of a test's own.
//!
//! Whether it is up is asked at the socket in its directory, never at its port: there only this server answers, and Redis binds its
//! ports first, so that an answer says that the port is its own too.

use super::builder::Builder;
use super::client::Client;
use super::clock::Clock;
use super::launch;
use super::port::Port;
use super::resp::Reply;
use super::tls::Tls;
use crate::directory::Directory;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// More than a busy machine needs for what takes 10 ms.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running redis-server. It dies with this value, and with this process, however that ends.
#[derive(Debug)]
pub struct RedisServer {
    child: Mutex<Child>,
    port: Port,
    /// Where a node speaks with the other nodes of its cluster.
    bus: Option<Port>,
    password: Option<String>,
    tls: Option<Tls>,
    clock: Option<Clock>,
    is_sentinel: bool,
    directory: Directory,
}

impl RedisServer {
    /// One that saves nothing and allows DEBUG.
    #[must_use]
    pub fn start() -> Self {
        RedisServer::builder().start()
    }

    /// One with settings.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Nothing when somebody else has the port.
    pub(super) fn launch(
        directory: Directory,
        port: Port,
        bus: Option<Port>,
        password: Option<String>,
        tls: Option<Tls>,
        clock: Option<Clock>,
        is_sentinel: bool,
    ) -> Option<Self> {
        let child = Mutex::new(spawn(&directory, clock.as_ref(), is_sentinel));
        let server = RedisServer { child, port, bus, password, tls, clock, is_sentinel, directory };
        match server.wait_until_up() {
            Ok(()) => Some(server),
            Err(said) if is_port_taken(&said) => None,
            Err(said) => panic!("redis-server did not start: {said}"),
        }
    }

    /// As a domain is opened with, and as clients of Redis understand it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Its port on 127.0.0.1, the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its port for the other nodes of its cluster.
    ///
    /// # Panics
    /// When it was started without [`Builder::cluster_node`].
    #[must_use]
    pub fn bus_port(&self) -> u16 {
        self.bus.as_ref().expect("a server that was started with `.cluster_node()`").number()
    }

    /// Its local socket.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.directory.file("redis.sock")
    }

    /// Where it is for a domain that uses its local socket.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.socket_path().display())
    }

    /// Its port for TLS, on 127.0.0.1.
    ///
    /// # Panics
    /// When it was started without [`Builder::tls`]; so do the other methods about TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls().port.number()
    }

    /// Its port for TLS, as a URL.
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.tls_port())
    }

    /// The certificate of the authority that issued the others, in PEM as all of them.
    #[must_use]
    pub fn ca_path(&self) -> PathBuf {
        self.tls().file("ca.crt")
    }

    /// A certificate for clients.
    #[must_use]
    pub fn client_cert_path(&self) -> PathBuf {
        self.tls().file("client.crt")
    }

    /// The key of the certificate for clients, in PKCS #8.
    #[must_use]
    pub fn client_key_path(&self) -> PathBuf {
        self.tls().file("client.key")
    }

    /// From now on its wall clock is so many microseconds ahead of the machine's, or behind; also after a restart. Its monotonic clock
    /// is not moved.
    ///
    /// # Panics
    /// When it was started without [`Builder::clock`].
    pub fn set_clock_offset(&self, micros: i64) {
        self.clock().set(micros);
    }

    /// From now on its wall clock runs faster than the machine's by so many millionths, or slower.
    ///
    /// # Panics
    /// When it was started without [`Builder::clock`].
    pub fn set_clock_rate(&self, millionths: i64) {
        self.clock().run_faster(millionths);
    }

    fn clock(&self) -> &Clock {
        self.clock.as_ref().expect("a server that was started with `.clock()`")
    }

    /// Its process, a new one after a restart.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// What it has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.file("log")).unwrap_or_default()
    }

    /// A new connection to it, through its local socket.
    ///
    /// # Errors
    /// When it does not accept.
    pub fn client(&self) -> io::Result<Client> {
        self.log_in(Client::connect_unix(&self.socket_path())?)
    }

    /// The same, and it waits so long for a reply at the most.
    pub(super) fn client_that_waits(&self, patience: Duration) -> io::Result<Client> {
        let client = Client::connect_unix(&self.socket_path())?;
        client.set_patience(patience)?;
        self.log_in(client)
    }

    fn log_in(&self, mut client: Client) -> io::Result<Client> {
        if let Some(password) = &self.password {
            client.command(&["AUTH", password])?;
        }
        Ok(client)
    }

    /// Executes a command, on a connection of its own.
    ///
    /// # Panics
    /// When there is no reply. What the server refuses is a [`Reply::Error`].
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.try_command(words).unwrap_or_else(|e| panic!("no reply from redis-server: {e}\n{}", self.log()))
    }

    fn try_command<W: AsRef<[u8]>>(&self, words: &[W]) -> io::Result<Reply> {
        self.client()?.command(words)
    }

    /// Asks something that changes nothing, and once more if the connection ends: Sentinel ends all those of a server that gets
    /// another role.
    ///
    /// # Panics
    /// When there is no reply.
    pub fn question<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.try_command(words).unwrap_or_else(|_| self.command(words))
    }

    /// Stops the process (SIGSTOP): connections stay open and nothing is answered, until [`RedisServer::cont`]. When this returns it
    /// has stopped: a signal that was sent may take a moment to arrive.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.pid());
        while !std::fs::read_to_string(&stat).expect("a process").contains(") T ") {
            thread::yield_now();
        }
    }

    /// Lets the process go on.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the process (SIGKILL); when this returns it is gone.
    pub fn kill(&self) {
        end(&mut self.child());
    }

    /// Kills the process and starts it again: same port, same directory, and the data that it had saved there.
    ///
    /// # Panics
    /// When it does not come up again.
    pub fn restart(&self) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            {
                let mut child = self.child();
                end(&mut child);
                drop(std::fs::remove_file(self.directory.file("log")));
                *child = spawn(&self.directory, self.clock.as_ref(), self.is_sentinel);
            }
            match self.wait_until_up() {
                Ok(()) => return,
                Err(said) if is_port_taken(&said) && Instant::now() < give_up => {}
                Err(said) => panic!("redis-server did not start again: {said}"),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let mut child = self.child();
        let exited = child.try_wait().expect("a child can be waited for");
        assert!(exited.is_none(), "redis-server is gone: {exited:?}\n{}", self.log());
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id")).expect("a process id");
        kill_process(pid, signal).expect("a child can be signalled");
    }

    fn wait_until_up(&self) -> Result<(), String> {
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if self.child().try_wait().expect("a child can be waited for").is_some() {
                return Err(self.log());
            }
            let reply = self.client().and_then(|mut client| client.command(&["PING"]));
            if reply.is_ok_and(|reply| !reply.is_error("LOADING")) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(format!("no answer for {PATIENCE:?}\n{}", self.log()))
    }

    /// It reads its clock every now and then.
    pub(super) fn wait_until_aged(&self, age: Duration) {
        let says_so = |info: &str| {
            let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
            uptime
                .and_then(|uptime| uptime.trim().parse().ok())
                .is_some_and(|uptime: u64| uptime >= age.as_secs())
        };
        while !says_so(&self.command(&["INFO", "server"]).text()) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("a server that was started with `.tls()`")
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        end(&mut self.child());
    }
}

fn spawn(directory: &Directory, clock: Option<&Clock>, is_sentinel: bool) -> Child {
    let program = launch::require("redis-server", "redis-server");
    let environment = clock.map_or(&[][..], Clock::environment);
    let arguments = ["redis.conf", "--sentinel"].map(OsStr::new);
    launch::start(
        &program,
        if is_sentinel { &arguments } else { &arguments[..1] },
        environment,
        directory.path(),
        &directory.file("log"),
    )
}

fn end(child: &mut Child) {
    // It may be gone already, and is then no less dead.
    drop(child.kill());
    drop(child.wait());
}

fn is_port_taken(log: &str) -> bool {
    log.contains("Address already in use")
}

#[cfg(test)]
mod tests;
