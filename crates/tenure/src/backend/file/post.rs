//! Messages from one client to another, through the receiver's pipe.
//!
//! They are hints: a grant is believed when the stripe says the same. So one that is lost, doubled or stale does no harm, and whoever
//! waits looks by itself every now and then. A message is one write, which a pipe keeps whole.

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
const DOUBTED: u8 = 2;
/// How many pipes are kept open.
const MOST_PIPES: usize = 64;

/// What one client tells another.
#[derive(Debug)]
pub(super) enum Message {
    /// You were granted the name.
    Granted(Name, Grant),
    /// Your lease on the name may have been ended.
    Doubted(Name),
}

impl Message {
    pub(super) fn of(name: &Name, wake: Notice) -> Self {
        match wake {
            Notice::Granted { token, fence, at, term, .. } => {
                Message::Granted(name.clone(), Grant { token, fence, at, term })
            }
            Notice::Revoked { .. } => Message::Doubted(name.clone()),
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
            Message::Doubted(name) => {
                body.put_u8(DOUBTED);
                body.put_text(name.as_str());
            }
        }
        let mut bytes = Vec::with_capacity(body.len() + 4);
        bytes.put_u32(u32::try_from(body.len()).expect("a name and a token"));
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Takes the first message; `None` when it is not complete. `Some(None)` is one that says nothing to this version.
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
            DOUBTED => Some(Message::Doubted(name)),
            _ => None,
        }
    }
}

/// The pipes that this client writes to.
#[derive(Debug, Default)]
pub(super) struct Post(Mutex<HashMap<SessionId, OwnedFd>>);

impl Post {
    /// Sends a message; false when nobody reads there. A pipe that is full is read by a client that does not come round to it.
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
        let is_told = rustix::io::write(&pipe, &bytes) != Err(Errno::PIPE);
        if pipes.len() >= MOST_PIPES {
            pipes.clear();
        }
        pipes.insert(to.clone(), pipe);
        is_told
    }

    /// Forgets where pipes were: the directory is another one.
    pub(super) fn forget_all(&self) {
        self.0.lock().clear();
    }
}
