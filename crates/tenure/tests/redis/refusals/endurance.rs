//! What everyone goes through when a server refuses: somebody who holds a name, somebody who waits for it, somebody who gives a name
//! back, and somebody who comes new. The same for every refusal, so that none of them can be forgotten for one.

use std::time::{Duration, Instant};

use tenure::{Domain, Error, ErrorKind, Guard, Release};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use crate::redis::hygiene::traces::{until_clean, until_renewed};

/// Longer than any refusal here: a loss would be a false one.
const TTL: Duration = Duration::from_secs(9);

/// What a refusal is to look like.
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    /// What the message says, among other things: what is wrong, and what to do.
    pub(crate) says: &'static [&'static str],
    /// It is over soon, so that requests are sent again while there is time.
    pub(crate) is_asked_again: bool,
    /// Held leases can still be renewed and given back.
    pub(crate) spares_holders: bool,
}

impl Refusal {
    fn check(&self, error: &Error) {
        assert_eq!(error.kind(), self.kind, "{error}");
        assert_eq!(error.is_transient(), self.kind == ErrorKind::Unavailable, "{error}");
        if self.is_asked_again && is_cut_short(error) {
            return;
        }
        for part in self.says {
            assert!(error.to_string().contains(part), "{error}\ndoes not say: {part}");
        }
    }

    /// Goes through the refusal from `refuse` to `relent`; both return when it has begun and ended.
    pub(crate) async fn is_endured(
        &self,
        server: &RedisServer,
        url: &str,
        refuse: impl FnOnce(),
        relent: impl FnOnce(),
    ) {
        let domain = Domain::open(url).await.expect("a server that does not refuse yet");
        let held = acquire(&domain, "held").await;
        let given_back = acquire(&domain, "given back").await;
        let other = Domain::open(url).await.expect("a server that does not refuse yet");
        let waiter = tokio::spawn(async move { acquire(&other, "held").await });
        until("somebody waits", || server.command(&["ZCARD", "{tenure:held}:queue"]).int() == 1).await;

        refuse();
        self.check(&domain.lock("new").ttl(TTL).acquire().await.expect_err("an acquire is refused"));
        self.check(&domain.lock("new").ttl(TTL).try_acquire().await.expect_err("an acquire is refused"));
        self.check(&domain.lock("new").ttl(TTL).take_over().await.expect_err("a take-over is refused"));
        let returned = match (held.renew().await, given_back.release().await, self.spares_holders) {
            (Ok(()), Ok(Release::Released), true) => None,
            (Err(error), Err(returned), false) => {
                self.check(&error);
                self.check(&returned.error);
                Some(returned)
            }
            (renewed, released, _) => panic!("{renewed:?}, {released:?}"),
        };
        assert!(held.is_held(), "a refusal is no loss");
        relent();

        if let Some(returned) = returned {
            // R2.5: its token is not forgotten.
            let is_released = async |guard: Guard| match guard.release().await {
                Ok(release) => Ok(release),
                Err(returned) => Err(returned.guard),
            };
            let mut attempt = is_released(returned.guard).await;
            let give_up = Instant::now() + TTL;
            while let Err(guard) = attempt {
                assert!(Instant::now() < give_up, "nothing can be given back after the refusal");
                attempt = is_released(guard).await;
            }
            assert_eq!(attempt.ok(), Some(Release::Released));
        }
        until_renewed(&held).await;
        assert!(held.is_held());
        let new = acquire(&domain, "new").await;
        let fence = held.fence();
        held.release().await.expect("a server that does not refuse any longer");
        let next = waiter.await.expect("a waiter that outlasts a refusal");
        assert!(next.fence() > fence);
        drop((next, new));
        until_clean(server).await;
    }
}

/// Whether there was too little time left for an answer when the request was sent again.
pub(crate) fn is_cut_short(error: &Error) -> bool {
    error.to_string().contains("did not answer within")
}

/// Acquires; again while the server is still refusing, since recovering takes a client a moment.
pub(crate) async fn acquire(domain: &Domain, name: &str) -> Guard {
    let give_up = Instant::now() + TTL;
    loop {
        match domain.lock(name).ttl(TTL).acquire().await {
            Ok(guard) => return guard,
            Err(error) => assert!(Instant::now() < give_up, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
