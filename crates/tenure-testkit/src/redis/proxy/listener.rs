//! Accepts, refuses, and tells the connections how the network is.

use super::Network;
use super::connection;
use crate::redis::port::Port;
use rustix::net::{Shutdown, listen, shutdown};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedReceiver;

const BACKLOG: i32 = 1024;

/// How the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Open,
    Cut,
    BlackHole,
}

/// The network is to be so, and whoever ordered it is told when it is.
pub(super) struct Order {
    pub(super) mode: Mode,
    pub(super) done: Sender<()>,
}

pub(super) struct Listener {
    runtime: Runtime,
    port: Port,
    socket: TcpListener,
    network: Arc<Network>,
}

impl Listener {
    pub(super) fn new(network: Arc<Network>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (port, socket) = runtime.block_on(async {
            loop {
                let port = Port::free();
                match bind(port.number()).await {
                    Ok(socket) => return (port, socket),
                    Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                    Err(e) => panic!("no port for the proxy: {e}"),
                }
            }
        });
        Listener { runtime, port, socket, network }
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Until nobody can give orders any more.
    pub(super) fn run(self, mut orders: UnboundedReceiver<Order>) {
        let network = self.network;
        self.runtime.block_on(async move {
            let (mut socket, mut refusing) = (Some(self.socket), None);
            loop {
                tokio::select! {
                    order = orders.recv() => {
                        let Some(Order { mode, done }) = order else { return };
                        if mode == Mode::Cut {
                            refusing = socket.take().map(refuse).or(refusing);
                        } else {
                            socket = refusing.take().map(accept_again).or(socket);
                        }
                        network.mode.send_replace(mode);
                        done.send(()).expect("whoever ordered it waits");
                    }
                    stream = accept(socket.as_ref()) => {
                        network.journal.opened();
                        tokio::spawn(connection::serve(stream, Arc::clone(&network)));
                    }
                }
            }
        });
    }
}

async fn accept(socket: Option<&TcpListener>) -> TcpStream {
    let Some(socket) = socket else { return std::future::pending().await };
    loop {
        match socket.accept().await {
            Ok((stream, _)) => return stream,
            // The client has left already, or there are no descriptors for the moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Refuses connections, and keeps the port: another proxy would get it, and with it our clients. Closing would not be enough either:
/// another thread may be starting a process, which has all descriptors until it executes its program.
fn refuse(socket: TcpListener) -> std::net::TcpListener {
    let socket = socket.into_std().expect("a socket that the runtime can do without");
    shutdown(&socket, Shutdown::Both).expect("a listener can be shut down");
    socket
}

fn accept_again(socket: std::net::TcpListener) -> TcpListener {
    listen(&socket, BACKLOG).expect("a socket can listen again");
    TcpListener::from_std(socket).expect("a socket for the runtime")
}

async fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await
}
