//! A process that works: a few tasks that take names, for short and for long, and write to what the names protect.

use std::time::Duration;

use tenure::Error;
use tenure_testkit::oracle::FencedFile;
use tenure_testkit::soak::{self, Task};

pub(crate) const TEST: &str = "failover::worker::a_process_that_works";
const NAMES: [&str; 3] = ["orders", "tickets", "seats"];
const TASKS: u64 = 3;
/// More than it takes to finish, also without servers.
const LONGEST_END: Duration = Duration::from_secs(30);

/// What a process does until whoever started it says that it is enough.
#[test]
#[ignore = "run by other tests, as a process of theirs"]
fn a_process_that_works() {
    soak::work(TASKS, LONGEST_END, async |mut task| {
        let open = |name: &str| FencedFile::open(task.dir.join(name), name).expect("a resource");
        let resources = NAMES.map(|name| (name, open(name)));
        while let Some((name, resource)) = task.next_of(&resources) {
            work(&mut task, name, resource).await;
        }
    });
}

async fn work(task: &mut Task, name: &str, resource: &FencedFile) {
    let patience = Duration::from_millis(200 + task.dice.roll(2_000));
    let Some(guard) = task.take(name, patience, may_be).await else { return };
    let fence = guard.fence().get();
    let _ = resource.write(fence, &task.log).expect("a resource");
    let millis = if task.dice.roll(30) == 0 { 1_000 + task.dice.roll(3_000) } else { 1 + task.dice.roll(60) };
    if task.hold(&guard, Duration::from_millis(millis)).await {
        let _ = resource.write(fence, &task.log).expect("a resource");
        task.give_back(guard).await;
    }
}

fn may_be(error: &Error) -> bool {
    // A Sentinel may be told of a service only now.
    error.is_transient() || error.to_string().contains("does not know this service")
}
