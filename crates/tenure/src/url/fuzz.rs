//! Properties: no text panics, no secret is printed, and what is printed parses back (R0.6); and a table of known traps.
//!
//! Secrets are drawn from letters that stand in no message in this order, so a leak of any five characters of one is seen.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::tests::error;
use super::*;

const LEAK_LEN: usize = 5;

/// Fails if a part of a secret stands in the text. Hosts are printed in lower case, so case does not count.
fn assert_no_leak(printed: &str, secret: &str) -> Result<(), TestCaseError> {
    let printed = printed.to_ascii_lowercase();
    for word in secret.to_ascii_lowercase().split(|c: char| !c.is_ascii_alphanumeric()) {
        for start in 0..(word.len() + 1).saturating_sub(LEAK_LEN) {
            let part = &word[start..start + LEAK_LEN];
            prop_assert!(!printed.contains(part), "`{part}` of `{secret}` in: {printed}");
        }
    }
    Ok(())
}

/// Everything that parsing this text can print.
fn printed(text: &str) -> String {
    match DomainUrl::parse(text) {
        Ok(url) => format!("{url} {url:?} {:?}", url.target()),
        Err(error) => format!("{error} {error:?}"),
    }
}

/// A password, with characters in it that have a meaning in URLs.
fn secret() -> impl Strategy<Value = String> {
    "hunter2[QXZJKW7-9]{3,8}([#/?@%&=,;+.\\[\\] -][QXZJKW7-9]{5,8}){0,3}"
}

fn escape(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// A URL with `secret` wherever a password goes.
fn url_with(secret: &str) -> impl Strategy<Value = String> + use<> {
    let secret = secret.to_owned();
    let shapes = select(vec![
        "redis://bob:S@host",
        "redis://:S@host:6380/2?ttl=10s&prefix=app:",
        "rediss://bob:S@[::1]:6379?tls_ca=/ca.pem&timeout=1s",
        "valkey://b%40b:S@h/0?inner=file:///a%3Fnetwork_fs=allow&degrade=allow",
        "redis+unix://bob:S@/run/redis.sock?db=2",
        "redis+sentinel://bob:S@h1,h2:1/main/3?replicas=all",
        "rediss+sentinel://bob:S@h1,h2:1/main?sentinel_user=sue&sentinel_password=S&ttl=1s",
        "redis+sentinel://h1/main?sentinel_password=S",
        "redis+cluster://:S@h1,h2",
        "redis+quorum://bob:S@h1,h2,h3/1",
    ]);
    shapes.prop_map(move |shape| shape.replace('S', &secret))
}

#[derive(Clone, Debug)]
enum Mutation {
    Delete(Index),
    Insert(Index, char),
    Replace(Index, char),
    Cut(Index),
    Behead(Index),
    Swap(Index),
    Scheme(&'static str),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let syntax = || select("@:/?#&=,%[].+-*0 \n~a".chars().collect::<Vec<_>>());
    let schemes = vec![
        "",
        "memory",
        "file",
        "mem",
        "unix",
        "redis-sentinel",
        "redlock",
        "redis+unix",
        "redis+quorum",
        "http",
        "redis+cluster",
    ];
    prop_oneof![
        any::<Index>().prop_map(Mutation::Delete),
        (any::<Index>(), syntax()).prop_map(|(at, c)| Mutation::Insert(at, c)),
        (any::<Index>(), syntax()).prop_map(|(at, c)| Mutation::Replace(at, c)),
        any::<Index>().prop_map(Mutation::Cut),
        any::<Index>().prop_map(Mutation::Behead),
        any::<Index>().prop_map(Mutation::Swap),
        select(schemes).prop_map(Mutation::Scheme),
    ]
}

fn mutate(text: &str, mutation: &Mutation) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    if chars.is_empty() {
        return String::new();
    }
    let len = chars.len();
    match mutation {
        Mutation::Delete(at) => drop(chars.remove(at.index(len))),
        Mutation::Insert(at, c) => chars.insert(at.index(len), *c),
        Mutation::Replace(at, c) => chars[at.index(len)] = *c,
        Mutation::Cut(at) => chars.truncate(at.index(len)),
        Mutation::Behead(at) => drop(chars.drain(..at.index(len))),
        Mutation::Swap(at) if len > 1 => {
            let at = at.index(len - 1);
            chars.swap(at, at + 1);
        }
        Mutation::Swap(_) => {}
        Mutation::Scheme(scheme) => {
            let rest = text.split_once(':').map_or(text, |(_, rest)| rest);
            return format!("{scheme}:{rest}");
        }
    }
    chars.into_iter().collect()
}

/// A valid URL without a password, from its parts.
fn plain_url() -> impl Strategy<Value = String> {
    let host = || select(vec!["h", "Example.COM", "10.0.0.1", "[::1]", "my_host", "h:1", "[fe80::1]:7"]);
    let word = || "[ -~äß]{1,12}".prop_map(|word| escape(&word));
    let path = || "(/[ -~ü]{0,6}){1,3}/x".prop_map(|path| escape(&path).replace("%2F", "/"));
    let local = prop_oneof![
        word().prop_map(|name| format!("memory:{name}")),
        Just("memory:".to_owned()),
        Just("file:".to_owned()),
        path().prop_map(|path| format!("file://{path}")),
    ];
    let servers = prop_oneof![
        (host(), 0..99_u32).prop_map(|(host, db)| format!("redis://{host}/{db}")),
        host().prop_map(|host| format!("valkeys://{host}")),
        path().prop_map(|path| format!("redis+unix://{path}")),
        (word(), 0..99_u32).prop_map(|(service, db)| format!("redis+sentinel://a,b:2/{service}/{db}")),
        host().prop_map(|host| format!("redis+cluster://{host},other")),
        Just("rediss+quorum://a,b,c/5".to_owned()),
    ];
    let times = (proptest::option::of(100..86_400_000_u32), proptest::option::of(0..1_000_000_000_u32));
    let more = (proptest::option::of("[ -z|~é]{0,12}"), proptest::option::of(path()), any::<bool>());
    let join = |base: String, options: Vec<String>| match options.is_empty() {
        true => base,
        false => format!("{base}?{}", options.join("&")),
    };
    let times = times.prop_map(|(ttl, timeout)| {
        let ttl = ttl.map(|ttl| format!("ttl={ttl}ms"));
        let timeout = timeout.map(|nanos| format!("timeout=1.{nanos:09}"));
        ttl.into_iter().chain(timeout).collect::<Vec<_>>()
    });
    let with_more = (servers, more).prop_map(|(base, (prefix, inner, allow))| {
        let prefix = prefix.map(|prefix| format!("prefix={}", escape(&prefix)));
        let degrade = inner.is_some().then(|| format!("degrade={}", if allow { "allow" } else { "never" }));
        let inner = inner.map(|path| format!("inner={}", escape(&format!("file://{path}?network_fs=allow"))));
        (base, prefix.into_iter().chain(inner).chain(degrade).collect::<Vec<_>>())
    });
    let without = local.prop_map(|base| (base, Vec::new()));
    (prop_oneof![without, with_more], times)
        .prop_map(move |((base, more), times)| join(base, more.into_iter().chain(times).collect()))
}

proptest! {
    // More by PROPTEST_CASES.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1_000), ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in any::<String>(), start in select(vec!["", "redis://", "file:", "memory:", "redis+sentinel://h/m?", "redis://h?inner=", "memory:?ttl=", "redis+cluster://"])) {
        printed(&format!("{start}{text}"));
    }

    #[test]
    fn a_secret_in_its_place_is_not_printed(
        (secret, text) in secret().prop_flat_map(|secret| (Just(secret.clone()), url_with(&escape(&secret))))
    ) {
        let url = DomainUrl::parse(&text);
        prop_assert!(url.is_ok(), "{text}: {url:?}");
        assert_no_leak(&printed(&text), &secret)?;
    }

    /// Not escaped: most are errors, some are cut short by chance and valid.
    #[test]
    fn a_raw_secret_is_not_printed((secret, text) in secret().prop_flat_map(|secret| (Just(secret.clone()), url_with(&secret)))) {
        assert_no_leak(&printed(&text), &secret)?;
    }

    /// A password can be mangled into a host, a user or a path, and then it is printed. It can't by one mutation, nor by
    /// several while the `@` that ended it is there, if they add no other `:` or `@` for it to begin or end at.
    #[test]
    fn a_mangled_url_does_not_print_its_secret(
        (secret, text) in secret().prop_flat_map(|secret| {
            let texts = prop_oneof![url_with(&escape(&secret)), url_with(&secret.replace('@', "!"))];
            (Just(secret), texts)
        }),
        mutations in proptest::collection::vec(mutation(), 1..4),
    ) {
        let mangled = mutations.iter().fold(text, |text, mutation| mutate(&text, mutation));
        let adds_a_bound = |mutation: &Mutation| {
            matches!(mutation, Mutation::Insert(_, '@' | ':') | Mutation::Replace(_, '@' | ':'))
        };
        let has_its_end = mangled.contains('@') && !mutations.iter().any(adds_a_bound);
        if mutations.len() == 1 || has_its_end {
            assert_no_leak(&printed(&mangled), &secret)?;
        }
    }

    #[test]
    fn what_is_printed_parses_back(text in plain_url()) {
        let url = DomainUrl::parse(&text);
        prop_assert!(url.is_ok(), "{text}: {url:?}");
        let url = url.unwrap();
        let again = DomainUrl::parse(&url.to_string());
        prop_assert!(again.is_ok(), "{url}: {again:?}");
        prop_assert_eq!(again.unwrap().to_string(), url.to_string());
        prop_assert_eq!(DomainUrl::parse(&url.to_string()).unwrap(), url);
    }
}

// R0.6: passwords never appear in a message, also when the mistake is in how they are written.
#[test]
fn no_piece_of_a_password_is_quoted() {
    for text in [
        "redis://bob:hunter2@hunter2@hunter2@host",
        "bob:hunter2@host:6379",
        "redis://user:hunter2/hunter2@host",
        "redis://user:1/hunter2@host",
        "redis://user:hunter2#hunter2@host",
        "redis://user:hunter2?hunter2@host",
        "redis://user:1?hunter2=hunter2&hunter2@host",
        "redis://user:1?ttl=hunter2@host",
        "redis://user:1/hunter2%40host",
        "redis://user:1?hunter=2%40host",
        "redis://user:hunter2",
        "redis://:hunter2",
        "redis://:hunter2:6379",
        "redis://hunter2@host",
        "redis:hunter2@host",
        "redis//u:hunter2@host",
        "host:hunter2",
        "hunter2://x@host",
        "hunter2:x@host",
        "memory:bob:hunter2@host",
        "memory:bob:hunter2",
        "file://bob:hunter2@host/x",
        "file:bob:hunter2",
        "redis+unix://bob:hunter2/run/redis.sock",
        "redis+unix:///bob:hunter2@/run/redis.sock",
        "redis+cluster://bob:hunter2,hunter2@h1,h2",
        "redis+cluster://h1,bob:hunter2@h2",
        "redis+sentinel://bob:hunter2/m",
        "redis+sentinel://h/m?sentinel_password=a&hunter",
        "redis+sentinel://h/m?sentinel_password=a&hunter=b",
        "redis+sentinel://h/m?sentinel_password=a&ttl=hunter",
        "redis+sentinel://h/m?sentinel_passwordhunter",
        "redis+sentinel://h/msentinel_password=hunter",
        "redis+sentinel://h/m?sentinel_password=a%hunter2",
        "redis+sentinel://h/hunter/hunter?sentinel_password=a",
        "redis://h?inner=file:///%3Fttl=hunter2%2540",
        "redis://h?inner=redis://u:hunter2",
    ] {
        let error = error(text);
        assert!(!error.contains("hunter"), "{text}: {error}");
    }
}
