//! Locks of three libraries around a read and a write that are apart: no update is lost.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::redis::RedisServer;

use super::Library::{RedisPy, Redlock};
use super::peer::{PATIENCE, Peer};

const OUR_TURNS: usize = 6;
/// Between a read and its write, and between two turns.
const MOMENT: Duration = Duration::from_millis(5);
const TTL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs,
}

/// A number in a file; and who counted, in the order of the turns.
struct Counter {
    file: PathBuf,
    turns: Mutex<Vec<Whose>>,
}

impl Counter {
    /// Only for who holds the lock. Returns how many turns there were.
    fn count(&self, whose: Whose) -> usize {
        let number: usize = fs::read_to_string(&self.file).unwrap().parse().expect("a number");
        thread::sleep(MOMENT);
        fs::write(&self.file, (number + 1).to_string()).unwrap();
        let mut turns = self.turns.lock().unwrap();
        turns.push(whose);
        turns.len()
    }

    fn have_they_counted_since(&self, turn: usize) -> bool {
        self.turns.lock().unwrap()[turn..].contains(&Whose::Theirs)
    }
}

// B6
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_update_is_lost_between_two_of_theirs_and_two_of_ours() {
    let server = RedisServer::start();
    let counter = Counter { file: server.socket_path().with_file_name("counter"), turns: Mutex::default() };
    fs::write(&counter.file, "0").unwrap();
    let mut peers = [RedisPy, Redlock].map(|library| Peer::start(library, &server));
    let url = format!("{}?prefix=app:", server.url());
    let domains = [Domain::open(&url).await.unwrap(), Domain::open(&url).await.unwrap()];
    let we_are_done = AtomicBool::new(false);

    thread::scope(|scope| {
        // They go on for as long as we count, and once more.
        for peer in &mut peers {
            scope.spawn(|| {
                let mut is_last = false;
                while !is_last {
                    is_last = we_are_done.load(Ordering::SeqCst);
                    assert_eq!(peer.ask(&format!("acquire app:counter {}", TTL.as_millis())), "acquired");
                    counter.count(Whose::Theirs);
                    assert_eq!(peer.ask("release"), "released");
                    thread::sleep(MOMENT);
                }
            });
        }
        let ours = domains.map(|domain| {
            let counter = &counter;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    for _ in 0..OUR_TURNS {
                        let guard = domain.lock("counter").ttl(TTL).acquire().await.unwrap();
                        let turn = counter.count(Whose::Ours);
                        guard.release().await.unwrap();
                        // Ours would pass it on to each other until they are done.
                        let begun = Instant::now();
                        while !counter.have_they_counted_since(turn) {
                            assert!(begun.elapsed() < PATIENCE, "they never count");
                            tokio::time::sleep(MOMENT).await;
                        }
                    }
                });
            })
        });
        let ends = ours.map(|thread| thread.join());
        we_are_done.store(true, Ordering::SeqCst);
        assert!(ends.iter().all(Result::is_ok), "we could not count");
    });

    let turns = counter.turns.into_inner().unwrap();
    let number = fs::read_to_string(&counter.file).unwrap();
    assert_eq!(number, turns.len().to_string(), "an update was lost");
    let passed_on = turns.windows(2).filter(|pair| pair[0] != pair[1]).count();
    println!("{} turns, {passed_on} times passed on between theirs and ours", turns.len());
    assert!(passed_on >= OUR_TURNS, "they did not contend");
}
