//! A redis-server of a test's own.
//!
//! Whether it is up is asked at the socket in its directory, never at its port: there only this server answers, and Redis binds its
//! ports first, so that an answer says that the port is its own too.

use super::client::Client;
use super::directory::Directory;
use super::resp::Reply;
use super::{launch, port};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// More than a busy machine needs for what takes 10 ms.
const PATIENCE: Duration = Duration::from_secs(30);

/// So many ports are tried.
const ATTEMPTS: u32 = 20;

/// What the server that is to be started is like.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    settings: Vec<(String, String)>,
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

    /// Starts it, and returns when it answers.
    ///
    /// # Panics
    /// When there is no redis-server, or it does not start: with what it said.
    #[must_use]
    pub fn start(self) -> RedisServer {
        for _ in 0..ATTEMPTS {
            let directory = Directory::new();
            let port = port::free();
            let password =
                self.settings.iter().rfind(|(name, _)| name == "requirepass").map(|(_, value)| value.clone());
            self.write_config(&directory, port);
            let child = Mutex::new(spawn(&directory));
            let server = RedisServer { child, port, password, directory };
            match server.wait_until_up() {
                Ok(()) => return server,
                // Somebody else was faster to bind it.
                Err(said) if is_port_taken(&said) => {}
                Err(said) => panic!("redis-server did not start: {said}"),
            }
        }
        panic!("redis-server did not start: {ATTEMPTS} ports were all taken");
    }

    fn write_config(&self, directory: &Directory, port: u16) {
        let defaults = [
            ("bind", "127.0.0.1"),
            ("port", &port.to_string()),
            ("unixsocket", "redis.sock"),
            ("save", "\"\""),
            ("appendonly", "no"),
            ("enable-debug-command", "yes"),
            ("repl-diskless-sync-delay", "0"),
        ];
        let mut text = String::new();
        let settings = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in defaults.into_iter().chain(settings) {
            let value = if value.is_empty() { "\"\"" } else { value };
            writeln!(text, "{name} {value}").expect("a string takes it");
        }
        std::fs::write(directory.file("redis.conf"), text).expect("a configuration");
    }
}

/// A running redis-server. It dies with this value, and with this process, however that ends.
#[derive(Debug)]
pub struct RedisServer {
    child: Mutex<Child>,
    port: u16,
    password: Option<String>,
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

    /// As a domain is opened with, and as clients of Redis understand it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1, the same after a restart.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its local socket.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.directory.file("redis.sock")
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
        let mut client = Client::connect_unix(&self.socket_path())?;
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
        let reply = self.client().and_then(|mut client| client.command(words));
        reply.unwrap_or_else(|e| panic!("no reply from redis-server: {e}\n{}", self.log()))
    }

    /// Stops the process (SIGSTOP): connections stay open and nothing is answered, until [`RedisServer::cont`].
    pub fn stop(&self) {
        self.signal(Signal::STOP);
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
                *child = spawn(&self.directory);
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

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        end(&mut self.child());
    }
}

fn spawn(directory: &Directory) -> Child {
    let program = launch::require("redis-server", "redis-server");
    launch::start(&program, &[OsStr::new("redis.conf")], &[], directory.path(), &directory.file("log"))
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
