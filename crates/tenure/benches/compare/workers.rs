//! Processes that take turns, as their parent sees them.

use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::turns::{Turn, Window, now};

/// Not counted: the first turns find their files, pipes and connections, each process its own.
const WARM_UP: Duration = Duration::from_millis(150);
const WARM_UP_EACH: Duration = Duration::from_millis(2);

/// How long a worker may take to get ready, and to end after its round. Only one that has stalled takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The exit code of a worker that did not come to an end after its round.
pub(crate) const STALLED: i32 = 3;

/// Why there are no turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A worker did not get ready, or did not end.
    Stalled,
    /// A worker ended with an error.
    Died,
}

impl Failure {
    /// In the words of a table.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Failure::Stalled => "stalled",
            Failure::Died => "failed",
        }
    }
}

/// Processes that end when this is dropped, whatever they are doing.
pub(crate) struct Workers {
    processes: Vec<Child>,
    /// What each says: first that it is ready, then its turns. Nothing more when it has ended.
    said: Vec<Receiver<Vec<u8>>>,
    /// When the round ends.
    end: Instant,
}

impl Workers {
    pub(crate) fn start(commands: impl Iterator<Item = Command>) -> Self {
        let mut workers = Workers { processes: Vec::new(), said: Vec::new(), end: Instant::now() };
        for mut command in commands {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut worker = command.spawn().expect("a process can be started");
            workers.said.push(listen(worker.stdout.take().expect("it is piped")));
            workers.processes.push(worker);
        }
        workers
    }

    /// Lets all begin together, once all are ready; returns when their turns count.
    ///
    /// # Errors
    /// When one does not get ready.
    pub(crate) fn measure(&mut self, round: Duration) -> Result<Window, Failure> {
        let warm_up = WARM_UP + WARM_UP_EACH * self.processes.len() as u32;
        self.measure_after(warm_up, round)
    }

    /// The same, and says from when on they count.
    ///
    /// # Errors
    /// When one does not get ready.
    pub(crate) fn measure_after(&mut self, warm_up: Duration, round: Duration) -> Result<Window, Failure> {
        for said in &self.said {
            hear(said, Instant::now() + PATIENCE)?;
        }
        self.end = Instant::now() + warm_up + round;
        let start = now() + warm_up.as_nanos() as u64;
        let end = start + round.as_nanos() as u64;
        for worker in &mut self.processes {
            let stdin = worker.stdin.as_mut().expect("it is piped");
            writeln!(stdin, "{end}").map_err(|_| Failure::Died)?;
        }
        Ok(Window { start, end })
    }

    /// All turns of all workers, each with its worker's number, in their order.
    ///
    /// # Errors
    /// When one fails, or does not end.
    pub(crate) fn turns(&mut self) -> Result<Vec<(usize, Turn)>, Failure> {
        let mut turns = Vec::new();
        for (index, (worker, said)) in self.processes.iter_mut().zip(&self.said).enumerate() {
            let bytes = hear(said, self.end + PATIENCE)?;
            // It has closed its output, and has nothing else to do.
            let status = worker.wait().expect("the worker ends");
            match status.code() {
                Some(0) => {}
                Some(STALLED) => return Err(Failure::Stalled),
                _ => return Err(Failure::Died),
            }
            turns.extend(bytes.chunks_exact(Turn::BYTES).map(|bytes| (index, Turn::from_bytes(bytes))));
        }
        turns.sort_by_key(|(_, turn)| turn.order);
        Ok(turns)
    }
}

/// Reads what a worker says, on a thread that ends with the worker.
fn listen(mut stdout: ChildStdout) -> Receiver<Vec<u8>> {
    let (tell, said) = channel();
    thread::spawn(move || {
        let mut ready = vec![0];
        if stdout.read_exact(&mut ready).is_ok() && tell.send(ready).is_ok() {
            let mut turns = Vec::new();
            if stdout.read_to_end(&mut turns).is_ok() {
                // Nobody may be interested any more.
                let _ = tell.send(turns);
            }
        }
    });
    said
}

fn hear(said: &Receiver<Vec<u8>>, until: Instant) -> Result<Vec<u8>, Failure> {
    said.recv_timeout(until.saturating_duration_since(Instant::now())).map_err(|error| match error {
        RecvTimeoutError::Timeout => Failure::Stalled,
        RecvTimeoutError::Disconnected => Failure::Died,
    })
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.processes {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}
