//! Processes that take turns, as their parent sees them.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::turns::{Turn, Window, now};

/// Not counted: the first turns find their files, pipes and connections, each process its own.
const WARM_UP: Duration = Duration::from_millis(150);
const WARM_UP_EACH: Duration = Duration::from_millis(2);

/// Processes that end when this is dropped, whatever they are doing.
pub(crate) struct Workers(Vec<Child>);

impl Workers {
    pub(crate) fn start(commands: impl Iterator<Item = Command>) -> Self {
        let mut workers = Workers(Vec::new());
        for mut command in commands {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            workers.0.push(command.spawn().expect("a process can be started"));
        }
        workers
    }

    /// Lets all begin together, once all are ready; returns when their turns count.
    pub(crate) fn measure(&mut self, round: Duration) -> Window {
        let warm_up = WARM_UP + WARM_UP_EACH * self.0.len() as u32;
        self.measure_after(warm_up, round)
    }

    /// The same, and says from when on they count.
    pub(crate) fn measure_after(&mut self, warm_up: Duration, round: Duration) -> Window {
        for worker in &mut self.0 {
            let stdout = worker.stdout.as_mut().expect("it is piped");
            stdout.read_exact(&mut [0]).expect("the worker is ready");
        }
        let start = now() + warm_up.as_nanos() as u64;
        let end = start + round.as_nanos() as u64;
        for worker in &mut self.0 {
            let stdin = worker.stdin.as_mut().expect("it is piped");
            writeln!(stdin, "{end}").expect("the worker listens");
        }
        Window { start, end }
    }

    /// All turns of all workers, each with its worker's number, in their order.
    pub(crate) fn turns(&mut self) -> Vec<(usize, Turn)> {
        let mut turns = Vec::new();
        for (index, worker) in self.0.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            let stdout = worker.stdout.as_mut().expect("it is piped");
            stdout.read_to_end(&mut bytes).expect("the worker answers");
            let status = worker.wait().expect("the worker ends");
            assert!(status.success(), "worker {index} failed: {status}");
            turns.extend(bytes.chunks_exact(Turn::BYTES).map(|bytes| (index, Turn::from_bytes(bytes))));
        }
        turns.sort_by_key(|(_, turn)| turn.order);
        turns
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}
