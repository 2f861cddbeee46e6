//! Messages and confirmations never shift the replies: each is followed by a fault that must meet its own command.

use super::*;
use crate::redis::proxy::matching::{Belongs, Matching, Owed};
use crate::redis::{Fault, Reply, Step, named};

#[test]
fn resp3_pushes_are_no_replies() {
    let (server, proxy, mut client) = start();
    client.command(&["HELLO", "3"]).unwrap();
    client.send(&["SUBSCRIBE", "a", "b"]).unwrap();
    client.send(&["PSUBSCRIBE", "c*"]).unwrap();
    client.send(&["SSUBSCRIBE", "s"]).unwrap();
    client.send(&["INCR", "n"]).unwrap();
    for kind in ["subscribe", "subscribe", "psubscribe", "ssubscribe"] {
        assert_push(&client.receive().unwrap(), kind);
    }
    assert_eq!(client.receive().unwrap().int(), 1);
    assert!(proxy.has_seen(Step::Answered, named("PSUBSCRIBE")));

    client.command(&["CLIENT", "TRACKING", "ON", "BCAST"]).unwrap();
    server.command(&["PUBLISH", "a", "hello"]);
    server.command(&["SET", "tracked", "1"]);
    client.send(&["UNSUBSCRIBE"]).unwrap();
    client.send(&["UNSUBSCRIBE"]).unwrap();
    // The second channel of the first and the nil of the second are both confirmations.
    proxy.inject(Fault::Duplicate, 1, named("INCR"));
    client.send(&["INCR", "n"]).unwrap();
    client.send(&["GET", "n"]).unwrap();
    let values: Vec<Reply> = std::iter::repeat_with(|| client.receive().unwrap())
        .filter(|value| !is_invalidation(value))
        .take(6)
        .collect();
    assert_push(&values[0], "message");
    for value in &values[1..4] {
        assert_push(value, "unsubscribe");
    }
    assert_eq!((values[4].int(), values[5].int()), (2, 3));
}

#[test]
fn resp2_messages_are_no_replies() {
    let (server, proxy, mut client) = start();
    client.send(&["SUBSCRIBE", "a", "b"]).unwrap();
    for channel in ["a", "b"] {
        assert_eq!(client.receive().unwrap().items()[1].text(), channel);
    }
    server.command(&["PUBLISH", "b", "hello"]);
    assert_eq!(client.receive().unwrap().items()[2].text(), "hello");
    proxy.inject(Fault::Duplicate, 1, named("PING"));
    client.send(&["PING"]).unwrap();
    client.send(&["UNSUBSCRIBE"]).unwrap();
    assert_eq!(client.receive().unwrap().items()[0].text(), "pong");
    for _ in 0..2 {
        assert_eq!(client.receive().unwrap().items()[0].text(), "unsubscribe");
    }
    // No subscriber any more: what looks like a message is a reply.
    client.command(&["RPUSH", "list", "message", "a", "b"]).unwrap();
    proxy.inject(Fault::SwallowThenReset, 1, named("LRANGE"));
    client.send(&["LRANGE", "list", "0", "-1"]).unwrap();
    assert_reset(&mut client);
}

#[test]
fn a_refused_subscription_has_a_plain_reply() {
    let (server, proxy, mut client) = start();
    server.command(&["ACL", "SETUSER", "default", "resetchannels"]);
    client.command(&["HELLO", "3"]).unwrap();
    assert!(client.command(&["SUBSCRIBE", "a", "b"]).unwrap().is_error("NOPERM"));
    proxy.inject(Fault::Duplicate, 1, named("INCR"));
    assert_eq!(client.command(&["INCR", "n"]).unwrap().int(), 1);
    assert_eq!(client.command(&["GET", "n"]).unwrap().int(), 2);
}

#[test]
fn a_silent_connection_has_no_pushes_either() {
    let (server, proxy, mut client) = start();
    client.command(&["HELLO", "3"]).unwrap();
    proxy.inject(Fault::Silence, 1, named("SUBSCRIBE"));
    client.send(&["SUBSCRIBE", "a"]).unwrap();
    proxy.seen(Step::Answered, named("SUBSCRIBE"));
    assert_eq!(server.command(&["PUBLISH", "a", "hello"]).int(), 1);
    assert_silent(&mut client);
}

#[test]
fn an_array_that_looks_like_a_confirmation_is_a_reply() {
    let mut matching = Matching::default();
    let owed = |number| Owed { number: Some(number), fault: None };
    let like = Reply::Array(vec![Reply::Bulk(b"subscribe".into()), Reply::Bulk(b"a".into()), Reply::Int(1)]);
    matching.sent(vec![b"EVAL".into()], owed(0));
    matching.sent(vec![b"SUBSCRIBE".into(), b"a".into(), b"b".into()], owed(1));
    assert_eq!(matching.came(&like), Belongs::To(owed(0)));
    assert_eq!(matching.came(&like), Belongs::Partly(owed(1)));
    assert_eq!(matching.came(&like), Belongs::To(owed(1)));
    assert_eq!(matching.came(&like), Belongs::Nobody);
}

#[test]
fn a_message_that_overtakes_a_reply_is_none() {
    let owed = |number| Owed { number: Some(number), fault: None };
    let words = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let texts =
        |texts: &[&str]| texts.iter().map(|text| Reply::Bulk(text.as_bytes().into())).collect::<Vec<_>>();
    let message = Reply::Array(texts(&["message", "a", "hello"]));
    for is_resp3 in [false, true] {
        let mut matching = Matching::default();
        if is_resp3 {
            matching.sent(words(&["HELLO", "3"]), owed(0));
            assert_eq!(matching.came(&Reply::Map(Vec::new())), Belongs::To(owed(0)));
        }
        matching.sent(words(&["SUBSCRIBE", "a"]), owed(1));
        let confirmation = [texts(&["subscribe", "a"]), vec![Reply::Int(1)]].concat();
        let confirmation = if is_resp3 { Reply::Push(confirmation) } else { Reply::Array(confirmation) };
        assert_eq!(matching.came(&confirmation), Belongs::To(owed(1)));
        matching.sent(words(&["PING"]), owed(2));
        if is_resp3 {
            assert_eq!(matching.came(&Reply::Push(texts(&["message", "a", "hello"]))), Belongs::Nobody);
            // There an array is a reply, whatever is in it.
            assert_eq!(matching.came(&message), Belongs::To(owed(2)));
        } else {
            assert_eq!(matching.came(&message), Belongs::Nobody);
            assert_eq!(matching.came(&Reply::Array(texts(&["pong", ""]))), Belongs::To(owed(2)));
        }
    }
}

fn assert_push(value: &Reply, kind: &str) {
    assert!(matches!(value, Reply::Push(items) if items[0].text() == kind), "{value:?} is no {kind}");
}

fn is_invalidation(value: &Reply) -> bool {
    matches!(value, Reply::Push(items) if items[0].text() == "invalidate")
}
