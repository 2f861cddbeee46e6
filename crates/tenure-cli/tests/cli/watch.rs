//! `tenure watch`: events of what real processes do, and nothing that they would feel.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::ls_status::{acquire, both, fence, holder, objects, waiter};
use crate::support::{Place, Running, eventually};

/// A watcher that has looked once: `present` is held by someone.
fn watcher(place: &Place, args: &[&str]) -> Running {
    acquire(place, &["--ttl", "10m"], "present");
    let running = place.start(&[&["watch", "--json", "--interval", "50ms"], args].concat());
    eventually("it has looked", || running.printed().contains("\"present\""));
    running
}

/// The events on a name so far, each with the label of whom it is about.
fn events(watcher: &Running, name: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of(watcher, name).iter().map(|event| (text(&event["event"]), text(&event["label"]))).collect()
}

/// The whole lines that were printed about a name.
fn of(watcher: &Running, name: &str) -> Vec<Value> {
    let printed = watcher.printed();
    let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
    objects(whole).into_iter().filter(|event| event["name"] == name).collect()
}

#[track_caller]
fn await_events(watcher: &Running, name: &str, expected: &[(&str, &str)]) {
    let is_so = || {
        let events = events(watcher, name);
        events.iter().map(|(event, label)| (event.as_str(), label.as_str())).eq(expected.iter().copied())
    };
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed().as_secs() < 30, "{:?} and not {expected:?}", events(watcher, name));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

// R4.5
#[test]
fn a_name_passes_from_one_to_the_next() {
    for place in both() {
        let watcher = watcher(&place, &[]);
        let first = holder(&place, &["--label", "a"], "name");
        await_events(&watcher, "name", &[("acquired", "a")]);
        let second = waiter(&place, &["--label", "b"], "name");
        await_events(&watcher, "name", &[("acquired", "a"), ("queued", "b")]);
        first.signal(Signal::TERM);
        let passed = [("acquired", "a"), ("queued", "b"), ("released", "a"), ("acquired", "b")];
        await_events(&watcher, "name", &passed);
        let fence = fence(&place, "name");
        second.signal(Signal::TERM);
        await_events(&watcher, "name", &[&passed[..], &[("released", "b")]].concat());

        let events = of(&watcher, "name");
        assert!(events.iter().all(|event| event["v"] == 1 && event["time_unix_ms"].is_u64()), "{events:?}");
        assert_eq!((&events[3]["fence"], &events[4]["fence"]), (&fence.into(), &fence.into()));
        assert_eq!(events[0]["fence"], events[2]["fence"]);
        let waited = |index: usize| events[index]["waited_ms"].as_u64().unwrap();
        assert!(waited(3) >= waited(1), "{events:?}");
        assert!(events[0]["waited_ms"].is_null() && events[2]["held_ms"].is_u64(), "{events:?}");
        assert!(events[3]["lease_left_ms"].is_u64() && events[4]["lease_left_ms"].is_null(), "{events:?}");
    }
}

// R4.5
#[test]
fn a_waiter_that_gives_up_has_left() {
    for place in both() {
        let watcher = watcher(&place, &[]);
        let waiting = waiter(&place, &["--label", "b"], "present");
        await_events(&watcher, "present", &[("held", ""), ("queued", "b")]);
        waiting.signal(Signal::INT);
        await_events(&watcher, "present", &[("held", ""), ("queued", "b"), ("left", "b")]);
    }
}

// R4.5
#[test]
fn expired_broken_and_released_are_told_apart() {
    for place in both() {
        let watcher = watcher(&place, &[]);
        acquire(&place, &["--ttl", "2s", "--label", "short"], "name");
        await_events(&watcher, "name", &[("acquired", "short"), ("expired", "short")]);
        acquire(&place, &["--ttl", "10m", "--label", "b"], "broken");
        await_events(&watcher, "broken", &[("acquired", "b")]);
        let fence = fence(&place, "broken").to_string();
        assert_eq!(place.end(&["break", "--yes", "--fence", &fence, "broken"]).code, 0);
        await_events(&watcher, "broken", &[("acquired", "b"), ("broken", "b")]);
        assert_eq!(of(&watcher, "broken")[1]["fence"].to_string(), fence);
        let ticket = place.end(&["acquire", "--ttl", "10m", "--label", "c", "given"]).stdout;
        await_events(&watcher, "given", &[("acquired", "c")]);
        assert_eq!(place.end(&["release", ticket.trim()]).code, 0);
        await_events(&watcher, "given", &[("acquired", "c"), ("released", "c")]);
    }
}

#[test]
fn for_people_and_of_a_pattern() {
    for place in both() {
        let held = holder(&place, &["--label", "by\nhand"], "orders/1");
        acquire(&place, &[], "other");
        let watcher = place.start(&["watch", "orders/*"]);
        let lines = || watcher.printed().lines().map(str::to_owned).collect::<Vec<_>>();
        eventually("what is there is shown first", || lines().len() == 1);
        held.signal(Signal::TERM);
        eventually("its end", || lines().len() == 2);
        let [first, second] = &lines()[..] else { panic!() };
        assert_eq!((&first[10..11], &first[19..20], &first[23..25]), ("T", ".", "Z "), "{first}");
        assert!(first[25..].starts_with("held     `orders/1` by "), "{first}");
        assert!(first.contains(", label `by\\nhand`, fence ") && first.contains(", lease left "), "{first}");
        assert!(second[25..].starts_with("released `orders/1` by "), "{second}");
        assert!(second.contains(", held for "), "{second}");
        assert_eq!(watcher.said(), "");
    }
}

#[test]
fn it_ends_by_a_signal_or_with_its_reader() {
    for place in both() {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let mut watching = watcher(&place, &[]);
            assert!(!watching.has_ended());
            watching.signal(signal);
            let done = watching.finish();
            assert_eq!((done.code, done.stderr.as_str()), (code, ""));
            let ticket = place.inspect("present").holder.unwrap().fence.to_string();
            assert_eq!(place.end(&["break", "--yes", "--fence", &ticket, "present"]).code, 0);
        }
        // Nothing happens, so that nothing is printed that could fail.
        let mut unread = place.tenure(&["watch", "nothing"]);
        let (reader, writer) = std::io::pipe().unwrap();
        let mut child = unread.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        drop((unread, reader));
        eventually("it ends", || child.try_wait().unwrap().is_some());
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
        place.assert_nothing_left();
    }
    let place = Place::new();
    let often = place.end(&["watch", "--interval", "10ms"]);
    assert_eq!(often.code, 64);
    assert!(often.stderr.contains("use 50ms or more"), "{often:?}");
}

/// A pipe that is full, and not closed: nothing can be written, and a signal is heard all the same.
#[test]
fn it_ends_by_a_signal_also_when_nobody_reads() {
    let place = Place::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while std::io::Write::write(&mut writer, &[b'x'; 4_096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    acquire(&place, &["--ttl", "10m"], "present");
    let mut child = place.tenure(&["watch"]).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let waits_for = || std::fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count);
    eventually("it writes", || waits_for() > 1);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn it_goes_on_after_an_outage() {
    let place = Place::on_redis();
    let watcher = watcher(&place, &[]);
    place.server().kill();
    eventually("it says so", || watcher.said().contains("store is away: "));
    place.server().restart();
    eventually("it says so", || watcher.said().contains("store is back, after "));
    assert_eq!(watcher.said().lines().count(), 2, "once each: {}", watcher.said());
    acquire(&place, &["--label", "b"], "name");
    await_events(&watcher, "name", &[("acquired", "b")]);
    place.server().kill();
    eventually("it is told again", || watcher.said().matches("store is away: ").count() == 2);
    let away = place.end(&["watch"]);
    assert_eq!(away.code, 69, "at the start nobody knows that there is such a store: {away:?}");
}

#[test]
fn nobody_feels_a_watcher() {
    let place = Place::on_redis();
    let _holder = holder(&place, &[], "name");
    let _waiter = waiter(&place, &[], "name");
    place.await_queue(1);
    acquire(&place, &["--ttl", "4s"], "expires");
    let mut monitor = place.server().client().unwrap();
    monitor.command(&["MONITOR"]).unwrap();
    let watcher = place.start(&["watch", "--json", "--interval", "50ms"]);
    eventually("an expiry is seen", || {
        of(&watcher, "expires").iter().any(|event| event["event"] == "expired")
    });
    let addresses = watchers_addresses(&place, &watcher);
    // What a script does is told as the script's own, with `lua` in place of an address.
    let (mut seen, mut is_of_watcher, mut asked_to_track) = (Vec::new(), false, 0);
    monitor.set_patience(std::time::Duration::from_millis(300)).unwrap();
    while seen.len() < 300 {
        let Ok(reply) = monitor.receive() else { break };
        let line = reply.text();
        let Some((head, words)) = line.split_once("] ") else { continue };
        let is_script = head.ends_with(" lua");
        if !is_script {
            is_of_watcher = addresses.iter().any(|address| head.ends_with(address));
        }
        if is_of_watcher {
            asked_to_track += usize::from(words.to_ascii_lowercase().contains("caching"));
            let word = words.split('"').nth(1).unwrap_or_default().to_ascii_lowercase();
            seen.push((word, is_script));
        }
    }
    assert!(seen.iter().any(|(word, is_script)| word == "pttl" && *is_script), "it has looked: {seen:?}");
    assert!(asked_to_track <= 1, "once, for no key, to learn whether the server does it: {seen:?}");
    let reads = [
        "hello", "client", "config", "info", "role", "time", "ping", "command", "acl", "scan", "evalsha",
        "eval", "get", "pttl", "zrange", "hget", "hmget", "mget", "exists", "select",
    ];
    for (word, _) in &seen {
        assert!(reads.contains(&word.as_str()), "a watcher sent {word}");
    }
}

/// The addresses of the watcher's connections, as the server sees them.
fn watchers_addresses(place: &Place, watcher: &Running) -> Vec<String> {
    let pid = watcher.pid().as_raw_pid();
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ports = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let port = u16::from_str_radix(fields[1].split_once(':')?.1, 16).ok()?;
        sockets.iter().any(|inode| inode == fields[9]).then(|| format!("127.0.0.1:{port}"))
    });
    let ports: Vec<_> = ports.collect();
    assert!(!ports.is_empty(), "{}", place.server().command(&["CLIENT", "LIST"]).text());
    ports
}

/// What is held on this machine alone is in the inner directory, which the first holder makes.
// R4.5
#[test]
fn an_inner_directory_is_read_as_soon_as_it_exists() {
    let place = Place::on_redis();
    let inner = place.path("inner");
    let url = format!("{}?inner=file://{}&degrade=allow", place.url(), inner.display());
    let watcher = watcher(&place, &["--url", &url]);
    assert!(!inner.exists());
    place.server().kill();
    let running = place.start(&["run", "--url", &url, "--label", "alone", "name", "--", "sleep", "600"]);
    await_events(&watcher, "name", &[("acquired", "alone")]);
    running.signal(Signal::TERM);
    await_events(&watcher, "name", &[("acquired", "alone"), ("released", "alone")]);
    running.finish();
}
