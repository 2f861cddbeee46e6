//! One connection of a client, and the one to the server that it stands for.
//!
//! The two directions are two futures of one task. When one of them says that it is over, both are dropped, and the task has the
//! sockets for itself: only so can it reset the client's (a socket that another thread reads from is shut down, which the peer sees as
//! an orderly end). Neither direction ends the other early: a command that is delayed is sent also when its client has left, since
//! that is what a real network does to a lock; and the last replies of a server that died are delivered.

use super::Network;
use super::journal::Step;
use super::listener::Mode;
use super::matching::{Belongs, Matching, Owed};
use super::rules::Fault;
use crate::redis::{Reply, resp};
use std::future::pending;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::sleep;

/// How a connection ends.
enum End {
    /// The client sees a reset.
    Reset,
    /// The client has left, or sees that the server has.
    Close,
}

pub(super) async fn serve(mut client: TcpStream, network: Arc<Network>) {
    let mut server = None;
    let end = tokio::select! {
        biased;
        () = until(&network, Mode::Cut) => End::Reset,
        end = carry(&mut client, &mut server, &network) => end,
    };
    if matches!(end, End::Reset) {
        // Closing it then sends a reset at once.
        drop(client.set_zero_linger());
    }
    drop(client);
    network.journal.closed();
    if let Some(mut server) = server {
        // Whoever is cut off can't say so: the server goes on talking to a client that is there as far as it knows.
        tokio::select! {
            () = until(&network, Mode::Open) => {}
            _ = deafly(&mut server) => {}
        }
        part(server).await;
    }
}

/// Everything that was sent on arrives before the end does: with unread replies, closing would reset instead.
async fn part(mut server: TcpStream) {
    drop(server.shutdown().await);
    deafly(&mut server).await;
}

/// Reads, and listens to nothing, until the end.
async fn deafly(server: &mut TcpStream) {
    drop(tokio::io::copy(server, &mut tokio::io::sink()).await);
}

async fn until(network: &Network, mode: Mode) {
    drop(network.mode.subscribe().wait_for(|now| *now == mode).await);
}

async fn carry(client: &mut TcpStream, server: &mut Option<TcpStream>, network: &Network) -> End {
    until(network, Mode::Open).await;
    let Ok(connected) = TcpStream::connect((Ipv4Addr::LOCALHOST, network.server)).await else {
        return End::Reset;
    };
    let server = server.insert(connected);
    drop(client.set_nodelay(true));
    drop(server.set_nodelay(true));
    let matching = Mutex::new(Matching::default());
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    tokio::select! {
        end = commands(from_client, to_server, &matching, network) => end,
        end = replies(from_server, to_client, &matching, network) => end,
    }
}

async fn commands(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    matching: &Mutex<Matching>,
    network: &Network,
) -> End {
    let mut unread = Vec::new();
    // The way to the server is dead; the client's end is still looked out for.
    let mut is_lost = false;
    loop {
        loop {
            let (words, length) = match next_command(&unread) {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(_) => return End::Reset,
            };
            let bytes: Vec<u8> = unread.drain(..length).collect();
            if words.is_empty() {
                continue;
            }
            let number = network.journal.received(&words);
            if is_lost {
                continue;
            }
            let fault = network.rules.meet(&words);
            match fault {
                Some(Fault::ResetBefore) => return End::Reset,
                Some(Fault::Drop) => {
                    is_lost = true;
                    continue;
                }
                Some(Fault::DelayCommand(delay)) => sleep(delay).await,
                _ => {}
            }
            until(network, Mode::Open).await;
            lock(matching).sent(words.clone(), Owed { number: Some(number), fault });
            is_lost = server.write_all(&bytes).await.is_err();
            if fault == Some(Fault::Duplicate) {
                lock(matching).sent(words, Owed { number: None, fault });
                is_lost |= server.write_all(&bytes).await.is_err();
            }
            if is_lost {
                continue;
            }
            network.journal.reached(number, Step::Forwarded);
            if fault == Some(Fault::ResetAfter) {
                return End::Reset;
            }
        }
        let is_more = matches!(client.read_buf(&mut unread).await, Ok(1..));
        until(network, Mode::Open).await;
        if !is_more {
            return End::Close;
        }
    }
}

async fn replies(
    mut server: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    matching: &Mutex<Matching>,
    network: &Network,
) -> End {
    let mut unread = Vec::new();
    let mut is_silent = false;
    loop {
        loop {
            let (reply, length) = match resp::decode(&unread) {
                Ok(Some(reply)) => reply,
                Ok(None) => break,
                Err(_) => return End::Reset,
            };
            let bytes: Vec<u8> = unread.drain(..length).collect();
            let belongs = lock(matching).came(&reply);
            let (Belongs::To(owed) | Belongs::Partly(owed)) = belongs else {
                pass(&mut client, &bytes, is_silent, network).await;
                continue;
            };
            let Some(number) = owed.number else { continue };
            if matches!(belongs, Belongs::To(_)) {
                network.journal.reached(number, Step::Answered);
            }
            match owed.fault {
                Some(Fault::SwallowThenReset) => return End::Reset,
                Some(Fault::Silence) => is_silent = true,
                Some(Fault::DelayReply(delay)) => sleep(delay).await,
                _ => {}
            }
            let is_delivered = pass(&mut client, &bytes, is_silent, network).await;
            if is_delivered && matches!(belongs, Belongs::To(_)) {
                network.journal.reached(number, Step::Delivered);
            }
        }
        if !matches!(server.read_buf(&mut unread).await, Ok(1..)) {
            // A network that is silent does not tell of a server's end either.
            if is_silent {
                return pending().await;
            }
            until(network, Mode::Open).await;
            return End::Close;
        }
    }
}

/// A client that has left takes nothing; that its end is seen is up to the other direction.
async fn pass(client: &mut WriteHalf<'_>, bytes: &[u8], is_silent: bool, network: &Network) -> bool {
    until(network, Mode::Open).await;
    !is_silent && client.write_all(bytes).await.is_ok()
}

/// The words of the first command and how many bytes it takes. No words: a line that asks nothing, and gets no reply.
fn next_command(unread: &[u8]) -> io::Result<Option<(Vec<Vec<u8>>, usize)>> {
    if unread.first() == Some(&b'*') {
        let Some((command, length)) = resp::decode(unread)? else { return Ok(None) };
        let word = |item: &Reply| if let Reply::Bulk(word) = item { Some(word.clone()) } else { None };
        let words = if let Reply::Array(items) = command {
            items.iter().filter_map(word).collect()
        } else {
            Vec::new()
        };
        return Ok(Some((words, length)));
    }
    let Some(end) = unread.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let words = unread[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    Ok(Some((words.map(<[u8]>::to_vec).collect(), end + 1)))
}

fn lock(matching: &Mutex<Matching>) -> MutexGuard<'_, Matching> {
    matching.lock().unwrap_or_else(PoisonError::into_inner)
}
