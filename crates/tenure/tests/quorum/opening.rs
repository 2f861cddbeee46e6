//! Opening a group: a majority, and each server once.

use std::time::Duration;

use tenure::{Capability, Domain, ErrorKind};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use crate::quorum::scene::{LONG, NAME, Scene, url};

/// Renewed every 3 s, and long enough for a busy machine.
const RENEWED_SOON: Duration = Duration::from_secs(9);

// R0.5, R0.6: the error says of each server what happened, and no password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_must_be_there() {
    let scene = Scene::new(3);
    for server in &scene.servers {
        server.command(&["CONFIG", "SET", "requirepass", "geheim"]);
    }
    let url = scene.url(LONG).replace("quorum://", "quorum://:geheim@");
    let domain = Domain::open(&url).await.expect("all are there");
    scene.servers[1].kill();
    drop(Domain::open(&url).await.expect("two of three"));
    scene.servers[2].kill();
    let error = Domain::open(&url).await.map(drop).expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    let port = |server: usize| scene.servers[server].port();
    assert!(text.contains("1 of 3 servers answered, 2 are needed"), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{}: ok", port(0))), "{text}");
    assert!(
        text.contains(&format!("cannot reach redis at 127.0.0.1:{}", port(2))) && text.contains("refused"),
        "{text}"
    );
    let remedy = format!("each of 127.0.0.1:{}, 127.0.0.1:{}: is it running?", port(1), port(2));
    assert_eq!(error.remedy(), Some(&*remedy), "two are away: {text}");
    assert!(!text.contains("geheim") && !format!("{error:?}").contains("geheim"), "{text}");

    let error = domain.lock(NAME).acquire().await.map(drop).expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("1 of 3 servers") && text.contains("2 are needed"), "{text}");
    assert!(!text.contains("geheim"), "{text}");
}

// R0.5: if the servers fail for different reasons, the error says what to do about which of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_to_do_is_said_for_each_server() {
    let scene = Scene::new(3);
    let domain = scene.client(LONG).await;
    let at = |server: usize| format!("127.0.0.1:{}", scene.servers[server].port());
    scene.servers[0].kill();
    for server in &scene.servers[1..] {
        server.command(&["RPUSH", &format!("tenure:{NAME}"), "a"]);
    }
    let error = loop {
        let error = domain.inspect(NAME).await.map(drop).expect_err("none of three");
        if error.to_string().contains("cannot reach redis") {
            break error.to_string();
        }
    };
    assert!(error.contains(&format!("; {}: is it running?", at(0))), "{error}");
    assert!(error.contains(&format!("; each of {}, {}: use another name", at(1), at(2))), "{error}");
}

// R3.9: it would count twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_under_two_addresses_is_refused() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let twice = format!("redis+quorum://127.0.0.1:{0},localhost:{0},127.0.0.1:{1}", one.port(), other.port());
    let error = Domain::open(&twice).await.map(drop).expect_err("two servers");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("are the same server"), "{error}");
}

// R0.8, R1.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_says_what_it_can_and_who_is_away() {
    let scene = Scene::new(3);
    let domain = scene.client(LONG).await;
    let can = domain.capabilities().await.expect("an answer");
    assert!(!can.contains(&Capability::Fifo) && can.contains(&Capability::Force));
    assert!(domain.health().await.expect("an answer").warnings.is_empty());
    scene.servers[1].kill();
    let label = format!("127.0.0.1:{}", scene.servers[1].port());
    loop {
        let warnings = domain.health().await.expect("two of three").warnings;
        if warnings.iter().any(|warning| warning.starts_with(&label)) {
            break;
        }
        tokio::task::yield_now().await;
    }
}

// R0.5: a paused server does not keep a client from opening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_does_not_keep_a_client_from_opening() {
    let scene = Scene::new(3);
    scene.servers[0].stop();
    let ports = scene.servers.iter().map(RedisServer::port);
    let domain = Domain::open(url(ports, Duration::from_millis(500))).await.expect("two of three");
    while domain.lock(NAME).try_acquire().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.servers[0].cont();
}

// R0.5, R3.9: a majority is enough, also if a minority refuses the client; and it joins once it does not refuse any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_wants_a_password_does_not_keep_a_client_from_opening() {
    let scene = Scene::new(3);
    let label = |server: usize| format!("127.0.0.1:{}", scene.servers[server].port());
    scene.servers[2].command(&["CONFIG", "SET", "requirepass", "geheim"]);
    let domain = scene.client(LONG).await;
    // A renewal brings the lease to the third server, so it must be due soon.
    let guard = domain.lock(NAME).ttl(RENEWED_SOON).acquire().await.expect("two of three");
    assert_eq!(scene.holders_of(&[0, 1]), [0, 1]);
    let warnings = domain.health().await.expect("two of three").warnings;
    let is_said = |warning: &String| warning.starts_with(&label(2)) && warning.contains("NOAUTH");
    assert!(warnings.iter().any(is_said), "{warnings:?}");

    // Most refuse it: that does not pass by itself.
    scene.servers[1].command(&["CONFIG", "SET", "requirepass", "geheim"]);
    let error = Domain::open(scene.url(LONG)).await.map(drop).expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(error.what(), "1 of 3 servers answered, 2 are needed");
    assert!(guard.is_held(), "a connection that stands is not asked for the password");

    let mut client = scene.servers[2].client().expect("its socket");
    client.command(&["AUTH", "geheim"]).expect("the password");
    client.command(&["CONFIG", "SET", "requirepass", ""]).expect("no password any more");
    until("it has the lease, too", || scene.holders_of(&[0, 2]) == [0, 2]).await;
}
