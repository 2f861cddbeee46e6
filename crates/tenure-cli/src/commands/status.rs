//! `tenure status`: one fact a line. `tenure break` prints the same facts before its question.

use std::fmt::Write as _;
use std::path::Path;

use anstyle::{AnsiColor, Style};
use clap::Args;

use crate::address;
use crate::args::{Domain, Format};
use crate::commands::{WHAT_TO_DO, absence, on_domain_read_only};
use crate::exit_code;
use crate::json;
use crate::name_status::{self, HolderStatus, NameStatus};
use crate::output::{self, Verbosity, say};
use crate::presence::Presence;
use crate::text::{escaped, owner, rough, utc};

/// Show who holds a name and who waits for it
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// Print nothing: exit 0 when NAME is free, 75 when it is held
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,

    /// The name
    name: String,
}

impl Status {
    pub(crate) fn execute(&self) -> u8 {
        if self.quiet {
            // `-q` hides warnings about the URL, but not errors.
            output::set_verbosity(Verbosity::Quiet);
            let _ = address::locate(&self.domain);
            output::set_verbosity(Verbosity::Usual);
        }
        let absent = |directory: &Path| {
            say(format_args!("{}; {WHAT_TO_DO}", absence(directory)));
            self.show(&NameStatus::free(&self.name))
        };
        on_domain_read_only(&self.domain, absent, async |domain| {
            Ok(self.show(&name_status::inspect(domain, &self.name).await?))
        })
    }

    fn show(&self, seen: &NameStatus) -> u8 {
        if self.quiet {
            return if seen.holder.is_some() { exit_code::BUSY } else { 0 };
        }
        let mut facts = facts(seen);
        let located = address::locate(&self.domain).ok();
        let domain = located.map(|located| ("domain".to_owned(), located.to_string()));
        facts.splice(1..1, domain);
        let printed = match self.format.json {
            true => output::object("status", &json::Status::new(seen, located)),
            false => output::show("status", &block(&facts)),
        };
        printed.err().unwrap_or(0)
    }
}

/// The facts about a name, for people: key and value.
pub(crate) fn facts(seen: &NameStatus) -> Vec<(String, String)> {
    let mut facts = vec![("name".to_owned(), escaped(&seen.name))];
    let mut add = |key: &str, value: String| facts.push((key.to_owned(), value));
    match &seen.holder {
        None => add("state", "free".to_owned()),
        Some(held) => {
            add("state", "held".to_owned());
            for (key, value) in of_holder(held) {
                add(key, value);
            }
        }
    }
    match seen.waiters.len() {
        0 => add("queue", "nobody waits".to_owned()),
        count => add("queue", format!("{count} waiting")),
    }
    for (index, waiting) in seen.waiters.iter().enumerate() {
        let (who, waited) = (owner(&waiting.owner), rough(waiting.waited));
        add(&format!("  {}", index + 1), format!("{who}, for {waited}"));
    }
    if let Some(fence) = seen.broken {
        add(
            "broken",
            format!("the lease with fence {fence} was ended by force, within the last minute or so"),
        );
    }
    if let Some(held) = &seen.holder
        && Presence::of(&held.owner) == Presence::Gone
    {
        add(
            "hint",
            "there is no such process on this machine: it has ended, unless it is in a container, or took a ticket (`tenure acquire`)"
                .to_owned(),
        );
    }
    facts
}

fn of_holder(held: &HolderStatus) -> Vec<(&'static str, String)> {
    let who = &held.owner;
    let mut facts = match who.pid() {
        None => vec![("holder", "a lock of another library, which does not say who it is".to_owned())],
        Some(pid) => vec![
            ("holder", format!("{}@{}", escaped(who.user()), escaped(who.host()))),
            ("pid", pid.to_string()),
        ],
    };
    if !who.label().is_empty() {
        facts.push(("label", escaped(who.label())));
    }
    if let (Some(since), Some(for_how_long)) = (held.since, held.held) {
        facts.push(("since", format!("{}, for {}", utc(since), rough(for_how_long))));
    }
    let fence = match (who.is_foreign(), held.fence) {
        (false, fence) => fence.to_string(),
        (true, 0) => "0, which stands for none: a lock of another library has no fence".to_owned(),
        (true, fence) => format!("{fence}, the last of Tenure: a lock of another library has no fence"),
    };
    facts.push(("fence", fence));
    facts.push((
        "lease",
        match held.left {
            Some(left) => format!("{} left unless it is renewed", rough(left)),
            None => "without expiry: it stays until its holder, or `tenure break`, ends it".to_owned(),
        },
    ));
    facts
}

/// The facts, one a line. Colours only repeat the words.
fn block(facts: &[(String, String)]) -> String {
    let width = facts.iter().map(|(key, _)| key.len()).max().unwrap_or_default() + 1;
    let mut text = String::new();
    for (key, value) in facts {
        let style = match (&**key, &**value) {
            ("state", "free") => AnsiColor::Green.on_default(),
            ("state" | "hint" | "broken", _) => AnsiColor::Yellow.on_default(),
            _ => Style::new(),
        };
        let key = format!("{key}:");
        let _ = writeln!(text, "{key:width$} {style}{value}{style:#}");
    }
    text
}
