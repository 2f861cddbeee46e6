//! What each of the processes does: it takes one of two names, writes to what that protects, and notes down when it went on without
//! Redis, which the oracle does not know of.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tenure::Error;
use tenure_testkit::oracle::{Counter, FencedFile};
use tenure_testkit::soak::{self, Task};

pub(super) const TEST: &str = "layered::processes::worker::a_process_that_works";
pub(super) const NAMES: [&str; 2] = ["orders", "tickets"];
/// More than it takes to finish, also without Redis.
const LONGEST_END: Duration = Duration::from_secs(20);
/// The file with a byte for each grant without Redis.
const DEGRADED: &str = "degraded";

/// How many grants were without Redis.
pub(super) fn degraded(dir: &Path) -> u64 {
    std::fs::metadata(dir.join(DEGRADED)).map_or(0, |file| file.len())
}

/// What is changed under the lock, with its fence and without.
pub(super) struct Resource {
    fenced: FencedFile,
    pub(super) counter: Counter,
}

impl Resource {
    pub(super) fn open(dir: &Path, name: &str) -> Self {
        let fenced = FencedFile::open(dir.join(name), name).expect("a resource");
        let counter = Counter::open(dir.join(format!("{name}-count")), name).expect("a counter");
        Resource { fenced, counter }
    }
}

/// What a process does until whoever started it says that it is enough.
#[test]
#[ignore = "run by another test, as a process that it kills"]
fn a_process_that_works() {
    soak::work(1, LONGEST_END, async |mut task| {
        let resources = NAMES.map(|name| (name, Resource::open(&task.dir, name)));
        let marks = OpenOptions::new().append(true).create(true).open(task.dir.join(DEGRADED));
        let marks = marks.expect("a file");
        while let Some((name, resource)) = task.next_of(&resources) {
            work(&mut task, name, resource, &marks).await;
        }
    });
}

async fn work(task: &mut Task, name: &str, resource: &Resource, mut marks: &File) {
    let patience = Duration::from_millis(50 + task.dice.roll(500));
    let Some(guard) = task.take(name, patience, Error::is_transient).await else { return };
    if guard.is_degraded() {
        marks.write_all(b".").expect("a file");
    }
    let _ = resource.fenced.write(guard.fence().get(), &task.log).expect("a resource");
    let millis = if task.dice.roll(25) == 0 { 500 + task.dice.roll(1_500) } else { 1 + task.dice.roll(30) };
    let reading = resource.counter.read(&task.log).expect("a counter");
    if !task.hold(&guard, Duration::from_millis(millis)).await {
        return;
    }
    if guard.is_held() {
        reading.write_next().expect("a counter");
    }
    task.give_back(guard).await;
}
