//! A user whom the server does not know, or does not allow something: it will not get better by itself, and the message says what to do.

use tenure::{Domain, Error, ErrorKind};
use tenure_testkit::redis::RedisServer;

use super::endurance::Refusal;
use crate::redis::hygiene::traces::keys;

/// The user has a password which no message may show.
const PASSWORD: &str = "open-sesame-7";

async fn refused(url: String) -> Error {
    let error = Domain::open(url.clone()).await.expect_err("it is refused");
    let first_use = Domain::lazy(url).expect("a valid URL").lock("orders/42").acquire().await;
    assert_eq!(first_use.expect_err("it is refused").to_string(), error.to_string());
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!error.is_transient(), "{error}");
    assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    error
}

fn says(error: &Error, parts: &[&str]) {
    for part in parts {
        assert!(error.to_string().contains(part), "{error}\ndoes not say: {part}");
    }
}

/// How a message names the server.
fn at(server: &RedisServer) -> String {
    format!("redis at 127.0.0.1:{} ", server.port())
}

#[tokio::test]
async fn no_password_where_one_is_needed() {
    let server = RedisServer::builder().config("requirepass", PASSWORD).start();
    let error = refused(server.url()).await;
    says(
        &error,
        &[
            &at(&server),
            "requires a password: NOAUTH; put it into the URL, before the host: `:password@` for `requirepass`",
            "or `user:password@`",
        ],
    );
}

#[tokio::test]
async fn a_host_that_is_not_known() {
    // Longer than a label may be, so that no name server is asked.
    let host = "n".repeat(64);
    let error = Domain::open(format!("redis://{host}")).await.expect_err("no such host");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    says(&error, &[&format!("cannot resolve host `{host}`: "), "; check the name or DNS"]);
}

#[tokio::test]
async fn a_wrong_password_or_user() {
    let server = RedisServer::builder().config("requirepass", "another").start();
    server.command(&["ACL", "SETUSER", "bob", "on", ">another", "+@all", "~*", "&*"]);
    server.command(&["ACL", "SETUSER", "retired", "off", &format!(">{PASSWORD}"), "+@all", "~*", "&*"]);
    for user in ["", "bob", "nobody", "retired"] {
        let error = refused(format!("redis://{user}:{PASSWORD}@127.0.0.1:{}", server.port())).await;
        says(&error, &[&at(&server), "refused", "user", "password", "URL"]);
    }
    assert!(keys(&server).is_empty());
}

// Permissions that are taken away, and given back, while somebody holds a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_that_is_missing_for_a_while() {
    let server = RedisServer::start();
    let set = |rule: &str| assert_eq!(server.command(&["ACL", "SETUSER", "bob", rule]).text(), "OK");
    for rule in ["on", ">secret", "+@all", "~*", "&*"] {
        set(rule);
    }
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    let says = &["NOPERM", "lacks a permission", "docs/backends/redis.md"];
    let refusal = Refusal { kind: ErrorKind::Denied, says, is_asked_again: false, spares_holders: false };
    refusal.is_endured(&server, &url, || set("-evalsha"), || set("+evalsha")).await;
}

// Keys of another prefix are not this user's.
#[tokio::test]
async fn a_prefix_that_is_not_the_users() {
    let server = RedisServer::start();
    let rule = ["on", ">secret", "+@all", "~mine:*", "~{mine:*", "&mine:*"];
    server.command(&[&["ACL", "SETUSER", "bob"][..], &rule[..]].concat());
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    let domain = Domain::open(url.clone()).await.expect("the user is known");
    let error = domain.lock("orders/42").acquire().await.expect_err("not with the usual prefix");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    says(&error, &[&at(&server), "NOPERM", "key"]);
    let domain = Domain::open(format!("{url}?prefix=mine:")).await.expect("the user is known");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("its own prefix");
    assert!(keys(&server).is_empty());
}
