use super::*;
use crate::redis::{Step, named};

#[test]
fn a_cut_network_resets_and_refuses_until_it_is_healed() {
    let (server, proxy, mut client) = start();
    for n in 1..=20 {
        assert_eq!(client.command(&["INCR", "a"]).unwrap().int(), n);
        proxy.cut();
        assert_eq!(proxy.connections(), 0);
        assert_reset(&mut client);
        assert_eq!(Client::connect(proxy.port()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(server.command(&["GET", "a"]).int(), n);
        proxy.heal();
        client = Client::connect(proxy.port()).unwrap();
    }
    until(|| proxy.accepted() == 21);
}

#[test]
fn a_black_hole_takes_everything_and_what_it_took_arrives_when_it_is_healed() {
    let (server, proxy, mut client) = start();
    assert_eq!(client.command(&["SET", "a", "1"]).unwrap().text(), "OK");
    proxy.black_hole();
    let mut late = Client::connect(proxy.port()).unwrap();
    for client in [&mut client, &mut late] {
        client.send(&["INCR", "a"]).unwrap();
        assert_silent(client);
    }
    assert_eq!(server.command(&["GET", "a"]).int(), 1);
    assert!(!proxy.has_seen(Step::Received, named("INCR")));
    proxy.heal();
    for client in [&mut client, &mut late] {
        client.set_patience(Duration::from_secs(20)).unwrap();
        assert!((2..=3).contains(&client.receive().unwrap().int()));
    }
}

#[test]
fn a_black_hole_takes_replies_to_what_was_sent_before() {
    let (server, proxy, mut client) = start();
    client.send(&["BLPOP", "list", "0"]).unwrap();
    proxy.seen(Step::Forwarded, named("BLPOP"));
    proxy.black_hole();
    server.command(&["RPUSH", "list", "a"]);
    proxy.seen(Step::Answered, named("BLPOP"));
    assert_silent(&mut client);
    proxy.heal();
    client.set_patience(Duration::from_secs(20)).unwrap();
    assert_eq!(client.receive().unwrap().items()[1].text(), "a");
}

#[test]
fn a_black_hole_can_be_cut() {
    let (_server, proxy, mut client) = start();
    proxy.black_hole();
    client.send(&["PING"]).unwrap();
    proxy.cut();
    assert_reset(&mut client);
    proxy.heal();
    let mut client = Client::connect(proxy.port()).unwrap();
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
}

#[test]
fn a_server_that_is_gone_resets_and_one_that_comes_back_is_used() {
    let (server, proxy, mut client) = start();
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
    server.kill();
    assert!(client.receive().is_err());
    assert!(Client::connect(proxy.port()).unwrap().command(&["PING"]).is_err());
    server.restart();
    let mut client = Client::connect(proxy.port()).unwrap();
    assert_eq!(client.command(&["PING"]).unwrap().text(), "PONG");
}

#[test]
fn the_server_sees_that_a_client_has_left() {
    let (server, proxy, mut client) = start();
    client.command(&["CLIENT", "SETNAME", "leaver"]).unwrap();
    assert!(server.command(&["CLIENT", "LIST"]).text().contains("name=leaver"));
    drop(client);
    until(|| !server.command(&["CLIENT", "LIST"]).text().contains("name=leaver"));
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn a_dropped_proxy_is_gone() {
    let (server, proxy, mut client) = start();
    client.command(&["PING"]).unwrap();
    let port = proxy.port();
    drop(proxy);
    assert!(client.receive().is_err());
    assert!(Client::connect(port).is_err());
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[tokio::test]
async fn is_seen_by_tests_that_share_a_thread_with_their_client() {
    use tokio::io::AsyncWriteExt as _;
    let (_server, proxy, _client) = start();
    let port = proxy.port();
    let client = tokio::spawn(async move {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(b"PING\r\n").await.unwrap();
        stream
    });
    proxy.seen_async(Step::Delivered, named("PING")).await;
    drop(client.await.unwrap());
    proxy.forget();
    assert!(!proxy.has_seen(Step::Received, named("PING")));
    assert_eq!((proxy.commands(), proxy.names().len()), (1, 0));
}
