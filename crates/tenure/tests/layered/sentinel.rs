//! Redis through Sentinel outside: the pair knows its outer store by what every store can do.

use std::time::Duration;

use tenure::{Degrade, Domain};
use tenure_testkit::redis::Trio;

use crate::layered::scene::{Machine, NAME};

// R0.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_survived() {
    let (trio, machine) = (Trio::builder().down_after(Duration::from_secs(1)).start(), Machine::new());
    std::fs::create_dir_all(machine.path()).expect("a directory");
    let outer = format!("{}?ttl=2s", trio.url());
    let never = Domain::layered(&outer, machine.url(), Degrade::Never).await.expect("to open");
    let allow = Domain::layered(&outer, machine.url(), Degrade::Allow).await.expect("to open");

    let guard = never.lock(NAME).acquire().await.expect("to acquire");
    assert!(allow.lock(NAME).try_acquire().await.expect("an answer").ok().is_none());
    let mut last = guard.fence();
    guard.release().await.expect("to release");

    let port = trio.master().port();
    trio.master().kill();
    let guard = allow.lock(NAME).acquire().await.expect("the directory is there");
    assert!(guard.is_degraded() && guard.fence() > last);
    last = guard.fence();
    guard.release().await.expect("to release");
    assert!(never.lock(NAME).acquire().await.is_err(), "nobody is the master");

    trio.wait_for_another_than(port);
    for domain in [&never, &allow] {
        loop {
            match domain.lock(NAME).acquire().await {
                Ok(guard) if !guard.is_degraded() => {
                    assert!(guard.fence() > last, "{} after {last}", guard.fence());
                    last = guard.fence();
                    guard.release().await.expect("to release");
                    break;
                }
                Ok(guard) => {
                    assert!(guard.fence() > last, "{} after {last}", guard.fence());
                    last = guard.fence();
                    guard.release().await.expect("to release");
                }
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
