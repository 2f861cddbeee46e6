//! Keys and polls, in any order.

use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tenure::{Domain, Error};

use super::fixtures::{holder, now, row, state};
use super::keys::Effect;
use super::row::Row;
use super::state::{Answer, Mode, Poll, State};

fn press(state: &mut State, code: KeyCode) -> Option<Effect> {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn write(state: &mut State, text: &str) {
    for c in text.chars() {
        assert_eq!(press(state, KeyCode::Char(c)), None, "{c}");
    }
}

fn names(state: &State) -> Vec<&str> {
    state.shown().map(|row| row.name.as_str()).collect()
}

fn selected(state: &State) -> &str {
    state.selected().map_or("", |row| &row.name)
}

fn three() -> Vec<Row> {
    vec![row("a", 5, 9, &[]), row("b", 50, 3, &[1, 2]), row("c", 7, 6, &[4])]
}

/// An error as of a store that is away.
fn away() -> Error {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = "redis+unix:///nowhere/redis.sock?timeout=100ms";
    runtime.block_on(async { Domain::open(url).await }).unwrap_err()
}

#[test]
fn sorting_goes_through_the_columns_and_can_be_reversed() {
    let mut state = state(three());
    assert_eq!(names(&state), ["a", "b", "c"]);
    for (key, order) in [
        ('r', ["c", "b", "a"]),
        ('s', ["b", "c", "a"]),
        ('r', ["a", "c", "b"]),
        ('s', ["b", "c", "a"]),
        ('s', ["b", "c", "a"]),
        ('r', ["a", "c", "b"]),
        ('s', ["a", "b", "c"]),
    ] {
        press(&mut state, KeyCode::Char(key));
        assert_eq!(names(&state), order, "{:?}, reversed: {}", state.sort, state.is_reversed);
    }
}

#[test]
fn the_selection_is_on_a_name_and_not_on_a_line() {
    let mut state = state(three());
    press(&mut state, KeyCode::Down);
    assert_eq!(selected(&state), "b");
    state.show(vec![row("0", 1, 1, &[]), row("a", 1, 1, &[]), row("b", 1, 1, &[]), row("c", 1, 1, &[])]);
    assert_eq!((selected(&state), state.line()), ("b", 2));
    press(&mut state, KeyCode::Char('r'));
    assert_eq!((selected(&state), state.line()), ("b", 1));
    state.show(vec![row("a", 1, 1, &[]), row("c", 1, 1, &[])]);
    assert_eq!(selected(&state), "a", "what stands where it stood");
    state.show(vec![]);
    assert_eq!(selected(&state), "");
    state.show(three());
    assert_eq!(selected(&state), "c", "the first, in this order");
}

#[test]
fn the_selection_stays_within_the_rows() {
    let mut state = state((0..100).map(|number| row(&format!("{number:02}"), 1, 1, &[])).collect());
    state.room.rows = 10;
    for (key, name) in [
        (KeyCode::Up, "00"),
        (KeyCode::PageDown, "10"),
        (KeyCode::Char('j'), "11"),
        (KeyCode::Char('k'), "10"),
        (KeyCode::PageUp, "00"),
        (KeyCode::PageUp, "00"),
        (KeyCode::End, "99"),
        (KeyCode::Down, "99"),
        (KeyCode::PageDown, "99"),
        (KeyCode::Home, "00"),
    ] {
        press(&mut state, key);
        assert_eq!(selected(&state), name, "{key:?}");
    }
}

#[test]
fn a_filter_is_text_or_a_glob_and_escape_clears_it() {
    let mut state =
        state(["orders/1", "orders/2", "reorder", "a\nb"].map(|name| row(name, 1, 1, &[])).into());
    for (text, shown) in [
        ("order", &["orders/1", "orders/2", "reorder"][..]),
        ("order*", &["orders/1", "orders/2"]),
        ("*/[2-9]", &["orders/2"]),
        ("a\\nb", &["a\nb"]),
        ("orders/[", &[]),
        ("q", &[]),
    ] {
        press(&mut state, KeyCode::Char('/'));
        write(&mut state, text);
        assert_eq!(names(&state), shown, "{text}");
        press(&mut state, KeyCode::Enter);
        assert_eq!(names(&state), shown, "{text} is kept");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.shown().len(), 4, "{text} is cleared");
    }
    press(&mut state, KeyCode::Char('/'));
    write(&mut state, "ordersx");
    press(&mut state, KeyCode::Backspace);
    assert_eq!(state.shown().len(), 2);
    state.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL));
    assert_eq!(state.shown().len(), 4);
}

#[test]
fn breaking_takes_the_lease_that_was_shown_and_the_typed_name() {
    let mut state = state(three());
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('b'));
    // Rows that come in the meantime change nothing.
    state.show(vec![row("x", 1, 1, &[])]);
    write(&mut state, "b");
    let effect = press(&mut state, KeyCode::Enter);
    assert_eq!(effect, Some(Effect::Break { name: "b".to_owned(), holder: Box::new(holder()) }));
    assert!(matches!(state.mode, Mode::Browsing));
}

#[test]
fn nothing_is_broken_without_the_whole_name() {
    for (typed, last) in [
        ("", KeyCode::Enter),
        ("nightl", KeyCode::Enter),
        ("nightly ", KeyCode::Enter),
        ("Nightly", KeyCode::Enter),
        ("nightly", KeyCode::Esc),
    ] {
        let mut state = state(vec![row("nightly", 1, 1, &[])]);
        press(&mut state, KeyCode::Char('b'));
        write(&mut state, typed);
        assert_eq!(press(&mut state, last), None, "{typed:?}");
        assert!(state.message.as_ref().unwrap().contains("`nightly` was not broken"), "{typed:?}");
    }
    let mut nobody = row("free", 1, 1, &[1]);
    nobody.holding = None;
    for rows in [vec![], vec![nobody]] {
        let mut state = state(rows);
        press(&mut state, KeyCode::Char('b'));
        assert!(matches!(state.mode, Mode::Browsing), "there is nothing to break");
    }
}

#[test]
fn a_name_that_can_not_be_typed_is_typed_as_it_is_shown() {
    let mut state = state(vec![row("a\u{1b}[2J", 1, 1, &[])]);
    press(&mut state, KeyCode::Char('b'));
    write(&mut state, "a\\u{1b}[2J");
    assert!(matches!(press(&mut state, KeyCode::Enter), Some(Effect::Break { .. })));
}

#[test]
fn control_keys_work_whatever_is_being_typed() {
    for before in ["", "/", "b", "?"] {
        for (key, effect) in [('c', Effect::Quit), ('z', Effect::Suspend), ('l', Effect::Redraw)] {
            let mut state = state(three());
            write(&mut state, before);
            let pressed = state.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
            assert_eq!(pressed, Some(effect), "after {before:?}");
        }
    }
    let mut state = state(three());
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Effect::Quit));
    press(&mut state, KeyCode::Char('?'));
    assert_eq!(press(&mut state, KeyCode::Char('q')), None, "it closes the help");
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Effect::Quit));
}

#[test]
fn an_outage_keeps_the_rows_and_its_beginning_and_ends_by_itself() {
    let mut state = state(three());
    let error = away();
    let second = Duration::from_secs(1);
    for passed in [second, 2 * second] {
        state.look(Poll { at: now() + passed, answer: Err(error.clone()) });
        assert_eq!(names(&state), ["a", "b", "c"]);
        assert_eq!(state.away.as_ref().unwrap().since, now() + second);
        assert!(state.is_stale());
    }
    let answer = Answer { statuses: vec![], round_trip: second };
    state.look(Poll { at: now() + 3 * second, answer: Ok(answer) });
    assert!(!state.is_stale() && state.away.is_none());
    assert_eq!(names(&state), [""; 0]);
}

#[test]
fn a_store_that_is_silent_makes_the_rows_stale() {
    let mut state = state(three());
    assert_eq!(state.silence(), None);
    state.now = now() + Duration::from_secs(5);
    assert_eq!(state.silence(), Some(Duration::from_secs(5)));
    assert!(state.is_stale());
}

#[test]
fn the_longest_lease_is_remembered_while_the_name_is_there() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let domain = Domain::open("memory:").await.unwrap();
        let mut state = state(vec![row("name", 1, 9, &[])]);
        let ttl = Duration::from_secs(2);
        let _guard = domain.lock("name").ttl(ttl).acquire().await.unwrap();
        let look = async || {
            let statuses = domain.list("").await.unwrap();
            Poll { at: SystemTime::now(), answer: Ok(Answer { statuses, round_trip: ttl }) }
        };
        let longest = |state: &State| state.selected().unwrap().holding.as_ref().unwrap().longest;
        state.look(look().await);
        assert_eq!(longest(&state), Duration::from_secs(10), "what was seen before");
        assert_eq!(state.selected().unwrap().holding.as_ref().unwrap().share(8), 2);
        state.show(vec![]);
        state.look(look().await);
        assert!(longest(&state) <= ttl, "forgotten with the name");
    });
}

#[test]
fn a_renewal_is_seen() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let domain = Domain::open("memory:").await.unwrap();
        let guard = domain.lock("name").no_renewal().acquire().await.unwrap();
        let look = async |at: SystemTime| {
            let (statuses, round_trip) = (domain.list("").await.unwrap(), Duration::ZERO);
            Poll { at, answer: Ok(Answer { statuses, round_trip }) }
        };
        let renewed = |state: &State| state.selected().unwrap().holding.as_ref().unwrap().renewed;
        let mut state = state(vec![]);
        state.look(look(now()).await);
        let enough = Duration::from_millis(9_900);
        while domain.inspect("name").await.unwrap().holder.unwrap().remaining > enough {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        state.look(look(now()).await);
        assert_eq!(renewed(&state), None, "it ran down");
        guard.renew().await.unwrap();
        let later = now() + Duration::from_secs(1);
        state.look(look(later).await);
        assert_eq!(renewed(&state), Some(later));
        state.look(look(later + Duration::from_secs(1)).await);
        assert_eq!(renewed(&state), Some(later), "remembered");
    });
}
