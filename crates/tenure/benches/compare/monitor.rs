//! How many commands clients sent.
//!
//! `INFO commandstats` and `total_commands_processed` count what scripts call inside as well, so neither tells. MONITOR shows who sent
//! each command, and marks those of scripts. It slows the server down; hence it watches rounds of its own, which are not timed.

use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure_testkit::redis::{Client, RedisServer, Reply};

use crate::turns::{Window, now};

/// Ends the watch: no client sends it otherwise.
const END: &str = "end-of-watch";

/// A connection that is shown every command.
pub(crate) struct Monitor {
    watch: JoinHandle<Vec<u64>>,
    /// From CLOCK_MONOTONIC to the server's wall clock, in ns.
    offset: u64,
}

impl Monitor {
    pub(crate) fn start(server: &RedisServer) -> Self {
        let mut client = server.client().expect("the server accepts");
        client.set_patience(Duration::from_secs(30)).expect("it can wait");
        assert_eq!(client.command(&["MONITOR"]).expect("the server answers").text(), "OK");
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        let offset = since_1970.as_nanos() as u64 - now();
        Monitor { watch: std::thread::spawn(move || watch(client)), offset }
    }

    /// How many commands clients sent in this time.
    pub(crate) fn count(self, server: &RedisServer, window: Window) -> usize {
        server.command(&["ECHO", END]);
        let stamps = self.watch.join().expect("the server shows its commands");
        let window = (window.start + self.offset) / 1000..(window.end + self.offset) / 1000;
        stamps.iter().filter(|stamp| window.contains(stamp)).count()
    }
}

/// When each command came, on the server's wall clock in µs: lines are like `1794760526.203673 [0 127.0.0.1:44840] "get" "key"`.
fn watch(mut client: Client) -> Vec<u64> {
    let mut stamps = Vec::with_capacity(1 << 16);
    loop {
        let Reply::Simple(line) = client.receive().expect("the server shows its commands") else {
            panic!("MONITOR answers with lines")
        };
        let mut words = line.splitn(4, ' ');
        let (stamp, _, client, command) = (words.next(), words.next(), words.next(), words.next());
        if command.is_some_and(|command| command.ends_with(&format!("\"{END}\""))) {
            return stamps;
        }
        if client != Some("lua]") {
            let stamp = stamp.and_then(|stamp| stamp.replace('.', "").parse().ok());
            stamps.push(stamp.expect("a line begins with its time"));
        }
    }
}
