//! `tenure ls`.
//!
//! A table for people; programs read `--json`, because a name may have anything in it, spaces too. Its columns are in the order in which one asks.
//! The label is the last, because it is free text.

use std::fmt::Write as _;
use std::path::Path;

use anstyle::Style;
use clap::Args;

use crate::address;
use crate::args::{Domain, Format};
use crate::commands::{WHAT_TO_DO, absence, on_domain_read_only};
use crate::glob::Glob;
use crate::json;
use crate::name_status::{self, HolderStatus, NameStatus};
use crate::output::{self, say};
use crate::table::{self, Column};
use crate::text::{escaped, rough};

/// Show the names that are held or waited for
#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// Which names: `*`, `?` and `[a-z]` as in a shell [default: all]
    #[arg(value_parser = Glob::parse)]
    glob: Option<Glob>,
}

const HEADER: [&str; 7] = ["NAME", "HOLDER", "PID", "FOR", "LEFT", "QUEUE", "LABEL"];
const COLUMNS: [Column; 7] =
    [Column::Name, Column::Cut, Column::Number, Column::Number, Column::Number, Column::Number, Column::Cut];

/// What a terminal that is too narrow does without: the label, the number of the process, the holder, and the times.
const SPARE: [usize; 5] = [6, 2, 1, 3, 4];

impl Ls {
    pub(crate) fn execute(&self) -> u8 {
        let glob = self.glob.clone().unwrap_or_else(Glob::all);
        let absent = |directory: &Path| {
            say(format_args!("{}; {WHAT_TO_DO}", absence(directory)));
            0
        };
        on_domain_read_only(&self.domain, absent, async |domain| {
            let names = name_status::list(domain, &glob).await?;
            let located = address::locate(&self.domain).ok();
            let text = if self.format.json {
                names.iter().map(|seen| json::to_line(&json::Status::new(seen, located)) + "\n").collect()
            } else {
                shown(&names, table::terminal_width(std::io::stdout()))
            };
            Ok(output::show("list", &text).err().unwrap_or(0))
        })
    }
}

/// The table; nothing when there are no names.
fn shown(names: &[NameStatus], width: Option<usize>) -> String {
    if names.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = [HEADER.map(str::to_owned)].into_iter().chain(names.iter().map(row)).collect();
    let lines = table::lines(COLUMNS, &SPARE, &rows, width);
    let bold = Style::new().bold();
    let mut text = format!("{bold}{}{bold:#}\n", lines[0]);
    for line in &lines[1..] {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn row(seen: &NameStatus) -> [String; 7] {
    let nothing = || "-".to_owned();
    let of = |fact: fn(&HolderStatus) -> String| seen.holder.as_ref().map_or_else(nothing, fact);
    [
        escaped(&seen.name),
        of(|held| match held.owner.is_foreign() {
            true => "another library".to_owned(),
            false => format!("{}@{}", escaped(held.owner.user()), escaped(held.owner.host())),
        }),
        of(|held| held.owner.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
        of(|held| held.held.map_or_else(|| "-".to_owned(), rough)),
        of(|held| held.left.map_or_else(|| "no end".to_owned(), rough)),
        seen.waiters.len().to_string(),
        seen.holder.as_ref().map(|held| escaped(held.owner.label())).unwrap_or_default(),
    ]
}
