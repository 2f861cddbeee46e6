//! Hears of a failover: one connection, to one Sentinel at a time, subscribed to `+switch-master`.
//!
//! What is heard is a reason to ask that Sentinel, on the same connection, so that what counts is its configuration and not what anyone
//! published. It is also asked when the subscription begins, because a failover may have come before it. From time to time all of them are
//! asked: the one that is listened to may be cut off from the others together with an old master, and then hears of nothing. When it
//! breaks, or turns out to be behind, the next Sentinel is tried. One watcher serves all connections of a connector, and ends with it.

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
/// How often all Sentinels are asked although the one that is listened to said nothing.
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
        let mut backoff = Backoff::new();
        // How many in a row were of no use.
        let (mut next, mut in_vain) = (0, 0);
        while let Some(sentinels) = self.0.upgrade() {
            let many = sentinels.sentinels.len();
            let since = Instant::now();
            let ended = listen(sentinels, next % many).await;
            next += 1;
            match ended {
                Ended::Broken => {
                    in_vain = 0;
                    match since.elapsed() < SHORT_LIFE {
                        true => tokio::time::sleep(backoff.pause()).await,
                        false => backoff = Backoff::new(),
                    }
                    continue;
                }
                Ended::Unreached => {}
                Ended::InVain => in_vain += 1,
            }
            if in_vain < many {
                tokio::time::sleep(backoff.pause()).await;
                continue;
            }
            in_vain = 0;
            tokio::time::sleep(BACKSTOP).await;
            let Some(sentinels) = self.0.upgrade() else { break };
            sentinels.ask_and_hear().await;
        }
    }
}

/// Why one is not listened to any more.
enum Ended {
    /// It was, until it was silent, or until nobody wanted to know any more.
    Broken,
    Unreached,
    /// It does not let us listen, or others know more.
    InVain,
}

impl Drop for Watcher {
    /// Its runtime may go down before those who connect: the next connection starts another.
    fn drop(&mut self) {
        if let Some(sentinels) = self.0.upgrade() {
            sentinels.is_watched.store(false, Ordering::Release);
        }
    }
}

/// Listens to one of them.
async fn listen(sentinels: Arc<Sentinels>, which: usize) -> Ended {
    let sentinel = &sentinels.sentinels[which];
    let (bell, patience) = (Arc::new(Notify::new()), sentinels.patience);
    let (rung, news) = (Arc::clone(&bell), Arc::new(Notify::new()));
    let told = Arc::clone(&news);
    let hear = move |push: redis::PushInfo| match push.kind {
        PushKind::Disconnection => rung.notify_one(),
        PushKind::Message => told.notify_one(),
        _ => {}
    };
    let Ok(mut connection) = sentinel.connect(patience, hear).await else { return Ended::Unreached };
    match tokio::time::timeout(patience, connection.subscribe(CHANNEL)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if fault::server_error(&error).is_some() => {
            sentinels.missed_grants(&sentinel.address, &error);
            return Ended::InVain;
        }
        _ => return Ended::Unreached,
    }
    let (service, listened) = (sentinels.service.clone(), Arc::downgrade(&sentinels));
    drop(sentinels);
    let is_wanted = || listened.strong_count() > 0;
    let mut watch = std::pin::pin!(watch_over(connection.clone(), &bell, patience, |_| true, is_wanted));
    loop {
        let Ok(Ok(named)) = tokio::time::timeout(patience, named(&mut connection, &service)).await else {
            return Ended::Broken;
        };
        match listened.upgrade() {
            Some(sentinels) if !sentinels.heard(&sentinels.sentinels[which], &named) => return Ended::InVain,
            Some(_) => {}
            None => return Ended::Broken,
        }
        let mut backstop = std::pin::pin!(async {
            tokio::time::sleep(BACKSTOP).await;
            // One alone is asked by what comes next.
            if let Some(sentinels) = listened.upgrade().filter(|sentinels| sentinels.sentinels.len() > 1) {
                sentinels.ask_and_hear().await;
            }
        });
        let mut news = std::pin::pin!(news.notified());
        let has_ended = std::future::poll_fn(|cx| {
            if watch.as_mut().poll(cx).is_ready() {
                return Poll::Ready(true);
            }
            match news.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(false),
                Poll::Pending => backstop.as_mut().poll(cx).map(|()| false),
            }
        });
        if has_ended.await {
            return Ended::Broken;
        }
    }
}
