//! A request that was executed, and whose answer never came: sent again, it is harmless (R1.6).

use tenure::{ErrorKind, LossKind, Release};

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, is_ready, lock, look,
    now_or_never, queue,
};

// R1.6
pub(super) async fn an_acquire_without_an_answer_is_asked_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    a.lose_next_reply().await;
    let guard = asked_again(f, async || drive(f, lock(&a).acquire()).await).await;
    assert!(guard.is_held());
    assert_eq!(look(b.domain()).await.holder.expect("to be held").fence, guard.fence());
    guard.release().await.expect("to release");
    is_free(f, b.domain()).await;
}

// R1.6, R1.1: in the queue once, not twice.
pub(super) async fn an_enqueue_without_an_answer_is_in_the_queue_once(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    b.lose_next_reply().await;
    let lock_b = lock(&b).label("b");
    let first = tokio::spawn(async move {
        loop {
            match lock_b.acquire().await {
                Ok(guard) => return guard,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    });
    eventually(f, async || queue(a.domain()).await == ["b"]).await;
    f.let_pass(4 * SHORT).await;
    let second = enqueue(f, &c, "c").await;
    assert_eq!(queue(a.domain()).await, ["b", "c"]);
    guard.release().await.expect("to release");
    granted(f, first).await.release().await.expect("to release");
    granted(f, second).await.release().await.expect("to release");
}

// R1.6, R2.4: it was ours until then, so it was released, and by us.
pub(super) async fn a_release_without_an_answer_is_sent_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    a.lose_next_reply().await;
    let mut left = Some(guard);
    eventually(f, async || {
        match drive(f, left.take().expect("a guard").release()).await {
            Ok(release) => assert_eq!(release, Release::Released),
            Err(returned) => left = Some(returned.guard),
        }
        left.is_none()
    })
    .await;
    is_free(f, b.domain()).await;
}

// R1.6, R1.5
pub(super) async fn a_renewal_without_an_answer_costs_no_lease(f: &impl Fixture) {
    let a = f.client().await;
    let guard = a.domain().lock(NAME).ttl(3 * SHORT).acquire().await.expect("to acquire");
    for _ in 0..3 {
        a.lose_next_reply().await;
        f.let_pass(3 * SHORT / 2).await;
        assert!(guard.is_held());
    }
    f.let_pass(3 * SHORT).await;
    assert!(guard.is_held());
}

// R1.6: asked again, a take-over does not take over from itself.
pub(super) async fn a_take_over_without_an_answer_is_asked_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let old = hold(&a).await;
    b.lose_next_reply().await;
    let new = asked_again(f, async || drive(f, lock(&b).take_over()).await).await;
    assert!(new.is_held() && new.fence() > old.fence());
    assert_eq!(look(a.domain()).await.holder.expect("to be held").fence, new.fence());
}

// R1.6: the ticket was used, and by this one; it does not end as a lease that nobody has.
pub(super) async fn an_adoption_without_an_answer_is_asked_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ticket = lock(&a).ttl(LONG).acquire().await.expect("to acquire").detach().await.expect("to detach");
    b.lose_next_reply().await;
    match drive(f, ticket.adopt(b.domain())).await {
        Ok(guard) => assert!(guard.is_held() && guard.fence() > ticket.fence()),
        // Given up before it was known: then the lease is given back, for nobody has it.
        Err(error) => assert!(error.is_transient(), "{error}"),
    }
    is_free(f, a.domain()).await;
}

// R1.6, R2.4: renewed twice is renewed, and what is gone after a release was released by it.
pub(super) async fn a_ticket_without_an_answer_is_asked_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    b.lose_next_reply().await;
    asked_again(f, async || drive(f, ticket.renew(b.domain())).await).await;
    b.lose_next_reply().await;
    match drive(f, ticket.release(b.domain())).await {
        Ok(release) => assert_eq!(release, Release::Released),
        // Given up before it was known; the next call knows nothing of this one.
        Err(error) => assert!(error.is_transient(), "{error}"),
    }
    is_free(f, a.domain()).await;
}

// R1.4, R1.6: it gave up on an answer, and what it asked for was done: that is undone.
pub(super) async fn one_that_gives_up_on_an_answer_leaves_nothing(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    a.lose_next_reply().await;
    let lock = lock(&a);
    let mut unanswered = Box::pin(lock.acquire());
    eventually(f, async || is_ready(unanswered.as_mut()).await || look(b.domain()).await.is_held()).await;
    drop(unanswered);
    is_free(f, b.domain()).await;
}

// R3.7: granted, and its domain is closed before it knows.
pub(super) async fn an_acquire_without_an_answer_ends_with_its_domain(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    a.lose_next_reply().await;
    let lock = lock(&a);
    let mut unanswered = Box::pin(lock.acquire());
    let mut answer = None;
    eventually(f, async || {
        answer = now_or_never(unanswered.as_mut()).await;
        answer.is_some() || look(b.domain()).await.is_held()
    })
    .await;
    let closing = async {
        a.domain().close().await;
        match answer {
            Some(answer) => answer,
            None => unanswered.await,
        }
    };
    match drive(f, closing).await {
        // Asked again, and answered, before it was closed.
        Ok(guard) => assert!(guard.lost().await.kind() == &LossKind::Closed),
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Closed | ErrorKind::Unavailable), "{error}");
        }
    }
    is_free(f, b.domain()).await;
}

/// Asks until it is not an outage that answers.
async fn asked_again<T>(f: &impl Fixture, ask: impl AsyncFn() -> Result<T, tenure::Error>) -> T {
    let mut answer = None;
    eventually(f, async || {
        match ask().await {
            Ok(value) => answer = Some(value),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        answer.is_some()
    })
    .await;
    answer.expect("an answer")
}
