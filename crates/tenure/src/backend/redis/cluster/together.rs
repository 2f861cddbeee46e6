//! Asks several at once.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

/// All answers, in the order of the questions.
pub(super) async fn all<F: Future + Send>(questions: Vec<F>) -> Vec<F::Output> {
    until(questions, |_| false).await
}

/// The answers of a majority that has any.
pub(super) async fn most<T, F: Future<Output = Option<T>> + Send>(questions: Vec<F>) -> Vec<F::Output> {
    let majority = questions.len() / 2 + 1;
    until(questions, |answers| answers.iter().flatten().flatten().count() >= majority).await
}

/// All answers up to the first good one.
pub(super) async fn first_good<F: Future + Send>(
    questions: Vec<F>,
    is_good: impl Fn(&F::Output) -> bool,
) -> Vec<F::Output> {
    until(questions, |answers| answers.iter().flatten().any(&is_good)).await
}

async fn until<F: Future + Send>(
    questions: Vec<F>,
    is_enough: impl Fn(&[Option<F::Output>]) -> bool,
) -> Vec<F::Output> {
    let mut asked: Vec<Option<Pin<Box<F>>>> =
        questions.into_iter().map(|question| Some(Box::pin(question))).collect();
    let mut answers: Vec<Option<F::Output>> = asked.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if let Some(question) = asked
                && let Poll::Ready(said) = question.as_mut().poll(cx)
            {
                (*asked, *answer) = (None, Some(said));
            }
        }
        match is_enough(&answers) || answers.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}
