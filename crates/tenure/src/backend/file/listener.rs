//! Receives the messages in this client's own pipe, in a task on whichever runtime uses the client.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix::fs::OFlags;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::runtime::{Handle, Id};
use tokio::task::AbortHandle;

use super::faults::{Check, leaves_out};
use super::message::Message;
use super::open_directory::OpenDirectory;
use super::state::State;
use super::{Shared, session};
use crate::backend::Grant;
use crate::backend::runtime;
use crate::sync::Mutex;
use crate::types::bytes::Bytes;
use crate::types::name::Name;

/// As many bytes as the kernel keeps in one piece in a pipe: no message is longer.
const LONGEST: usize = 4_096;

/// The task that reads the pipe.
#[derive(Debug, Default)]
pub(super) struct Listener {
    task: Mutex<Option<AbortHandle>>,
    /// False if the task has ended, for example with its runtime.
    is_running: Arc<AtomicBool>,
    /// A runtime without I/O, which can't wait for a pipe. Waiters on it poll.
    without_io: Mutex<Option<Id>>,
}

impl Listener {
    /// Starts the task on the current runtime, unless it runs already.
    pub(super) fn listen(&self, shared: &Arc<Shared>, store: &OpenDirectory) {
        if self.is_running.load(Ordering::Acquire) {
            return;
        }
        let mut task = self.task.lock();
        let Ok(runtime) = Handle::try_current() else { return };
        let mut without_io = self.without_io.lock();
        if *without_io == Some(runtime.id()) || !runtime::has_io() {
            // Not a panic: this may run inside a drop.
            *without_io = Some(runtime.id());
            return;
        }
        drop(without_io);
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = Running(Arc::clone(&self.is_running));
        let Ok(pipe) = store.dir.open_pipe(&session::pipe_name(&store.session_id), OFlags::RDWR) else {
            return;
        };
        let Ok(pipe) = Receiver::from_owned_fd(pipe) else { return };
        *task = Some(runtime.spawn(listen(Arc::downgrade(shared), pipe, running)).abort_handle());
    }

    pub(super) fn stop(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

/// Clears the flag when the task ends, however it ends.
struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

async fn listen(shared: Weak<Shared>, mut pipe: Receiver, _running: Running) {
    let mut received: Vec<u8> = Vec::new();
    let mut buffer = [0; LONGEST];
    while let Ok(len) = read(&mut pipe, &mut buffer).await {
        let Some(shared) = shared.upgrade() else { return };
        received.extend_from_slice(&buffer[..len]);
        let mut rest = Bytes(&received);
        while let Some(message) = Message::take(&mut rest) {
            if let Some(message) = message {
                shared.receive(message);
            }
        }
        let taken = received.len() - rest.0.len();
        received.drain(..taken);
        // No message is that long: another program wrote to the pipe.
        if received.len() > LONGEST {
            received.clear();
        }
    }
}

/// Reads the available bytes. Unlike `try_read`, it needs no second call to learn that there are no more.
async fn read(pipe: &mut Receiver, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut buffer = ReadBuf::new(buffer);
    std::future::poll_fn(|cx| Pin::new(&mut *pipe).poll_read(cx, &mut buffer)).await?;
    Ok(buffer.filled().len())
}

impl Shared {
    fn receive(self: &Arc<Self>, message: Message) {
        let Some(sink) = self.sink.upgrade() else { return };
        match message {
            Message::Granted(name, grant) => {
                if leaves_out(Check::Message) || self.is_granted(&name, &grant) {
                    self.death_watch.stop(&grant.token);
                    sink.granted(&name, grant);
                }
            }
            Message::Verify(name) => sink.verify(&name),
        }
    }

    /// Whether the stripe shows the grant of a message. False if the stripe can't be read now: the waiter polls as well.
    fn is_granted(&self, name: &Name, grant: &Grant) -> bool {
        let Ok(store) = self.store() else { return false };
        let says = |bytes: &[u8]| State::says_granted(bytes, name, &grant.token, grant.fence);
        store.stripe(name).lock().is_granted(&store, says).is_ok_and(|granted| granted == Some(true))
    }
}
