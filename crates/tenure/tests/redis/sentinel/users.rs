//! Users with as few permissions as docs/backends/sentinel.md says, on servers and on Sentinels.

use std::time::{Duration, Instant};

use tenure::{Domain, ErrorKind};
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{Fault, Proxy, RedisServer, Trio, named};
use tenure_testkit::warnings::Warnings;

use crate::redis::hygiene::traces::until_clean;

/// What one server needs, as docs/backends/redis.md says.
const COMMANDS: &str = "+evalsha +eval +time +get +set +del +exists +pttl +pexpire +zadd +zrem +zrange +zrevrange +zrank +zscore +zcard \
                        +hset +hget +hdel +publish +subscribe +scan +info +hello +ping +client|tracking +client|caching";
const KEYS: &str = "~tenure:* ~{tenure:* &tenure:*";
/// What a Sentinel needs.
const SCOUT: &str = "&+switch-master +subscribe +sentinel|get-master-addr-by-name +sentinel|master";

fn permit(server: &RedisServer, user: &str, rules: &str) {
    let words = format!("ACL SETUSER {user} reset on >secret {rules}");
    assert_eq!(
        server.command(&words.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>()).text(),
        "OK"
    );
}

// R0.6: all that is promised with exactly these, through a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_permissions_are_enough() {
    let trio = Trio::start();
    trio.servers().iter().for_each(|server| permit(server, "app", &format!("{KEYS} {COMMANDS} +wait")));
    trio.sentinels().iter().for_each(|sentinel| permit(sentinel, "scout", SCOUT));
    let place = trio.url().replace("://", "://app:secret@");
    let url = format!("{place}?ttl=2s&timeout=1s&replicas=all&sentinel_user=scout&sentinel_password=secret");
    let domain = Domain::open(&url).await.expect("both users");
    let held = domain.lock("orders/42").acquire().await.expect("two replicas");
    let (before, old) = (held.fence(), trio.master());
    held.release().await.expect("a master");

    let ordered = trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]);
    assert_eq!(ordered.text(), "OK");
    trio.wait_for_another_than(old.port());
    trio.make_follow(old);
    trio.wait_until_complete();
    let begin = Instant::now();
    let next = loop {
        match domain.lock("orders/42").acquire().await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_transient() && begin.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(next.fence() > before);
    assert_eq!(trio.master().command(&["GET", "tenure:orders/42"]).text(), next.token());
}

// R0.6, R4.4: what is missing is named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_is_denied() {
    let trio = Trio::start();
    trio.servers().iter().for_each(|server| permit(server, "app", &format!("{KEYS} {COMMANDS}")));
    trio.sentinels().iter().for_each(|sentinel| permit(sentinel, "scout", "+sentinel|masters"));
    let place = trio.url().replace("://", "://app:secret@");
    // A lease would outlast the test: what is gone was given back (R4.4, I5).
    let domain = Domain::open(format!("{place}?replicas=1&ttl=10m")).await.expect("a master");
    let lock = domain.lock("orders/42");
    for taken in [lock.acquire().await, lock.take_over().await] {
        let error = taken.expect_err("WAIT is not allowed");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("'wait'"), "{error}");
        until_clean(trio.master()).await;
    }
    let error = lock.try_acquire().await.expect_err("WAIT is not allowed");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    until_clean(trio.master()).await;

    let scouts = format!("{place}?sentinel_user=scout&sentinel_password=secret");
    let error = Domain::open(scouts).await.expect_err("it may not ask for the master");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

// R4.4: a Sentinel that does not say how many replicas there are leaves open what all of them are. The master forgets those that are away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_an_unknown_number_is_denied() {
    let trio = Trio::start();
    let rules = SCOUT.replace(" +sentinel|master", "");
    trio.sentinels().iter().for_each(|sentinel| permit(sentinel, "scout", &rules));
    let url = format!("{}?ttl=10m&sentinel_user=scout&sentinel_password=secret&replicas=", trio.url());
    let one = Domain::open(format!("{url}1")).await.expect("a number is a number");
    let held = one.lock("orders/42").acquire().await.expect("two replicas");
    let all = Domain::open(format!("{url}all")).await.expect("a master");
    let lock = all.lock("orders/42");
    for taken in [lock.take_over().await, all.lock("orders/43").acquire().await] {
        let error = taken.expect_err("all of how many?");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("`+sentinel|master`"), "{error}");
    }
    assert_eq!(trio.master().command(&["GET", "tenure:orders/42"]).text(), held.token(), "nothing was done");
    held.renew().await.expect("a master");
    let findings = all.examine().await.expect("a master");
    let found = findings.iter().find(|found| found.check == "replicas").expect("a finding");
    assert_eq!(found.verdict, tenure::Verdict::Unfit, "{found}");
    assert!(found.to_string().contains("+sentinel|master"), "{found}");

    // A permission that comes later is noticed.
    trio.sentinels().iter().for_each(|sentinel| permit(sentinel, "scout", SCOUT));
    let begin = Instant::now();
    while let Err(error) = all.lock("orders/43").run(async |_| ()).await {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(begin.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// R0.6, R0.8: it is said once, and asked no more often than needed.
#[tokio::test]
async fn who_may_not_listen_to_sentinels_is_quiet() {
    let trio = Trio::start();
    let rules = SCOUT.replace("+subscribe", "");
    trio.sentinels().iter().for_each(|sentinel| permit(sentinel, "scout", &rules));
    // So far away that no connection seems to break at once.
    let proxies = trio.sentinels().each_ref().map(Proxy::new);
    for proxy in &proxies {
        proxy.inject(Fault::DelayReply(Duration::from_millis(30)), u64::MAX, named("SUBSCRIBE"));
    }
    let hosts = proxies.each_ref().map(|proxy| format!("127.0.0.1:{}", proxy.port())).join(",");
    let url =
        format!("redis+sentinel://{hosts}/{}?sentinel_user=scout&sentinel_password=secret", trio.service());
    let warnings = Warnings::listen();
    let domain = Domain::open(&url).await.expect("a master");
    let subscribed = || proxies.iter().map(Proxy::faults).sum::<u64>();
    until("all were tried", || subscribed() >= 3).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(subscribed() < 12, "{} attempts", subscribed());
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    let said = warnings.said();
    assert_eq!(said.iter().filter(|line| line.contains("+switch-master")).count(), 1, "{said:?}");
}
