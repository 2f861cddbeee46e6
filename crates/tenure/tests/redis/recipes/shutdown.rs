use std::time::Duration;
use tenure::{Domain, Error};

async fn serve(domain: &Domain, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let lock = domain.lock("leader");
    let ended = tokio::select! {
        ended = lock.run(async |_| lead().await) => ended.map(|ran| ran.value),
        () = shutdown => Ok(()),    // drops `run`: the work is dropped, and the name is given back
    };
    domain.close().await; // waits until the store knows
    ended
}

async fn lead() {
    std::future::pending().await
}

#[tokio::main(flavor = "current_thread")]
pub(super) async fn main() -> Result<(), Error> {
    let domain = Domain::open(super::url()).await?;
    let shutdown = tokio::time::sleep(Duration::from_millis(20)); // in a service: `termination()?`, below
    serve(&domain, shutdown).await?;

    let next = Domain::open(super::url()).await?; // the next process
    assert!(next.lock("leader").try_run(async |_| ()).await?.is_acquired());
    Ok(())
}
