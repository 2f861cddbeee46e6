//! Maintains the connection for the grants of one node's names.
//!
//! Subscriptions go out in pipelines, one command for each channel, so that the server answers or refuses each by itself.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Pipeline, PushInfo, PushKind, Value};

use super::super::connect::Connector;
use super::super::connection::Connection;
use super::super::fault;
use super::super::server::is_replica;
use super::super::{link, pace::Pace};
use super::channels::{AT_ONCE, Channels, ChannelsSignal};
use crate::types::error::Error;

/// Maintains the connection while a channel is wanted. There is one task at a time.
pub(super) struct ChannelsTask {
    channels: Weak<Channels>,
    has_ended: bool,
}

impl ChannelsTask {
    pub(super) fn new(channels: &Arc<Channels>) -> Self {
        ChannelsTask { channels: Arc::downgrade(channels), has_ended: false }
    }

    pub(super) async fn run(mut self) {
        let mut pace: Option<Pace> = None;
        while let Some(channels) = self.channels.upgrade() {
            if channels.ends_when_idle() {
                break;
            }
            let (connector, signal) = (Arc::clone(&channels.connector), Arc::new(ChannelsSignal::default()));
            let pace = pace.get_or_insert_with(|| Pace::new(connector.timeout));
            let connection = match connect(&channels, &signal, pace.begin_attempt()).await {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::debug!(target: "tenure", %error, "cannot listen for grants");
                    drop(channels);
                    pace.failed().await;
                    continue;
                }
            };
            channels.begin(Arc::clone(&signal));
            drop(channels);
            pace.connected();
            let ended = self.listen(connection, &signal, &connector).await;
            let Some(channels) = self.channels.upgrade() else { break };
            match &ended {
                ChannelsEnd::Idle => break,
                ChannelsEnd::Refused(error) => {
                    channels.refused(error.clone());
                    break;
                }
                ChannelsEnd::Broken(_) => channels.broke(true),
            }
            drop(channels);
            if let ChannelsEnd::Broken(how) = ended {
                tokio::time::sleep(pace.ended(&how).unwrap_or_default()).await;
            }
        }
        self.has_ended = true;
    }

    /// Sends changes, and a check if there are none. The check asks for the role, because a demoted node keeps its connections.
    async fn listen(
        &self,
        mut connection: Connection,
        signal: &ChannelsSignal,
        connector: &Connector,
    ) -> ChannelsEnd {
        let timeout = connector.timeout;
        let mut is_signalled = true;
        loop {
            if signal.is_broken.load(Ordering::Acquire) {
                return ChannelsEnd::Broken(link::ConnectionEnd::Broken);
            }
            let Some(channels) = self.channels.upgrade() else { return ChannelsEnd::Idle };
            if channels.ends_when_idle() {
                return ChannelsEnd::Idle;
            }
            let changes = channels.changes();
            drop(channels);
            let mut commands = Pipeline::new();
            for (verb, names) in [("SUNSUBSCRIBE", &changes.idle), ("SSUBSCRIBE", &changes.wanted)] {
                for name in names {
                    commands.cmd(verb).arg(name);
                }
            }
            if commands.is_empty() && !is_signalled {
                commands.cmd("HELLO");
            }
            if !commands.is_empty() {
                let sent = connection.send_all(&commands);
                let answers = match tokio::time::timeout(timeout, sent).await {
                    Ok(Ok(answers)) => answers,
                    Ok(Err(_)) => return ChannelsEnd::Broken(link::ConnectionEnd::Broken),
                    Err(_) => return ChannelsEnd::Broken(link::ConnectionEnd::Silent),
                };
                // The nodes of a shard forward messages to each other, but the master does not count listeners at a replica.
                if answers.iter().any(is_replica) {
                    return ChannelsEnd::Broken(link::ConnectionEnd::Broken);
                }
                let refusals = answers.iter().filter_map(|answer| match answer {
                    Value::ServerError(refusal) => Some(refusal),
                    _ => None,
                });
                let mut refusals = refusals.map(|refusal| {
                    (refusal.code() == "MOVED", fault::refused(refusal, &connector.address()))
                });
                match refusals.next() {
                    // The user lacks the permission, or the server lacks the command.
                    Some((false, error)) if !error.is_transient() => {
                        return ChannelsEnd::Refused(error);
                    }
                    Some(_) => {
                        self.channels.upgrade().into_iter().for_each(|channels| channels.forget_requested());
                    }
                    None => {}
                }
                if changes.wanted.len() == AT_ONCE {
                    continue;
                }
            }
            is_signalled = tokio::time::timeout(timeout / 2, signal.notify.notified()).await.is_ok();
        }
    }
}

impl Drop for ChannelsTask {
    /// Dropped before its end if its runtime shuts down. A waiter on another runtime starts a new task.
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(channels) = self.channels.upgrade()
        {
            channels.broke(false);
        }
    }
}

enum ChannelsEnd {
    Idle,
    Broken(link::ConnectionEnd),
    Refused(Error),
}

async fn connect(
    channels: &Arc<Channels>,
    signal: &Arc<ChannelsSignal>,
    patience: Duration,
) -> Result<Connection, Error> {
    let (receiver, on_disconnect) = (Arc::downgrade(channels), Arc::clone(signal));
    let on_push = move |push: PushInfo| match push.kind {
        PushKind::Disconnection => on_disconnect.broke(),
        _ => drop(receiver.upgrade().map(|channels| channels.received(&push))),
    };
    channels.connector.connect_to_same_server(patience, on_push).await
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use tenure_testkit::patience::until;
    use tenure_testkit::redis::RedisServer;

    use super::super::super::access::Access;
    use super::super::super::client::SessionContext;
    use super::super::super::keys::Keys;
    use super::*;
    use crate::backend::Sink;
    use crate::backend::self_test::TestListener;
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
        let sink: Weak<dyn Sink> = Weak::<TestListener>::new();
        let context =
            SessionContext::new(Session::random(), Keys::new("tenure:"), Clock::System, sink, false);
        Channels::new(Arc::new(connector), context, Weak::new(), 1)
    }

    // I1: the node that grants does not count listeners at a replica.
    #[tokio::test]
    async fn the_client_leaves_a_demoted_node() {
        let (node, other) = (RedisServer::start(), RedisServer::start());
        let (channels, name) = (channels_at(&node), Name::new("orders/42").expect("a name"));
        channels.want(&name, HEARTBEAT);
        until("it is subscribed", || channels.is_subscribed(&name)).await;
        let follow = ["REPLICAOF", "127.0.0.1", &other.port().to_string()];
        assert_eq!(node.command(&follow).text(), "OK");
        until("it is left", || !channels.is_subscribed(&name)).await;
        let attempts = || {
            let stats = node.question(&["INFO", "stats"]).text();
            let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
            line.expect("a counter").trim().parse::<u64>().expect("a number")
        };
        let before = attempts();
        // Each question opens a connection too.
        let mut asked = 0;
        until("it was tried again and again", || {
            asked += 1;
            assert!(!channels.is_subscribed(&name), "it comes back to a replica");
            attempts() > before + asked + 3
        })
        .await;
        assert_eq!(node.command(&["REPLICAOF", "NO", "ONE"]).text(), "OK");
        until("it is subscribed", || channels.is_subscribed(&name)).await;
    }
}
