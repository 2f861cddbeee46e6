//! The network between clients and a server, with the faults that a network has.
//!
//! It knows where commands and replies begin and end and which belong together, so that a test can say "this command is executed and
//! its answer never comes": the fault that finds most mistakes in a lock, and that no firewall can make. What no network does, it does
//! not do either: after a lost reply nothing later arrives on that connection, so that no client gets the answer to another question.
//!
//! All connections are tasks of one thread, and whatever changes them is done there: what was ordered has happened when the call
//! returns. Not for connections in MONITOR, SYNC or CLIENT REPLY OFF: what comes back there answers no command.

mod connection;
mod journal;
mod listener;
mod matching;
mod rules;

pub use journal::Step;
pub use rules::{Fault, named};

use super::server::RedisServer;
use journal::Journal;
use listener::{Listener, Mode, Order};
use rules::Rules;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, watch};

/// A proxy in front of one server. Its connections are closed when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    network: Arc<Network>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What the connections of a proxy share.
#[derive(Debug)]
struct Network {
    server: u16,
    mode: watch::Sender<Mode>,
    rules: Rules,
    journal: Journal,
}

impl Proxy {
    /// A proxy that passes everything on, until told otherwise. The server may be restarted behind it.
    ///
    /// # Panics
    /// When no port can be had.
    #[must_use]
    pub fn new(server: &RedisServer) -> Self {
        let network = Arc::new(Network {
            server: server.port(),
            mode: watch::Sender::new(Mode::Open),
            rules: Rules::default(),
            journal: Journal::default(),
        });
        let (orders, incoming) = mpsc::unbounded_channel();
        let (ready, is_ready) = channel();
        let shared = Arc::clone(&network);
        let run = move || {
            let listener = Listener::new(shared);
            ready.send(listener.port()).expect("somebody waits");
            listener.run(incoming);
        };
        let thread = thread::Builder::new().name("proxy".into()).spawn(run).expect("a thread");
        let port = is_ready.recv().expect("a port to listen at");
        Proxy { port, network, orders: Some(orders), thread: Some(thread) }
    }

    /// Where clients connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next `times` commands whose words satisfy `pred` meet `fault`. Of several rules for a command the oldest that is not used
    /// up counts, and one fault meets it.
    pub fn inject(&self, fault: Fault, times: u64, pred: impl Fn(&[Vec<u8>]) -> bool + Send + 'static) {
        self.network.rules.add(fault, times, Box::new(pred));
    }

    /// Removes all rules. Connections that are silent stay so.
    pub fn clear(&self) {
        self.network.rules.clear();
    }

    /// How many commands have met a fault.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.network.rules.met()
    }

    /// Resets all connections and refuses new ones, until [`Proxy::heal`]. What was forwarded before is still executed, and the server
    /// learns of nothing until then.
    pub fn cut(&self) {
        self.order(Mode::Cut);
        self.network.journal.wait("all connections are closed", |state| state.open == 0);
    }

    /// Connections are accepted and stay open, and nothing passes either way, until [`Proxy::heal`]. What was sent meanwhile arrives
    /// then, as it does when a network comes back.
    pub fn black_hole(&self) {
        self.order(Mode::BlackHole);
    }

    /// Ends what [`Proxy::cut`] or [`Proxy::black_hole`] began; when this returns, connections are accepted.
    pub fn heal(&self) {
        self.order(Mode::Open);
    }

    /// How many connections of clients are open. One whose client left while its command was delayed counts until that is sent.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.network.journal.read(|state| state.open)
    }

    /// How many connections there have been.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.network.journal.read(|state| state.accepted)
    }

    /// How many commands have come from clients.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.network.journal.read(|state| state.commands())
    }

    /// The names of the last commands that came from clients, in capitals, oldest first, since [`Proxy::forget`].
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.network.journal.read(|state| state.names())
    }

    /// Forgets the commands so far, for [`Proxy::names`], [`Proxy::has_seen`] and [`Proxy::seen`].
    pub fn forget(&self) {
        self.network.journal.forget();
    }

    /// Has a command whose words satisfy `pred` come as far as `step`?
    #[must_use]
    pub fn has_seen(&self, step: Step, pred: impl Fn(&[Vec<u8>]) -> bool) -> bool {
        self.network.journal.read(|state| state.has(step, &pred))
    }

    /// Waits until a command whose words satisfy `pred` has come as far as `step`. Not in async code: see [`Proxy::seen_async`].
    ///
    /// # Panics
    /// When none has after 20 s.
    pub fn seen(&self, step: Step, pred: impl Fn(&[Vec<u8>]) -> bool) {
        self.network.journal.wait(&format!("a command is {step:?}"), |state| state.has(step, &pred));
    }

    /// As [`Proxy::seen`], for tests whose clients run on the same thread.
    ///
    /// # Panics
    /// When none has after 20 s.
    pub async fn seen_async(&self, step: Step, pred: impl Fn(&[Vec<u8>]) -> bool) {
        self.network
            .journal
            .wait_async(&format!("a command is {step:?}"), |state| state.has(step, &pred))
            .await;
    }

    fn order(&self, mode: Mode) {
        let (done, is_done) = channel();
        let orders = self.orders.as_ref().expect("only taken by drop");
        orders.send(Order { mode, done }).expect("the proxy lives");
        is_done.recv().expect("the proxy obeys");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
