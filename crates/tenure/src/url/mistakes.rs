//! Tables: every mistake is named, says what to write instead, and gives no password away (R0.6).

use super::tests::error;

fn check(table: &[(&str, &str)]) {
    for (text, fragment) in table {
        let error = error(text);
        assert!(error.contains(fragment), "{text}\n  {error}\n  lacks {fragment}");
        // Style: a lowercase fragment without a full stop.
        assert!(error.starts_with(|c: char| c.is_lowercase()), "{error}");
        assert!(!error.ends_with('.') && !error.contains("  "), "{error}");
    }
}

#[test]
fn scheme() {
    check(&[
        ("", "is empty"),
        (" redis://h", "whitespace or control character in domain URL, at character 1"),
        ("redis://h\n", "at character 10"),
        ("redis://h\u{a0}", "whitespace"),
        ("redis://h\0", "control character"),
        ("redis://h#0", "`%23`"),
        (
            "memcached://h",
            "unknown scheme `memcached` in domain URL; expected one of redis://, rediss://, file:, redis+unix://",
        ),
        ("memcached://u:hunter2@h", "unknown scheme in domain URL; expected"),
        ("redsi://h", "did you mean `redis://`?"),
        ("://h", "unknown scheme in"),
        (
            "redis:localhost",
            "two slashes are missing after the scheme of domain URL; write `redis://host:6379`",
        ),
        ("redis:/h", "one slash is missing after the scheme of domain URL; write `redis://host:6379`"),
        ("redis:", "two slashes are missing"),
        ("rediss+unix:///s", "no TLS over a local socket; write `redis+unix:///run/redis.sock`"),
        ("valkeys+unix:///s", "no TLS over a local socket"),
        ("memory", "write `memory:`"),
        ("file", "write `file:`"),
        ("localhost", "no scheme and no port in domain URL; write `redis://host`, or `host:6379`"),
        ("[::1]", "no scheme and no port"),
        ("local%20host", "no host name"),
        ("/var/lock/app", "write it absolute and with its scheme: `file:///var/lock/app`"),
        ("./locks", "`file:///var/lock/app`"),
        ("~/locks", "`file:///var/lock/app`"),
        ("localhost:6379/1", "write `redis://host:6379/0?ttl=10s`"),
        ("localhost:6379?ttl=1s", "the form `host:port` takes no database, options"),
        ("h1:6379,h2:6379", "or further hosts"),
        ("bob:hunter2@host:6379", "write `redis://user:password@host:6379`"),
        ("hunter2@host", "write `redis://user:password@host:6379`"),
    ]);
}

#[test]
fn spellings_of_others() {
    for (scheme, ours) in [
        ("redis-sentinel", "redis+sentinel://host1,host2/service"),
        ("sentinel", "redis+sentinel://host1,host2/service"),
        ("rediss-sentinel", "rediss+sentinel://host1,host2/service"),
        ("redis+sentinel+tls", "rediss+sentinel://host1,host2/service"),
        ("valkey-sentinel", "valkey+sentinel://host1,host2/service"),
        ("redis-cluster", "redis+cluster://host1,host2"),
        ("valkeys-cluster", "valkeys+cluster://host1,host2"),
        ("redlock", "redis+quorum://host1,host2,host3"),
        ("redis-redlock", "redis+quorum://host1,host2,host3"),
        ("redis+tls", "rediss://host:6379"),
        ("redis+ssl", "rediss://host:6379"),
        ("valkey-tls", "valkeys://host:6379"),
        ("tcp", "redis://host:6379"),
        ("unix", "redis+unix:///run/redis.sock"),
        ("redis+socket", "redis+unix:///run/redis.sock"),
        ("redis-unix", "redis+unix:///run/redis.sock"),
        ("mem", "memory:name"),
        ("in-memory", "memory:name"),
        ("flock", "file:///var/lock/app"),
    ] {
        for rest in ["h/x", "bob:hunter2@h", ""] {
            let error = error(&format!("{scheme}://{rest}"));
            assert!(error.contains(&format!("write `{ours}`")), "{scheme}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
    check(&[
        ("unix:/run/redis.sock", "write `redis+unix:///run/redis.sock`"),
        ("redis:///run/redis.sock", "`redis+unix:///run/redis.sock` for a local socket"),
        ("memory://", "write `memory:` or `memory:name`"),
        ("memory://tests", "write `memory:` or `memory:name`"),
    ]);
}

#[test]
fn memory_and_file() {
    check(&[
        ("memory:a:b", "unescaped punctuation in the name"),
        ("memory:a%0Ab", "escaped control character in the name"),
        ("memory:a@b", "unexpected `@`"),
        ("memory:?prefix=a", "option `prefix` in domain URL is not for memory:, but for redis://, rediss://"),
        ("file://", "`file:` for the default directory"),
        ("file:///", "the root directory"),
        ("file:/./", "the root directory"),
        ("file://host/path", "three slashes: `file:///var/lock/app`"),
        ("file:foo", "relative path in domain URL; write it absolute: `file:///var/lock/app`"),
        ("file:///a@b", "elsewhere `@` is written `%40`"),
        ("file:///a&ttl=3s", "options begin with `?`"),
        ("memory:ttl=3s", "options begin with `?`"),
        ("file:///a%00", "escaped control character in the path"),
        ("file:///a%f", "invalid percent escape in the path"),
        ("file:///a%ff", "the path of domain URL is not UTF-8"),
        ("file:?network_fs=yes", "option `network_fs` in domain URL is `yes`, which is not `allow`"),
        (
            "file:?tll=1s",
            "unknown option `tll` in domain URL; expected one of ttl, timeout, network_fs (did you mean `ttl`?)",
        ),
    ]);
}

#[test]
fn hosts_and_credentials() {
    check(&[
        ("redis://", "no host in domain URL; write `redis://host:6379`"),
        ("redis://?ttl=1s", "no host"),
        ("redis://:6379", "host of domain URL is empty"),
        ("redis://:pw@", "no host"),
        ("redis+cluster://h1,,h2", "host 2 of domain URL is empty"),
        (
            "redis+cluster://h1,h2:0",
            "port `0` of host 2 in domain URL is out of range; write a number from 1 to 65535",
        ),
        ("redis://h:65536", "port `65536` of host in domain URL is out of range"),
        ("redis://h:-1", "port `-1` of host in domain URL is not a number"),
        ("redis://h:", "is missing after its colon"),
        ("redis://h:63a79", "port of host in domain URL is not a number"),
        ("redis://h:+1", "is not a number"),
        ("redis://h:６", "is not a number"),
        ("localhost:hunter2", "port of host in domain URL is not a number"),
        ("localhost:0", "port `0`"),
        ("redis://::1:6379", "brackets, `[::1]:6379`"),
        ("::1:6379", "brackets, `[::1]:6379`"),
        ("redis://[::1", "is no IPv6 address"),
        ("redis://[::g]:1", "is no IPv6 address"),
        ("redis://[fe80::1%25eth0]", "without a zone"),
        ("redis://[::1]6379", "is no IPv6 address"),
        ("redis://[::1]:x", "is not a number"),
        ("redis://ho%20st", "is no host name"),
        ("redis://bücher.example", "`xn--`"),
        ("redis://-h", "is no host name"),
        (
            "redis://h1,h2",
            "redis:// takes one, and those that take several are redis+sentinel://, redis+cluster://, redis+quorum://",
        ),
        ("rediss://h1,h2", "rediss+sentinel://, rediss+cluster://, rediss+quorum://"),
        ("redis+cluster://h,H:6379", "host 2 `h:6379` is twice"),
        ("redis+quorum://[::1],[0::1],h", "host 2 `[::1]:6379` is twice"),
        (
            "redis+quorum://h1,h2",
            "needs at least 3 hosts; a majority of two is both, which tolerates no failure",
        ),
        ("redis+unix://run/redis.sock", "three slashes: `redis+unix:///run/redis.sock`"),
        ("redis+unix://", "no path"),
        ("redis+unix:///", "no path"),
        ("redis://bob@h", "write `user:password@host`, or `:password@host`"),
        ("redis://@h", "write `user:password@host`, or `:password@host`"),
        ("redis://bob:@h", "the password of domain URL is empty"),
        ("redis://bob:***@h", "as in a redacted URL"),
        ("redis://bob:a%zzb@h", "invalid percent escape in the password"),
        ("redis://bob:a%@h", "invalid percent escape in the password"),
        ("redis://bob:%ff@h", "the password of domain URL is not UTF-8"),
        ("redis://b%0Ab:x@h", "control character in the user"),
        ("redis+cluster://a:b,c:d@h", "`%2C`"),
        ("redis+cluster://a:b@h1,a:b@h2", "user and password stand once, before the first host"),
    ]);
}

#[test]
fn database_and_service() {
    check(&[
        ("redis://h/abc", "database `abc` in domain URL is not a number"),
        ("redis://u:p@h/abc", "database `abc` in domain URL is not a number"),
        ("redis://h/-1", "database `-1` in domain URL is negative"),
        ("redis://h/4294967296", "database `4294967296` in domain URL is out of range"),
        ("redis://h/1/2", "goes on after the database; write `redis://host:6379/0`"),
        ("redis://h/1/", "goes on after the database"),
        ("redis://h//1", "goes on after the database"),
        ("redis+cluster://h/1", "database `1` in the URL of a cluster; a cluster has only database 0"),
        ("redis+cluster://h/0/1", "goes on after"),
        ("redis+sentinel://h", "no service in domain URL"),
        ("redis+sentinel://h/", "no service in domain URL"),
        ("redis+sentinel://h//1", "no service in domain URL"),
        ("redis+sentinel://h/m/x", "database `x` in domain URL is not a number"),
        ("redis+sentinel://h/m/1/2", "write `redis+sentinel://host1,host2/service/0`"),
        ("redis+unix:///s?db=x", "option `db` `x` in domain URL is not a number"),
        (
            "redis://h?db=1",
            "option `db` in domain URL is not for redis://, but for redis+unix://; write the database after the host: `/2`",
        ),
        ("redis+sentinel://h/m?db=1", "after the service: `/service/2`"),
    ]);
}

#[test]
fn options() {
    check(&[
        ("redis://h?", "option 1 in domain URL is empty"),
        ("redis://h?ttl=1s&", "option 2 in domain URL is empty"),
        ("redis://h?ttl=1s?timeout=2s", "second `?` in domain URL"),
        ("redis://h?ttl", "option `ttl` in domain URL has no value; write `ttl=…`"),
        ("redis://h?ttl=", "option `ttl` in domain URL has no value"),
        ("redis://h?prefix", "option `prefix` in domain URL has no value"),
        ("redis://h?=1", "unknown option 1 in domain URL"),
        ("redis://h?tls=true", "degrade (for TLS write `rediss://` in place of `redis://`)"),
        ("valkey+cluster://h?ssl=1", "(for TLS write `rediss+cluster://` in place of `redis+cluster://`)"),
        ("rediss://h?use_tls=1", "(`rediss://` is TLS already)"),
        ("redis+unix:///s?tls=1", "(there is no TLS over a local socket)"),
        (
            "redis://h?tll=1s",
            "unknown option `tll` in domain URL; expected one of ttl, timeout, prefix, fence_memory, replicas, margin, inner, degrade (did you mean `ttl`?)",
        ),
        ("redis://h?TTL=1s", "did you mean `ttl`?"),
        ("redis://h?perfix=x", "did you mean `prefix`?"),
        ("redis://h?password=hunter2", "unknown option `password` in domain URL"),
        ("redis://h?ttl=1s&ttl=1s", "option `ttl` is twice"),
        (
            "redis://h?ttl=soon",
            "option `ttl` in domain URL is `soon`, which is not a number with a unit; write it like 500ms",
        ),
        ("redis://h?ttl=1x", "has a unit other than h, m, s, ms"),
        (
            "redis://h?ttl=99ms",
            "option `ttl` in domain URL is `99ms`, which is out of range; write a duration from 100ms to 24h",
        ),
        ("redis://h?ttl=24h1ms", "out of range"),
        ("memory:?timeout=0", "option `timeout` in domain URL is `0`, which is zero"),
        ("redis://h?timeout=-1s", "is negative"),
        (
            "redis://h?fence_memory=0.9s",
            "option `fence_memory` in domain URL is `0.9s`, which is out of range; write a duration from 1s to 24h",
        ),
        ("redis://h?fence_memory=25h", "is out of range; write a duration from 1s to 24h"),
        ("redis://h?fence_memory=soon", "is not a number with a unit"),
        ("file:?fence_memory=1m", "option `fence_memory` in domain URL is not for file:, but for redis://"),
        ("redis://h?prefix={x}", "has braces"),
        ("redis://h?prefix=%7Bx", "has braces"),
        ("redis://h?prefix=%1b", "escaped control character in option `prefix`"),
        ("redis://h?prefix=%", "invalid percent escape in option `prefix`"),
        ("redis://h?prefix=%ff", "option `prefix` of domain URL is not UTF-8"),
        (
            "redis://h?replicas=0",
            "option `replicas` in domain URL is `0`, which is neither a number above zero nor `all`",
        ),
        ("redis://h?replicas=+1", "neither a number"),
        (
            "redis://h?margin=0",
            "option `margin` in domain URL is `0`, which is no whole number of per cent from 1 to 25",
        ),
        ("redis://h?margin=26", "from 1 to 25"),
        ("redis://h?margin=256", "from 1 to 25"),
        ("redis://h?margin=+2", "from 1 to 25"),
        ("redis://h?margin=1.5", "from 1 to 25"),
        ("redis://h?margin=2%25", "from 1 to 25"),
        ("redis://h?margin=", "option `margin` in domain URL has no value"),
        ("file:///d?margin=2", "option `margin` in domain URL is not for file:, but for redis://"),
        (
            "redis+quorum://a,b,c?replicas=1",
            "option `replicas` in domain URL is not for redis+quorum://, but for redis://",
        ),
        ("redis://h?degrade=allow", "option `degrade` without `inner`"),
        (
            "redis://h?inner=file:&degrade=maybe",
            "option `degrade` in domain URL is `maybe`, which is neither `never` nor `allow`",
        ),
        (
            "redis://h?inner=memory:",
            "option `inner` in domain URL is not a file URL; write `inner=file:///var/lock/app`",
        ),
        ("redis://h?inner=/var/lock", "is not a file URL"),
        ("redis://h?inner=redis%3A%2F%2Fu%3Ahunter2%40h", "is not a file URL"),
        ("redis://h?inner=file:foo", "option `inner` in domain URL: relative path"),
        ("redis://h?inner=file:///a%3Ftll=1", "option `inner` in domain URL: unknown option `tll`"),
        ("redis://h?inner=file:///a%3Finner=file:", "option `inner` in domain URL is not for file:"),
        (
            "redis://h?inner=file:///a%3Fttl=1",
            "option `ttl` in the inner URL of a layered domain; write it in the outer one, for both",
        ),
        ("redis://h?inner=file:///a%3Ftimeout=1", "option `timeout` in the inner URL of a layered domain"),
        ("redis://h?inner=file:///a?ttl=1", "a nested URL `?` is written `%3F`"),
        (
            "redis://h?tls_ca=/a",
            "option `tls_ca` in domain URL is not for redis://, but for rediss://, rediss+sentinel://, rediss+cluster://, rediss+quorum://",
        ),
        ("rediss://h?tls_ca=ca.pem", "option `tls_ca` in domain URL is `ca.pem`, which is a relative path"),
        ("rediss://h?tls_cert=/a", "option `tls_cert` without `tls_key`"),
        ("rediss://h?tls_key=/a", "option `tls_key` without `tls_cert`"),
        (
            "redis://h?sentinel_password=hunter2",
            "option `sentinel_password` in domain URL is not for redis://, but for redis+sentinel://, rediss+sentinel://",
        ),
        ("redis+sentinel://h/m?sentinel_user=sue", "option `sentinel_user` without `sentinel_password`"),
        ("redis+sentinel://h/m?sentinel_password=***", "as in a redacted URL"),
        ("redis+sentinel://h/m?sentinel_password=%f", "invalid percent escape in option `sentinel_password`"),
        (
            "redis://h?network_fs=allow",
            "option `network_fs` in domain URL is not for redis://, but for file:",
        ),
    ]);
}

/// The table of the reference page holds what is really said.
#[test]
fn the_reference_page_quotes_these_errors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/urls.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, errors) = page.split_once("\n## Errors\n").unwrap();
    let rows = errors.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut count = 0;
    for row in rows {
        let (text, message) = row.split_once("` | ").unwrap();
        assert_eq!(error(text), message.trim_end_matches(" |"), "{text}");
        count += 1;
    }
    assert!(count > 40, "only {count} rows were found");
}
