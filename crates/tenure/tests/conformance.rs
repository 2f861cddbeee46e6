//! The conformance suite on the stores that need nothing but this process: memory in real time, on all threads, and memory with a
//! clock that the tests own, where expiries and outages are exact.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Domain, Ticket, testing};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Ability, Client, Doing, Fixture, die_in_process};
use tokio::runtime::{Builder, Runtime};

/// `memory:NAME`, in real time.
struct RealTime {
    url: String,
    /// A shared store lives as long as someone uses it.
    _keep: Domain,
}

impl RealTime {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let url = format!("memory:conformance-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let keep = Domain::lazy(&url).expect("a valid URL");
        let opened = keep.clone();
        let open = async move { drop(opened.health().await.expect("a store in this process")) };
        Builder::new_current_thread().build().expect("a runtime").block_on(open);
        RealTime { url, _keep: keep }
    }

    async fn open(&self) -> Domain {
        Domain::open(&self.url).await.expect("a store in this process")
    }
}

struct Shared(Domain);

impl Client for Shared {
    fn domain(&self) -> &Domain {
        &self.0
    }
}

impl Fixture for RealTime {
    type Client = Shared;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime")
    }

    async fn client(&self) -> Shared {
        Shared(self.open().await)
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        die_in_process(self.open(), doing, name, ttl)
    }

    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[
            (Ability::CutOff, "there is no line to cut between a process and its own memory"),
            (
                Ability::Die(Doing::Waiting),
                "a grant wakes a waiter of the same process by a call, however dead it plays",
            ),
            (Ability::LoseReplies, "there is no reply to lose between a process and its own memory"),
        ]
    }
}

/// The suite on a store whose clients can't be cut off from it, and lose no replies.
macro_rules! without_a_line {
    ($backend:ident, $fixture:expr, nor [$($theme:ident::$case:ident),* $(,)?]) => {
        conformance!($backend, $fixture, without [
            $($theme::$case,)*
            loss::a_holder_is_told_before_another_can_hold,
            loss::a_holder_out_of_reach_of_its_store_is_told_why,
            loss::a_short_outage_costs_no_lease,
            loss::a_refused_renewal_is_told,
            loss::a_lease_that_is_gone_is_told,
            outage::a_store_out_of_reach_is_one_typed_error,
            outage::it_recovers_without_a_restart,
            outage::a_failed_acquire_leaves_nothing_behind,
            outage::a_waiter_learns_of_a_long_outage,
            outage::a_waiter_that_comes_back_has_its_place,
            outage::a_grant_that_was_not_heard_goes_to_the_next,
            outage::a_wait_with_a_limit_ends_in_an_outage_too,
            outage::a_grant_that_nobody_wants_any_more_is_given_back,
            outage::nobody_overtakes_the_queue_after_an_expiry,
            release::a_release_that_did_not_reach_the_store_is_tried_again,
            release::a_release_that_did_not_reach_the_store_goes_on_by_itself,
            release::a_drop_that_did_not_reach_the_store_goes_on_by_itself,
            release::a_late_release_does_not_end_the_next_lease,
            run::run_keeps_the_value_when_the_release_fails,
            cohort::a_turn_is_passed_on_or_waits_out_of_reach,
            detach::a_detach_that_did_not_reach_the_store_is_tried_again,
            surface::a_guard_knows_its_facts_out_of_reach_too,
            retry::an_acquire_without_an_answer_is_asked_again,
            retry::an_enqueue_without_an_answer_is_in_the_queue_once,
            retry::a_release_without_an_answer_is_sent_again,
            retry::a_renewal_without_an_answer_costs_no_lease,
            retry::a_take_over_without_an_answer_is_asked_again,
            retry::an_adoption_without_an_answer_is_asked_again,
            retry::one_that_gives_up_on_an_answer_leaves_nothing,
            retry::an_acquire_without_an_answer_ends_with_its_domain,
        ]);
    };
}

without_a_line!(
    memory,
    RealTime::new(),
    nor [
        waiting::a_dead_waiter_is_skipped,
        waiting::a_row_of_dead_waiters_is_skipped,
        waiting::a_dead_waiter_leaves_nothing_behind,
    ]
);

/// [`testing::Store`], whose time stands still until it is moved.
struct OwnTime(testing::Store);

struct OnALine(testing::Client);

impl Client for OnALine {
    fn domain(&self) -> &Domain {
        self.0.domain()
    }

    async fn cut_off(&self) {
        self.0.cut_off();
    }

    async fn reconnect(&self) {
        self.0.reconnect();
    }

    async fn lose_next_reply(&self) {
        self.0.lose_next_reply();
    }
}

impl Fixture for OwnTime {
    type Client = OnALine;

    /// One thread: the clock moves when everything on it is at rest.
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    async fn client(&self) -> OnALine {
        OnALine(self.0.client())
    }

    fn let_pass(&self, time: Duration) -> impl Future<Output = ()> + Send {
        self.0.advance(time)
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        let client = self.0.client();
        let ticket = die_in_process(async { client.domain().clone() }, doing, name, ttl);
        client.cut_off();
        ticket
    }
}

conformance!(memory_with_own_time, OwnTime(testing::Store::new()), without []);

/// A directory of its own, in real time, with clients that are strangers to each other and with processes that are killed.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tenure-conformance-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Directory(std::env::temp_dir().join(name))
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

impl Fixture for Directory {
    type Client = Shared;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime")
    }

    async fn client(&self) -> Shared {
        Shared(Domain::open(&self.url()).await.expect("a directory of this process"))
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// A real process, killed.
    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        let mut process = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "a_doomed_process", "--ignored", "--nocapture"])
            .env("TENURE_DOOMED_URL", self.url())
            .env("TENURE_DOOMED_NAME", name)
            .env("TENURE_DOOMED_TTL", ttl.as_millis().to_string())
            .env("TENURE_DOOMED_DOING", format!("{doing:?}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let said =
            lines.map_while(Result::ok).find_map(|line| line.strip_prefix("doomed: ").map(str::to_owned));
        process.kill().expect("to kill a process");
        process.wait().expect("to bury it");
        let said = said.expect("it came to where it was to die");
        (doing == Doing::Detached).then(|| said.parse().expect("a ticket"))
    }

    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[
            (Ability::CutOff, "there is no line to cut between a process and its own machine's files"),
            (Ability::LoseReplies, "there is no reply to lose between a process and its own machine's files"),
        ]
    }
}

/// Goes where [`Directory::die`] wants it, says so, and waits to be killed.
#[test]
#[ignore = "run by other tests, as a process that they kill"]
fn a_doomed_process() {
    let var = |name: &str| std::env::var(format!("TENURE_DOOMED_{name}")).expect("to be run by another test");
    let ttl = Duration::from_millis(var("TTL").parse().expect("a number"));
    let doing = [Doing::Holding, Doing::Waiting, Doing::Detached]
        .into_iter()
        .find(|doing| format!("{doing:?}") == var("DOING"))
        .expect("something to do");
    let open = async { Domain::open(&var("URL")).await.expect("to open it") };
    let ticket = die_in_process(open, doing, &var("NAME"), ttl);
    println!("\ndoomed: {}", ticket.map_or(String::from("ready"), |ticket| ticket.to_string()));
    std::thread::sleep(Duration::from_secs(60));
}

without_a_line!(file, Directory::new(), nor []);

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
    is_send_and_sync::<tenure::Tenure>();
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
    is_send_and_sync::<tenure::Status>();
    is_send_and_sync::<tenure::Busy>();
    is_send_and_sync::<tenure::Health>();
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
    is_spawnable(domain.adopt(&ticket));
    is_spawnable(domain.health());
    is_spawnable(domain.capabilities());
    is_spawnable(domain.close());
    is_spawnable(lock.acquire());
    is_spawnable(lock.try_acquire());
    is_spawnable(lock.try_acquire_for(Duration::ZERO));
    is_spawnable(lock.take_over());
    is_spawnable(lock.run(async |tenure| tenure.lost().await));
    is_spawnable(lock.try_run(async |tenure| tenure.fence()));
    is_spawnable(lock.try_run_for(Duration::ZERO, async |_| ()));
    is_spawnable(guards[0].lost());
    is_spawnable(guards[0].renew());
    let [first, second] = guards;
    is_spawnable(first.release());
    is_spawnable(second.detach());
    let task =
        tokio::spawn(async move { lock.run(async |tenure| tenure.fence()).await.map(|ran| ran.value) });
    drop(task.await);
}
