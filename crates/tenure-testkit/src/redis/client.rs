//! A plain blocking connection, for what a test does to a server and what it asks it.

use super::resp::{self, Reply};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// So long a reply is waited for: more than a busy machine takes, less than whoever watches the test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to a server that speaks RESP2 until told otherwise.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    unread: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Client {
    /// Connects to a port of 127.0.0.1, that of a proxy for example.
    ///
    /// # Errors
    /// When nobody accepts.
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        Client::new(Stream::Tcp(stream))
    }

    /// Connects to a local socket.
    ///
    /// # Errors
    /// When nobody accepts.
    pub fn connect_unix(socket: &Path) -> io::Result<Self> {
        Client::new(Stream::Unix(UnixStream::connect(socket)?))
    }

    fn new(stream: Stream) -> io::Result<Self> {
        let client = Client { stream, unread: Vec::new() };
        client.set_patience(PATIENCE)?;
        Ok(client)
    }

    /// Waits so long for a reply, and no longer.
    ///
    /// # Errors
    /// When the duration is zero.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(patience)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(patience)),
        }
    }

    /// Sends a command and reads its reply. Pushes that come before it are skipped.
    ///
    /// # Errors
    /// When the connection is closed, or no reply came in time. What the server refuses is a [`Reply::Error`].
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.send(words)?;
        loop {
            match self.receive()? {
                Reply::Push(_) => {}
                reply => return Ok(reply),
            }
        }
    }

    /// Sends a command, no more.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<()> {
        self.send_bytes(&resp::encode(words))
    }

    /// Sends these bytes as they are.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }

    /// Reads the next value, reply or push.
    ///
    /// # Errors
    /// When the connection is closed (`UnexpectedEof`), or nothing came in time.
    pub fn receive(&mut self) -> io::Result<Reply> {
        loop {
            if let Some((reply, length)) = resp::decode(&self.unread)? {
                self.unread.drain(..length);
                return Ok(reply);
            }
            let mut bytes = [0; 4096];
            let read = match &mut self.stream {
                Stream::Tcp(stream) => stream.read(&mut bytes),
                Stream::Unix(stream) => stream.read(&mut bytes),
            };
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                // A read with a timeout is interrupted by every signal, and when the process is stopped and goes on.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
