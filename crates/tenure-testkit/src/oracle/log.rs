//! The log format: text, one event a line, every line complete in itself.
//!
//! ```text
//! <ns of CLOCK_MONOTONIC> <client> <event> <key>=<value> …\n
//! 81244000123456 p3/t1 granted name=orders/42 fence=17 deadline=81245000000000
//! ```
//! | event | keys | stamped |
//! |---|---|---|
//! | requested, gave_up | name | before the acquire is called; after it ended without a grant |
//! | granted | name fence deadline \[since] | after the acquire returned; read the clock, then the time left |
//! | renewed | name fence deadline | when the holder sees a later deadline; deadlines are on the same clock |
//! | released, lost | name fence | before the release is called; when told |
//! | killed | victim | by the torturer, before kill(2) |
//! | fault, healed | kind \[victim] \[name] | by the torturer; a fault that is never healed is an instant |
//! | accepted, rejected | name fence seq; name fence last | while the resource's own lock is held |
//! | read, wrote, final | name value | after the read; after the write and before the release; at the end |
//!
//! Text, so that `sort -n logs/*` is the merged history and a client in another language is one `printf`.
//! In a client and in values every byte but `A-Z a-z 0-9 . _ - / :` is written `%XX`, so a name can't
//! break a line. A line is appended with one write(2): a SIGKILL can lose nothing before it, and can tear
//! the last line only. So the reader forgives an end without a newline, and nothing else. One file per
//! client, named `*.log`, with stamps that never go back. Numbers are decimal u64.

use super::event::{Event, What};
use std::fmt::Write as _;

/// The line of an event, without the newline.
pub(super) fn encode(event: &Event) -> String {
    let mut line = format!("{} {} ", event.at, escape(&event.client));
    let mut put = |verb: &str, texts: &[(&str, Option<&String>)], numbers: &[(&str, u64)]| {
        line.push_str(verb);
        for (key, text) in texts {
            if let Some(text) = text {
                let _ = write!(line, " {key}={}", escape(text));
            }
        }
        for (key, number) in numbers {
            let _ = write!(line, " {key}={number}");
        }
    };
    match &event.what {
        What::Requested { name } => put("requested", &[("name", Some(name))], &[]),
        What::Granted { name, fence, deadline, since } => {
            let numbers = [("fence", *fence), ("deadline", *deadline), ("since", since.unwrap_or(0))];
            put("granted", &[("name", Some(name))], &numbers[..if since.is_some() { 3 } else { 2 }]);
        }
        What::Renewed { name, fence, deadline } => {
            put("renewed", &[("name", Some(name))], &[("fence", *fence), ("deadline", *deadline)]);
        }
        What::Released { name, fence } => put("released", &[("name", Some(name))], &[("fence", *fence)]),
        What::Lost { name, fence } => put("lost", &[("name", Some(name))], &[("fence", *fence)]),
        What::GaveUp { name } => put("gave_up", &[("name", Some(name))], &[]),
        What::Killed { victim } => put("killed", &[("victim", Some(victim))], &[]),
        What::Fault { kind, victim, name } => {
            put("fault", &[("kind", Some(kind)), ("victim", victim.as_ref()), ("name", name.as_ref())], &[]);
        }
        What::Healed { kind, victim, name } => {
            put("healed", &[("kind", Some(kind)), ("victim", victim.as_ref()), ("name", name.as_ref())], &[]);
        }
        What::Accepted { name, fence, seq } => {
            put("accepted", &[("name", Some(name))], &[("fence", *fence), ("seq", *seq)]);
        }
        What::Rejected { name, fence, last } => {
            put("rejected", &[("name", Some(name))], &[("fence", *fence), ("last", *last)]);
        }
        What::Read { name, value } => put("read", &[("name", Some(name))], &[("value", *value)]),
        What::Wrote { name, value } => put("wrote", &[("name", Some(name))], &[("value", *value)]),
        What::Final { name, value } => put("final", &[("name", Some(name))], &[("value", *value)]),
    }
    line
}

/// The event of a line, without its newline; or what is wrong with it.
pub(super) fn decode(line: &str) -> Result<Event, String> {
    let mut words = line.split(' ');
    let mut word = |what| words.next().filter(|word| !word.is_empty()).ok_or(format!("no {what}"));
    let at = parse_number("time", word("time")?)?;
    let client = unescape(word("client")?)?;
    let verb = word("event")?;
    let mut keys = Keys::parse(words)?;
    let what = match verb {
        "requested" => What::Requested { name: keys.text("name")? },
        "granted" => What::Granted {
            name: keys.text("name")?,
            fence: keys.number("fence")?,
            deadline: keys.number("deadline")?,
            since: if keys.has("since") { Some(keys.number("since")?) } else { None },
        },
        "renewed" => What::Renewed {
            name: keys.text("name")?,
            fence: keys.number("fence")?,
            deadline: keys.number("deadline")?,
        },
        "released" => What::Released { name: keys.text("name")?, fence: keys.number("fence")? },
        "lost" => What::Lost { name: keys.text("name")?, fence: keys.number("fence")? },
        "gave_up" => What::GaveUp { name: keys.text("name")? },
        "killed" => What::Killed { victim: keys.text("victim")? },
        "fault" => What::Fault {
            kind: keys.text("kind")?,
            victim: keys.text_if_any("victim")?,
            name: keys.text_if_any("name")?,
        },
        "healed" => What::Healed {
            kind: keys.text("kind")?,
            victim: keys.text_if_any("victim")?,
            name: keys.text_if_any("name")?,
        },
        "accepted" => What::Accepted {
            name: keys.text("name")?,
            fence: keys.number("fence")?,
            seq: keys.number("seq")?,
        },
        "rejected" => What::Rejected {
            name: keys.text("name")?,
            fence: keys.number("fence")?,
            last: keys.number("last")?,
        },
        "read" => What::Read { name: keys.text("name")?, value: keys.number("value")? },
        "wrote" => What::Wrote { name: keys.text("name")?, value: keys.number("value")? },
        "final" => What::Final { name: keys.text("name")?, value: keys.number("value")? },
        unknown => return Err(format!("unknown event `{unknown}`")),
    };
    keys.end()?;
    Ok(Event { at, client, what })
}

/// The `key=value` words of a line; a key that nobody asked for is an error, as is one given twice.
struct Keys<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Keys<'a> {
    fn parse(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut keys = Vec::new();
        for word in words {
            keys.push(word.split_once('=').ok_or(format!("`{word}` is not key=value"))?);
        }
        Ok(Self(keys))
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(k, _)| *k == key)
    }

    fn take(&mut self, key: &str) -> Result<&'a str, String> {
        let found = self.0.iter().position(|(k, _)| *k == key).ok_or(format!("no `{key}`"))?;
        Ok(self.0.remove(found).1)
    }

    fn text(&mut self, key: &str) -> Result<String, String> {
        unescape(self.take(key)?)
    }

    fn text_if_any(&mut self, key: &str) -> Result<Option<String>, String> {
        if self.has(key) { self.text(key).map(Some) } else { Ok(None) }
    }

    fn number(&mut self, key: &str) -> Result<u64, String> {
        parse_number(key, self.take(key)?)
    }

    fn end(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |(key, _)| Err(format!("unexpected or doubled `{key}`")))
    }
}

fn parse_number(key: &str, word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("`{key}` is not a number: `{word}`"))
}

/// `text` with every byte that could end a word, a value or a line written as `%XX`.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte) {
            escaped.push(byte.into());
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

fn unescape(text: &str) -> Result<String, String> {
    let malformed = || format!("malformed escape in `{text}`");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(malformed);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| malformed())?);
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}
