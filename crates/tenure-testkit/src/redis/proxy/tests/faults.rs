use super::*;
use crate::redis::{Fault, Step, named};

#[test]
fn passes_on_what_meets_no_fault() {
    let (server, proxy, mut client) = start();
    proxy.inject(Fault::ResetBefore, 1, named("FLUSHALL"));
    for n in 0..100 {
        client.send(&["SET", "a", &n.to_string()]).unwrap();
        client.send(&["GET", "a"]).unwrap();
    }
    for n in 0..100 {
        assert_eq!(client.receive().unwrap().text(), "OK");
        assert_eq!(client.receive().unwrap().int(), n);
    }
    client.send_bytes(b"PING\r\n\r\nget a\r\n").unwrap();
    assert_eq!(client.receive().unwrap().text(), "PONG");
    assert_eq!(client.receive().unwrap().int(), 99);
    let large = "x".repeat(1_000_000);
    assert_eq!(client.command(&["SET", "large", &large]).unwrap().text(), "OK");
    assert_eq!(client.command(&["GET", "large"]).unwrap().text(), large);
    assert_eq!(server.command(&["STRLEN", "large"]).int(), 1_000_000);
    assert_eq!((proxy.commands(), proxy.faults(), proxy.connections(), proxy.accepted()), (204, 0, 1, 1));
}

#[test]
fn a_swallowed_reply_then_resets() {
    let (server, proxy, mut client) = start();
    proxy.inject(Fault::SwallowThenReset, 1, named("INCR"));
    client.send_bytes(b"SET b 1\r\nINCR a\r\nGET b\r\n").unwrap();
    // The reset may overtake the reply before it, as it does on a real network.
    if client.receive().is_ok_and(|reply| reply.text() == "OK") {
        assert_reset(&mut client);
    }
    assert_eq!(server.command(&["GET", "a"]).int(), 1);

    let mut again = Client::connect(proxy.port()).unwrap();
    assert_eq!(again.command(&["INCR", "a"]).unwrap().int(), 2);
    assert_eq!(proxy.faults(), 1);
}

#[test]
fn silence_is_for_all_that_follows_on_the_connection() {
    let (server, proxy, mut client) = start();
    let mut other = Client::connect(proxy.port()).unwrap();
    proxy.inject(Fault::Silence, 1, named("INCR"));
    client.send(&["SET", "b", "1"]).unwrap();
    client.send(&["INCR", "a"]).unwrap();
    client.send(&["SET", "b", "2"]).unwrap();
    proxy.seen(Step::Answered, |words| words.last().is_some_and(|word| word == b"2"));
    assert_eq!(client.receive().unwrap().text(), "OK");
    assert_silent(&mut client);
    assert_eq!(
        server.command(&["MGET", "a", "b"]).items().iter().map(|n| n.int()).collect::<Vec<_>>(),
        [1, 2]
    );
    assert!(!proxy.has_seen(Step::Delivered, named("INCR")));
    assert_eq!(other.command(&["INCR", "a"]).unwrap().int(), 2);
    assert_eq!(proxy.connections(), 2);
    // The end of the server is not told either.
    server.kill();
    assert_silent(&mut client);
}

#[test]
fn a_dropped_command_is_not_executed_nor_is_what_follows() {
    let (server, proxy, mut client) = start();
    proxy.inject(Fault::Drop, 1, named("INCR"));
    client.send(&["SET", "b", "1"]).unwrap();
    client.send(&["INCR", "a"]).unwrap();
    client.send(&["SET", "b", "2"]).unwrap();
    proxy.seen(Step::Received, |words| words.last().is_some_and(|word| word == b"2"));
    assert_eq!(client.receive().unwrap().text(), "OK");
    assert_silent(&mut client);
    assert!(server.command(&["GET", "a"]).is_nil());
    assert_eq!(server.command(&["GET", "b"]).int(), 1);
    assert_eq!(proxy.names(), ["SET", "INCR", "SET"]);
    assert!(!proxy.has_seen(Step::Forwarded, named("INCR")));
}

#[test]
fn a_delayed_command_is_executed_later() {
    let (server, proxy, mut client) = start();
    let delay = Duration::from_millis(200);
    proxy.inject(Fault::DelayCommand(delay), 1, named("INCR"));
    let sent = Instant::now();
    client.send(&["INCR", "a"]).unwrap();
    client.send(&["INCR", "a"]).unwrap();
    proxy.seen(Step::Received, named("INCR"));
    let is_unexecuted = server.command(&["GET", "a"]).is_nil();
    assert!(is_unexecuted || sent.elapsed() >= delay);
    assert_eq!(client.receive().unwrap().int(), 1);
    assert!(sent.elapsed() >= delay);
    assert_eq!(client.receive().unwrap().int(), 2);
}

#[test]
fn a_delayed_command_is_executed_although_its_client_has_left() {
    let (server, proxy, mut client) = start();
    proxy.inject(Fault::DelayCommand(MOMENT), 1, named("INCR"));
    client.send(&["PING"]).unwrap();
    client.send(&["INCR", "a"]).unwrap();
    proxy.seen(Step::Received, named("INCR"));
    drop(client);
    proxy.seen(Step::Forwarded, named("INCR"));
    until(|| !server.command(&["GET", "a"]).is_nil());
    until(|| proxy.connections() == 0);
}

#[test]
fn a_delayed_reply_comes_later_and_in_order() {
    let (server, proxy, mut client) = start();
    let delay = Duration::from_millis(200);
    proxy.inject(Fault::DelayReply(delay), 1, named("INCR"));
    let sent = Instant::now();
    client.send(&["INCR", "a"]).unwrap();
    client.send(&["PING"]).unwrap();
    proxy.seen(Step::Answered, named("INCR"));
    assert_eq!(server.command(&["GET", "a"]).int(), 1);
    assert_eq!(client.receive().unwrap().int(), 1);
    assert!(sent.elapsed() >= delay);
    assert_eq!(client.receive().unwrap().text(), "PONG");
}

#[test]
fn a_duplicated_command_is_executed_twice_and_answered_once() {
    let (server, proxy, mut client) = start();
    proxy.inject(Fault::Duplicate, 1, named("incr"));
    assert_eq!(client.command(&["INCR", "a"]).unwrap().int(), 1);
    assert_eq!(client.command(&["GET", "a"]).unwrap().int(), 2);
    assert_eq!(client.command(&["INCR", "a"]).unwrap().int(), 3);
    assert_eq!(server.command(&["GET", "a"]).int(), 3);
    assert_eq!((proxy.commands(), proxy.faults()), (3, 1));
}

#[test]
fn reset_after_is_executed_and_reset_before_is_not() {
    for (fault, executed) in [(Fault::ResetAfter, true), (Fault::ResetBefore, false)] {
        for _ in 0..20 {
            let (server, proxy, mut client) = start();
            proxy.inject(fault, 1, named("INCR"));
            client.send_bytes(b"INCR a\r\nSET b 1\r\n").unwrap();
            assert_reset(&mut client);
            if executed {
                until(|| !server.command(&["GET", "a"]).is_nil());
            } else {
                assert!(server.command(&["GET", "a"]).is_nil());
            }
            assert!(server.command(&["GET", "b"]).is_nil());
            until(|| proxy.connections() == 0);
        }
    }
}

#[test]
fn a_rule_is_for_so_many_and_the_oldest_counts() {
    let (_server, proxy, mut client) = start();
    proxy.inject(Fault::Duplicate, 2, |words| words[1] == b"a");
    proxy.inject(Fault::Duplicate, 1, named("INCR"));
    let mut incr = |key| client.command(&["INCR", key]).unwrap().int();
    assert_eq!([incr("a"), incr("a"), incr("b"), incr("b"), incr("a"), incr("a")], [1, 3, 1, 3, 5, 6]);
    assert_eq!(proxy.faults(), 3);
    proxy.inject(Fault::Duplicate, 1, named("INCR"));
    proxy.clear();
    assert_eq!([incr("b"), incr("b")], [4, 5]);
}
