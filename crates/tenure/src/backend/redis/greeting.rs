//! Whether a server refuses this machine before it reads any request, as Redis in protected mode does.
//!
//! Such a server sends `-DENIED` and closes the connection. The driver has sent its requests by then, so that it reports a reset
//! connection and not the answer. A second connection, on which the client only reads, gets the answer.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use redis::ConnectionAddr;
use tokio::net::TcpStream;

/// A server that says anything by itself does so at once.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
const DENIED: &[u8] = b"-DENIED";

/// Whether the server at this address answers with `DENIED`. Connections within a machine are never refused, and not asked.
pub(super) async fn is_denied(addr: &ConnectionAddr) -> bool {
    let ConnectionAddr::Tcp(host, port) = addr else { return false };
    if is_local(host) {
        return false;
    }
    let read = async {
        let connection = TcpStream::connect((host.as_str(), *port)).await.ok()?;
        let mut greeting = [0; DENIED.len()];
        loop {
            connection.readable().await.ok()?;
            match connection.try_read(&mut greeting) {
                Ok(length) => return Some(greeting[..length] == *DENIED),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    };
    tokio::time::timeout(LONGEST_WAIT, read).await.ok().flatten().unwrap_or(false)
}

/// The addresses that protected mode accepts.
fn is_local(host: &str) -> bool {
    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| local.contains(&address))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    async fn answers(greeting: &'static [u8]) -> bool {
        // Not one of the addresses that protected mode accepts, and still on this machine.
        let listener = TcpListener::bind("127.0.0.2:0").expect("an address");
        let port = listener.local_addr().expect("an address").port();
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().expect("a connection");
            connection.write_all(greeting).expect("a client");
        });
        let is_denied = is_denied(&ConnectionAddr::Tcp("127.0.0.2".into(), port)).await;
        server.join().expect("no panic");
        is_denied
    }

    #[tokio::test]
    async fn only_protected_mode_is_a_denial() {
        assert!(answers(b"-DENIED Redis is running in protected mode because ...\r\n").await);
        assert!(!answers(b"-ERR max number of clients reached\r\n").await);
        assert!(!answers(b"").await);
        assert!(!is_denied(&ConnectionAddr::Tcp("127.0.0.1".into(), 1)).await);
    }
}
