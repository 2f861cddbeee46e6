//! One process of several that pass something on among themselves: this program, started again.
//!
//! Nothing is shared but what is measured. Each process writes down its turns (in which order they came, when it had it, when it let
//! go), and tells its parent when all is over. It ends by itself, whatever becomes of the others.

use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::Domain;

use crate::scratch;

/// The first argument of a worker.
pub(crate) const ARGUMENT: &str = "--worker";

/// After its end is due, how long a worker may take to come to it.
const GRACE: Duration = Duration::from_secs(5);

/// A turn of a worker: its number among all turns of all, and CLOCK_MONOTONIC in ns right after it began and right before it was ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) order: u64,
    pub(crate) acquired: u64,
    pub(crate) released: u64,
}

impl Turn {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Turn { order: number(0), acquired: number(8), released: number(16) }
    }

    fn to_bytes(self) -> impl Iterator<Item = u8> {
        [self.order, self.acquired, self.released].into_iter().flat_map(u64::to_le_bytes)
    }
}

/// CLOCK_MONOTONIC in ns: the same in all processes.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// What a worker is: the arguments are its kind, the directory and its number.
pub(crate) fn work(kind: &str, mut arguments: impl Iterator<Item = String>) {
    let dir = PathBuf::from(arguments.next().expect("a directory"));
    let index = arguments.next().and_then(|index| index.parse().ok()).expect("a number");
    let turns = match kind {
        "tenure" => tenure_turns(&dir),
        "fifo-pingpong" => pingpong_turns(&dir, index),
        "flock" => flock_turns(&dir, index),
        other => panic!("no worker is called {other}"),
    };
    let bytes: Vec<u8> = turns.into_iter().flat_map(Turn::to_bytes).collect();
    // A parent that is gone needs no answer.
    let _ = std::io::stdout().write_all(&bytes);
}

/// Says that this worker is ready, and waits until all are; returns when to end.
fn ready() -> u64 {
    let mut line = String::new();
    let mut stdout = std::io::stdout();
    let is_told = stdout.write_all(b"r").and_then(|()| stdout.flush()).is_ok()
        && std::io::stdin().lock().read_line(&mut line).is_ok();
    let Some(until) = line.trim().parse().ok().filter(|_| is_told) else { std::process::exit(1) };
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_nanos(until - now().min(until)) + GRACE);
        std::process::exit(1);
    });
    until
}

/// A client of its own with a single task, so that each turn goes through the store.
fn tenure_turns(dir: &Path) -> Vec<Turn> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::open(&scratch::url(dir)).await.expect("a directory of our own opens");
        let (lock, mut turns) = (domain.lock("bench"), Vec::with_capacity(1 << 16));
        let until = ready();
        while now() < until {
            let guard = lock.acquire().await.expect("the directory can be used");
            let acquired = now();
            let order = guard.fence().get();
            let released = now();
            guard.release().await.expect("the directory can be used");
            turns.push(Turn { order, acquired, released });
        }
        turns
    })
}

/// Two processes, whatever else is measured: each waits for a byte from the other, and passes it back.
fn pingpong_turns(dir: &Path, index: u64) -> Vec<Turn> {
    const GO_ON: u8 = 0;
    const STOP: u8 = 1;
    let fifo = |index: u64| {
        let path = dir.join(format!("fifo-{index}"));
        File::options().read(true).write(true).open(path).expect("the pipe was made")
    };
    let (mut mine, mut theirs) = (fifo(index), fifo(1 - index));
    let (mut order, mut byte, mut turns) = (index, [GO_ON], Vec::with_capacity(1 << 16));
    let until = ready();
    loop {
        if order > 0 {
            mine.read_exact(&mut byte).expect("the pipe can be read");
        }
        let acquired = now();
        if byte == [STOP] {
            return turns;
        }
        if acquired >= until {
            theirs.write_all(&[STOP]).expect("the pipe can be written");
            return turns;
        }
        let released = now();
        theirs.write_all(&byte).expect("the pipe can be written");
        turns.push(Turn { order, acquired, released });
        order += 2;
    }
}

/// Processes that are blocked in flock(2). It hands nothing over: whoever unlocks is the quickest to lock again. So whoever had it last
/// does not ask again before another had it.
fn flock_turns(dir: &Path, index: u64) -> Vec<Turn> {
    let path = dir.join("flock");
    let file = File::options().read(true).write(true).open(path).expect("the file was made");
    // How often it was locked, and by whom the last time.
    let read = || -> [u64; 2] {
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, 0).expect("the file can be read");
        let (turns, last) = bytes.split_at(8);
        [turns, last].map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let (me, mut turns) = (index + 1, Vec::with_capacity(1 << 16));
    let until = ready();
    while now() < until {
        if read()[1] == me {
            std::thread::yield_now();
            continue;
        }
        file.lock().expect("the file can be locked");
        let acquired = now();
        let order = read()[0] + 1;
        let bytes: Vec<u8> = [order, me].into_iter().flat_map(u64::to_le_bytes).collect();
        file.write_all_at(&bytes, 0).expect("the file can be written");
        let released = now();
        file.unlock().expect("the file can be unlocked");
        turns.push(Turn { order, acquired, released });
    }
    turns
}
