//! Each fault does what it says: to the command, to its reply, and to what comes after it.

mod faults;
mod load;
mod modes;
mod subscriptions;

use crate::redis::{Client, Proxy, RedisServer};
use std::io;
use std::time::{Duration, Instant};

/// Long enough for a reply that comes; whoever waits in vain does so for this long.
const MOMENT: Duration = Duration::from_millis(100);

fn start() -> (RedisServer, Proxy, Client) {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let client = Client::connect(proxy.port()).unwrap();
    (server, proxy, client)
}

/// Nothing comes for a moment, and the connection is open.
fn assert_silent(client: &mut Client) {
    client.set_patience(MOMENT).unwrap();
    let outcome = client.receive();
    assert_eq!(outcome.as_ref().map_err(io::Error::kind), Err(io::ErrorKind::WouldBlock), "{outcome:?}");
}

fn assert_reset(client: &mut Client) {
    let outcome = client.receive();
    assert_eq!(outcome.as_ref().map_err(io::Error::kind), Err(io::ErrorKind::ConnectionReset), "{outcome:?}");
}

fn until(mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < give_up, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}
