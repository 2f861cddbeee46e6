use tenure::{Attempt, Domain, Fence};

struct Response {
    status: u16,
    body: String,
}

async fn post_report(domain: &Domain) -> Response {
    let lock = domain.lock("report").label("POST /report");
    let (status, body) = match lock.try_run(async |lease| report(lease.fence()).await).await {
        Ok(Attempt::Acquired(ran)) => (200, ran.value),
        Ok(Attempt::Busy(busy)) => {
            eprintln!("POST /report: {busy}"); // for you: held by ada@web1 pid 4711 (the nightly report), …
            let label = busy.holder.as_ref().map_or("", |holder| holder.owner.label());
            let who = if label.is_empty() { "somebody else" } else { label };
            (409, format!("{who} is at it"))
        }
        Err(error) if error.is_transient() => (503, format!("try again later: {error}")),
        Err(error) => (500, error.to_string()),
    };
    Response { status, body }
}

async fn report(fence: Fence) -> String {
    format!("a report, with fence {fence}")
}

#[tokio::main(flavor = "current_thread")]
pub(super) async fn main() -> Result<(), tenure::Error> {
    let domain = Domain::open(super::url()).await?;
    assert_eq!(post_report(&domain).await.status, 200);

    let nightly = domain.lock("report").label("the nightly report").acquire().await?;
    let refused = post_report(&domain).await;
    assert_eq!((refused.status, &*refused.body), (409, "the nightly report is at it"));
    nightly.release().await?;

    let nameless = domain.lock("report").acquire().await?;
    assert_eq!(post_report(&domain).await.body, "somebody else is at it");
    nameless.release().await?;
    Ok(())
}
