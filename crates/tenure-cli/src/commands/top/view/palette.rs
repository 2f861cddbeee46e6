//! Styles: colours if they are wanted, otherwise weight.

use anstream::{AutoStream, ColorChoice};
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier, Style};

use crate::text::is_unicode;

/// What the terminal can show.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Palette {
    pub(super) is_coloured: bool,
    pub(super) is_unicode: bool,
}

impl Palette {
    /// As stdout and the environment say: `NO_COLOR`, `CLICOLOR`, `CLICOLOR_FORCE`, the locale.
    pub(in super::super) fn of_terminal() -> Self {
        let is_coloured = AutoStream::choice(&std::io::stdout()) != ColorChoice::Never;
        Palette { is_coloured, is_unicode: is_unicode() }
    }

    fn coloured(self, style: Style, color: Color) -> Style {
        if self.is_coloured { style.fg(color) } else { style }
    }

    pub(super) fn title(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Cyan)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    pub(super) fn trouble(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Red)
    }

    /// A row, by whether it is selected and whether it is stale.
    pub(super) fn row(self, is_selected: bool, is_stale: bool) -> Style {
        let mut style = Style::new();
        if is_selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        if is_stale {
            style = style.add_modifier(Modifier::DIM);
        }
        style
    }

    /// The bar of a lease, by the part of it that is left, of 8.
    pub(super) fn bar(self, share: usize) -> Style {
        let color = match share {
            0..=1 => Color::Red,
            2..=3 => Color::Yellow,
            _ => Color::Green,
        };
        self.coloured(Style::new(), color)
    }
}

/// For a locale without Unicode. Other characters become question marks.
pub(super) fn to_ascii(cell: &mut Cell) {
    if cell.symbol().is_ascii() {
        return;
    }
    cell.set_symbol(match cell.symbol() {
        "█" => "#",
        "░" => ".",
        "▲" | "↑" => "^",
        "▼" | "↓" => "v",
        "─" => "-",
        "…" => "~",
        "µ" => "u",
        _ => "?",
    });
}
