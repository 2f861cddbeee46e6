//! Keeps the connection on which the grants of one node's names are heard.
//!
//! Subscriptions go out many at once, one command for each channel, so that each is answered or refused for itself.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind, Value};

use super::super::fault;
use super::super::link::Pace;
use super::channels::{AT_ONCE, Bell, Channels};
use crate::error::Error;

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
        let mut pace = Pace::new();
        while let Some(channels) = self.channels.upgrade() {
            if channels.ends_when_idle() {
                break;
            }
            let (connector, bell) = (Arc::clone(&channels.connector), Arc::new(Bell::default()));
            let connection = match connect(&channels, &bell).await {
                Ok(connection) => connection,
                Err(error) => {
                    tracing::debug!(target: "tenure", %error, "grants can't be heard");
                    drop(channels);
                    pace.rest().await;
                    continue;
                }
            };
            channels.begin(Arc::clone(&bell));
            drop(channels);
            pace.begin();
            let ended = self.listen(connection, &bell, connector.timeout).await;
            let Some(channels) = self.channels.upgrade() else { break };
            match ended {
                Ended::Idle => break,
                Ended::Refused(error) => {
                    channels.refused(error);
                    break;
                }
                Ended::Broken => channels.broke(true),
            }
            drop(channels);
            pace.rest_if_short().await;
        }
        self.has_ended = true;
    }

    /// Says what has changed, and asks for a sign of life where nothing has.
    async fn listen(&self, mut connection: MultiplexedConnection, bell: &Bell, timeout: Duration) -> Ended {
        let mut is_rung = true;
        loop {
            if bell.is_broken.load(Ordering::Acquire) {
                return Ended::Broken;
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
                commands.add_command(ping());
            }
            if !commands.is_empty() {
                let sent = connection.send_packed_commands(&commands, 0, commands.len());
                let answers = match tokio::time::timeout(timeout, sent).await {
                    Ok(Ok(answers)) => answers,
                    _ => return Ended::Broken,
                };
                let refusals = answers.iter().filter_map(|answer| match answer {
                    Value::ServerError(refusal) => Some(refusal),
                    _ => None,
                });
                let mut refusals =
                    refusals.map(|refusal| (refusal.code() == "MOVED", fault::refused(refusal)));
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
    Broken,
    Refused(Error),
}

fn ping() -> Cmd {
    let mut ping = Cmd::new();
    ping.arg("PING");
    ping
}

async fn connect(channels: &Arc<Channels>, bell: &Arc<Bell>) -> Result<MultiplexedConnection, Error> {
    let (told, rung) = (Arc::downgrade(channels), Arc::clone(bell));
    let hear = move |push: PushInfo| match push.kind {
        PushKind::Disconnection => rung.broke(),
        _ => drop(told.upgrade().map(|channels| channels.heard(&push))),
    };
    channels.connector.join(hear).await
}
