//! Learns of failovers: one connection, to one Sentinel at a time, is subscribed to `+switch-master`.
//!
//! A message is a reason to ask that Sentinel on the same connection, so that its configuration counts, and not the message. The watcher
//! asks also when the subscription begins, because a failover may have come before it. Every 5 s it asks all Sentinels: the subscribed
//! one may be cut off from the others together with an old master, and then learns nothing. When that connection breaks, or its Sentinel
//! is behind, the next Sentinel is used. One watcher serves all connections of a connector, and ends with it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::PushKind;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::fault;
use super::link::watch_over;
use super::pace::SHORT_LIFE;
use super::sentinel::{Sentinels, named};
use crate::time::backoff::Backoff;

const CHANNEL: &str = "+switch-master";
/// The pause between two questions to all Sentinels, without a message.
const ASK_ALL_AFTER: Duration = Duration::from_secs(5);

/// Starts a watcher, unless one runs.
pub(super) fn start(sentinels: &Arc<Sentinels>) {
    if sentinels.is_watched.swap(true, Ordering::AcqRel) {
        return;
    }
    let watcher = Watcher(Arc::downgrade(sentinels));
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn(watcher.run())),
        Err(_) => drop(watcher),
    }
}

struct Watcher(Weak<Sentinels>);

impl Watcher {
    async fn run(self) {
        let mut backoff = Backoff::new();
        // How many Sentinels in a row were of no use.
        let (mut next, mut useless) = (0, 0);
        while let Some(sentinels) = self.0.upgrade() {
            let many = sentinels.sentinels.len();
            let since = Instant::now();
            let ended = listen(sentinels, next % many).await;
            next += 1;
            match ended {
                ListenEnd::Broken => {
                    useless = 0;
                    match since.elapsed() < SHORT_LIFE {
                        true => tokio::time::sleep(backoff.pause()).await,
                        false => backoff = Backoff::new(),
                    }
                    continue;
                }
                ListenEnd::Unreachable => {}
                ListenEnd::Useless => useless += 1,
            }
            if useless < many {
                tokio::time::sleep(backoff.pause()).await;
                continue;
            }
            useless = 0;
            tokio::time::sleep(ASK_ALL_AFTER).await;
            let Some(sentinels) = self.0.upgrade() else { break };
            sentinels.ask_and_apply().await;
        }
    }
}

/// Why listening to one Sentinel ended.
enum ListenEnd {
    /// The connection broke or was silent, or no client needs it any more.
    Broken,
    Unreachable,
    /// The Sentinel refuses the subscription, or others know more.
    Useless,
}

impl Drop for Watcher {
    /// Its runtime may end before those of the clients: the next connection starts another watcher.
    fn drop(&mut self) {
        if let Some(sentinels) = self.0.upgrade() {
            sentinels.is_watched.store(false, Ordering::Release);
        }
    }
}

/// Listens to one Sentinel.
async fn listen(sentinels: Arc<Sentinels>, which: usize) -> ListenEnd {
    let sentinel = &sentinels.sentinels[which];
    let (signal, patience) = (Arc::new(Notify::new()), sentinels.patience);
    let (on_disconnect, messages) = (Arc::clone(&signal), Arc::new(Notify::new()));
    let on_message = Arc::clone(&messages);
    let on_push = move |push: redis::PushInfo| match push.kind {
        PushKind::Disconnection => on_disconnect.notify_one(),
        PushKind::Message => on_message.notify_one(),
        _ => {}
    };
    let Ok(mut connection) = sentinel.connect(patience, on_push).await else { return ListenEnd::Unreachable };
    match tokio::time::timeout(patience, connection.subscribe(CHANNEL)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if fault::server_error(&error).is_some() => {
            sentinels.warn_cannot_listen(&sentinel.address, &error);
            return ListenEnd::Useless;
        }
        _ => return ListenEnd::Unreachable,
    }
    let (service, listened) = (sentinels.service.clone(), Arc::downgrade(&sentinels));
    drop(sentinels);
    let is_wanted = || listened.strong_count() > 0;
    let mut watch = std::pin::pin!(watch_over(connection.clone(), &signal, patience, |_| true, is_wanted));
    loop {
        let Ok(Ok(named)) = tokio::time::timeout(patience, named(&mut connection, &service)).await else {
            return ListenEnd::Broken;
        };
        match listened.upgrade() {
            Some(sentinels) if !sentinels.apply(&sentinels.sentinels[which], &named) => {
                return ListenEnd::Useless;
            }
            Some(_) => {}
            None => return ListenEnd::Broken,
        }
        let mut ask_all = std::pin::pin!(async {
            tokio::time::sleep(ASK_ALL_AFTER).await;
            // A single Sentinel is asked at the start of the next round.
            if let Some(sentinels) = listened.upgrade().filter(|sentinels| sentinels.sentinels.len() > 1) {
                sentinels.ask_and_apply().await;
            }
        });
        let mut messages = std::pin::pin!(messages.notified());
        let has_ended = std::future::poll_fn(|cx| {
            if watch.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            match messages.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => ask_all.as_mut().poll(cx).map(|()| false),
            }
        });
        if has_ended.await {
            return ListenEnd::Broken;
        }
    }
}
