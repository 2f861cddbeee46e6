//! Reading this client's own pipe, on whichever runtime uses the client.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix::fs::OFlags;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use super::faults::{Check, leaves_out};
use super::place::Place;
use super::post::Message;
use super::state::State;
use super::{Shared, session};
use crate::backend::Grant;
use crate::backend::runtime;
use crate::sync::Mutex;
use crate::types::bytes::Bytes;
use crate::types::name::Name;

/// The longest message, and more than one that a pipe keeps whole.
const LONGEST: usize = 4_096;

/// The task that reads the pipe.
#[derive(Debug, Default)]
pub(super) struct Listener {
    task: Mutex<Option<AbortHandle>>,
    /// Whether there is one: it may have gone down with its runtime.
    is_there: Arc<AtomicBool>,
    /// A runtime that can't wait for pipes. Those that wait there ask now and then.
    unfit: Mutex<Option<Id>>,
}

impl Listener {
    /// Starts to listen, unless somebody does.
    pub(super) fn listen(&self, shared: &Arc<Shared>, place: &Place) {
        if self.is_there.load(Ordering::Acquire) {
            return;
        }
        let mut task = self.task.lock();
        let Ok(runtime) = Handle::try_current() else { return };
        let mut unfit = self.unfit.lock();
        if *unfit == Some(runtime.id()) || !runtime::has_io() {
            // Not a panic: this may be in a drop.
            *unfit = Some(runtime.id());
            return;
        }
        drop(unfit);
        if self.is_there.swap(true, Ordering::AcqRel) {
            return;
        }
        let listening = Listening(Arc::clone(&self.is_there));
        let Ok(pipe) = place.dir.open_pipe(&session::pipe_name(&place.session_id), OFlags::RDWR) else {
            return;
        };
        let Ok(pipe) = Receiver::from_owned_fd(pipe) else { return };
        *task = Some(runtime.spawn(listen(Arc::downgrade(shared), pipe, listening)).abort_handle());
    }

    pub(super) fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// Somebody listens, until this is dropped.
struct Listening(Arc<AtomicBool>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

async fn listen(shared: Weak<Shared>, mut pipe: Receiver, _listening: Listening) {
    let mut heard: Vec<u8> = Vec::new();
    let mut buffer = [0; LONGEST];
    while let Ok(len) = read(&mut pipe, &mut buffer).await {
        let Some(shared) = shared.upgrade() else { return };
        heard.extend_from_slice(&buffer[..len]);
        let mut rest = Bytes(&heard);
        while let Some(message) = Message::take(&mut rest) {
            if let Some(message) = message {
                shared.hear(message);
            }
        }
        let taken = heard.len() - rest.0.len();
        heard.drain(..taken);
        // No message is that long: somebody else wrote to the pipe. Whoever waits looks by itself.
        if heard.len() > LONGEST {
            heard.clear();
        }
    }
}

/// Reads what is there. Unlike `try_read`, this does not ask again to learn that there is no more.
async fn read(pipe: &mut Receiver, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut buffer = ReadBuf::new(buffer);
    std::future::poll_fn(|cx| Pin::new(&mut *pipe).poll_read(cx, &mut buffer)).await?;
    Ok(buffer.filled().len())
}

impl Shared {
    fn hear(self: &Arc<Self>, message: Message) {
        let Some(sink) = self.sink.upgrade() else { return };
        match message {
            Message::Granted(name, grant) => {
                if leaves_out(Check::Message) || self.is_granted(&name, &grant) {
                    self.watches.stop(&grant.token);
                    sink.granted(&name, grant);
                }
            }
            Message::Doubted(name) => sink.verify(&name),
        }
    }

    /// Whether the stripe says the same as the message. If it can't be told, whoever waits looks by itself.
    fn is_granted(&self, name: &Name, grant: &Grant) -> bool {
        let Ok(place) = self.place() else { return false };
        let says = |bytes: &[u8]| State::says_granted(bytes, name, &grant.token, grant.fence);
        place.stripe(name).lock().is_granted(&place, says).is_ok_and(|granted| granted == Some(true))
    }
}
