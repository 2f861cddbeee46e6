//! Checks docs/protocol.md: each operation is sent with the words of the page, and the same transaction reads all keys, so that no time
//! passes between the effects of a script and their reading.

use std::collections::BTreeMap;

use redis::{Arg, Cmd};
use tenure_testkit::redis::{Client, RedisServer, Reply};

use crate::backend::redis::keys::Keys;
use crate::backend::redis::script::Call;
use crate::core::record::Op;
use crate::types::name::Name;
use crate::types::owner::Token;

pub(super) const LOCK: &str = "tenure:orders/42";
pub(super) const FENCE: &str = "{tenure:orders/42}:fence";
pub(super) const QUEUE: &str = "{tenure:orders/42}:queue";
pub(super) const BEATS: &str = "{tenure:orders/42}:beats";
pub(super) const BROKEN: &str = "{tenure:orders/42}:broken";

/// A key as Redis shows it.
#[derive(Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) kind: String,
    /// A string alone, the members and scores of a sorted set, the fields and values of a hash.
    pub(super) value: Vec<String>,
    /// In ms.
    pub(super) left: i64,
}

/// The keys and the answer after an operation.
#[derive(Debug)]
pub(super) struct Effects {
    /// What the script returned, without the time.
    pub(super) returned: Vec<Reply>,
    pub(super) time: u64,
    pub(super) keys: BTreeMap<String, Shown>,
}

impl Effects {
    /// The value of a string key, which must exist and expire, with at most this many milliseconds left.
    pub(super) fn string(&self, key: &str, most: i64) -> String {
        let [value] = &self.shown(key, "string", most).value[..] else { panic!("{self:?}") };
        value.clone()
    }

    /// The content of a sorted set or a hash.
    pub(super) fn members(&self, key: &str, kind: &str, most: i64) -> Vec<&str> {
        self.shown(key, kind, most).value.iter().map(String::as_str).collect()
    }

    fn shown(&self, key: &str, kind: &str, most: i64) -> &Shown {
        let shown = self.keys.get(key).unwrap_or_else(|| panic!("no {key}: {self:?}"));
        assert_eq!(shown.kind, kind, "{key}");
        // The expiry was set in the same transaction: only the run time of the script is missing.
        assert!((most - 500..=most).contains(&shown.left), "{key}: {} ms left of {most}", shown.left);
        shown
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.keys.keys().map(String::as_str).collect()
    }
}

pub(super) struct Scene {
    pub(super) server: RedisServer,
    client: Client,
    keys: Keys,
    name: Name,
}

impl Scene {
    pub(super) fn start() -> Self {
        let server = RedisServer::start();
        let client = server.client().expect("a connection");
        Scene { server, client, keys: Keys::new("tenure:"), name: Name::new("orders/42").expect("a name") }
    }

    /// Executes an operation; `words` follow the script.
    pub(super) fn run(&mut self, op: Op, words: &[&str]) -> Effects {
        let command = self.command(&Call::new(&self.keys, &self.name, op), words);
        self.exec(&["MULTI"], "OK");
        self.exec(&command, "QUEUED");
        self.exec(&["KEYS", "*"], "QUEUED");
        let keys = [("GET", LOCK), ("GET", FENCE), ("ZRANGE", QUEUE), ("HGETALL", BEATS), ("GET", BROKEN)];
        for (read, key) in keys {
            self.exec(&["TYPE", key], "QUEUED");
            self.exec(&["PTTL", key], "QUEUED");
            match read {
                "ZRANGE" => self.exec(&[read, key, "0", "-1", "WITHSCORES"], "QUEUED"),
                _ => self.exec(&[read, key], "QUEUED"),
            }
        }
        let replies = self.client.command(&["EXEC"]).expect("a reply");
        let [returned, all, shown @ ..] = replies.items() else { panic!("{replies:?}") };
        let (time, returned) = match returned {
            // The two short answers.
            Reply::Int(0) => (Reply::Nil, vec![bulk("done")]),
            Reply::Int(_) => (returned.clone(), vec![bulk("granted"), returned.clone()]),
            _ => match returned.items() {
                [time, returned @ ..] => (time.clone(), returned.to_vec()),
                [] => panic!("nothing was returned"),
            },
        };
        let shown =
            keys.into_iter().zip(shown.as_chunks().0).filter_map(|((_, key), [kind, left, value])| {
                let value = match value {
                    Reply::Array(items) => items.iter().map(Reply::text).collect(),
                    Reply::Nil => return None,
                    text => vec![text.text()],
                };
                let shown = Shown { kind: kind.text(), value, left: left.int() };
                (shown.kind != "none").then(|| (key.to_owned(), shown))
            });
        let keys: BTreeMap<_, _> = shown.collect();
        assert_eq!(all.items().len(), keys.len(), "no key but those of the page: {all:?}");
        let time = if time.is_nil() { 0 } else { time.int().unsigned_abs() };
        Effects { returned, time, keys }
    }

    fn exec<W: AsRef<[u8]>>(&mut self, words: &[W], reply: &str) {
        assert_eq!(self.client.command(words).expect("a reply").text(), reply);
    }

    fn command(&self, call: &Call, words: &[&str]) -> Vec<Vec<u8>> {
        let sent = words_of(&call.whole(true));
        let texts: Vec<_> = sent[2..].iter().map(|word| String::from_utf8_lossy(word)).collect();
        assert_eq!(texts, words);
        assert_eq!(words_of(&call.by_hash(true))[2..], sent[2..], "by its hash it is called alike");
        sent
    }
}

pub(super) fn words_of(cmd: &Cmd) -> Vec<Vec<u8>> {
    let word = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(bytes) => bytes.to_vec(),
        other => panic!("no plain word: {other:?}"),
    };
    cmd.args_iter().map(word).collect()
}

pub(super) fn token(text: &str) -> Token {
    Token::from_store(text)
}

pub(super) fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.into())
}

pub(super) fn int(number: u64) -> Reply {
    Reply::Int(number.cast_signed())
}
