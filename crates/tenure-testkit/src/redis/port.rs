//! Ports for servers that are killed and come back.
//!
//! A port that the kernel chose (bind to 0) is one that it may give to any outgoing connection while the server is down, and then the
//! server can't have it again. So ports are taken from below that range, at random, since other test processes look for one as well. To them,
//! the port of a server that is down would look free, and its clients would find another server there. So whoever has a port holds the same
//! port of another address of this machine, which nobody connects to: that one decides whose it is.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{Ipv4Addr, TcpListener};

const LOWEST: u16 = 10_240;
/// Where a port is marked as taken.
const MARKS: Ipv4Addr = Ipv4Addr::new(127, 84, 110, 114);

/// A port of 127.0.0.1 that no other test has, as long as this lives.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    _mark: TcpListener,
}

impl Port {
    /// One that nobody listens at, at this moment. Strangers do not look at marks: whoever binds it must be ready to try another.
    pub(super) fn free() -> Self {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let outgoing = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
        for attempt in 0..1_000_u64 {
            if outgoing <= LOWEST + 1_000 {
                break;
            }
            let chance = RandomState::new().hash_one(attempt) % u64::from(outgoing - LOWEST);
            let number = LOWEST + u16::try_from(chance).expect("below a u16");
            if let Some(port) = Port::take(number) {
                return port;
            }
        }
        std::iter::repeat_with(any).find_map(Port::take).expect("a port of 127.0.0.1")
    }

    fn take(number: u16) -> Option<Self> {
        let mark = TcpListener::bind((MARKS, number)).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
        Some(Port { number, _mark: mark })
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }
}

/// One that the kernel chooses.
fn any() -> u16 {
    let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of 127.0.0.1");
    any.local_addr().expect("an address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_though_nobody_listens_at_it() {
        let port = Port::free();
        assert!(Port::take(port.number()).is_none(), "its server may be down");
        let number = port.number();
        drop(port);
        // A process that another test starts has the mark, too, until it becomes its program.
        while Port::take(number).is_none() {
            std::thread::yield_now();
        }
    }
}
