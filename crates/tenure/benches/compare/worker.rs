//! One process of several that pass something on among themselves: this program, started again.
//!
//! Nothing is shared but what is measured. Each process writes down its turns (in which order they came, when it had it, when it let
//! go), and tells its parent when all is over. It ends by itself, whatever becomes of the others.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::redis;
use crate::takers::{crowd_turns, ready, script_turns, tenure_turns};
use crate::turns::{Turn, now};

/// The first argument of a worker.
pub(crate) const ARGUMENT: &str = "--worker";

/// How many clients a process of the kind `crowd` stands for.
pub(crate) const CROWD: usize = 125;

/// A process of this kind. It gets the place where it meets the others, its number among them, and how long it keeps what it got.
pub(crate) fn command(kind: &str, place: &str, index: usize, hold: Duration) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([ARGUMENT, kind, place, &index.to_string(), &hold.as_micros().to_string()]);
    command
}

/// What a worker is: the arguments are those of [`command`].
pub(crate) fn work(kind: &str, mut arguments: impl Iterator<Item = String>) {
    let place = arguments.next().expect("a directory or a URL");
    let mut number = || arguments.next().and_then(|number| number.parse().ok()).expect("a number");
    let (index, hold) = (number(), Duration::from_micros(number()));
    let turns = match kind {
        "tenure" => block_on(tenure_turns(&place, hold)),
        "crowd" => block_on(crowd_turns(&place, CROWD)),
        "fifo-pingpong" => pingpong_turns(Path::new(&place), index),
        "flock" => flock_turns(Path::new(&place), index),
        "raw-script" => block_on(script_turns(&place)),
        "holder" => return block_on(redis::hold(&place, index)),
        "held" => return redis::held::work(&place),
        "waiters" => return redis::waiting::wait(&place, index as usize),
        other => panic!("no worker is called {other}"),
    };
    let bytes: Vec<u8> = turns.into_iter().flat_map(Turn::to_bytes).collect();
    // A parent that is gone needs no answer.
    let _ = std::io::stdout().write_all(&bytes);
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
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
        let asked = now();
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
        turns.push(Turn { order, asked, acquired, released });
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
        let asked = now();
        file.lock().expect("the file can be locked");
        let acquired = now();
        let order = read()[0] + 1;
        let bytes: Vec<u8> = [order, me].into_iter().flat_map(u64::to_le_bytes).collect();
        file.write_all_at(&bytes, 0).expect("the file can be written");
        let released = now();
        file.unlock().expect("the file can be unlocked");
        turns.push(Turn { order, asked, acquired, released });
    }
    turns
}
