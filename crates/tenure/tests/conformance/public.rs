//! What every user of the library relies on without a store: its types can be sent and shared, its futures spawned.

use std::future::Future;
use std::time::Duration;

use tenure::{Domain, Ticket, testing};

/// What can be sent to another thread, shared with it, and kept: everything that is public (as tokio asserts of its own types).
#[test]
fn everything_public_is_send_and_sync() {
    fn is_send_and_sync<T: Send + Sync + Unpin + 'static>() {}
    is_send_and_sync::<Domain>();
    is_send_and_sync::<tenure::Lock>();
    is_send_and_sync::<tenure::Guard>();
    is_send_and_sync::<tenure::Returned>();
    is_send_and_sync::<tenure::Attempt>();
    is_send_and_sync::<tenure::Attempt<tenure::Ran<u8>>>();
    is_send_and_sync::<tenure::Lease>();
    is_send_and_sync::<tenure::Ticket>();
    is_send_and_sync::<tenure::Ran<u8>>();
    is_send_and_sync::<tenure::Report>();
    is_send_and_sync::<tenure::Release>();
    is_send_and_sync::<tenure::Fence>();
    is_send_and_sync::<tenure::HighWater>();
    is_send_and_sync::<tenure::Stale>();
    is_send_and_sync::<tenure::Loss>();
    is_send_and_sync::<tenure::LossKind>();
    is_send_and_sync::<tenure::Error>();
    is_send_and_sync::<tenure::ErrorKind>();
    is_send_and_sync::<tenure::Owner>();
    is_send_and_sync::<tenure::Holder>();
    is_send_and_sync::<tenure::Waiter>();
    is_send_and_sync::<tenure::Status>();
    is_send_and_sync::<tenure::Busy>();
    is_send_and_sync::<tenure::Health>();
    is_send_and_sync::<tenure::Finding>();
    is_send_and_sync::<tenure::Verdict>();
    is_send_and_sync::<tenure::Metrics>();
    is_send_and_sync::<tenure::Capability>();
    is_send_and_sync::<tenure::DomainUrl>();
    is_send_and_sync::<testing::Store>();
    is_send_and_sync::<testing::Client>();
}

/// Every future can be spawned. It is not run: that it compiles is the test.
#[expect(dead_code, reason = "compiled, never called")]
async fn every_future_can_be_spawned(
    domain: Domain,
    guards: [tenure::Guard; 2],
    holder: tenure::Holder,
    ticket: Ticket,
) {
    fn is_spawnable<T: Send>(future: impl Future<Output = T> + Send) {
        drop(future);
    }
    let lock = domain.lock("orders/42");
    is_spawnable(Domain::open("memory:"));
    is_spawnable(domain.inspect("orders/42"));
    is_spawnable(domain.list(""));
    is_spawnable(domain.break_lock("orders/42", &holder));
    is_spawnable(ticket.adopt(&domain));
    is_spawnable(ticket.renew(&domain));
    is_spawnable(ticket.release(&domain));
    is_spawnable(domain.lifeline());
    is_spawnable(domain.health());
    is_spawnable(domain.examine());
    is_spawnable(domain.capabilities());
    is_spawnable(domain.close());
    is_spawnable(lock.acquire());
    is_spawnable(lock.try_acquire());
    is_spawnable(lock.try_acquire_for(Duration::ZERO));
    is_spawnable(lock.take_over());
    is_spawnable(lock.run(async |lease| lease.lost().await));
    is_spawnable(lock.try_run(async |lease| lease.fence()));
    is_spawnable(lock.try_run_for(Duration::ZERO, async |_| ()));
    is_spawnable(guards[0].lost());
    is_spawnable(guards[0].renew());
    let [first, second] = guards;
    is_spawnable(first.release());
    is_spawnable(second.detach());
    let task = tokio::spawn(async move { lock.run(async |lease| lease.fence()).await.map(|ran| ran.value) });
    drop(task.await);
}
