//! Asks several at once.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// All answers, in the order of the questions.
pub(crate) async fn all<F: Future + Send>(questions: Vec<F>) -> Vec<F::Output> {
    until(questions, |_| false).await.into_iter().flatten().collect()
}

/// The answers of a majority that has any.
pub(crate) async fn most<T, F: Future<Output = Option<T>> + Send>(questions: Vec<F>) -> Vec<F::Output> {
    let majority = questions.len() / 2 + 1;
    let are_enough = |answers: &[Option<F::Output>]| answers.iter().flatten().flatten().count() >= majority;
    until(questions, are_enough).await.into_iter().flatten().collect()
}

/// All answers up to the first good one.
pub(crate) async fn first_good<F: Future + Send>(
    questions: Vec<F>,
    is_good: impl Fn(&F::Output) -> bool,
) -> Vec<F::Output> {
    let are_enough = |answers: &[Option<F::Output>]| answers.iter().flatten().any(&is_good);
    until(questions, are_enough).await.into_iter().flatten().collect()
}

/// The answers that there are when they are enough, each in the place of its question.
pub(crate) async fn until<F: Future + Send>(
    questions: Vec<F>,
    are_enough: impl Fn(&[Option<F::Output>]) -> bool,
) -> Vec<Option<F::Output>> {
    until_late(questions, are_enough, Duration::ZERO).await
}

/// The same, with those that come so soon after they are enough.
pub(crate) async fn until_late<F: Future + Send>(
    questions: Vec<F>,
    are_enough: impl Fn(&[Option<F::Output>]) -> bool,
    grace: Duration,
) -> Vec<Option<F::Output>> {
    let mut asked: Vec<Option<Pin<Box<F>>>> =
        questions.into_iter().map(|question| Some(Box::pin(question))).collect();
    let mut answers: Vec<Option<F::Output>> = asked.iter().map(|_| None).collect();
    let mut late = None;
    std::future::poll_fn(|cx| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if let Some(question) = asked
                && let Poll::Ready(said) = question.as_mut().poll(cx)
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
