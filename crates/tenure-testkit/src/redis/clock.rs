//! A wall clock that a test moves, for one process.
//!
//! Leases in Redis end by the server's wall clock, which operators and NTP set, forward and back, while it runs. Setting the machine's
//! would disturb everybody on it, so a small library is loaded into the process before the C library, and adds an offset that it finds
//! in a file mapped into its memory: a write to that file is a step of the clock, seen by the next reading of it.

use super::launch;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

#[derive(Debug)]
pub(super) struct Clock {
    offset: File,
    environment: Vec<(String, String)>,
}

impl Clock {
    /// Builds the library in `directory`; it takes some 50 ms.
    pub(super) fn new(directory: &Path) -> Self {
        let [source, library, file] =
            ["clock.c", "clock.so", "clock.offset"].map(|name| directory.join(name));
        std::fs::write(&source, include_str!("clock.c")).expect("a source");
        let compiled = Command::new(launch::require("cc", "gcc libc6-dev"))
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&library, &source])
            .output()
            .expect("cc runs");
        assert!(compiled.status.success(), "clock.c: {}", String::from_utf8_lossy(&compiled.stderr));
        let offset = File::create(&file).expect("a file for the offset");
        let text = |path: &OsStr| path.to_str().expect("a path that is text").to_owned();
        let environment = vec![
            ("LD_PRELOAD".into(), text(library.as_os_str())),
            ("CLOCK_OFFSET_FILE".into(), text(file.as_os_str())),
        ];
        let clock = Clock { offset, environment };
        clock.set(0);
        clock
    }

    /// What the process is to be started with.
    pub(super) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// From now on the process is so many microseconds ahead of the machine, or behind.
    pub(super) fn set(&self, micros: i64) {
        self.offset.write_all_at(&micros.to_ne_bytes(), 0).expect("the offset is written");
    }
}

#[cfg(test)]
mod tests {
    use crate::redis::{Client, RedisServer};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    const MINUTE: i64 = 60_000_000;

    #[test]
    fn the_time_of_the_server_moves_forward_and_back() {
        let server = RedisServer::builder().clock().start();
        for offset in [0, 60 * MINUTE, -60 * MINUTE, 1_500, MINUTE, 0] {
            server.set_clock_offset(offset);
            let before = machine_micros();
            let now = server_micros(&server);
            assert!((before..=machine_micros()).contains(&(now - offset)), "{offset}");
        }
        server.set_clock_offset(MINUTE);
        server.restart();
        assert!(server_micros(&server) - machine_micros() > MINUTE / 2);
    }

    #[test]
    fn a_key_expires_when_the_clock_goes_past_it() {
        let server = RedisServer::builder().clock().config("notify-keyspace-events", "Ex").start();
        let mut subscriber = Client::connect(server.port()).unwrap();
        subscriber.command(&["SUBSCRIBE", "__keyevent@0__:expired"]).unwrap();
        // A lease that no busy machine outlasts; with PX 1000 alone the test would also pass on a machine that is stopped for 1 s.
        server.command(&["SET", "long", "1", "PX", "3600000"]);
        server.command(&["SET", "short", "1", "PX", "1000"]);
        server.set_clock_offset(10_000_000);
        assert!(server.command(&["GET", "short"]).is_nil());
        assert_eq!(server.command(&["GET", "long"]).int(), 1);
        server.set_clock_offset(61 * MINUTE);
        // By itself, not because somebody looked.
        let expired = [(); 2].map(|()| subscriber.receive().unwrap().items()[2].text());
        assert_eq!(expired, ["short", "long"]);
        assert!(server.command(&["GET", "long"]).is_nil());

        server.command(&["SET", "a", "1", "PX", "1000"]);
        server.set_clock_offset(0);
        assert!(server.command(&["PTTL", "a"]).int() > 60 * MINUTE / 1_000);
    }

    #[test]
    fn a_server_with_a_clock_waits_no_longer_than_others() {
        let server = RedisServer::builder().clock().start();
        server.set_clock_offset(-60 * MINUTE);
        let begin = Instant::now();
        assert!(server.command(&["BLPOP", "none", "0.05"]).is_nil());
        assert!(begin.elapsed() >= Duration::from_millis(50));
    }

    fn server_micros(server: &RedisServer) -> i64 {
        let time = server.command(&["TIME"]);
        time.items()[0].int() * 1_000_000 + time.items()[1].int()
    }

    fn machine_micros() -> i64 {
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
    }
}
