//! Many clients that lose their connections at the same moment, because the server stalls. TLS makes a connection expensive: a server that
//! spends its time on handshakes that their clients have given up never gets out of it.
//!
//! The clients are in a process of their own, because of its environment: for each connection the driver reads the authorities that the
//! system trusts, which in a test build costs more than the rest of a connection. `TENURE_STORM_CLIENTS=2000` asks for as many.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tenure::{Domain, Error, Guard};
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{Proxy, RedisServer};

const STALL: Duration = Duration::from_millis(1_200);
/// It is over when no connection is attempted for so long: longer than a client pauses before it tries again.
const CALM: Duration = Duration::from_secs(9);
/// What a client may need: the server answers some of the first attempts too late, and fewer of the next ones.
const MOST_ATTEMPTS: u64 = 6;

/// The clients, each with a lease. They end with this value.
struct Clients {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Clients {
    fn start(server: &RedisServer, many: usize) -> Self {
        let ca = server.ca_path();
        let mut process = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "redis::opening::storm::a_process_of_many_clients", "--ignored", "--nocapture"])
            .env(
                "TENURE_STORM_URL",
                format!("{}?tls_ca={}&ttl=10m&timeout=500ms", server.tls_url(), ca.display()),
            )
            .env("TENURE_STORM_CLIENTS", many.to_string())
            // The authorities that the system trusts: none but ours.
            .env("SSL_CERT_FILE", &ca)
            .env("SSL_CERT_DIR", ca.parent().expect("a directory"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(process.stdout.take().expect("a pipe"));
        Clients { process, said }
    }

    /// Waits until it has said this.
    fn says(&mut self, word: &str) {
        let lines = self.said.by_ref().lines();
        assert!(
            lines.map_while(Result::ok).any(|line| line.ends_with(word)),
            "it ended before it said {word}"
        );
    }

    fn check(&mut self) {
        self.process.stdin.as_mut().expect("a pipe").write_all(b"check\n").expect("a process that lives");
        self.says("well");
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Asks again while the machine is too busy for the timeout.
async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let begin = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient() && begin.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn hold(url: &str, number: usize) -> (Domain, Guard) {
    let domain = patiently(async || Domain::open(url).await).await;
    let guard = patiently(async || domain.lock(format!("orders/{number}")).acquire().await).await;
    (domain, guard)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by another test, in a process of its own"]
async fn a_process_of_many_clients() {
    let var = |name: &str| std::env::var(format!("TENURE_STORM_{name}")).expect("to be run by another test");
    let (url, many): (_, usize) = (var("URL"), var("CLIENTS").parse().expect("a number"));
    let mut held = Vec::new();
    for number in 0..many {
        held.push(hold(&url, number).await);
    }
    println!("\nready");
    let wait = || std::io::stdin().lines().next();
    if tokio::task::spawn_blocking(wait).await.expect("no panic").is_none() {
        return;
    }
    for (domain, guard) in &held {
        patiently(async || domain.health().await).await;
        assert!(guard.is_held());
    }
    println!("\nwell");
}

/// Connections that clients have made so far. Each question is one as well.
fn attempts(server: &RedisServer, questions: &mut u64) -> u64 {
    *questions += 1;
    let stats = server.question(&["INFO", "stats"]).text();
    let field = |line: &str| line.strip_prefix("total_connections_received:")?.trim().parse().ok();
    stats.lines().find_map(field).map(|all: u64| all - *questions).expect("a number")
}

// R2.3: a client whose attempts are not answered gives each of them twice the time of the one before.
#[tokio::test]
async fn attempts_that_are_not_answered_become_rare() {
    let server = RedisServer::start();
    let (proxy, timeout) = (Proxy::new(&server), Duration::from_millis(50));
    let domain = patiently(async || Domain::open(format!("{}?timeout=50ms", proxy.url())).await).await;
    let (before, begin) = (proxy.accepted(), Instant::now());
    proxy.black_hole();
    // Six attempts in vain, and the beginning of the seventh.
    until("it was tried", || proxy.accepted() >= before + 7).await;
    let elapsed = begin.elapsed();
    assert!(elapsed >= (1 + 2 + 4 + 8 + 16 + 32) * timeout, "seven attempts within {elapsed:?}");
    proxy.heal();
    patiently(async || domain.health().await).await;
}

// R0.5, R2.3
#[test]
fn connections_settle_after_a_stall() {
    let asked = std::env::var("TENURE_STORM_CLIENTS").ok();
    let many = asked.map_or(100, |many| many.parse().expect("a number"));
    let server = RedisServer::builder().tls().start();
    let mut clients = Clients::start(&server, many);
    clients.says("ready");
    let mut questions = 0;
    let before = attempts(&server, &mut questions);
    server.stop();
    std::thread::sleep(STALL);
    server.cont();
    let begin = Instant::now();
    let limit = 3 * PATIENCE + Duration::from_millis(20) * u32::try_from(many).expect("not too many");
    let (mut seen, mut since) = (before, begin);
    while since.elapsed() < CALM {
        assert!(begin.elapsed() < limit, "{} attempts of {many} clients, and no end", seen - before);
        std::thread::sleep(Duration::from_millis(100));
        let now = attempts(&server, &mut questions);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    clients.check();
    let (attempts, last) = (seen - before, since.duration_since(begin));
    println!("{many} clients: {attempts} attempts, the last one {last:?} after the stall");
    assert!(
        attempts >= many as u64,
        "each of {many} clients lost its connection, and there were {attempts} attempts"
    );
    assert!(attempts <= MOST_ATTEMPTS * many as u64, "{attempts} attempts of {many} clients");
}
