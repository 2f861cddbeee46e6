//! Redis' side: a server whose clock the test steps, the answers of scripts there, the keys that they leave, and the messages that they
//! publish.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Cmd, Connection, ConnectionLike as _, Value};
use tenure_testkit::redis::{Client, RedisServer};

use crate::backend::Answer;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::script::{self, Call};
use crate::core::record::Op;
use crate::types::name::Name;
use crate::types::owner::SessionId;

/// All keys of a name and when they end (ms), how many keys there are at all, and the time, last.
const LOOK: &str = "
local call, all = redis.call, {}
all[1], all[2] = call('GET', KEYS[1]), call('PEXPIRETIME', KEYS[1])
all[3], all[4] = call('GET', KEYS[2]), call('PEXPIRETIME', KEYS[2])
all[5], all[6] = call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), call('PEXPIRETIME', KEYS[3])
all[7], all[8] = call('HGETALL', KEYS[4]), call('PEXPIRETIME', KEYS[4])
all[9], all[10] = call('GET', KEYS[5]), call('PEXPIRETIME', KEYS[5])
local time = call('TIME')
all[11], all[12] = call('DBSIZE'), time[1] * 1000000 + time[2]
return all";

/// The keys of a name. Expiry times are those of Redis: −1 for none, −2 if there is no key.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) lock: (Option<String>, i64),
    pub(super) fence: (Option<u64>, i64),
    pub(super) queue: (Vec<(String, u64)>, i64),
    pub(super) beats: (BTreeMap<String, String>, i64),
    pub(super) broken: (Option<u64>, i64),
    pub(super) keys: usize,
    /// When the keys were read, in µs.
    pub(super) at: u64,
}

/// What an operation did.
#[derive(Debug)]
pub(super) struct Outcome {
    /// No part of it is earlier than this, by the server's clock, in µs.
    pub(super) sent: u64,
    pub(super) answer: Answer,
    pub(super) stored: Stored,
    /// Channel and text.
    pub(super) messages: Vec<(String, String)>,
}

pub(super) struct Store {
    server: RedisServer,
    connection: Connection,
    subscriber: Client,
    pub(super) subscribed: BTreeSet<SessionId>,
    pub(super) keys: Keys,
    pub(super) has_flags: bool,
    offset: i64,
}

impl Store {
    pub(super) fn start() -> Self {
        let server = RedisServer::builder().clock().start();
        // An expired key is deleted when a command reads it, and not at random before: a clock that is set back would revive it.
        assert_eq!(server.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]).text(), "OK");
        let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).expect("a URL");
        let connection = client.get_connection().expect("a connection");
        let subscriber = server.client().expect("a connection");
        let keys = Keys::new("tenure:");
        Store {
            server,
            connection,
            subscriber,
            subscribed: BTreeSet::new(),
            keys,
            has_flags: true,
            offset: 0,
        }
    }

    /// Resets the server to its state after the start.
    pub(super) fn reset(&mut self) {
        self.offset = 0;
        self.server.set_clock_offset(0);
        self.flush_all();
        for session in self.subscribed.clone() {
            self.subscribe(&session, false);
        }
    }

    pub(super) fn flush_all(&mut self) {
        self.request(&redis::cmd("FLUSHALL"));
    }

    pub(super) fn forget_scripts(&mut self) {
        self.request(redis::cmd("SCRIPT").arg("FLUSH"));
    }

    pub(super) fn step(&mut self, millis: i64) {
        self.offset += millis * 1_000;
        self.server.set_clock_offset(self.offset);
    }

    pub(super) fn subscribe(&mut self, session: &SessionId, is_subscribed: bool) {
        let command = if is_subscribed { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
        let channel = self.keys.channel(session, "");
        let confirmed = self.subscriber.command(&[command, &channel]).expect("a reply");
        assert_eq!(confirmed.items()[1].text(), channel);
        if is_subscribed {
            self.subscribed.insert(session.clone());
        } else {
            self.subscribed.remove(session);
        }
    }

    /// The server's clock, in µs: the machine's clock with an offset.
    pub(super) fn now(&self) -> u64 {
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
        u64::try_from(machine).expect("before 586524").saturating_add_signed(self.offset)
    }

    pub(super) fn execute(&mut self, name: &Name, op: Op) -> Outcome {
        let call = Call::new(&self.keys, name, op);
        let sent = self.now();
        let mut value = self.request(&call.by_hash(self.has_flags));
        if matches!(&value, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            value = self.request(&call.whole(self.has_flags));
        }
        let stored = self.look(name);
        let (answer, unpublished) = script::answer(value).expect("an answer that is understood");
        assert_eq!(unpublished, None, "everything may be published here");
        Outcome { sent, answer, stored, messages: self.messages() }
    }

    fn look(&mut self, name: &Name) -> Stored {
        let lock = self.keys.lock(name);
        let mut look = redis::cmd("EVAL");
        let [fence, queue, beats] = Keys::beside(&lock).map(|key| key.to_string());
        let all = [lock.clone(), fence, queue, beats, Keys::broken(&lock).to_string()];
        look.arg(LOOK).arg(all.len()).arg(&all);
        let value = self.request(&look);
        let parts: [Value; 12] = redis::from_redis_value::<Vec<Value>>(value)
            .ok()
            .and_then(|parts| parts.try_into().ok())
            .expect("what was asked for");
        let [
            lock,
            lock_ends,
            fence,
            fence_ends,
            queue,
            queue_ends,
            beats,
            beats_ends,
            broken,
            broken_ends,
            keys,
            at,
        ] = parts;
        Stored {
            lock: (read(lock), read(lock_ends)),
            fence: (read(fence), read(fence_ends)),
            queue: (read(queue), read(queue_ends)),
            beats: (read(beats), read(beats_ends)),
            broken: (read(broken), read(broken_ends)),
            keys: read(keys),
            at: read(at),
        }
    }

    /// The messages so far: they precede the answer to this request.
    fn messages(&mut self) -> Vec<(String, String)> {
        let mut messages = Vec::new();
        if self.subscribed.is_empty() {
            return messages;
        }
        self.subscriber.send(&["PING"]).expect("a connection");
        loop {
            match self.subscriber.receive().expect("a reply").items() {
                [kind, channel, text] if kind.text() == "message" => {
                    messages.push((channel.text(), text.text()));
                }
                [pong, _] if pong.text() == "pong" => return messages,
                other => panic!("{other:?}"),
            }
        }
    }

    fn request(&mut self, cmd: &Cmd) -> Value {
        self.connection.req_command(cmd).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> T {
    redis::from_redis_value(value).expect("a whole number, a text, or some of them")
}
