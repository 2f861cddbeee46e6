//! What a client remembers does not grow with the names that it has used. Measured in a process of its own, by the pages that it has:
//! the tests beside this one have theirs in the same process.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tenure::Domain;
use tenure_testkit::redis::RedisServer;

/// Long, so that a name that is kept is seen.
const LENGTH: usize = 900;
const WARM_UP: u32 = 1_500;
const NAMES: u32 = 4_500;

fn pages() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("a process");
    statm.split(' ').nth(1).expect("resident pages").parse().expect("a number")
}

/// Uses so many names, each in every way: held, waited for in vain, cancelled.
async fn use_names(domain: &Domain, other: &Domain, numbers: std::ops::Range<u32>) {
    let numbers = Arc::new(std::sync::Mutex::new(numbers));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (numbers, domain, other) = (Arc::clone(&numbers), domain.clone(), other.clone());
            tokio::spawn(async move {
                loop {
                    let Some(number) = numbers.lock().expect("no panic").next() else { return };
                    let name = format!("{number:0LENGTH$}");
                    let guard = domain.lock(&name).acquire().await.expect("a free name");
                    let busy = other.lock(&name).try_acquire_for(Duration::from_micros(1)).await;
                    drop(busy);
                    guard.release().await.expect("it runs");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn a_process_that_uses_many_names() {
    let url = std::env::var("TENURE_MEMORY_URL").expect("to be run by another test");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::open(url.as_str()).await.expect("it runs");
        let other = Domain::open(url.as_str()).await.expect("it runs");
        use_names(&domain, &other, 0..WARM_UP).await;
        let before = pages();
        use_names(&domain, &other, WARM_UP..WARM_UP + NAMES).await;
        println!("\ngrown by {} pages", pages().saturating_sub(before));
    });
}

#[test]
fn what_is_remembered_does_not_grow_with_names() {
    let server = RedisServer::start();
    let output = Command::new(std::env::current_exe().expect("a test binary"))
        .args([
            "--exact",
            "redis::hygiene::memory::a_process_that_uses_many_names",
            "--ignored",
            "--nocapture",
        ])
        .env("TENURE_MEMORY_URL", server.url())
        .output()
        .expect("a process");
    let said = String::from_utf8_lossy(&output.stdout);
    let grown = said.lines().find_map(|line| line.strip_prefix("grown by ")?.strip_suffix(" pages"));
    let grown: usize = grown.unwrap_or_else(|| panic!("{said}")).parse().expect("a number");
    // A page has 4 KiB: half of what the names alone would take, if one client kept them.
    let all_names = NAMES as usize * LENGTH / 4096;
    assert!(grown < all_names / 2, "grown by {grown} pages; the names alone have {all_names}");
}
