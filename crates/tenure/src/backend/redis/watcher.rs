//! Hears of a failover: one connection, to one Sentinel at a time, subscribed to `+switch-master`.
//!
//! What is heard is a reason to ask that Sentinel, on the same connection, so that what counts is its configuration and not what anyone
//! published. It is also asked when the subscription begins, because a failover may have come before it, and from time to time. When it
//! breaks, the next Sentinel is tried. One watcher serves all connections of a connector, and ends with it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::PushKind;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::link::{Pace, watch_over};
use super::sentinel::{Sentinels, named};

const CHANNEL: &str = "+switch-master";
/// How often a Sentinel is asked although it said nothing.
const BACKSTOP: Duration = Duration::from_secs(5);

/// Starts a watcher, unless there is one.
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
        let mut pace = Pace::new();
        let mut next = 0;
        while let Some(sentinels) = self.0.upgrade() {
            pace.begin();
            listen(sentinels, next).await;
            next += 1;
            match self.0.upgrade().is_some_and(|sentinels| next % sentinels.sentinels.len() == 0) {
                true => pace.rest().await,
                false => pace.rest_if_short().await,
            }
        }
    }
}

impl Drop for Watcher {
    /// Its runtime may go down before those who connect: the next connection starts another.
    fn drop(&mut self) {
        if let Some(sentinels) = self.0.upgrade() {
            sentinels.is_watched.store(false, Ordering::Release);
        }
    }
}

/// Listens to one of them until it is silent, or nobody wants to know any more.
async fn listen(sentinels: Arc<Sentinels>, which: usize) {
    let which = which % sentinels.sentinels.len();
    let sentinel = &sentinels.sentinels[which];
    let (bell, patience) = (Arc::new(Notify::new()), sentinels.patience);
    let (rung, news) = (Arc::clone(&bell), Arc::new(Notify::new()));
    let told = Arc::clone(&news);
    let hear = move |push: redis::PushInfo| match push.kind {
        PushKind::Disconnection => rung.notify_one(),
        PushKind::Message => told.notify_one(),
        _ => {}
    };
    let Ok(mut connection) = sentinel.connect(patience, hear).await else { return };
    let subscribed = tokio::time::timeout(patience, connection.subscribe(CHANNEL)).await;
    if !matches!(subscribed, Ok(Ok(()))) {
        return;
    }
    let (service, listened) = (sentinels.service.clone(), Arc::downgrade(&sentinels));
    drop(sentinels);
    let is_wanted = || listened.strong_count() > 0;
    let mut watch = std::pin::pin!(watch_over(connection.clone(), &bell, patience, is_wanted));
    loop {
        let Ok(Ok(named)) = tokio::time::timeout(patience, named(&mut connection, &service)).await else {
            return;
        };
        match listened.upgrade() {
            Some(sentinels) => sentinels.heard(&sentinels.sentinels[which], &named),
            None => return,
        }
        let mut news = std::pin::pin!(tokio::time::timeout(BACKSTOP, news.notified()));
        let has_ended = std::future::poll_fn(|cx| match watch.as_mut().poll(cx) {
            std::task::Poll::Ready(_) => std::task::Poll::Ready(true),
            std::task::Poll::Pending => news.as_mut().poll(cx).map(|_| false),
        });
        if has_ended.await {
            return;
        }
    }
}
