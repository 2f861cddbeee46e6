//! Runs several requests at the same time.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// All answers, in the order of the requests.
pub(crate) async fn all<F: Future + Send>(requests: Vec<F>) -> Vec<F::Output> {
    until(requests, |_| false).await.into_iter().flatten().collect()
}

/// The answers so far when a majority has given one.
pub(crate) async fn most<T, F: Future<Output = Option<T>> + Send>(requests: Vec<F>) -> Vec<F::Output> {
    let majority = requests.len() / 2 + 1;
    let are_enough = |answers: &[Option<F::Output>]| answers.iter().flatten().flatten().count() >= majority;
    until(requests, are_enough).await.into_iter().flatten().collect()
}

/// The answers so far when the first good one has come.
pub(crate) async fn first_good<F: Future + Send>(
    requests: Vec<F>,
    is_good: impl Fn(&F::Output) -> bool,
) -> Vec<F::Output> {
    let are_enough = |answers: &[Option<F::Output>]| answers.iter().flatten().any(&is_good);
    until(requests, are_enough).await.into_iter().flatten().collect()
}

/// The answers so far when they are enough, each at the index of its request.
pub(crate) async fn until<F: Future + Send>(
    requests: Vec<F>,
    are_enough: impl Fn(&[Option<F::Output>]) -> bool,
) -> Vec<Option<F::Output>> {
    until_late(requests, are_enough, Duration::ZERO).await
}

/// The same, and the answers that come within `grace` after that.
pub(crate) async fn until_late<F: Future + Send>(
    requests: Vec<F>,
    are_enough: impl Fn(&[Option<F::Output>]) -> bool,
    grace: Duration,
) -> Vec<Option<F::Output>> {
    let mut asked: Vec<Option<Pin<Box<F>>>> =
        requests.into_iter().map(|request| Some(Box::pin(request))).collect();
    let mut answers: Vec<Option<F::Output>> = asked.iter().map(|_| None).collect();
    let mut late = None;
    std::future::poll_fn(|cx| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if let Some(request) = asked
                && let Poll::Ready(said) = request.as_mut().poll(cx)
            {
                (*asked, *answer) = (None, Some(said));
            }
        }
        if answers.iter().all(Option::is_some) {
            return Poll::Ready(());
        }
        match are_enough(&answers) {
            true if grace.is_zero() => Poll::Ready(()),
            true => late.get_or_insert_with(|| Box::pin(tokio::time::sleep(grace))).as_mut().poll(cx),
            false => Poll::Pending,
        }
    })
    .await;
    answers
}
