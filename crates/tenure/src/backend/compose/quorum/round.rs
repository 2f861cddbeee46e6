//! Asking several servers at the same time, until the outcome is decided.
//!
//! The requests that are not answered by then continue in the background for a bounded time. Each request itself enters its answer where it
//! matters.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::core::record::Reply;
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;

/// How long requests continue that nobody waits for.
const LONGEST_REST: Duration = Duration::from_secs(2);

/// One request to one server.
pub(super) type Asking = Pin<Box<dyn Future<Output = Result<Reply, Error>> + Send>>;

/// The requests and the answers, by the numbers of the servers.
pub(super) struct Round {
    asking: Vec<Option<Asking>>,
    pub(super) answers: Vec<Option<Result<Reply, Error>>>,
}

impl Round {
    pub(super) fn new(servers: usize) -> Self {
        Round {
            asking: std::iter::repeat_with(|| None).take(servers).collect(),
            answers: vec![None; servers],
        }
    }

    /// Asks a server, and drops its earlier answer.
    pub(super) fn ask(&mut self, server: usize, asking: Asking) {
        self.answers[server] = None;
        self.asking[server] = Some(asking);
    }

    pub(super) fn is_pending(&self, server: usize) -> bool {
        self.asking[server].is_some()
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = usize> {
        (0..self.asking.len()).filter(|&server| self.is_pending(server))
    }

    /// The replies, with the number of their server.
    pub(super) fn replies(&self) -> impl Iterator<Item = (usize, &Reply)> {
        let answers = self.answers.iter().enumerate();
        answers.filter_map(|(server, answer)| Some((server, answer.as_ref()?.as_ref().ok()?)))
    }

    /// From the last server in the URL's order to the first: the queue server gets a release last.
    fn poll(&mut self, cx: &mut Context<'_>) {
        for (server, asking) in self.asking.iter_mut().enumerate().rev() {
            if let Some(pending) = asking
                && let Poll::Ready(answer) = pending.as_mut().poll(cx)
            {
                *asking = None;
                self.answers[server] = Some(answer);
            }
        }
    }

    /// Waits until the outcome is decided, all servers have answered, or the limit. It has sent every request when it returns.
    pub(super) async fn until(
        &mut self,
        clock: &Clock,
        limit: Moment,
        mut is_decided: impl FnMut(&Round) -> bool,
    ) {
        let decided = std::future::poll_fn(|cx| {
            self.poll(cx);
            match self.pending().next().is_none() || is_decided(self) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        clock.until(limit, decided).await;
    }

    /// Lets pending requests continue in the background.
    pub(super) fn rest(self, clock: &Clock) {
        self.rest_and(clock, |_, _| ());
    }

    /// The same, and calls `answered` for every answer, those so far included.
    pub(super) fn rest_and(
        mut self,
        clock: &Clock,
        mut answered: impl FnMut(usize, &Result<Reply, Error>) + Send + 'static,
    ) {
        self.report(&mut answered);
        if self.pending().next().is_none() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let clock = clock.clone();
        drop(runtime.spawn(async move {
            let limit = clock.now() + LONGEST_REST;
            while self.pending().next().is_some() && clock.now() < limit {
                self.until(&clock, limit, |round| round.answers.iter().any(Option::is_some)).await;
                self.report(&mut answered);
            }
        }));
    }

    fn report(&mut self, answered: &mut impl FnMut(usize, &Result<Reply, Error>)) {
        for (server, answer) in self.answers.iter_mut().enumerate() {
            if let Some(answer) = answer.take() {
                answered(server, &answer);
            }
        }
    }
}
