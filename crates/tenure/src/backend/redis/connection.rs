//! A connection of the driver on which every request ends.
//!
//! The driver has a task for each connection, with a channel for requests. The task ends when the connection breaks, and so do the
//! requests that it has taken. But a request that enters the channel at that moment would never end.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, Pipeline, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Semaphore;

use super::access::connection_config;

#[derive(Clone)]
pub(super) struct Connection {
    driver: MultiplexedConnection,
    /// Has no permits, and is closed when the connection breaks.
    end: Arc<Semaphore>,
}

impl Connection {
    /// Connects. Pushes go to `on_push`, which must not block.
    pub(super) async fn new(
        client: &Client,
        on_push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> RedisResult<Self> {
        let end = Arc::new(Semaphore::new(0));
        let ends = Arc::clone(&end);
        let config = connection_config(move |push| {
            if push.kind == PushKind::Disconnection {
                ends.close();
            }
            on_push(push);
        });
        let driver = until(&end, client.get_multiplexed_async_connection_with_config(&config)).await?;
        Ok(Connection { driver, end })
    }

    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        until(&self.end, self.driver.send_packed_command(command)).await
    }

    /// Sends commands in one pipeline. Returns the answer to each.
    pub(super) async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        until(&self.end, self.driver.send_packed_commands(commands, 0, commands.len())).await
    }

    pub(super) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        until(&self.end, self.driver.subscribe(channel)).await
    }
}

/// The answer to a request, or an error when its connection ends.
async fn until<T>(end: &Semaphore, request: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let (mut request, mut ended) = (pin!(request), pin!(end.acquire()));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(answer) = request.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        if ended.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        // The answer may have arrived just before the end.
        match request.as_mut().poll(cx) {
            Poll::Pending => Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe).into())),
            answer => answer,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    // R2.3: a request without an answer ends.
    #[tokio::test]
    async fn a_request_ends_with_its_connection() {
        let end = Semaphore::new(0);
        let mut request = pin!(until(&end, std::future::pending::<RedisResult<()>>()));
        let is_pending = std::future::poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx).is_pending())).await;
        assert!(is_pending, "the connection is open");
        end.close();
        assert!(request.await.expect_err("it broke").is_connection_dropped());
        let late = until(&end, std::future::pending::<RedisResult<()>>()).await;
        assert!(late.expect_err("it broke before").is_connection_dropped());
    }

    // R2.3: a server may answer and close the connection.
    #[tokio::test]
    async fn an_answer_that_came_before_the_end_counts() {
        let end = Semaphore::new(0);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let mut answer = Some(answer);
        let mut answered = pin!(answered);
        let mut polls = 0;
        let request = std::future::poll_fn(|cx| {
            polls += 1;
            let polled = answered.as_mut().poll(cx).map(|answer| Ok(answer.expect("it was answered")));
            // Both arrive right after the first poll.
            if let Some(answer) = answer.take() {
                answer.send(7).expect("a waiting request");
                end.close();
            }
            polled
        });
        assert_eq!(until(&end, request).await.expect("an answer"), 7);
        assert_eq!(polls, 2);
    }
}
