//! Tables: what each URL means, how it prints, and what each mistake is told (R0.6, R0.7).

use std::time::Duration;

use super::*;
use crate::types::error::ErrorKind;

fn redis(topology: Topology, hosts: &[(&str, u16)]) -> RedisUrl {
    let hosts = hosts.iter().map(|&(host, port)| HostPort { host: host.to_owned(), port });
    RedisUrl {
        topology,
        hosts: hosts.collect(),
        tls: None,
        credentials: None,
        db: 0,
        prefix: "tenure:".to_owned(),
        fence_memory: Duration::from_secs(600),
        replicas: None,
        margin: crate::core::deadlines::Margin::default(),
        inner: None,
    }
}

fn single(host: &str, port: u16) -> RedisUrl {
    redis(Topology::Single, &[(host, port)])
}

fn sentinel(service: &str, hosts: &[(&str, u16)]) -> RedisUrl {
    let service = service.to_owned();
    redis(Topology::Sentinel { service, credentials: None }, hosts)
}

fn credentials(user: &str, password: &str) -> Option<Credentials> {
    Some(Credentials {
        user: (!user.is_empty()).then(|| user.to_owned()),
        password: Secret(password.to_owned()),
    })
}

fn file(dir: &str) -> Target {
    Target::File { dir: Some(dir.into()), network_fs_allowed: false }
}

fn check_target(text: &str, expected: Target) {
    let url = DomainUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(*url.target(), expected, "{text}");
    assert_eq!((url.ttl(), url.timeout()), (None, None), "{text}");
}

fn check(text: &str, expected: RedisUrl) {
    check_target(text, Target::Redis(Box::new(expected)));
}

// R0.6
#[test]
fn memory_and_file() {
    let memory = |name: Option<&str>| Target::Memory { name: name.map(str::to_owned) };
    check_target("memory:", memory(None));
    check_target("Memory:", memory(None));
    check_target("memory:tests", memory(Some("tests")));
    check_target("memory:6379", memory(Some("6379")));
    check_target("memory:a/b%20%40ü%C3%BC", memory(Some("a/b @üü")));

    let default = |network_fs_allowed| Target::File { dir: None, network_fs_allowed };
    check_target("file:", default(false));
    check_target("file:?network_fs=allow", default(true));
    check_target("file:///var/lock/app", file("/var/lock/app"));
    check_target("file:/var/lock/app", file("/var/lock/app"));
    check_target("FILE:///srv/a%20b%3Fc%25", file("/srv/a b?c%"));
    check_target("file:///a:b+c,d", file("/a:b+c,d"));
}

// R0.6: user, password, TLS, database number, IPv6, unix socket, `host:port`.
#[test]
fn one_server() {
    let tls = || Some(Tls::default());
    check("redis://localhost", single("localhost", 6379));
    check("redis://localhost/", single("localhost", 6379));
    check("REDIS://LocalHost:6380", single("localhost", 6380));
    check("valkey://my_host-1.example.", single("my_host-1.example.", 6379));
    check("redis://[::1]", single("::1", 6379));
    check("redis://[0:0::0:1]:7000", single("::1", 7000));
    check("redis://h/15", RedisUrl { db: 15, ..single("h", 6379) });
    check("rediss://h", RedisUrl { tls: tls(), ..single("h", 6379) });
    check("valkeys://h", RedisUrl { tls: tls(), ..single("h", 6379) });
    for (userinfo, user, password) in [
        (":secret", "", "secret"),
        ("bob:secret", "bob", "secret"),
        ("b%40b:p%40ss%2Fw%3For%23d%25%2C", "b@b", "p@ss/w?or#d%,"),
        ("bob:a:b+c!$'()*;=[]", "bob", "a:b+c!$'()*;=[]"),
        ("bob:%00%0A%20", "bob", "\0\n "),
        ("bob:%2A%2A%2A", "bob", "***"),
        ("bob:pä%C3%A4", "bob", "pää"),
    ] {
        let credentials = credentials(user, password);
        check(&format!("redis://{userinfo}@h:1/2"), RedisUrl { credentials, db: 2, ..single("h", 1) });
    }
    check("localhost:6379", single("localhost", 6379));
    check("10.0.0.1:65535", single("10.0.0.1", 65535));
    check("[::1]:6379", single("::1", 6379));
    // Containers are often called by what runs in them.
    check("redis:6379", single("redis", 6379));
    check("valkey:6379", single("valkey", 6379));
    check("sentinel:26379", single("sentinel", 26379));
}

#[test]
fn local_socket() {
    let unix = |path: &str| redis(Topology::Unix { path: path.into() }, &[]);
    check("redis+unix:///run/redis.sock", unix("/run/redis.sock"));
    check("valkey+unix:///run/my%20redis.sock", unix("/run/my redis.sock"));
    check(
        "redis+unix://bob:pw@/run/redis.sock?db=3",
        RedisUrl { credentials: credentials("bob", "pw"), db: 3, ..unix("/run/redis.sock") },
    );
}

#[test]
fn several_servers() {
    let three = [("h1", 6379), ("h2", 1), ("::1", 6379)];
    check("redis+cluster://h1,h2:1,[::1]", redis(Topology::Cluster, &three));
    check("redis+cluster://h1", redis(Topology::Cluster, &three[..1]));
    check("redis+cluster://h1/0", redis(Topology::Cluster, &three[..1]));
    check(
        "valkeys+cluster://:pw@h1",
        RedisUrl {
            tls: Some(Tls::default()),
            credentials: credentials("", "pw"),
            ..redis(Topology::Cluster, &three[..1])
        },
    );
    check("redis+quorum://h1,h2:1,[::1]", redis(Topology::Quorum, &three));
    check("redis+quorum://h1,h2:1,[::1]/4", RedisUrl { db: 4, ..redis(Topology::Quorum, &three) });
    // One machine may run several servers.
    check("redis+quorum://h:1,h:2,h:3", redis(Topology::Quorum, &[("h", 1), ("h", 2), ("h", 3)]));
    let two = [("h1", 26379), ("h2", 1)];
    check("redis+sentinel://h1,h2:1/main", sentinel("main", &two));
    check("redis+sentinel://h1,h2:1/main/", sentinel("main", &two));
    check("redis+sentinel://h1,h2:1/a%2Fb/7", RedisUrl { db: 7, ..sentinel("a/b", &two) });
    let both = Topology::Sentinel { service: "main".to_owned(), credentials: credentials("sue", "s&p+") };
    check(
        "rediss+sentinel://bob:pw@h1,h2:1/main?sentinel_user=sue&sentinel_password=s%26p+",
        RedisUrl { tls: Some(Tls::default()), credentials: credentials("bob", "pw"), ..redis(both, &two) },
    );
}

// R0.7: the prefix is the namespace of a domain.
#[test]
fn options() {
    for (value, prefix) in
        [("", ""), ("app:", "app:"), ("a%20b+c%2B", "a b+c+"), ("%2525", "%25"), ("x=y", "x=y")]
    {
        let prefix = prefix.to_owned();
        check(&format!("redis://h?prefix={value}"), RedisUrl { prefix, ..single("h", 6379) });
    }
    for (value, replicas) in [("1", Replicas::AtLeast(NonZeroU32::MIN)), ("all", Replicas::All)] {
        check(
            &format!("redis://h?replicas={value}"),
            RedisUrl { replicas: Some(replicas), ..single("h", 6379) },
        );
    }
    let client = ClientCertificate { cert: "/c.pem".into(), key: "/k.pem".into() };
    let tls = Tls { ca: Some("/ca 1.pem".into()), client: Some(client) };
    check(
        "rediss://h?tls_ca=/ca%201.pem&tls_cert=/c.pem&tls_key=%2Fk.pem",
        RedisUrl { tls: Some(tls), ..single("h", 6379) },
    );
    for (query, inner, degrade) in [
        ("inner=file:", "file:", Degrade::Never),
        ("inner=file:///a&degrade=never", "file:///a", Degrade::Never),
        (
            "degrade=allow&inner=file%3A%2F%2F%2Fa%2520b%3Fnetwork_fs=allow",
            "file:///a%20b?network_fs=allow",
            Degrade::Allow,
        ),
    ] {
        let url = Box::new(DomainUrl::parse(inner).unwrap());
        check(
            &format!("redis://h?{query}"),
            RedisUrl { inner: Some(Inner { url, degrade }), ..single("h", 6379) },
        );
    }
    for text in ["memory:", "memory:x", "file:", "file:///x", "redis://h", "redis+unix:///s"] {
        let url = DomainUrl::parse(&format!("{text}?ttl=2m30s&timeout=.5")).unwrap();
        assert_eq!(url.ttl(), Some(Duration::from_secs(150)), "{text}");
        assert_eq!(url.timeout(), Some(Duration::from_millis(500)), "{text}");
    }
    for (value, millis) in [("100ms", 100), ("24h", 86_400_000)] {
        let url = DomainUrl::parse(&format!("memory:?ttl={value}")).unwrap();
        assert_eq!(url.ttl(), Some(Duration::from_millis(millis)));
    }
}

#[test]
fn a_fence_is_remembered_for_as_long_as_the_url_says() {
    for (value, seconds) in [("1s", 1), ("2m", 120), ("24h", 86_400)] {
        let fence_memory = Duration::from_secs(seconds);
        check(&format!("redis://h?fence_memory={value}"), RedisUrl { fence_memory, ..single("h", 6379) });
    }
}

// R0.6: passwords never appear in a log or `Debug`; all else does.
#[test]
fn display_is_canonical_and_redacted() {
    for (text, shown) in [
        ("Memory:a%2Fb%20c", "memory:a/b%20c"),
        ("file:/srv//x/./@y/".replace('@', "%40").as_str(), "file:///srv/x/%40y"),
        ("H:6379", "redis://h:6379"),
        ("valkey://h/0?prefix=tenure:", "redis://h:6379"),
        ("redis://h?prefix=", "redis://h:6379?prefix="),
        ("redis://h?fence_memory=600", "redis://h:6379"),
        ("redis://h?ttl=1s&fence_memory=1h", "redis://h:6379?ttl=1s&fence_memory=3600s"),
        ("redis://:hunter2@h/1", "redis://:***@h:6379/1"),
        ("redis://b%40b:hunter2@[::1]", "redis://b%40b:***@[::1]:6379"),
        ("redis+unix://u:hunter2@/s?db=0&ttl=90", "redis+unix://u:***@/s?ttl=90s"),
        ("redis+unix:///s?timeout=1500ms&db=01", "redis+unix:///s?timeout=1500ms&db=1"),
        (
            "rediss+sentinel://h/m?sentinel_password=hunter2&sentinel_user=sue&ttl=1h&margin=16&replicas=2",
            "rediss+sentinel://h:26379/m?ttl=3600s&replicas=2&margin=16&sentinel_user=sue&sentinel_password=***",
        ),
        (
            "redis://u:hunter2@h?degrade=allow&inner=file:///a%2520b%3Fnetwork_fs=allow",
            "redis://u:***@h:6379?inner=file:///a%2520b%3Fnetwork_fs%3Dallow&degrade=allow",
        ),
        (
            "rediss://h?tls_key=/k&tls_cert=/c&tls_ca=/a,b",
            "rediss://h:6379?tls_ca=/a%2Cb&tls_cert=/c&tls_key=/k",
        ),
    ] {
        let url: DomainUrl = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(url.to_string(), shown);
        assert_eq!(format!("{url:?}"), format!("DomainUrl({shown})"));
        assert!(!format!("{:?}", url.target()).contains("hunter2"), "{text}");
        match DomainUrl::parse(shown) {
            Ok(again) => assert_eq!(again, url, "{shown}"),
            Err(error) => assert!(shown.contains("***") && error.to_string().contains("redacted"), "{error}"),
        }
    }
    assert_eq!(format!("{:?}", Secret("hunter2".to_owned())), "***");
    assert_eq!(Secret("hunter2".to_owned()).reveal(), "hunter2");
}

pub(super) fn error(text: &str) -> String {
    let error = match DomainUrl::parse(text) {
        Ok(url) => panic!("{text} was parsed as {url}"),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
    error.to_string()
}

// R0.2
#[test]
fn two_urls_as_one() {
    let url =
        DomainUrl::layered("redis://h?ttl=3s", "file:///a%20b?network_fs=allow", Degrade::Allow).unwrap();
    assert_eq!(url, DomainUrl::parse(&url.to_string()).unwrap(), "as it is written");
    assert_eq!(url.ttl(), Some(Duration::from_secs(3)));
    for (outer, inner, message) in [
        ("file:", "file:", "outer store of a layered domain is not Redis; write `redis://host:6379`"),
        (
            "redis://h",
            "redis://h2",
            "inner store of a layered domain is no directory; write `file:///var/lock/app`",
        ),
        ("redis://h", "memory:", "inner store of a layered domain is no directory"),
        (
            "redis://h",
            "file:?ttl=3s",
            "option `ttl` in the inner URL of a layered domain; write it in the outer one",
        ),
        ("redis://h?inner=file:", "file:", "outer store of a layered domain has an inner one already"),
        ("redis://h?tll=1", "file:", "unknown option `tll`"),
    ] {
        let error = DomainUrl::layered(outer, inner, Degrade::Never).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
    }
}
