//! Sentinels that name different servers, or by other names.

use tenure::Domain;
use tenure_testkit::redis::{RedisServer, Trio};

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
    domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    let known = right.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", trio.service()]).items()[1].text();
    let master =
        trio.servers().iter().find(|server| server.port().to_string() == known).expect("one of them");
    master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    domain.lock("orders/42").run(async |_| ()).await.expect("the same again");
}

// R0.6: a Sentinel may name servers by their hosts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_have_names() {
    let trio = Trio::builder().down_after(std::time::Duration::from_secs(60)).start();
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
