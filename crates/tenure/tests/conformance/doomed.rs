//! A real process that dies without a word: it is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure::{Domain, Ticket};
use tenure_testkit::conformance::{Doing, die_in_process};

/// Runs a process that does this with the name, and kills it while it does.
pub(crate) fn kill(url: &str, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
    let mut process = Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "doomed::a_doomed_process", "--ignored", "--nocapture"])
        .env("TENURE_DOOMED_URL", url)
        .env("TENURE_DOOMED_NAME", name)
        .env("TENURE_DOOMED_TTL", ttl.as_millis().to_string())
        .env("TENURE_DOOMED_DOING", format!("{doing:?}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
    let said = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("doomed: ").map(str::to_owned));
    process.kill().expect("to kill a process");
    process.wait().expect("to bury it");
    let said = said.expect("it came to where it was to die");
    (doing == Doing::Detached).then(|| said.parse().expect("a ticket"))
}

/// Goes where [`kill`] wants it, says so, and waits to be killed.
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
