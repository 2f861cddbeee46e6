//! Messages from one client to another, through the receiver's pipe.
//!
//! A message is a hint: the receiver believes in a grant only if the stripe shows it. So a lost, repeated or stale message does no harm,
//! and waiters poll as well. A message is one write, and the kernel keeps a short write to a pipe in one piece.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::directory::Directory;
use super::session;
use crate::backend::Grant;
use crate::core::record::Notice;
use crate::sync::Mutex;
use crate::time::clock::micros;
use crate::types::bytes::{Bytes, Put};
use crate::types::name::Name;
use crate::types::owner::{SessionId, Token};

const GRANTED: u8 = 1;
const VERIFY: u8 = 2;
/// How many pipes a client keeps open.
const MOST_PIPES: usize = 64;

/// What one client tells another.
#[derive(Debug)]
pub(super) enum Message {
    /// The receiver was granted the name.
    Granted(Name, Grant),
    /// The receiver's lease on the name may have been ended: verify it.
    Verify(Name),
}

impl Message {
    pub(super) fn of(name: &Name, notice: Notice) -> Self {
        match notice {
            Notice::Granted { token, fence, at, term, .. } => {
                Message::Granted(name.clone(), Grant { token, fence, at, term })
            }
            Notice::Revoked { .. } => Message::Verify(name.clone()),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(256);
        match self {
            Message::Granted(name, grant) => {
                body.put_u8(GRANTED);
                body.put_text(name.as_str());
                body.put_text(grant.token.as_str());
                body.put_u64(grant.fence);
                body.put_u64(grant.at);
                body.put_u64(micros(grant.term));
            }
            Message::Verify(name) => {
                body.put_u8(VERIFY);
                body.put_text(name.as_str());
            }
        }
        let mut bytes = Vec::with_capacity(body.len() + 4);
        bytes.put_u32(u32::try_from(body.len()).expect("a name and a token"));
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Takes the first message; `None` if it is not complete yet, `Some(None)` if this version does not know it.
    pub(super) fn take(bytes: &mut Bytes<'_>) -> Option<Option<Self>> {
        let mut rest = *bytes;
        let len = usize::try_from(rest.u32()?).ok()?;
        let body = rest.take(len)?;
        *bytes = rest;
        Some(Message::from_body(Bytes(body)))
    }

    fn from_body(mut body: Bytes<'_>) -> Option<Self> {
        let kind = body.u8()?;
        let name = Name::new(body.text()?).ok()?;
        match kind {
            GRANTED => {
                let token = Token::from_store(body.text()?);
                let (fence, at, term) = (body.u64()?, body.u64()?, Duration::from_micros(body.u64()?));
                Some(Message::Granted(name, Grant { token, fence, at, term }))
            }
            VERIFY => Some(Message::Verify(name)),
            _ => None,
        }
    }
}

/// The pipes of other clients that this client writes to.
#[derive(Debug, Default)]
pub(super) struct MessageSender(Mutex<HashMap<SessionId, OwnedFd>>);

impl MessageSender {
    /// Sends a message; false if no process reads the pipe. A full pipe has a reader, which is slow: the message is dropped.
    pub(super) fn send(&self, dir: &Directory, to: &SessionId, message: &Message) -> bool {
        let bytes = message.to_bytes();
        let mut pipes = self.0.lock();
        if let Some(pipe) = pipes.get(to) {
            match rustix::io::write(pipe, &bytes) {
                Err(Errno::PIPE) => drop(pipes.remove(to)),
                _ => return true,
            }
        }
        let Ok(pipe) = dir.open_pipe(&session::pipe_name(to), OFlags::WRONLY) else { return false };
        let is_sent = rustix::io::write(&pipe, &bytes) != Err(Errno::PIPE);
        if pipes.len() >= MOST_PIPES {
            pipes.clear();
        }
        pipes.insert(to.clone(), pipe);
        is_sent
    }

    /// Closes all pipes: the client uses another directory from now on.
    pub(super) fn close_all(&self) {
        self.0.lock().clear();
    }
}
