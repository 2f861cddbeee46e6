//! Keys of a lock that are something else: somebody else's, and left as they are.

use std::time::Duration;

use tenure::{Domain, Error, ErrorKind};
use tenure_testkit::redis::RedisServer;

use crate::redis::hygiene::traces::all_keys;

fn check(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(!error.is_transient(), "{error}");
    let said = error.to_string();
    assert!(said.contains("something else than a lock") && said.contains("another `prefix`"), "{said}");
}

#[tokio::test]
async fn a_list_under_the_key_of_a_lock() {
    let server = RedisServer::start();
    let domain = Domain::open(server.url()).await.expect("a server that runs");
    server.command(&["RPUSH", "tenure:orders/42", "a", "b"]);
    let lock = domain.lock("orders/42");
    let error = lock.acquire().await.expect_err("acquire");
    check(&error);
    let place = format!(
        "redis at 127.0.0.1:{} holds something else than a lock in key `tenure:orders/42`",
        server.port()
    );
    assert!(error.to_string().contains(&place), "{error}");
    check(&lock.try_acquire().await.expect_err("try_acquire"));
    check(&lock.try_acquire_for(Duration::from_secs(20)).await.expect_err("try_acquire_for"));
    check(&lock.take_over().await.expect_err("take_over"));
    check(&domain.inspect("orders/42").await.expect_err("inspect"));
    assert_eq!(domain.list("").await.expect("a list is no lock"), []);
    assert_eq!(server.command(&["LRANGE", "tenure:orders/42", "0", "-1"]).items().len(), 2);
    assert_eq!(all_keys(&server), ["tenure:orders/42"], "nothing is left behind");

    server.command(&["DEL", "tenure:orders/42"]);
    let _ = lock.run(async |_| ()).await.expect("it is a lock's again");
}

// Whatever a script finds, it finds before it writes.
#[tokio::test]
async fn a_list_under_a_side_key() {
    let server = RedisServer::start();
    let domain = Domain::open(server.url()).await.expect("a server that runs");
    let other = Domain::open(server.url()).await.expect("a server that runs");
    for side in ["fence", "queue"] {
        let (name, key) = (format!("free/{side}"), format!("{{tenure:free/{side}}}:{side}"));
        server.command(&["RPUSH", &key, "a"]);
        let error = domain.lock(&name).acquire().await.expect_err(side);
        check(&error);
        assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        assert_eq!(all_keys(&server), [key.as_str()], "nothing is left behind");
        server.command(&["DEL", &key]);
    }
    let held = domain.lock("orders/42").acquire().await.expect("a free name");
    server.command(&["RPUSH", "{tenure:orders/42}:beats", "a"]);
    check(&other.lock("orders/42").acquire().await.expect_err("nobody can wait"));
    let expected = ["tenure:orders/42", "{tenure:orders/42}:beats", "{tenure:orders/42}:fence"];
    assert_eq!(all_keys(&server), expected, "no place in a queue is left behind");
    held.release().await.expect("nobody waits");
    assert_eq!(server.command(&["TYPE", "{tenure:orders/42}:beats"]).text(), "list");
}

// One name that is somebody else's does not hide the others.
#[tokio::test]
async fn a_side_key_of_one_of_several_names() {
    let server = RedisServer::start();
    let domain = Domain::open(server.url()).await.expect("a server that runs");
    server.command(&["SET", "tenure:bad", "token of another library"]);
    server.command(&["RPUSH", "{tenure:bad}:queue", "a"]);
    check(&domain.list("").await.expect_err("there is no other"));
    let _guards = [domain.lock("a").acquire().await, domain.lock("z").acquire().await];
    let names: Vec<_> =
        domain.list("").await.expect("the others").into_iter().map(|seen| seen.name).collect();
    assert_eq!(names, ["a", "z"]);
}

// Something else took the place of a lock that is held: its holder is told, and nothing is done to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_in_place_of_a_held_lock() {
    let server = RedisServer::start();
    let domain = Domain::open(server.url()).await.expect("a server that runs");
    let guard = domain.lock("orders/42").ttl(Duration::from_secs(2)).acquire().await.expect("a free name");
    server.command(&["DEL", "tenure:orders/42"]);
    server.command(&["RPUSH", "tenure:orders/42", "a"]);
    tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("its holder is told");
    drop(guard);
    drop(domain.lock("another").acquire().await.expect("the domain goes on"));
    assert_eq!(server.command(&["LRANGE", "tenure:orders/42", "0", "-1"]).items().len(), 1);
}
