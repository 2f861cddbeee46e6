//! Sentinels that name different servers, or by other names.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{Fault, Proxy, RedisServer, Step, Trio, named};

fn monitor(sentinel: &RedisServer, service: &str, host: &str, port: u16) {
    sentinel.command(&["SENTINEL", "REMOVE", service]);
    let set = sentinel.command(&["SENTINEL", "MONITOR", service, host, &port.to_string(), "2"]);
    assert_eq!(set.text(), "OK");
}

fn url(sentinels: &[&RedisServer], service: &str) -> String {
    let hosts: Vec<_> = sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
    format!("redis+sentinel://{}/{service}", hosts.join(","))
}

// R0.5: the one that has heard of no failover goes on naming a server, which says that it is a master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_is_believed() {
    let trio = Trio::start();
    let old = trio.master();
    assert_eq!(trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    trio.wait_for_another_than(old.port());
    let decoy = RedisServer::start();
    let [astray, right, silent] = trio.sentinels();
    monitor(astray, trio.service(), "127.0.0.1", decoy.port());
    for order in [[astray, right], [right, astray]] {
        let domain = Domain::open(url(&order, trio.service())).await.expect("a master");
        let held = domain.lock("orders/42").acquire().await.expect("a master");
        assert_eq!(decoy.command(&["DBSIZE"]).int(), 0, "nobody is led astray");
        held.release().await.expect("a master");
    }
    // Also when the first two to answer are not the newest: the third is waited for, because it was heard before.
    monitor(silent, trio.service(), "127.0.0.1", decoy.port());
    let domain = Domain::open(url(&[astray, right, silent], trio.service())).await.expect("a master");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    let known = right.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", trio.service()]).items()[1].text();
    let master =
        trio.servers().iter().find(|server| server.port().to_string() == known).expect("one of them");
    master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("the same again");
}

/// The port of the master that a Sentinel names.
fn named_by(sentinel: &RedisServer, trio: &Trio) -> String {
    sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", trio.service()]).items()[1].text()
}

// R0.5: after a failover one Sentinel knows of it before the others do. A client that asks when two of three have not heard of it, and
// answer first, does not work on the old master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_has_not_heard_of_the_failover_yet_is_not_believed() {
    let trio = Trio::start();
    let ([one, two, right], before) = (trio.sentinels(), trio.master().port());
    assert_eq!(right.command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    trio.wait_for_another_than(before);
    let (old, proxy) = (RedisServer::start(), Proxy::new(right));
    [one, two].into_iter().for_each(|behind| monitor(behind, trio.service(), "127.0.0.1", old.port()));
    proxy.inject(Fault::DelayReply(Duration::from_millis(50)), 100, named("SENTINEL"));
    let hosts = [one.port(), two.port(), proxy.port()].map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = format!("redis+sentinel://{hosts}/{}?ttl=1m&timeout=20s", trio.service());
    let domain = Domain::open(url).await.expect("a master");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    assert_eq!(old.command(&["DBSIZE"]).int(), 0, "nobody is led astray");
}

// B1: a connection to the old master that is begun before the failover, and stands when the old master resumes after it. The Sentinel that
// the client listens to is silent meanwhile, so that nothing else ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_stands_after_the_failover_is_not_used() {
    let trio = Trio::builder().down_after(Duration::from_secs(600)).start();
    let ([silent, second, third], old) = (trio.sentinels(), trio.master());
    let proxies = [second, third].map(Proxy::new);
    let ports = [silent.port(), proxies[0].port(), proxies[1].port()];
    let hosts = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = format!("redis+sentinel://{hosts}/{}?ttl=1m&timeout=20s", trio.service());
    silent.stop();
    old.stop();
    let opening = tokio::spawn(Domain::open(url));
    for proxy in &proxies {
        proxy.seen_async(Step::Answered, named("SENTINEL")).await;
    }
    let before = old.port().to_string();
    assert_eq!(third.command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    until("both know of the failover", || {
        [second, third].into_iter().all(|one| named_by(one, &trio) != before)
    })
    .await;
    old.cont();
    let domain = opening.await.expect("no panic").expect("a master");
    let held = domain.lock("orders/42").acquire().await.expect("a master");
    let new = named_by(second, &trio);
    let new = trio.servers().iter().find(|server| server.port().to_string() == new).expect("one of them");
    assert_eq!(new.command(&["GET", "tenure:orders/42"]).text(), held.token(), "the new master");
    silent.cont();
}

// R0.6: a Sentinel may name servers by their hosts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_have_names() {
    let trio = Trio::start();
    let (one, master) = (&trio.sentinels()[0], trio.master());
    for setting in ["resolve-hostnames", "announce-hostnames"] {
        assert_eq!(one.command(&["SENTINEL", "CONFIG", "SET", setting, "yes"]).text(), "OK");
    }
    monitor(one, "named", "localhost", master.port());
    let named = one.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "named"]);
    assert_eq!(named.items()[0].text(), "localhost");
    let domain = Domain::open(url(&[one], "named")).await.expect("a master");
    let held = domain.lock("orders/42").acquire().await.expect("a master");
    assert_eq!(master.command(&["GET", "tenure:orders/42"]).text(), held.token());
}

/// Has another server of the trio made the master, by a Sentinel that is not astray; which one.
fn fail_over(trio: &Trio) -> &RedisServer {
    let old = trio.master().port();
    assert_eq!(trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    trio.wait_for_successor(old);
    trio.master()
}

/// Takes names until this server is asked for one.
async fn until_used(domain: &Domain, server: &RedisServer, mut check: impl FnMut()) {
    let begin = Instant::now();
    loop {
        let taken = domain.lock("orders/42").acquire().await;
        check();
        match taken {
            Ok(_) if server.command(&["EXISTS", "tenure:orders/42"]).int() == 1 => return,
            Ok(guard) => drop(guard.release().await),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        assert!(begin.elapsed() < PATIENCE, "nobody told of the failover");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// R0.5: one that is known to be behind hears of no failover, and is not listened to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_is_behind_is_left() {
    // Of the same service, but known to nobody here.
    let (trio, others) = (Trio::start(), Trio::start());
    let ([first, second, _], [astray, ..]) = (trio.sentinels(), others.sentinels());
    let before = trio.master();
    let old = fail_over(&trio);
    trio.make_follow(before);
    trio.wait_until_complete();
    let domain = Domain::open(url(&[astray, second, first], trio.service())).await.expect("a master");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    let listeners = |sentinel: &RedisServer| sentinel.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).text();
    until("another is listened to", || listeners(astray).is_empty() && !listeners(second).is_empty()).await;
    let new = fail_over(&trio);
    let begin = Instant::now();
    until_used(&domain, new, || {
        // It is demoted in the end, which everyone notices.
        let role = old.question(&["ROLE"]).items()[0].text();
        assert_eq!(role, "master", "not heard of within {:?}", begin.elapsed());
    })
    .await;
    assert_eq!(others.master().command(&["DBSIZE"]).int(), 0, "nobody is led astray");
}

// R0.5: one that is cut off together with a master goes on naming it. Whoever reaches the others too asks them from time to time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_to_a_sentinel_that_is_cut_off_asks_the_others() {
    let (trio, others) = (Trio::start(), Trio::start());
    let ([_, second, _], [astray, ..]) = (trio.sentinels(), others.sentinels());
    let cut_off = others.master();
    let domain = Domain::open(url(&[astray, second], trio.service())).await.expect("a master");
    let held = domain.lock("orders/42").acquire().await.expect("a master");
    assert_eq!(cut_off.command(&["GET", "tenure:orders/42"]).text(), held.token());
    held.release().await.expect("a master");
    until_used(&domain, fail_over(&trio), || ()).await;
}
