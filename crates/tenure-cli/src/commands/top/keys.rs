//! What a key does: it changes the state, or returns an effect for the loop.
//!
//! Breaking a lease takes two steps: `b` remembers the lease as it is shown, and then the user types its name. Only that lease is broken, by its token and
//! fence, even if the screen shows another one by then.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tenure::Holder;

use super::filter::Filter;
use super::state::{Breaking, Mode, State};
use crate::presence::Presence;

/// How many lines of the details a key moves.
const SCROLL: usize = 4;

/// What the loop must do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Quit,
    Suspend,
    /// Draw everything again: another program wrote on the terminal.
    Redraw,
    Break {
        name: String,
        holder: Box<Holder>,
    },
}

impl State {
    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<Effect> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        // Over a slow connection, Esc and the next key arrive together, like a key with Alt. No key has a meaning with Alt.
        if key.modifiers.contains(KeyModifiers::ALT) {
            self.press(KeyCode::Esc.into());
            return self.press(KeyEvent { modifiers: key.modifiers - KeyModifiers::ALT, ..key });
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(Effect::Quit),
                KeyCode::Char('z') => return Some(Effect::Suspend),
                KeyCode::Char('l') => return Some(Effect::Redraw),
                KeyCode::Char('u') => self.type_over(|typed| typed.clear()),
                _ => {}
            }
            return None;
        }
        match &self.mode {
            Mode::Browsing => return self.command(key.code),
            Mode::Filtering => self.type_filter(key.code),
            Mode::Breaking(_) => return self.confirm(key.code),
            Mode::Helping => self.mode = Mode::Browsing,
        }
        None
    }

    fn command(&mut self, key: KeyCode) -> Option<Effect> {
        self.message = None;
        let line = self.line();
        match key {
            KeyCode::Char('q') => return Some(Effect::Quit),
            KeyCode::Up | KeyCode::Char('k') => self.select(line.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(line + 1),
            KeyCode::PageUp if self.room.details > 0 => self.scroll = self.scroll.saturating_sub(SCROLL),
            KeyCode::PageDown if self.room.details > 0 => {
                self.scroll = self.room.details.min(self.scroll + SCROLL);
            }
            KeyCode::PageUp => self.select(line.saturating_sub(self.room.rows)),
            KeyCode::PageDown => self.select(line + self.room.rows),
            KeyCode::Home => self.select(0),
            KeyCode::End => self.select(usize::MAX),
            KeyCode::Char('s') => {
                (self.sort, self.is_reversed) = (self.sort.next(), false);
                self.arrange();
            }
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            KeyCode::Char('/') => self.mode = Mode::Filtering,
            KeyCode::Char('?') => self.mode = Mode::Helping,
            KeyCode::Char('b') => self.ask_to_break(),
            KeyCode::Enter => self.has_details = !self.has_details,
            KeyCode::Esc if self.has_details => self.has_details = false,
            KeyCode::Esc => self.clear_filter(),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::Browsing,
            KeyCode::Esc => {
                self.mode = Mode::Browsing;
                self.clear_filter();
            }
            KeyCode::Backspace => self.type_over(|typed| {
                typed.pop();
            }),
            KeyCode::Char(c) => self.type_over(|typed| typed.push(c)),
            _ => {}
        }
    }

    fn clear_filter(&mut self) {
        self.filter = Filter::default();
        self.arrange();
    }

    fn ask_to_break(&mut self) {
        let Some(row) = self.selected() else {
            return;
        };
        let Some(holding) = &row.holding else {
            self.message = Some(format!("nobody holds `{}`", row.shown));
            return;
        };
        self.mode = Mode::Breaking(Box::new(Breaking {
            name: row.name.clone(),
            shown: row.shown.clone(),
            who: holding.who.clone(),
            fence: holding.fence,
            renewed: holding.renewed,
            is_here: Presence::of(&holding.holder.owner) == Presence::Here,
            holder: holding.holder.clone(),
            typed: String::new(),
        }));
    }

    fn confirm(&mut self, key: KeyCode) -> Option<Effect> {
        match key {
            KeyCode::Backspace => self.type_over(|typed| {
                typed.pop();
            }),
            KeyCode::Char(c) => self.type_over(|typed| typed.push(c)),
            KeyCode::Enter | KeyCode::Esc => {
                let Mode::Breaking(breaking) = std::mem::replace(&mut self.mode, Mode::Browsing) else {
                    return None;
                };
                let Breaking { name, shown, holder, typed, .. } = *breaking;
                // A name that can't be typed is typed as it is shown.
                if key == KeyCode::Enter && (typed == name || typed == shown) {
                    self.message = Some(format!("breaking `{shown}` …"));
                    return Some(Effect::Break { name, holder: Box::new(holder) });
                }
                let why = if key == KeyCode::Esc { "" } else { ": that is not its name" };
                self.message = Some(format!("`{shown}` was not broken{why}"));
            }
            _ => {}
        }
        None
    }

    /// Changes the typed text.
    fn type_over(&mut self, change: impl FnOnce(&mut String)) {
        match &mut self.mode {
            Mode::Filtering => {
                let mut text = self.filter.text().to_owned();
                change(&mut text);
                self.filter = Filter::new(text);
                self.arrange();
            }
            Mode::Breaking(breaking) => change(&mut breaking.typed),
            Mode::Browsing | Mode::Helping => {}
        }
    }
}
