//! The memory store at the end of a wire: a request is executed when the driver of its client comes to it, in order, whatever becomes of
//! the future that waits for the answer.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{spawn, yield_now};
use crate::backend::memory::Memory;
use crate::backend::{Admin, Answer, Backend, Capability, Pending};
use crate::core::record::Op;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Session;

struct Wire {
    memory: Arc<Memory>,
    requests: mpsc::UnboundedSender<Box<dyn FnOnce() + Send>>,
}

/// Connects, which takes a while; the driver ends with the last handle.
pub(super) fn connect(memory: Memory) -> Pending<Arc<dyn Backend>> {
    let (requests, mut received) = mpsc::unbounded_channel::<Box<dyn FnOnce() + Send>>();
    let driver = async move {
        while let Some(request) = received.recv().await {
            request();
        }
    };
    Pending::Later(Box::pin(async move {
        yield_now().await;
        drop(spawn(driver));
        Ok(Arc::new(Wire { memory: Arc::new(memory), requests }) as Arc<dyn Backend>)
    }))
}

impl Wire {
    fn send<T: Send + Unpin + 'static>(
        &self,
        request: impl FnOnce(&Memory) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let (tell, answer) = oneshot::channel();
        let memory = Arc::clone(&self.memory);
        let request = move || match request(&memory) {
            Pending::Now(Some(answer)) => drop(tell.send(answer)),
            _ => unreachable!("the memory store answers at once"),
        };
        let is_sent = self.requests.send(Box::new(request)).is_ok();
        assert!(is_sent, "the driver lives as long as this");
        Pending::Later(Box::pin(async move {
            answer.await.unwrap_or_else(|_| Err(Error::unanswered("the driver is gone")))
        }))
    }
}

impl Backend for Wire {
    fn session(&self) -> &Session {
        self.memory.session()
    }

    fn server_now(&self, name: &Name) -> Option<u64> {
        self.memory.server_now(name)
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        let name = name.clone();
        self.send(move |memory| memory.execute(&name, op))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let prefix = prefix.to_owned();
        self.send(move |memory| memory.list(&prefix))
    }
}

impl Admin for Wire {
    fn capabilities(&self) -> &'static [Capability] {
        self.memory.capabilities()
    }

    fn warnings(&self) -> Vec<String> {
        self.memory.warnings()
    }
}
