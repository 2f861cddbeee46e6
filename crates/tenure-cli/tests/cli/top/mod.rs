//! `tenure top`, on a terminal of its own.

mod terminal;

use std::process::Stdio;

use rustix::process::Signal;

use self::terminal::Terminal;
use crate::support::{Place, Running, eventually, state};

/// Holds a name, and says so.
fn hold(place: &Place, name: &str) -> Running {
    let script = format!("touch 'held-{}'; exec sleep 600", name.replace('/', "-"));
    let holder = place.start(&["run", "--label", "by hand", name, "--", "sh", "-c", &script]);
    eventually("the name is held", || place.path(&format!("held-{}", name.replace('/', "-"))).exists());
    holder
}

fn end(holder: Running) {
    holder.signal(Signal::TERM);
    assert_eq!(holder.finish().code, 143);
}

#[test]
fn it_shows_names_holders_and_waiters() {
    for place in [Place::new(), Place::on_redis()] {
        let (nightly, order) = (hold(&place, "nightly"), hold(&place, "orders/42"));
        let waiter = place.start(&["run", "nightly", "true"]);
        let mut terminal = Terminal::open(&place, &["top"]);
        terminal.shows("2 held, 1 waiting, round trip ");
        let screen = terminal.screen();
        let row =
            screen.lines().find(|line| line.starts_with("> nightly")).unwrap_or_else(|| panic!("{screen}"));
        assert!(row.contains("by hand") && row.contains("█") && row.contains("    1  "), "{row}");
        assert!(screen.contains("\n  orders/42 "), "{screen}");

        terminal.press("/order");
        terminal.shows("1 of 2 match `order`");
        assert!(!terminal.screen().contains("nightly"));
        // What was found stays selected. Two keys that come together are not one.
        terminal.press("\u{1b}k");
        terminal.shows("\n> nightly ");

        terminal.press("\r");
        terminal.shows("queue   1 waiting\n     1  ");
        let pid = nightly.holder().as_raw_pid();
        terminal.shows(&format!("pid {pid}\nlabel   by hand\nfence   "));

        terminal.resize(40, 10);
        terminal.shows(" below ──");
        terminal.press("\r");
        terminal.shows("  NAME▲           HELD    LEASE   QUEUE\n> nightly ");
        terminal.resize(200, 60);
        terminal
            .shows(&format!("{}b break\n", "? help  q quit  / filter  s sort  r reverse  Enter details  "));

        terminal.press("q");
        assert_eq!(terminal.end(), (0, String::new()));
        end(nightly);
        assert_eq!(waiter.finish().code, 0);
        end(order);
        assert_eq!(place.leftovers(), [""; 0], "nothing of it stays in the store");
        place.assert_nothing_left();
    }
}

#[test]
fn only_matching_names_are_read() {
    let place = Place::new();
    let (nightly, order) = (hold(&place, "nightly"), hold(&place, "orders/42"));
    let mut terminal = Terminal::open(&place, &["top", "--interval", "50ms", "order*"]);
    terminal.shows("1 held, 0 waiting");
    assert!(!terminal.screen().contains("nightly"));
    terminal.press("\u{3}");
    assert_eq!(terminal.end().0, 0);
    end(nightly);
    end(order);
}

// B4
#[test]
fn breaking_asks_for_the_name_and_ends_the_lease() {
    for place in [Place::new(), Place::on_redis()] {
        let mut holder = hold(&place, "nightly");
        let mut terminal = Terminal::open(&place, &["top"]);
        terminal.shows("> nightly");
        terminal.press("b");
        terminal.shows("Type `nightly`:");
        terminal.press("nightl\r");
        terminal.shows("`nightly` was not broken: that is not its name");
        assert!(!holder.has_ended());
        terminal.press("bnightly\r");
        terminal.shows("`nightly` was taken from ");
        assert_eq!(holder.finish().code, 79);
        terminal.shows("no name is held or waited for");
        terminal.press("q");
        assert_eq!(terminal.end().0, 0);
    }
}

#[test]
fn a_lease_that_came_after_the_one_that_was_shown_is_not_broken() {
    let place = Place::new();
    let first = hold(&place, "nightly");
    let mut terminal = Terminal::open(&place, &["top"]);
    terminal.shows("> nightly");
    terminal.press("b");
    terminal.shows("Type `nightly`:");
    end(first);
    std::fs::remove_file(place.path("held-nightly")).unwrap();
    let mut second = hold(&place, "nightly");
    terminal.press("nightly\r");
    terminal.shows("`nightly` was not broken: that lease had ended, and ");
    assert!(!second.has_ended());
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
    end(second);
}

#[test]
fn signals_end_it_and_the_terminal_is_as_it_was() {
    let place = Place::new();
    for (signal, code) in [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)] {
        let mut terminal = Terminal::open(&place, &["top"]);
        terminal.shows("no name is held or waited for");
        assert!(terminal.is_raw());
        terminal.signal(signal);
        assert_eq!(terminal.end(), (code, String::new()), "{signal:?}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
}

// As when a connection hangs.
#[test]
fn a_signal_ends_it_on_a_terminal_that_takes_nothing() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &["top"]);
    terminal.shows("no name is held or waited for");
    terminal.choke();
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.end_unread(), 143);
}

#[test]
fn control_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() {
    let place = Place::new();
    let mut shell = place.command("setsid");
    // With job control, as an interactive shell.
    let script = "set -m; \"$0\" top; echo code $?; read line; fg >/dev/null; echo code $?";
    shell.args(["--ctty", "bash", "-c", script, env!("CARGO_BIN_EXE_tenure")]);
    let mut terminal = Terminal::with(shell);
    terminal.shows("no name is held or waited for");
    terminal.press("\u{1a}");
    terminal.shows("code 148");
    assert!(!terminal.is_raw());
    let is_stopped = |pid: &i32| state(rustix::process::Pid::from_raw(*pid).unwrap()) == Some('T');
    assert!(place.processes().iter().any(is_stopped));
    let written = terminal.bytes.len();
    terminal.press("\n");
    eventually("it takes the screen again", || {
        terminal.screen();
        let bytes = String::from_utf8_lossy(&terminal.bytes[written..]).into_owned();
        bytes.contains("\u{1b}[?1049h") && terminal.is_raw()
    });
    terminal.shows("no name is held or waited for");
    terminal.press("q");
    let (code, after) = terminal.end();
    assert_eq!((code, after.trim()), (0, "code 0"));
}

// Without a shell that could continue it, as over `ssh -t host tenure top`.
#[test]
fn control_z_without_a_shell_does_not_stop_it() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place, &["top"]);
    terminal.shows("no name is held or waited for");
    terminal.press("\u{1a}/text");
    terminal.shows("\n/text\n");
    terminal.press("\u{3}");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn an_outage_freezes_nothing_and_ends_by_itself() {
    let place = Place::on_redis();
    let _holder = hold(&place, "nightly");
    let mut terminal = Terminal::open(&place, &["top"]);
    terminal.shows("> nightly");
    place.server().stop();
    terminal.shows("; rows are stale");
    terminal.press("/night");
    terminal.shows("\n/night\n");
    terminal.press("\u{1b}");
    place.server().cont();
    eventually("it is fresh again", || !terminal.screen().contains("stale"));
    place.server().kill();
    terminal.shows("store is away since ");
    terminal.press("?");
    terminal.shows("any key: back");
    terminal.press("?");
    place.server().restart();
    eventually("it is back", || !terminal.screen().contains("away"));
    terminal.shows("round trip");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn a_store_that_is_away_at_first_is_shown_and_no_password() {
    let place = Place::new();
    let url = "redis://ada:secret@127.0.0.1:1";
    let mut terminal = Terminal::open(&place, &["top", "--url", url]);
    terminal.shows("store is away since ");
    terminal.shows("tenure top  redis://ada:***@127.0.0.1:1");
    terminal.press("q");
    assert!(!String::from_utf8_lossy(&terminal.bytes).contains("secret"));
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn an_error_that_stays_ends_it() {
    let place = Place::on_redis();
    let url = place.url().replace("redis://", "redis://nobody:wrong@");
    let terminal = Terminal::open(&place, &["top", "--url", &url]);
    let (code, message) = terminal.end();
    assert_eq!(code, 77, "{message}");
    assert!(message.starts_with("tenure: "), "{message}");
}

#[test]
fn without_a_terminal_it_names_other_commands() {
    let place = Place::new();
    let expected = "tenure: `top` needs a terminal on stdin and stdout, and its name in TERM; use `tenure ls` or `tenure watch --json`\n";
    let finished = place.end(&["top"]);
    assert_eq!((finished.code, &*finished.stdout, &*finished.stderr), (64, "", expected));
    // On a terminal, but for stdout.
    let mut script = place.command("script");
    let command = format!("{} top > out; echo $? > code", env!("CARGO_BIN_EXE_tenure"));
    script.args(["-q", "-c", &command, "/dev/null"]).stdin(Stdio::null());
    place.spawn(script).finish();
    assert_eq!((&*place.read("code"), &*place.read("out")), ("64\n", ""));
    for interval in ["49ms", "0", "-1", "often"] {
        assert_eq!(place.end(&["top", "--interval", interval]).code, 64, "{interval}");
    }
    assert_eq!(place.end(&["top", "a["]).code, 64);
}

#[test]
fn no_color_is_honoured() {
    let place = Place::new();
    for (variable, is_coloured) in [(None, true), (Some("NO_COLOR"), false)] {
        let mut command = place.command("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tenure"), "top"]);
        command.env_remove("NO_COLOR").envs(variable.map(|variable| (variable, "1")));
        let mut terminal = Terminal::with(command);
        terminal.shows("no name is held or waited for");
        let bytes = String::from_utf8_lossy(&terminal.bytes).into_owned();
        assert_eq!(bytes.contains("\u{1b}[38;5;"), is_coloured, "{variable:?}");
        terminal.press("q");
        assert_eq!(terminal.end().0, 0);
    }
}

// B6
#[test]
fn a_lock_of_another_library_is_shown_as_one() {
    let place = Place::on_redis();
    place.server().command(&["SET", "tenure:nightly", "theirs", "NX"]);
    let mut terminal = Terminal::open(&place, &["top"]);
    terminal.shows("another library");
    terminal.shows("████████ no end");
    // At the second look it is compared with the first.
    place.server().command(&["SET", "tenure:weekly", "theirs", "NX"]);
    terminal.shows("2 held, 0 waiting");
    terminal.press("\r");
    terminal.shows("lease   without expiry: it stays until it is released or broken");
    terminal.press("bnightly\r");
    terminal.shows("`nightly` was taken from a lock of another library");
    terminal.shows("1 held, 0 waiting");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

/// `top` makes no directory, and shows what is in one as soon as it is there.
#[test]
fn an_inner_directory_is_not_made_by_it() {
    let place = Place::on_redis();
    let inner = place.path("inner");
    let url = format!("{}?inner=file://{}&degrade=allow", place.url(), inner.display());
    let nightly = hold(&place, "nightly");
    let mut terminal = Terminal::open(&place, &["top", "--url", &url]);
    terminal.shows("> nightly ");
    assert!(!inner.exists());
    end(nightly);
    place.server().kill();
    let alone = place.start(&["run", "--url", &url, "alone", "--", "sleep", "600"]);
    terminal.shows("> alone ");
    terminal.press("q");
    terminal.end();
    end(alone);
}
