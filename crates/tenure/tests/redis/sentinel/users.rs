//! Users with as few permissions as docs/backends/sentinel.md says, on servers and on Sentinels.

use std::time::{Duration, Instant};

use tenure::{Domain, ErrorKind};
use tenure_testkit::patience::PATIENCE;
use tenure_testkit::redis::{RedisServer, Trio};

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
    let trio = Trio::builder().down_after(Duration::from_secs(60)).start();
    trio.servers().iter().for_each(|server| permit(server, "app", &format!("{KEYS} {COMMANDS}")));
    trio.sentinels().iter().for_each(|sentinel| permit(sentinel, "scout", "+sentinel|masters"));
    let place = trio.url().replace("://", "://app:secret@");
    let domain = Domain::open(format!("{place}?replicas=1")).await.expect("a master");
    let error = domain.lock("orders/42").acquire().await.expect_err("WAIT is not allowed");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("'wait'"), "{error}");

    let scouts = format!("{place}?sentinel_user=scout&sentinel_password=secret");
    let error = Domain::open(scouts).await.expect_err("it may not ask for the master");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}
