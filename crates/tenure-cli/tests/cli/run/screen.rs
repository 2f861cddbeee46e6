//! What a wait looks like on a terminal, byte by byte: drawn, erased, and never in the way of the command.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::terminal::Terminal;
use crate::support::{Place, Running, eventually, state};

/// What is written to erase the line.
const ERASED: &str = "\r\x1b[J";

/// What stands on a screen after these bytes, without what is blank: enough of a terminal for what `tenure` and a shell write.
fn screen(bytes: &str) -> Vec<String> {
    let mut rows = vec![Vec::<char>::new()];
    let (mut row, mut column) = (0, 0);
    let mut bytes = bytes.chars();
    while let Some(c) = bytes.next() {
        match c {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                rows.resize(rows.len().max(row + 1), Vec::new());
            }
            '\u{7}' => {}
            '\u{8}' => column -= 1,
            // All sequences that are met here end with a letter.
            '\u{1b}' => {
                let sequence: Vec<char> = bytes.by_ref().take_while(|c| !c.is_ascii_alphabetic()).collect();
                // The letter is taken as well; of those with nothing between, only erasing shows.
                if sequence == ['['] {
                    rows[row].truncate(column);
                    rows.truncate(row + 1);
                }
            }
            c => {
                let line = &mut rows[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
    }
    let lines = rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// The lines that were drawn so far.
fn drawn(shown: &str) -> Vec<String> {
    let is_drawn = |part: &&str| part.ends_with("\x1b[J") && part.starts_with(['|', '/', '-', '\\']);
    shown.split('\r').filter(is_drawn).map(|line| line.trim_end_matches("\x1b[J").to_owned()).collect()
}

fn hold(place: &Place) -> Running {
    let holder = place.start_script(&["--ttl", "20s", "--label", "nightly"], "echo $$ > pid; sleep 600");
    place.pid("pid");
    holder
}

#[track_caller]
fn is_drawn(terminal: &Terminal) {
    eventually("a line is drawn", || drawn(&terminal.shown()).iter().any(|line| line.contains(", pid ")));
}

/// The shell has said that it is stopped, and nothing is left of what was drawn.
#[track_caller]
fn is_clean(terminal: &Terminal) {
    eventually("the line is clean", || {
        let left = screen(&terminal.shown());
        left.iter().any(|line| line.contains("Stopped")) && !left.iter().any(|line| line.contains(", pid "))
    });
}

// R4.1
#[test]
fn a_wait_is_drawn_and_erased_before_the_command_starts() {
    for place in [Place::new(), Place::on_redis()] {
        let holder = hold(&place);
        let terminal = Terminal::run(&place, "stty cols 200; $T run name -- echo done; echo $?");
        eventually("it is drawn, in all frames", || {
            let lines = drawn(&terminal.shown());
            "|/-\\".chars().all(|frame| lines.iter().any(|line| line.starts_with(frame)))
        });
        let who = format!(", pid {}, label `nightly`, for ", holder.holder());
        eventually("it shows all", || {
            drawn(&terminal.shown()).iter().any(|line| {
                line[1..].starts_with(" waiting for `name`; 1 of 1 in the queue; held by ")
                    && line.contains(&who)
                    && line.contains("; lease left ")
            })
        });
        let other = place.start(&["run", "-q", "name", "true"]);
        eventually("another one in the queue is seen", || {
            drawn(&terminal.shown()).iter().any(|line| line.contains("; 1 of 2 in the queue; "))
        });
        holder.signal(Signal::TERM);
        holder.finish();
        let shown = terminal.finish();
        assert!(shown.ends_with(&format!("{ERASED}done\r\n0\r\n")), "{shown:?}");
        assert_eq!(screen(&shown), ["done", "0"], "nothing is left of it");
        other.finish();
    }
}

#[test]
fn nothing_is_drawn_for_a_free_name() {
    let place = Place::new();
    let terminal = Terminal::run(&place, "$T run name -- echo done");
    assert_eq!(terminal.finish(), "done\r\n");
    let holder = hold(&place);
    for line in ["$T run -n name true", "$T run -w .1 name true"] {
        let shown = Terminal::run(&place, line).finish();
        assert!(shown.starts_with("tenure: `name` is held by ") && !shown.contains('\u{1b}'), "{shown:?}");
    }
    for line in ["$T run -q -w 1 name true", "$T run -q -w 1 -E 0 name true"] {
        assert_eq!(Terminal::run(&place, line).finish(), "");
    }
    holder.signal(Signal::TERM);
    holder.finish();
}

#[test]
fn giving_up_and_being_interrupted_leave_a_clean_line() {
    let place = Place::new();
    let holder = hold(&place);
    let shown = Terminal::run(&place, "$T run -w 1 name true; echo $?").finish();
    assert!(!drawn(&shown).is_empty(), "{shown:?}");
    let left = screen(&shown);
    assert!(left[0].starts_with("tenure: `name` is held by ") && left.last().unwrap() == "75", "{left:?}");

    let mut terminal = Terminal::run(&place, "trap : INT; $T run name true; echo $?");
    is_drawn(&terminal);
    terminal.type_keys("\u{3}");
    let shown = terminal.finish();
    assert_eq!(screen(&shown), ["130"], "{shown:?}");

    let terminal = Terminal::run(&place, "echo $$ > sh; exec $T run name true");
    let wrapper = place.pid("sh");
    is_drawn(&terminal);
    rustix::process::kill_process(wrapper, Signal::TERM).unwrap();
    let shown = terminal.finish();
    assert_eq!(screen(&shown), [""; 0], "{shown:?}");
    holder.signal(Signal::TERM);
    holder.finish();
}

#[test]
fn a_line_fits_the_terminal_when_its_size_changes() {
    let place = Place::new();
    let holder = hold(&place);
    let terminal = Terminal::run(&place, "stty cols 40; tty > tty; $T run name true; echo $?");
    let widest = |lines: &[String]| lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    // What has no room is left out, from the least important fact on; the words stay.
    let is_fit = |lines: &[String], columns| {
        let has_words = |line: &&String| line[1..].starts_with(" waiting for `name`; ");
        widest(lines) < columns && lines.iter().rev().take(2).filter(has_words).count() == 2
    };
    eventually("it fits", || is_fit(&drawn(&terminal.shown()), 40));
    let tty = place.read("tty");
    for (columns, fact) in [(60, "; 1 of 1 in the queue; held by "), (80, ", for "), (200, "; lease left ")] {
        let size = columns.to_string();
        place.command("stty").args(["-F", tty.trim(), "cols", &size]).status().unwrap();
        let before = drawn(&terminal.shown()).len();
        // One may have been under way.
        eventually(&format!("it has {fact}"), || {
            let lines = drawn(&terminal.shown());
            let new = lines.get(before + 1..).unwrap_or_default();
            new.len() > 2 && is_fit(new, columns) && new.iter().all(|line| line.contains(fact))
        });
    }
    place.command("stty").args(["-F", tty.trim(), "cols", "20"]).status().unwrap();
    let before = drawn(&terminal.shown()).len();
    eventually("it is cut", || {
        let lines = drawn(&terminal.shown());
        lines.len() > before + 3 && widest(&lines[before + 1..]) == 19
    });
    holder.signal(Signal::TERM);
    holder.finish();
    assert_eq!(screen(&terminal.finish()), ["0"]);
}

// B4
#[test]
fn stopped_it_leaves_a_clean_line_and_draws_again_when_continued() {
    let place = Place::new();
    let holder = hold(&place);
    let mut terminal = Terminal::open(&place);
    terminal.type_keys("$T run name true; echo $? > code\n");
    is_drawn(&terminal);
    terminal.type_keys("\u{1a}");
    eventually("the shell sees it stopped", || place.read("code") == "147\n");
    is_clean(&terminal);
    let before = drawn(&terminal.shown()).len();
    terminal.type_keys("echo typed > typed\n");
    eventually("the shell is used meanwhile", || place.read("typed") == "typed\n");
    // Longer than two frames.
    std::thread::sleep(Duration::from_millis(600));
    let shown = terminal.shown();
    assert_eq!(drawn(&shown).len(), before, "nothing is drawn while it is stopped");
    assert!(!shown.contains("tenure: waiting"), "nor said: {shown:?}");
    terminal.type_keys("fg; echo $? > code-2\n");
    eventually("it is drawn again", || drawn(&terminal.shown()).len() > before);
    terminal.type_keys("\u{1a}");
    eventually("it is stopped again", || place.read("code-2") == "147\n");
    terminal.type_keys("bg\n");
    eventually("in the background it is said, not drawn", || {
        terminal.shown().contains("tenure: waiting for `name`; 1 of 1")
    });
    holder.signal(Signal::TERM);
    holder.finish();
    terminal.type_keys("wait %1; echo $? > code-3\n");
    eventually("it ends", || place.read("code-3") == "0\n");
    terminal.close();
}

/// They are one process, which stops itself.
// B4
#[test]
fn acquire_and_hold_leave_a_clean_line_when_they_are_stopped() {
    let place = Place::new();
    let holder = hold(&place);
    let mut terminal = Terminal::open(&place);
    terminal.type_keys("$T hold name; echo $? > code\n");
    is_drawn(&terminal);
    terminal.type_keys("\u{1a}");
    eventually("the shell sees it stopped", || place.read("code") == "147\n");
    is_clean(&terminal);
    let before = drawn(&terminal.shown()).len();
    terminal.type_keys("fg; echo $? > code-2\n");
    eventually("it is drawn again", || drawn(&terminal.shown()).len() > before);
    holder.signal(Signal::TERM);
    holder.finish();
    terminal.shows("held name fence ");
    // Now by the signal itself, as any program.
    terminal.type_keys("\u{1a}");
    eventually("it is stopped again", || place.read("code-2") == "148\n");
    terminal.type_keys("fg; echo $? > code-3\n");
    // While the shell reads keys, this one would end nothing.
    let is_stopped = |pid: &i32| state(Pid::from_raw(*pid).unwrap()) == Some('T');
    eventually("it goes on", || !place.processes().iter().any(is_stopped));
    terminal.type_keys("\u{4}");
    eventually("it ends with its stdin", || place.read("code-3") == "0\n");
    std::fs::remove_file(place.path("pid")).unwrap();
    let holder = hold(&place);
    terminal.type_keys("$T acquire name > ticket; echo $? > code-4\n");
    eventually("it is drawn", || {
        drawn(&terminal.shown()).iter().any(|line| line.contains(&holder.holder().to_string()))
    });
    terminal.type_keys("\u{3}");
    eventually("it is interrupted", || place.read("code-4") == "130\n");
    holder.signal(Signal::TERM);
    holder.finish();
    terminal.close();
}

#[test]
fn nothing_is_drawn_in_the_background_or_on_a_terminal_without_a_cursor() {
    let place = Place::new();
    let holder = hold(&place);
    let mut terminal = Terminal::open(&place);
    terminal.type_keys("$T run name true & wait; echo $? > code\n");
    let without_jobs = Terminal::run(&place, "$T run name true & wait; echo $? > code-2");
    let dumb = Terminal::run(&place, "TERM=dumb $T run name true; echo $? > code-3");
    for terminal in [&terminal, &without_jobs, &dumb] {
        terminal.shows("tenure: waiting for `name`; ");
    }
    holder.signal(Signal::TERM);
    holder.finish();
    eventually("all end", || ["code", "code-2", "code-3"].iter().all(|code| place.read(code) == "0\n"));
    for terminal in [&terminal, &without_jobs, &dumb] {
        assert_eq!(drawn(&terminal.shown()), [""; 0]);
    }
    terminal.close();
}

/// A terminal that was halted must not halt who has a place in the queue, or a lease.
#[test]
fn a_halted_terminal_does_not_keep_it_from_its_turn() {
    let place = Place::new();
    let holder = hold(&place);
    let mut terminal = Terminal::run(
        &place,
        "stty ixon; $T run name -- sh -c 'touch ran; until test -e go; do sleep .01; done'",
    );
    is_drawn(&terminal);
    terminal.type_keys("\u{13}");
    eventually("nothing is shown any more", || {
        let before = terminal.shown().len();
        std::thread::sleep(Duration::from_millis(600));
        terminal.shown().len() == before
    });
    holder.signal(Signal::TERM);
    holder.finish();
    eventually("it has run", || place.path("ran").exists());
    terminal.type_keys("\u{11}");
    std::fs::write(place.path("go"), "").unwrap();
    terminal.finish();
}

/// The store is away for a while: that is shown, and ends nothing.
#[test]
fn a_store_that_is_away_is_shown() {
    let place = Place::on_redis();
    let key = place.start(&["run", "--ttl", "1h", "name", "sh", "-c", "echo $$ > pid; sleep 600"]);
    place.pid("pid");
    let terminal = Terminal::run(&place, "stty cols 200; $T run --ttl 1h name -- echo done; echo $?");
    is_drawn(&terminal);
    place.server().kill();
    eventually("it is shown", || {
        drawn(&terminal.shown())
            .iter()
            .any(|line| line.contains("waiting for `name`; store is away since 20"))
    });
    place.server().restart();
    eventually("it goes on", || {
        drawn(&terminal.shown()).last().is_some_and(|line| !line.contains("store is away"))
            || terminal.shown().contains("done")
    });
    key.signal(Signal::TERM);
    key.finish();
    assert_eq!(screen(&terminal.finish()), ["done", "0"]);
}

/// A program that draws the whole screen, after a line was drawn: it has the terminal, its keys and its size.
// B4
#[test]
fn a_full_screen_program_works_after_a_wait() {
    let place = Place::new();
    std::fs::write(
        place.path("full.py"),
        "import curses\n\
         def main(window):\n\
         \x20   rows, columns = window.getmaxyx()\n\
         \x20   window.addstr(3, 5, f'size {rows} {columns}')\n\
         \x20   window.refresh()\n\
         \x20   key = window.getkey()\n\
         \x20   open('key', 'w').write(f'{key} {rows} {columns}\\n')\n\
         curses.wrapper(main)\n",
    )
    .unwrap();
    let holder = hold(&place);
    let mut terminal = Terminal::run(
        &place,
        "stty rows 30 cols 100; $T run name -- python3 full.py; echo $? > code; stty -a > modes",
    );
    is_drawn(&terminal);
    holder.signal(Signal::TERM);
    holder.finish();
    terminal.shows("size 30 100");
    // Its first act is to go to the other screen.
    let shown = terminal.shown();
    let start = shown.find("\x1b[?1049h").expect("xterm has another screen");
    assert!(shown[..start].ends_with(ERASED), "{shown:?}");
    assert_eq!(drawn(&shown[start..]), [""; 0]);
    terminal.type_keys("x");
    eventually("it ends", || place.read("code") == "0\n");
    assert_eq!(place.read("key"), "x 30 100\n");
    eventually("modes", || place.read("modes").contains(" icanon") && place.read("modes").contains(" echo "));
    terminal.finish();
}
