//! Screens as text.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::super::fixtures::{now, row, state};
use super::super::row::Row;
use super::super::state::{Away, State};
use super::{Palette, draw, fit, room};

/// Without colours.
const PLAIN: Palette = Palette { is_coloured: false, is_unicode: true };

fn drawn(state: &mut State, width: u16, height: u16, palette: Palette) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| {
            state.fit(room(frame.area(), state));
            draw(frame, state, palette);
        })
        .unwrap();
    terminal
}

/// The lines of a screen, without the spaces at their ends. What stands behind a wide character is not there on a terminal.
fn screen(state: &mut State, width: u16, height: u16) -> String {
    let terminal = drawn(state, width, height, PLAIN);
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let (mut line, mut skipped) = (String::new(), 0);
        for cell in cells {
            if skipped == 0 {
                line.push_str(cell.symbol());
                skipped = fit::width(cell.symbol());
            }
            skipped -= 1;
        }
        assert_eq!(fit::width(&line), width, "{line}");
        line.trim_end().to_owned() + "\n"
    };
    cells.chunks(width.into()).map(line).collect()
}

fn press(state: &mut State, code: KeyCode) {
    state.press(KeyEvent::new(code, KeyModifiers::NONE));
}

fn write(state: &mut State, text: &str) {
    text.chars().for_each(|c| press(state, KeyCode::Char(c)));
}

fn rows() -> Vec<Row> {
    vec![row("nightly", 150, 7, &[75, 12]), row("orders/42", 1, 10, &[]), row("orders/43", 40, 1, &[3])]
}

/// As a store that can't be reached.
fn away() -> State {
    let mut state = state(rows());
    let error = "db.example:6379 can't be reached: connection refused".to_owned();
    state.away = Some(Away { since: now() - Duration::from_secs(9), error });
    state
}

/// What docs/cli.md shows is a screen of the program.
fn assert_is_documented(screen: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(&format!("```text{screen}```")), "docs/cli.md shows another screen");
}

#[test]
fn the_table_at_100_columns() {
    let expected = "
tenure top  redis://ada:***@db.example:6379/0                                2026-11-15 13:34:40 UTC
3 held, 3 waiting, round trip 340 µs
  NAME▲                      HOLDER              LABEL       HELD    LEASE            QUEUE  WAIT
> nightly                    ada@web1 pid 4711   by hand     2m30s   ██████░░ 7s          2  1m15s
  orders/42                  ada@web1 pid 4711   by hand     1s      ████████ 10s         0  -
  orders/43                  ada@web1 pid 4711   by hand     40s     █░░░░░░░ 1s          1  3s

? help  q quit  / filter  s sort  r reverse  Enter details  b break
";
    assert_eq!("\n".to_owned() + &screen(&mut state(rows()), 100, 8), expected);
    assert_is_documented(expected);
}

#[test]
fn the_table_at_40_columns() {
    let expected = "
tenure top  …example:6379/0 13:34:40 UTC
3 held, 3 waiting, round trip 340 µs
  NAME            HELD    LEASE▲  QUEUE
  orders/43       40s     1s          1
> nightly         2m30s   7s          2
  orders/42       1s      10s         0



? help  q quit  / filter  s sort  r rev…
";
    let mut state = state(rows());
    write(&mut state, "ss");
    assert_eq!("\n".to_owned() + &screen(&mut state, 40, 10), expected);
}

#[test]
fn details_beside_the_table_or_in_its_place() {
    let expected = "
tenure top  redis://ada:***@db.example:6379/0            2026-11-15 13:34:40 UTC
3 held, 3 waiting, round trip 340 µs
  NAME▲                      HOLDER               HELD    LEASE   QUEUE  WAIT
> nightly                    ada@web1 pid 4711    2m30s   7s          2  1m15s
  orders/42                  ada@web1 pid 4711    1s      10s         0  -
  orders/43                  ada@web1 pid 4711    40s     1s          1  3s






 details ───────────────────────────────────────────────────────────────────────
name    nightly
holder  ada@web1 pid 4711
label   by hand
fence   1794749530000150
since   2026-11-15 13:32:10 UTC, for 2m30s
lease   7s left; the most that was seen: 10s
queue   2 waiting
     1  bob@web2 pid 501, for 1m15s
     2  bob@web2 pid 502, for 12s
Enter back  PgDn more  b break  ? help  q quit
";
    let mut state = state(rows());
    press(&mut state, KeyCode::Enter);
    assert_eq!("\n".to_owned() + &screen(&mut state, 80, 23), expected);
    assert_is_documented(expected);
    let expected = "
tenure top  …example:6379/0 13:34:40 UTC
3 held, 3 waiting, round trip 340 µs
 details, 5 lines above, 0 below ───────
        2m30s
lease   7s left; the most that was seen:
        10s
queue   2 waiting
     1  bob@web2 pid 501, for 1m15s
     2  bob@web2 pid 502, for 12s
Enter back  PgDn more  b break  ? help …
";
    screen(&mut state, 40, 10);
    press(&mut state, KeyCode::PageDown);
    press(&mut state, KeyCode::PageDown);
    assert_eq!("\n".to_owned() + &screen(&mut state, 40, 10), expected);
}

#[test]
fn the_question_before_a_lease_is_broken() {
    let expected = "
tenure top  …example:6379/0 13:34:40 UTC
3 held, 3 waiting, round trip 340 µs
  NAME▲           HELD    LEASE   QUEUE
> nightly         2m30s   7s          2
  orders/42       1s      10s         0
ITS HOLDER MAY BE ALIVE: its process is
on this machine. Still break the lease
of ada@web1 pid 4711, fence
1794749530000150? Type `nightly`: nigh
";
    let mut state = state(rows());
    write(&mut state, "bnigh");
    assert_eq!("\n".to_owned() + &screen(&mut state, 40, 9), expected);
    let mut terminal = drawn(&mut state, 40, 9, PLAIN);
    terminal.backend_mut().assert_cursor_position((38, 8));

    // A renewal that is seen while the name is typed.
    let mut renewed = rows();
    renewed[0].holding.as_mut().unwrap().renewed = Some(now() - Duration::from_secs(2));
    state.show(renewed);
    let question = screen(&mut state, 40, 10);
    let question = question.lines().skip_while(|line| !line.starts_with("ITS"));
    assert_eq!(
        question.collect::<Vec<_>>().join(" "),
        "ITS HOLDER IS ALIVE: it renewed the lease 2s ago. Still break the lease of ada@web1 pid 4711, fence \
         1794749530000150? Type `nightly`: nigh"
    );
    // Another lease by now: what was seen of the one that is meant counts.
    let mut other = rows();
    let holding = other[0].holding.as_mut().unwrap();
    (holding.fence, holding.renewed) = (7, Some(now()));
    state.show(other);
    assert!(screen(&mut state, 100, 10).contains("ITS HOLDER MAY BE ALIVE"));
}

#[test]
fn no_name_hides_that_the_holder_is_alive() {
    for length in [30, 200, 1_000] {
        for mut state in [state(vec![]), away()] {
            let mut row = row(&"n".repeat(length), 150, 7, &[]);
            row.holding.as_mut().unwrap().renewed = Some(now() - Duration::from_secs(2));
            state.show(vec![row]);
            write(&mut state, "bnnn");
            let screen = screen(&mut state, 40, 10);
            assert!(screen.contains("\nITS HOLDER IS ALIVE: it renewed the"), "{length}: {screen}");
            assert!(screen.ends_with("n`: nnn\n") || screen.ends_with("nnn\n"), "{length}: {screen}");
        }
    }
}

#[test]
fn waiters_are_shown_before_blank_rows_are() {
    let mut state = state(vec![row("nightly", 150, 7, &[75; 11])]);
    press(&mut state, KeyCode::Enter);
    let screen = screen(&mut state, 80, 24);
    assert!(screen.contains("\n    11  bob@web2 pid 511, for 1m15s\n"), "{screen}");
    assert!(screen.contains("> nightly "), "{screen}");
}

#[test]
fn a_text_is_not_cut_where_there_is_room() {
    let label = "a label of some length, that says what runs, for whom and why";
    let mut rows = rows();
    rows[0].holding.as_mut().unwrap().label = label.to_owned();
    assert!(screen(&mut state(rows.clone()), 200, 8).contains(&format!(" {label} ")));
    // There, all of them have to give way.
    let name = "n".repeat(100);
    rows.push(row(&name, 1, 10, &[]));
    let screen = screen(&mut state(rows), 120, 8);
    assert!(screen.contains("ada@web1 pid 4711") && screen.contains("nnn…"), "{screen}");
}

#[test]
fn an_outage_is_told_in_words_and_the_rows_stay() {
    let expected = "
tenure top  redis://ada:***@db.example:6379/0            2026-11-15 13:34:40 UTC
3 held, 3 waiting, round trip 340 µs
store is away since 2026-11-15 13:34:31 UTC; rows are stale: db.example:6379
can't be reached: connection refused
  NAME▲                      HOLDER               HELD    LEASE   QUEUE  WAIT
> nightly                    ada@web1 pid 4711    2m30s   7s          2  1m15s
  orders/42                  ada@web1 pid 4711    1s      10s         0  -
  orders/43                  ada@web1 pid 4711    40s     1s          1  3s

? help  q quit  / filter  s sort  r reverse  Enter details  b break
";
    assert_eq!("\n".to_owned() + &screen(&mut away(), 80, 10), expected);
    let terminal = drawn(&mut away(), 80, 10, PLAIN);
    assert!(terminal.backend().buffer()[(2, 6)].modifier.contains(Modifier::DIM));
}

#[test]
fn names_of_any_kind_stay_in_their_column() {
    let names = ["夜間バックアップ/とても長い名前のロック", "a\u{1b}[2J\n\u{7f}x", "👩‍👩‍👧‍👦 e\u{301} \u{200b}"];
    let mut state = state(names.map(|name| row(name, 1, 10, &[])).into());
    let screen = screen(&mut state, 40, 10);
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines[3], "> a\\u{1b}[2J\\n\\u… 1s      10s         0");
    assert_eq!(lines[4], "  夜間バックアッ… 1s      10s         0");
    assert!(lines[5].starts_with("  👩‍👩‍👧‍👦 e\u{301} "), "{}", lines[5]);
    assert!(lines[5].ends_with("  1s      10s         0"), "{}", lines[5]);
}

#[test]
fn nothing_to_show_is_told() {
    assert!(screen(&mut state(vec![]), 60, 8).contains("no name is held or waited for"));
    let mut filtered = state(rows());
    write(&mut filtered, "/xyz");
    let screen = screen(&mut filtered, 80, 8);
    assert!(screen.contains("0 of 3 match `xyz`") && screen.contains("\n/xyz\n"), "{screen}");
    assert!(screen.contains("no name matches the filter"), "{screen}");
}

#[test]
fn help_fits_on_the_smallest_screen() {
    let mut state = state(rows());
    write(&mut state, "?");
    let screen = screen(&mut state, 40, 10);
    assert!(screen.contains("\nb         break: asks for the name\n"), "{screen}");
    assert!(screen.ends_with("\nq  ^C     quit\nany key: back\n"), "{screen}");
}

// Whatever the size: no panic, no line that is too long.
#[test]
fn screens_of_any_size() {
    let long = "x".repeat(1_000);
    for (width, height) in
        [(200, 60), (100, 30), (59, 13), (40, 10), (20, 5), (3, 3), (1, 1), (1, 60), (200, 1)]
    {
        for keys in ["", "/order", "b", "bnightly", "?"] {
            for has_details in [false, true] {
                let mut many: Vec<Row> = (0..500).map(|n| row(&format!("{n}"), n, 5, &[1; 30])).collect();
                many.push(row(&long, 1, 1, &[]));
                for mut state in [state(vec![]), state(many), away()] {
                    state.has_details = has_details;
                    press(&mut state, KeyCode::End);
                    write(&mut state, keys);
                    screen(&mut state, width, height);
                }
            }
        }
    }
}

#[test]
fn there_is_no_colour_where_none_is_wanted() {
    let mut state = away();
    let has_colour = |state: &mut State, is_coloured| {
        let terminal = drawn(state, 100, 20, Palette { is_coloured, is_unicode: true });
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(has_colour(&mut state, true) && !has_colour(&mut state, false));
}

#[test]
fn a_locale_without_unicode_gets_ascii() {
    let mut state = state(vec![row("nächtlich", 150, 7, &[75]), row("夜間", 1, 1, &[])]);
    let terminal = drawn(&mut state, 100, 8, Palette { is_coloured: false, is_unicode: false });
    let text: String = terminal.backend().buffer().content().iter().map(|cell| cell.symbol()).collect();
    assert!(text.is_ascii(), "{text}");
    assert!(
        text.contains("> n?chtlich ") && text.contains(" ######.. 7s ") && text.contains("NAME^"),
        "{text}"
    );
}
