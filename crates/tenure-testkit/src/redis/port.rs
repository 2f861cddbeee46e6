//! Ports for servers that are killed and come back.
//!
//! A port that the kernel chose (bind to 0) is one that it may give to any outgoing connection while the server is down, and then the
//! server can't have it again. So ports are taken from below that range, at random, since other test processes look for one as well.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};

const LOWEST: u16 = 10_240;

/// A port of 127.0.0.1 that nobody listens at, at this moment: whoever binds it must be ready to try another.
pub(super) fn free() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let outgoing = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    for attempt in 0..1_000_u64 {
        if outgoing <= LOWEST + 1_000 {
            break;
        }
        let chance = RandomState::new().hash_one(attempt) % u64::from(outgoing - LOWEST);
        let port = LOWEST + u16::try_from(chance).expect("below a u16");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of 127.0.0.1");
    any.local_addr().expect("an address").port()
}
