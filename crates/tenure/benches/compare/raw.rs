//! The least that a lock on Redis can do, with the client crate that the domain uses: `SET key token NX PX`, and a script that deletes the
//! key if it still has that token.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, Value, cmd,
};

use crate::tasks::Contender;

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const TTL: Duration = Duration::from_secs(10);

/// A connection with the script.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    release: Arc<str>,
}

impl Raw {
    /// RESP3, TCP_NODELAY and no timer for a reply: nothing that could be left out is paid for.
    pub(crate) async fn connect(url: &str) -> Self {
        let connection = url.into_connection_info().expect("a URL of Redis");
        let connection = connection
            .set_tcp_settings(TcpSettings::default().set_nodelay(true))
            .set_redis_settings(RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3));
        let client = Client::open(connection).expect("a URL of Redis");
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await.expect("the server answers");
        let load = cmd("SCRIPT").arg("LOAD").arg(RELEASE).to_owned();
        let release: String = load.query_async(&mut connection).await.expect("the server answers");
        Raw { connection, release: release.into() }
    }

    /// One script call, on a key that is not there.
    pub(crate) async fn call(&self) {
        assert_eq!(self.release("nothing", "nobody").await, 0);
    }

    async fn acquire(&self, key: &str, token: &str) -> Value {
        let mut set = cmd("SET");
        set.arg(key).arg(token).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        set.query_async(&mut self.connection.clone()).await.expect("the server answers")
    }

    async fn release(&self, key: &str, token: &str) -> i64 {
        let mut evalsha = cmd("EVALSHA");
        evalsha.arg(&*self.release).arg(1).arg(key).arg(token);
        evalsha.query_async(&mut self.connection.clone()).await.expect("the server answers")
    }
}

/// A key that nobody else wants.
#[derive(Clone)]
pub(crate) struct RawLock {
    raw: Raw,
    key: Arc<str>,
    turns: Arc<AtomicU64>,
}

impl RawLock {
    pub(crate) fn new(raw: Raw, key: &str) -> Self {
        RawLock { raw, key: key.into(), turns: Arc::default() }
    }
}

impl Contender for RawLock {
    async fn pair(&self) {
        let token = format!("{:032x}", self.turns.fetch_add(1, Ordering::Relaxed));
        assert_eq!(self.raw.acquire(&self.key, &token).await, Value::Okay);
        assert_eq!(self.raw.release(&self.key, &token).await, 1);
    }
}
