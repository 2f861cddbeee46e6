//! The log format, the recorder and the resources: what is written is what is read, whatever happens.

use super::{Check, Counter, Event, FencedFile, FencedMemory, History, MemoryLog, Outcome, Recorder, Report};
use super::{What, log, now};
use proptest::prelude::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A new, empty directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tenure-oracle-{name}-{}-{}", std::process::id(), now()));
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn any_what() -> impl Strategy<Value = What> {
    let (name, n, maybe) = (any::<String>(), any::<u64>(), any::<Option<u64>>());
    let (kind, victim, of) = (any::<String>(), any::<Option<String>>(), any::<Option<String>>());
    ((name, n, n, maybe), (kind, victim, of), 0..14).prop_map(
        |((name, fence, n, since), (kind, victim, of), which)| match which {
            0 => What::Requested { name },
            1 => What::Granted { name, fence, deadline: n, since },
            2 => What::Renewed { name, fence, deadline: n },
            3 => What::Released { name, fence },
            4 => What::Lost { name, fence },
            5 => What::GaveUp { name },
            6 => What::Killed { victim: name },
            7 => What::Fault { kind, victim, name: of },
            8 => What::Healed { kind, victim, name: of },
            9 => What::Accepted { name, fence, seq: n },
            10 => What::Rejected { name, fence, last: n },
            11 => What::Read { name, value: n },
            12 => What::Wrote { name, value: n },
            _ => What::Final { name, value: n },
        },
    )
}

proptest! {
    #[test]
    fn every_event_survives_its_line(at: u64, client in ".+", what in any_what()) {
        let event = Event { at, client, what };
        let line = log::encode(&event);
        prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", line);
        prop_assert_eq!(log::decode(&line), Ok(event));
    }

    #[test]
    fn no_line_makes_the_reader_panic(line in ".*") {
        let _ = log::decode(&line);
    }
}

#[test]
fn the_format_is_what_other_languages_write() {
    let what = What::Granted { name: "a b\n%é".to_owned(), fence: 17, deadline: 9, since: None };
    let event = Event { at: 8, client: "p3/t1".to_owned(), what };
    assert_eq!(event.to_string(), "8 p3/t1 granted name=a%20b%0A%25%C3%A9 fence=17 deadline=9");
    assert_eq!(log::decode("8 p3/t1 granted deadline=9 fence=17 name=a%20b%0a%25%c3%a9"), Ok(event));
}

#[test]
fn a_malformed_line_says_what_is_wrong() {
    for (line, why) in [
        ("", "no time"),
        ("x a lost name=n fence=1", "`time` is not a number: `x`"),
        ("1  lost name=n fence=1", "no client"),
        ("1 a", "no event"),
        ("1 a left name=n", "unknown event `left`"),
        ("1 a lost name=n", "no `fence`"),
        ("1 a lost name=n fence=-1", "`fence` is not a number: `-1`"),
        ("1 a lost name=n fence=1 fence=2", "unexpected or doubled `fence`"),
        ("1 a lost name=n fence=1 since=2", "unexpected or doubled `since`"),
        ("1 a lost name=n fence", "`fence` is not key=value"),
        ("1 a requested name=%4", "malformed escape in `%4`"),
        ("1 a requested name=%+1", "malformed escape in `%+1`"),
        ("1 a requested name=%FF", "malformed escape in `%FF`"),
    ] {
        assert_eq!(log::decode(line), Err(why.to_owned()), "{line}");
    }
}

#[test]
fn a_torn_last_line_is_forgiven_and_nothing_else() {
    let read = |files: &[(&str, &str)]| {
        let scratch = Scratch::new("torn");
        for (file, text) in files {
            std::fs::write(scratch.0.join(file), text).expect("a log");
        }
        History::read_dir(&scratch.0).map(|history| (history.events().len(), history.torn()))
    };
    let fails = |files: &[(&str, &str)], why: &str| {
        let error = read(files).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    let line = "5 a requested name=n\n";
    assert_eq!(read(&[("a.log", line), ("b.log", "6 b reque")]).expect("torn"), (1, 1));
    assert_eq!(read(&[("a.log", &format!("{line}6 a gave_up name=n"))]).expect("torn"), (1, 1), "may go on");
    assert_eq!(read(&[("a.log", line), ("notes.txt", "hello")]).expect("other files"), (1, 0));
    fails(&[("a.log", "5 a reque\n6 a requested name=n\n")], "a.log:1: unknown event `reque`");
    fails(&[("a.log", &format!("{line}4 a gave_up name=n\n"))], "a.log:2: the time goes back");
    fails(&[("a.log", &format!("{line}6 b gave_up name=n\n"))], "a.log:2: a second client in one log");
    fails(&[("a.log", line), ("b.log", line)], "client a also wrote");
    fails(&[("b.log", "6 b reque")], "no events in the logs");
    fails(&[], "no events in the logs");
}

#[test]
fn a_client_id_is_used_once() {
    let scratch = Scratch::new("once");
    let log = Recorder::in_dir(&scratch.0, "p1/t1").expect("new");
    log.requested("n");
    assert!(Recorder::in_dir(&scratch.0, "p1/t1").is_err());
    assert!(Recorder::in_dir(&scratch.0, "p1").is_ok(), "another id");
    assert_eq!(History::read_dir(&scratch.0).expect("readable").events()[0].client, "p1/t1");
}

#[test]
fn a_deadline_is_counted_from_the_stamp() {
    let log = MemoryLog::with_clock(|| 1_000);
    let client = log.recorder("a");
    client.requested("n");
    client.granted_since("n", 7, 900, || Duration::from_nanos(50));
    client.renewed("n", 7, || Duration::MAX);
    let history = log.history();
    let lines: Vec<_> = history.events().iter().map(Event::to_string).collect();
    assert_eq!(lines[1], "1000 a granted name=n fence=7 deadline=1050 since=900");
    assert_eq!(lines[2], format!("1000 a renewed name=n fence=7 deadline={}", u64::MAX));
}

/// Threads that take turns under a mutex, through everything that real clients use.
#[test]
fn threads_under_a_mutex_leave_a_clean_history() {
    let scratch = Scratch::new("threads");
    let lock = std::sync::Mutex::new(0);
    std::thread::scope(|scope| {
        for client in 0..4 {
            let (lock, dir) = (&lock, &scratch.0);
            scope.spawn(move || {
                let log = Recorder::in_dir(dir.join("logs"), &format!("p/{client}")).expect("a log");
                let resource = FencedFile::open(dir.join("resource"), "n").expect("a resource");
                let counter = Counter::open(dir.join("counter"), "n").expect("a counter");
                for _ in 0..100 {
                    log.requested("n");
                    let mut fence = lock.lock().expect("no panic");
                    *fence += 1;
                    log.granted("n", *fence, || Duration::from_secs(60));
                    let reading = counter.read(&log).expect("a reading");
                    assert_eq!(resource.write(*fence, &log).expect("a write"), Outcome::Accepted);
                    reading.write_next().expect("an update");
                    assert_eq!(resource.write(0, &log).expect("a write"), Outcome::Rejected);
                    log.released("n", *fence);
                }
            });
        }
    });
    let torturer = Recorder::in_dir(scratch.0.join("logs"), "torturer").expect("a log");
    let counter = Counter::open(scratch.0.join("counter"), "n").expect("a counter");
    assert_eq!(counter.record_final(&torturer).expect("a number"), 400);
    let history = History::read_dir(scratch.0.join("logs")).expect("readable");
    let report = Report::of(&history).updates().idle_at_most(Duration::from_secs(60));
    report.assert_clean();
    println!("{report}");
    let s2 = report.verdicts().iter().find(|verdict| verdict.check == Check::S2).expect("always");
    assert_eq!((s2.counted("writes accepted"), s2.counted("stale writes rejected")), (400, 400));
}

#[test]
fn resources_in_memory_judge_like_those_in_files() {
    let log = MemoryLog::new();
    let (client, resource, counter) = (log.recorder("a"), FencedMemory::new("n"), Counter::in_memory("n"));
    client.requested("n");
    client.granted("n", 5, || Duration::from_secs(1));
    assert_eq!(resource.write(5, &client), Outcome::Accepted);
    assert_eq!(resource.write(5, &client), Outcome::Accepted);
    assert_eq!(resource.write(4, &client), Outcome::Rejected);
    let reading = counter.read(&client).expect("a reading");
    assert_eq!(reading.value(), 0);
    reading.write_next().expect("an update");
    counter.record_final(&client).expect("a number");
    Report::of(&log.history()).updates().assert_clean();
}

#[test]
fn a_file_with_something_else_in_it_is_an_error() {
    let scratch = Scratch::new("foreign");
    std::fs::write(scratch.0.join("file"), "hello").expect("a file");
    let counter = Counter::open(scratch.0.join("file"), "n").expect("opens");
    let log = MemoryLog::new();
    assert!(counter.read(&log.recorder("a")).expect_err("no number").to_string().contains("hello"));
}

const CHILD: &str = "TENURE_ORACLE_CHILD";

/// Not a test: the process that the next test kills.
#[test]
fn child_of_the_next_test() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let log = Recorder::in_dir(dir, "p1/t1").expect("a log");
    let mut out = std::io::stdout();
    for fence in 1.. {
        log.requested("n");
        log.granted("n", fence, || Duration::from_secs(60));
        let _ = writeln!(out, "\n{fence}").and_then(|()| out.flush());
        log.released("n", fence);
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_said() {
    let scratch = Scratch::new("killed");
    let torturer = Recorder::in_dir(&scratch.0, "torturer").expect("a log");
    let (_, path) = module_path!().split_once("::").expect("a crate");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args([&format!("{path}::child_of_the_next_test"), "--exact", "--nocapture"])
        .env(CHILD, &scratch.0)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut fences = said.map_while(Result::ok).filter_map(|line| line.parse::<usize>().ok());
    let seen = fences.find(|fence| *fence >= 500).expect("it goes on");
    torturer.killed("p1");
    child.kill().expect("still there");
    child.wait().expect("gone");
    let history = History::read_dir(&scratch.0).expect("readable");
    assert!(history.grants() >= seen);
    let report = Report::of(&history);
    report.assert_clean();
    println!("{report}");
}
