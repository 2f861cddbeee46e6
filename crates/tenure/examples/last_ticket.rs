//! Ten sellers, one ticket: the lock lets them in one at a time, and the fence keeps out one that comes back too late.
//!
//! `cargo run --example last_ticket`

use std::sync::{Arc, Mutex};

use tenure::{Domain, Fence, HighWater, Stale};

/// What is sold, and the check that makes the fence worth having.
#[derive(Default)]
struct Ticket {
    sold_to: Option<u32>,
    seen: HighWater,
}

impl Ticket {
    /// Sells it, unless it is sold, or a later holder of the lock has been here.
    fn sell(&mut self, seller: u32, fence: Fence) -> Result<bool, Stale> {
        self.seen.admit(fence)?;
        let is_free = self.sold_to.is_none();
        self.sold_to = self.sold_to.or(Some(seller));
        Ok(is_free)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::open("memory:").await?;
    let ticket = Arc::new(Mutex::new(Ticket::default()));

    let sellers: Vec<_> = (1..=10)
        .map(|seller| {
            let (lock, ticket) =
                (domain.lock("ticket/42").label(format!("seller {seller}")), Arc::clone(&ticket));
            tokio::spawn(async move {
                lock.run(async |lease| ticket.lock().expect("nobody panics").sell(seller, lease.fence()))
                    .await
            })
        })
        .collect();

    for (seller, sold) in (1..).zip(sellers) {
        let ran = sold.await??;
        match ran.value {
            Ok(true) => println!("seller {seller} sold it, with fence {}", ran.report.fence),
            Ok(false) => println!("seller {seller} came after waiting {:?}: sold out", ran.report.waited),
            Err(stale) => println!("seller {seller}: {stale}"),
        }
    }
    Ok(())
}
