//! Clocks that a test moves, for one process and what it forks.
//!
//! Leases in Redis end by the server's wall clock, which operators and NTP set, forward and back, while it runs; and by CLOCK_BOOTTIME of
//! their holders, whose machines sleep. Setting the machine's clocks would disturb everybody on it, so a small library is loaded into the
//! process before the C library, and adds what it finds in a file mapped into its memory: a write to that file is a step of the clock, seen by
//! the next reading of it. The kernel's timers are not moved.

use super::launch;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

/// The clocks of one process, to move.
#[derive(Debug)]
pub struct Clock {
    moves: File,
    environment: Vec<(String, String)>,
}

/// Where each number is in the file: `struct moves` in clock.c.
const WALL: u64 = 0;
const ASLEEP: u64 = 8;
const RATE: u64 = 16;
const SINCE: u64 = 24;

impl Clock {
    /// Builds the library in `directory`; it takes some 50 ms.
    ///
    /// # Panics
    /// When it can't be built.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        let [source, library, file] = ["clock.c", "clock.so", "clock.moves"].map(|name| directory.join(name));
        std::fs::write(&source, include_str!("clock.c")).expect("a source");
        let compiled = Command::new(launch::require("cc", "gcc libc6-dev"))
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .expect("cc runs");
        assert!(compiled.status.success(), "clock.c: {}", String::from_utf8_lossy(&compiled.stderr));
        let moves = File::create(&file).expect("a file for the moves");
        let text = |path: &OsStr| path.to_str().expect("a path that is text").to_owned();
        let environment = vec![
            ("LD_PRELOAD".into(), text(library.as_os_str())),
            ("CLOCK_FILE".into(), text(file.as_os_str())),
        ];
        let clock = Clock { moves, environment };
        for at in [WALL, ASLEEP, RATE, SINCE] {
            clock.write(at, 0);
        }
        clock
    }

    /// What the process is to be started with.
    #[must_use]
    pub fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// From now on its wall clock is so many microseconds ahead of the machine's, or behind.
    pub fn set(&self, micros: i64) {
        self.write(WALL, micros);
    }

    /// From now on its CLOCK_BOOTTIME is so many microseconds ahead of the machine's, and its CLOCK_MONOTONIC is not: as if the machine had
    /// slept for so long.
    pub fn sleep(&self, micros: i64) {
        self.write(ASLEEP, micros);
    }

    /// From now on its wall clock runs faster than the machine's by so many millionths, or slower.
    pub fn run_faster(&self, millionths: i64) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        self.write(RATE, 0);
        self.write(SINCE, now.tv_sec * 1_000_000_000 + now.tv_nsec);
        self.write(RATE, millionths);
    }

    fn write(&self, at: u64, number: i64) {
        self.moves.write_all_at(&number.to_ne_bytes(), at).expect("the move is written");
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
    fn an_aged_server_has_the_right_time_and_is_young_again_after_a_restart() {
        let server = RedisServer::builder().aged(Duration::from_secs(600)).start();
        let uptime = || {
            let info = server.command(&["INFO", "server"]).text();
            let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
            uptime.trim().parse::<u64>().unwrap()
        };
        assert!((600..900).contains(&uptime()));
        assert!((server_micros(&server) - machine_micros()).abs() < MINUTE / 2);
        server.restart();
        assert!(uptime() < 300);
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

    #[test]
    fn the_clock_of_the_server_runs_faster_and_slower() {
        let server = RedisServer::builder().clock().start();
        for rate in [1_000_000, -500_000, 0] {
            server.set_clock_rate(rate);
            let offsets = || (server_micros(&server) - machine_micros(), Instant::now());
            let (first, begin) = offsets();
            std::thread::sleep(Duration::from_millis(100));
            let (last, end) = offsets();
            let passed = i64::try_from(end.duration_since(begin).as_micros()).unwrap();
            let expected = passed * rate / 1_000_000;
            assert!((last - first - expected).abs() < 50_000 + passed / 10, "{rate}: {first}, {last}");
        }
    }

    fn server_micros(server: &RedisServer) -> i64 {
        let time = server.command(&["TIME"]);
        time.items()[0].int() * 1_000_000 + time.items()[1].int()
    }

    fn machine_micros() -> i64 {
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
    }
}
