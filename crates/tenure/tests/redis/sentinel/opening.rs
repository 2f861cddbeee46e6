//! From a URL with Sentinels to a master, and what is wrong on the way.

use tenure::{Domain, Error, ErrorKind};
use tenure_testkit::patience::PATIENCE;
use tenure_testkit::redis::{RedisServer, Trio};

async fn refused(url: &str, kind: ErrorKind, parts: &[&str]) -> Error {
    let error = Domain::open(url).await.expect_err("it can't be opened");
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` in: {error}");
    }
    error
}

// R0.5, R0.6
#[tokio::test]
async fn says_what_each_sentinel_said() {
    let nobody = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/main";
    let each =
        ["no sentinel names a master of `main`", "cannot reach 127.0.0.1:1", "cannot reach 127.0.0.1:2"];
    refused(nobody, ErrorKind::Unavailable, &each).await;

    let trio = Trio::start();
    let unknown = trio.url().replace("/main", "/mian");
    let each = trio
        .sentinels()
        .each_ref()
        .map(|one| format!("127.0.0.1:{} does not know this service (it knows `main`)", one.port()));
    refused(&unknown, ErrorKind::Invalid, &each.each_ref().map(String::as_str)).await;

    let plain = RedisServer::start();
    let url = format!("redis+sentinel://127.0.0.1:{}/main", plain.port());
    refused(&url, ErrorKind::Invalid, &["is not a sentinel", "redis:// for a server"]).await;
    let one = &trio.sentinels()[0];
    let instead = format!("write redis+sentinel://127.0.0.1:{}/SERVICE", one.port());
    refused(&one.url(), ErrorKind::Invalid, &["is a sentinel", &instead]).await;
    refused(&one.unix_url(), ErrorKind::Invalid, &["is a sentinel", "redis+sentinel://HOST:PORT/SERVICE"])
        .await;
    let listener = tokio::net::TcpListener::bind("[::1]:0").await.expect("a port");
    let (six, port) = (listener.local_addr().expect("a port"), one.port());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    let instead = format!("redis+sentinel://{six}/SERVICE");
    refused(&format!("redis://{six}"), ErrorKind::Invalid, &["is a sentinel", &instead]).await;
    assert!(instead.parse::<tenure::DomainUrl>().is_ok(), "{instead}");

    let dead = &trio.sentinels()[0];
    dead.kill();
    refused(&unknown, ErrorKind::Unavailable, &["cannot reach", "does not know this service"]).await;
    let domain = Domain::open(trio.url()).await.expect("two of three know");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    let stopped = &trio.sentinels()[1];
    stopped.stop();
    let domain = Domain::open(format!("{}?timeout=600ms", trio.url())).await.expect("one of three knows");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    stopped.cont();
}

// R0.6
#[tokio::test]
async fn passwords_are_for_servers_and_for_sentinels() {
    let trio = Trio::builder().password("for-servers").sentinel_password("for-sentinels").start();
    let url = |server: &str, sentinel: &str| {
        let url = trio.url().replace("://", &format!("://{server}"));
        format!("{url}{sentinel}")
    };
    let domain =
        Domain::open(url(":for-servers@", "?sentinel_password=for-sentinels")).await.expect("both are right");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    let fix = "correct `sentinel_user` and `sentinel_password`";
    for sentinel in ["", "?sentinel_password=wrong", "?sentinel_user=nobody&sentinel_password=for-sentinels"]
    {
        let error =
            refused(&url(":for-servers@", sentinel), ErrorKind::Denied, &["no sentinel names", fix]).await;
        assert!(!error.to_string().contains("for-"), "no password: {error}");
    }
    for server in ["", ":wrong@"] {
        let error =
            refused(&url(server, "?sentinel_password=for-sentinels"), ErrorKind::Denied, &["redis"]).await;
        assert!(!error.to_string().contains(fix), "{error}");
    }
}

// R0.6
#[tokio::test]
async fn tls_is_for_both() {
    let trio = Trio::builder().tls().start();
    // A busy machine takes its time to encrypt.
    let url = format!("{}?ttl=40s&timeout=20s&tls_ca={}", trio.url(), trio.ca_path().display());
    let domain = Domain::open(&url).await.expect("one authority for all");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a master");
    refused(&trio.url(), ErrorKind::Unavailable, &["no sentinel names", "cannot reach"]).await;
    let findings = domain.examine().await.expect("to examine");
    assert!(findings.iter().any(|found| found.check == "encryption" && found.to_string().contains("TLS")));

    let old = trio.master();
    assert_eq!(trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    trio.wait_for_another_than(old.port());
    let begin = std::time::Instant::now();
    while trio.master().command(&["EXISTS", "{tenure:orders/43}:fence"]).int() == 0 {
        assert!(begin.elapsed() < PATIENCE, "the successor is not followed");
        let followed = domain.lock("orders/43").run(async |_| ()).await;
        assert!(followed.as_ref().err().is_none_or(Error::is_transient), "{followed:?}");
    }
}
