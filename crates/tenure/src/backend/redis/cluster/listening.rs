//! Keeps the connection on which the grants of one node's names are heard.
//!
//! Subscriptions go out many at once, one command for each channel, so that each is answered or refused for itself.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Pipeline, PushInfo, PushKind, Value};

use super::super::connect::Connector;
use super::super::connection::Connection;
use super::super::fault;
use super::super::server::is_replica;
use super::super::{link, pace::Pace};
use super::channels::{AT_ONCE, Bell, Channels};
use crate::types::error::Error;

/// Keeps the connection while a channel is wanted. Whoever finds one under way leaves it alone, so there is one at a time.
pub(super) struct Listening {
    channels: Weak<Channels>,
    has_ended: bool,
}

impl Listening {
    pub(super) fn new(channels: &Arc<Channels>) -> Self {
        Listening { channels: Arc::downgrade(channels), has_ended: false }
    }

    pub(super) async fn run(mut self) {
        let mut pace: Option<Pace> = None;
        while let Some(channels) = self.channels.upgrade() {
            if channels.ends_when_idle() {
                break;
            }
            let (connector, bell) = (Arc::clone(&channels.connector), Arc::new(Bell::default()));
            let pace = pace.get_or_insert_with(|| Pace::new(connector.timeout));
            let connection = match connect(&channels, &bell, pace.tries()).await {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::debug!(target: "tenure", %error, "grants can't be heard");
                    drop(channels);
                    pace.failed().await;
                    continue;
                }
            };
            channels.begin(Arc::clone(&bell));
            drop(channels);
            pace.stands();
            let ended = self.listen(connection, &bell, &connector).await;
            let Some(channels) = self.channels.upgrade() else { break };
            match &ended {
                Ended::Idle => break,
                Ended::Refused(error) => {
                    channels.refused(error.clone());
                    break;
                }
                Ended::Broken(_) => channels.broke(true),
            }
            drop(channels);
            if let Ended::Broken(how) = ended {
                tokio::time::sleep(pace.ended(&how).unwrap_or_default()).await;
            }
        }
        self.has_ended = true;
    }

    /// Says what has changed, and asks for a sign of life where nothing has: for the node's role, because one that was demoted keeps its
    /// connections.
    async fn listen(&self, mut connection: Connection, bell: &Bell, connector: &Connector) -> Ended {
        let timeout = connector.timeout;
        let mut is_rung = true;
        loop {
            if bell.is_broken.load(Ordering::Acquire) {
                return Ended::Broken(link::Ended::Broken);
            }
            let Some(channels) = self.channels.upgrade() else { return Ended::Idle };
            if channels.ends_when_idle() {
                return Ended::Idle;
            }
            let changes = channels.changes();
            drop(channels);
            let mut commands = Pipeline::new();
            for (verb, names) in [("SUNSUBSCRIBE", &changes.idle), ("SSUBSCRIBE", &changes.wanted)] {
                for name in names {
                    commands.cmd(verb).arg(name);
                }
            }
            if commands.is_empty() && !is_rung {
                commands.cmd("HELLO");
            }
            if !commands.is_empty() {
                let sent = connection.send_all(&commands);
                let answers = match tokio::time::timeout(timeout, sent).await {
                    Ok(Ok(answers)) => answers,
                    Ok(Err(_)) => return Ended::Broken(link::Ended::Broken),
                    Err(_) => return Ended::Broken(link::Ended::Silent),
                };
                // The nodes of a shard pass messages on to each other, but whoever listens at a replica is not counted.
                if answers.iter().any(is_replica) {
                    return Ended::Broken(link::Ended::Broken);
                }
                let refusals = answers.iter().filter_map(|answer| match answer {
                    Value::ServerError(refusal) => Some(refusal),
                    _ => None,
                });
                let mut refusals = refusals.map(|refusal| {
                    (refusal.code() == "MOVED", fault::refused(refusal, &connector.address()))
                });
                match refusals.next() {
                    // The user may not, or the server can't.
                    Some((false, error)) if !error.is_transient() => {
                        return Ended::Refused(error);
                    }
                    Some(_) => {
                        self.channels.upgrade().into_iter().for_each(|channels| channels.forget_asked());
                    }
                    None => {}
                }
                if changes.wanted.len() == AT_ONCE {
                    continue;
                }
            }
            is_rung = tokio::time::timeout(timeout / 2, bell.notify.notified()).await.is_ok();
        }
    }
}

impl Drop for Listening {
    /// Dropped before its end: its runtime is going down. Whoever waits on another one begins anew.
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(channels) = self.channels.upgrade()
        {
            channels.broke(false);
        }
    }
}

enum Ended {
    Idle,
    Broken(link::Ended),
    Refused(Error),
}

async fn connect(
    channels: &Arc<Channels>,
    bell: &Arc<Bell>,
    patience: Duration,
) -> Result<Connection, Error> {
    let (told, rung) = (Arc::downgrade(channels), Arc::clone(bell));
    let hear = move |push: PushInfo| match push.kind {
        PushKind::Disconnection => rung.broke(),
        _ => drop(told.upgrade().map(|channels| channels.heard(&push))),
    };
    channels.connector.join(patience, hear).await
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use tenure_testkit::patience::until;
    use tenure_testkit::redis::RedisServer;

    use super::super::super::access::Access;
    use super::super::super::client::Asker;
    use super::super::super::keys::Keys;
    use super::*;
    use crate::backend::Sink;
    use crate::backend::rehearsal::Ear;
    use crate::core::record::HEARTBEAT;
    use crate::time::clock::Clock;
    use crate::types::name::Name;
    use crate::types::owner::Session;
    use crate::url::{DomainUrl, Target};

    fn channels_at(node: &RedisServer) -> Arc<Channels> {
        let url: DomainUrl = node.url().replace("redis://", "redis+cluster://").parse().expect("a URL");
        let Target::Redis(url) = url.target() else { unreachable!("a URL of Redis") };
        let access = Access::new(url, None, 0).expect("no certificates");
        let timeout = Some(Duration::from_millis(100));
        let connector = Connector::of_node(url, &access, &url.hosts()[0], timeout).expect("a host");
        let sink: Weak<dyn Sink> = Weak::<Ear>::new();
        let asker = Asker::new(Session::random(), Keys::new("tenure:"), Clock::System, sink, false);
        Channels::new(Arc::new(connector), asker, Weak::new(), 1)
    }

    // I1: the node that grants does not count whoever listens at a replica.
    #[tokio::test]
    async fn a_node_that_is_demoted_is_left() {
        let (node, other) = (RedisServer::start(), RedisServer::start());
        let (channels, name) = (channels_at(&node), Name::new("orders/42").expect("a name"));
        channels.want(&name, HEARTBEAT);
        until("it is heard", || channels.stands(&name)).await;
        let follow = ["REPLICAOF", "127.0.0.1", &other.port().to_string()];
        assert_eq!(node.command(&follow).text(), "OK");
        until("it is left", || !channels.stands(&name)).await;
        let attempts = || {
            let stats = node.question(&["INFO", "stats"]).text();
            let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
            line.expect("a counter").trim().parse::<u64>().expect("a number")
        };
        let before = attempts();
        // Each question is a connection too.
        let mut asked = 0;
        until("it was tried again and again", || {
            asked += 1;
            assert!(!channels.stands(&name), "it comes back to a replica");
            attempts() > before + asked + 3
        })
        .await;
        assert_eq!(node.command(&["REPLICAOF", "NO", "ONE"]).text(), "OK");
        until("it is heard", || channels.stands(&name)).await;
    }
}
