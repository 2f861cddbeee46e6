//! Every kind of URL, to a server that is there. R0.6, end to end: nothing of it is dropped or replaced by a default in silence.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tenure::{Attempt, Domain, Error, ErrorKind};
use tenure_testkit::redis::{Builder, RedisServer};

use crate::redis::hygiene::traces::{all_keys, keys};

/// No message may show it.
const PASSWORD: &str = "open-sesame-7";

/// Takes and gives back a name; what the server has while it is held.
async fn use_it(server: &RedisServer, url: &str) -> Result<Vec<String>, Error> {
    let domain = Domain::open(url).await?;
    assert!(!format!("{domain:?}").contains(PASSWORD), "{domain:?}");
    let guard = domain.lock("orders/42").acquire().await?;
    let held = keys(server);
    guard.release().await?;
    Ok(held)
}

async fn works(server: &RedisServer, url: &str) {
    let held = use_it(server, url).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(held, ["tenure:orders/42"]);
}

async fn fails(server: &RedisServer, url: &str, kind: ErrorKind, says: &[&str]) {
    let error = use_it(server, url).await.expect_err("a URL that is not right for this server");
    let shown = format!("{error} {error:?}");
    assert_eq!(error.kind(), kind, "{shown}");
    for part in says {
        assert!(shown.contains(part), "{shown}\ndoes not say: {part}");
    }
    assert!(!shown.contains(PASSWORD), "{shown}");
}

// R0.6
#[tokio::test]
async fn one_server_by_each_of_its_addresses() {
    let server = RedisServer::builder().config("bind", "127.0.0.1 ::1").start();
    let port = server.port();
    for url in [
        format!("redis://127.0.0.1:{port}"),
        format!("redis://localhost:{port}"),
        format!("valkey://127.0.0.1:{port}/0"),
        format!("redis://[::1]:{port}"),
        format!("127.0.0.1:{port}"),
        server.unix_url(),
    ] {
        works(&server, &url).await;
    }
    let nowhere = format!("redis+unix://{}.not", server.socket_path().display());
    fails(&server, &nowhere, ErrorKind::Unavailable, &["redis.sock.not", "is it running?"]).await;
    fails(
        &server,
        "redis://no-such-host.invalid",
        ErrorKind::Unavailable,
        &["cannot resolve host `no-such-host.invalid`: "],
    )
    .await;
}

// R0.6
#[tokio::test]
async fn users_and_passwords() {
    let server = RedisServer::builder().config("requirepass", PASSWORD).start();
    let secret = "p@ss:w/rd%";
    let rule = ["ACL", "SETUSER", "bob", "on", &format!(">{secret}"), "~*", "&*", "+@all"];
    assert_eq!(server.command(&rule).text(), "OK");
    let at = format!("127.0.0.1:{}", server.port());
    works(&server, &format!("redis://:{PASSWORD}@{at}")).await;
    works(&server, &format!("redis://default:{PASSWORD}@{at}")).await;
    works(&server, &format!("redis://bob:p%40ss:w%2Frd%25@{at}")).await;
    works(&server, &format!("redis+unix://:{PASSWORD}@{}", server.socket_path().display())).await;
    fails(&server, &format!("redis://bob:{PASSWORD}@{at}"), ErrorKind::Denied, &["password"]).await;
    let whoami = server.command(&["ACL", "LOG", "1"]).items().len();
    assert_eq!(whoami, 1, "the server saw the user of the URL");
}

// R0.6
#[tokio::test]
async fn databases_are_apart() {
    let server = RedisServer::builder().config("databases", "4").start();
    let zero = Domain::open(server.url()).await.expect("database 0");
    let by_port = Domain::open(format!("{}/3", server.url())).await.expect("database 3");
    let by_socket = Domain::open(format!("{}?db=3", server.unix_url())).await.expect("database 3");
    let guard = by_port.lock("orders/42").acquire().await.expect("a free name");
    assert!(keys(&server).is_empty(), "nothing of it is in database 0");
    let busy = by_socket.lock("orders/42").try_acquire().await.expect("it runs");
    assert!(matches!(busy, Attempt::Busy(_)), "the same database");
    let free = zero.lock("orders/42").try_acquire().await.expect("it runs");
    assert!(free.is_acquired(), "another database");
    assert_eq!(by_socket.list("").await.expect("it runs").len(), 1);
    // A reconnection goes to the same one.
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    guard.renew().await.expect("it is there");
    guard.release().await.expect("it is there");
    for url in [format!("{}/4", server.url()), format!("{}?db=4", server.unix_url())] {
        fails(&server, &url, ErrorKind::Invalid, &["database `4`", "out of range"]).await;
    }
}

// R0.7
#[tokio::test]
async fn prefixes_are_apart() {
    let server = RedisServer::start();
    let mut guards = Vec::new();
    for prefix in ["", "?prefix=", "?prefix=app:", "?prefix=app:orders/", "?prefix=%C3%BC*:"] {
        let domain = Domain::open(format!("{}{prefix}", server.url())).await.expect("it runs");
        let attempt = domain.lock("orders/42").try_acquire().await.expect("it runs");
        guards.push(attempt.ok().unwrap_or_else(|| panic!("{prefix} is blocked by another")));
        assert_eq!(domain.list("orders").await.expect("it runs").len(), 1, "{prefix}");
    }
    let held: Vec<String> = all_keys(&server).into_iter().filter(|key| !key.starts_with('{')).collect();
    let expected = ["app:orders/42", "app:orders/orders/42", "orders/42", "tenure:orders/42", "ü*:orders/42"];
    assert_eq!(held, expected);
}

fn tls_url(server: &RedisServer, options: &[(&str, PathBuf)]) -> String {
    let options: Vec<String> =
        options.iter().map(|(name, path)| format!("{name}={}", path.display())).collect();
    format!("{}?{}", server.tls_url(), options.join("&"))
}

// R0.6
#[tokio::test]
async fn tls_with_an_authority_of_ones_own() {
    let server = RedisServer::builder().tls().config("requirepass", PASSWORD).start();
    let other = RedisServer::builder().tls().start();
    let at = |server: &RedisServer| {
        let url = tls_url(server, &[("tls_ca", server.ca_path())]);
        url.replace("rediss://", &format!("rediss://:{PASSWORD}@"))
    };
    works(&server, &at(&server)).await;
    works(&server, &at(&server).replace("127.0.0.1", "localhost")).await;
    let wrong = tls_url(&server, &[("tls_ca", other.ca_path())]);
    fails(&server, &wrong, ErrorKind::Unavailable, &["certificate", "`tls_ca`"]).await;
    // The authorities of this system know nothing of this one.
    fails(&server, &server.tls_url(), ErrorKind::Unavailable, &["certificate"]).await;
    let absent = tls_url(&server, &[("tls_ca", server.ca_path().with_file_name("absent.crt"))]);
    fails(&server, &absent, ErrorKind::Invalid, &["absent.crt", "cannot read"]).await;
    let no_pem = tls_url(&server, &[("tls_ca", server.ca_path().with_file_name("redis.conf"))]);
    fails(&server, &no_pem, ErrorKind::Invalid, &["redis.conf"]).await;
    let plain_port = at(&server).replace(&server.tls_port().to_string(), &server.port().to_string());
    fails(&server, &plain_port, ErrorKind::Unavailable, &["without TLS"]).await;
}

/// As `openssl req -x509` makes them, without other options.
// R0.6
#[tokio::test]
async fn tls_with_a_certificate_that_signed_itself() {
    let server = RedisServer::builder().tls().start();
    let certify = |whose: &str, is_authority: &str, names: Option<&str>| {
        let directory = server.ca_path().parent().unwrap().to_owned();
        let [cert, key] = ["crt", "key"].map(|end| directory.join(format!("{whose}.{end}")));
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-newkey", "ec"]);
        openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        if let Some(names) = names {
            openssl.args(["-addext", names]);
        }
        openssl.args(["-addext", &format!("basicConstraints=critical,CA:{is_authority}")]);
        let made = openssl.arg("-keyout").arg(&key).arg("-out").arg(&cert).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let [shown, of_key] = [&cert, &key].map(|path| path.to_str().unwrap());
        server.command(&["CONFIG", "SET", "tls-cert-file", shown, "tls-key-file", of_key]);
        tls_url(&server, &[("tls_ca", cert)])
    };
    let (by_name, by_address) = ("subjectAltName=DNS:localhost", "subjectAltName=IP:127.0.0.1");
    let authority = certify("authority", "TRUE", Some(by_name)).replace("127.0.0.1", "localhost");
    let remedy = ["CA:TRUE", &format!("-addext basicConstraints=critical,CA:FALSE -addext {by_name}")];
    fails(&server, &authority, ErrorKind::Unavailable, &remedy).await;
    let nameless = certify("nameless", "FALSE", None);
    let says = ["has a certificate for other names", &format!("-addext {by_address}")];
    fails(&server, &nameless, ErrorKind::Unavailable, &says).await;
    let says = ["has a certificate for other names", &format!("-addext {by_name}")];
    fails(&server, &nameless.replace("127.0.0.1", "localhost"), ErrorKind::Unavailable, &says).await;
    let named = certify("named", "FALSE", Some(by_name)).replace("127.0.0.1", "localhost");
    works(&server, &named).await;
    works(&server, &certify("itself", "FALSE", Some(by_address))).await;
}

// R0.6
#[tokio::test]
async fn tls_for_another_name() {
    let server = Builder::tls_for(RedisServer::builder(), &["DNS:another.example"]).start();
    let url = tls_url(&server, &[("tls_ca", server.ca_path())]);
    fails(&server, &url, ErrorKind::Unavailable, &["certificate", "subjectAltName=IP:127.0.0.1"]).await;
}

// R0.6
#[tokio::test]
async fn tls_with_certificates_of_clients() {
    let server = RedisServer::builder().tls().config("tls-auth-clients", "yes").start();
    let [ca, cert, key] = [server.ca_path(), server.client_cert_path(), server.client_key_path()];
    let both = [("tls_ca", ca.clone()), ("tls_cert", cert.clone()), ("tls_key", key)];
    works(&server, &tls_url(&server, &both)).await;
    let says = ["asks for a client certificate", "`tls_cert` and `tls_key`"];
    fails(&server, &tls_url(&server, &both[..1]), ErrorKind::Unavailable, &says).await;
    let other = RedisServer::builder().tls().start();
    let [cert_of_other, key_of_other] = [other.client_cert_path(), other.client_key_path()];
    let untrusted = [("tls_ca", ca.clone()), ("tls_cert", cert_of_other), ("tls_key", key_of_other)];
    let says = ["does not trust the certificate in `tls_cert`"];
    fails(&server, &tls_url(&server, &untrusted), ErrorKind::Unavailable, &says).await;
    let no_key = [("tls_ca", ca), ("tls_cert", cert.clone()), ("tls_key", cert)];
    fails(&server, &tls_url(&server, &no_key), ErrorKind::Invalid, &["client.crt", "PRIVATE KEY"]).await;
}

/// A server that answers each request like this and closes the connection, which resets it. Returns its URL.
fn closing(answer: &'static [u8]) -> String {
    // Not 127.0.0.1: Redis in protected mode accepts that, so the client does not look for a denial there.
    let listener = std::net::TcpListener::bind("127.0.0.2:0").expect("an address");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            connection.write_all(answer).ok();
            connection.set_read_timeout(Some(Duration::from_millis(50))).ok();
            // With unread requests, closing is a reset.
            connection.peek(&mut [0]).ok();
        }
    });
    url
}

// R0.5: a server in protected mode answers other machines with a refusal before it reads their requests.
#[tokio::test]
async fn a_server_in_protected_mode_says_what_to_do() {
    let denied = closing(b"-DENIED Redis is running in protected mode because protected mode is enabled\r\n");
    let error = Domain::open(&denied).await.expect_err("it refuses");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.what().ends_with("is in protected mode and refuses other machines"), "{error}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("requirepass")), "{error}");

    let error = Domain::open(closing(b"")).await.expect_err("it closes");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.what().ends_with("closes new connections"), "{error}");
    let remedy = error.remedy().expect("a remedy");
    assert!(remedy.contains("rediss://") && remedy.contains("protected mode"), "{error}");
}
