//! Why a name was not acquired, and what to type next.

use std::time::{Duration, SystemTime};

use tenure::{Busy, Fence, Holder};

use super::say;
use crate::address;
use crate::args::{self, WaitOptions};
use crate::text::{disturbs, escaped, owner, rough, utc};

/// Prints who holds the name, and what to type to wait for it, to see more, and to break the lease of a dead holder. Prints nothing if a conflict
/// counts as success: cron would mail it.
pub(crate) fn busy(name: &str, asked: &args::Domain, wait_options: &WaitOptions, busy: &Busy) {
    if wait_options.conflict_exit_code == 0 {
        return;
    }
    match &busy.holder {
        Some(holder) => tell_holder(name, holder),
        None => say(format_args!("`{}` is held by someone else", escaped(name))),
    }
    if let Ok(located) = address::locate(asked) {
        say(format_args!("domain {located}"));
    }
    match busy.waiters {
        Some(0) => say("nobody else waits for it"),
        Some(waiters) => say(format_args!("{waiters} waiting for it")),
        // A waiter that gives up knows how many were ahead of it, and not how many are behind.
        None => {}
    }
    if wait_options.limit().is_some_and(|limit| limit.is_zero()) {
        let option = if wait_options.nonblock { "-n" } else { "-w 0" };
        say(format_args!("to wait for it up to a minute: use -w 60s instead of {option}"));
    } else {
        say("to wait for as long as it takes: leave out -w");
    }
    say(format_args!("to see more: {}", typed("status", name, asked, "")));
    if let Some(holder) = busy.holder.as_ref().filter(|holder| !holder.owner.is_foreign()) {
        let command = typed("break", name, asked, &format!(" --fence {}", holder.fence));
        say(format_args!("to take it away from a holder that is dead: {command}"));
    }
}

/// A command on the name, ready to be typed.
pub(super) fn typed(command: &str, name: &str, asked: &args::Domain, options: &str) -> String {
    let url = match (&asked.url, &asked.url_file) {
        (Some(url), _) => format!(" --url {}", shown(url)),
        (None, Some(file)) => format!(" --url-file {}", word(&file.to_string_lossy())),
        (None, None) => String::new(),
    };
    let word = word(name);
    if name.starts_with('-') {
        format!("tenure {command}{options}{url} -- {word}")
    } else {
        format!("tenure {command} {word}{options}{url}")
    }
}

/// A URL to be typed again. A URL with a password is not shown: cron mails messages, and logs keep them.
fn shown(url: &str) -> String {
    match tenure::DomainUrl::parse(url) {
        Ok(parsed) if !parsed.to_string().contains("***") => word(url),
        _ => "…".to_owned(),
    }
}

fn tell_holder(name: &str, holder: &Holder) {
    let name = escaped(name);
    let Some(pid) = holder.owner.pid() else {
        // A lock of another library does not say since when it is held.
        return say(format_args!("`{name}` is held by {}", owner(&holder.owner)));
    };
    let (user, host) = (escaped(holder.owner.user()), escaped(holder.owner.host()));
    say(format_args!("`{name}` is held by {user}@{host}"));
    say(format_args!("pid {pid}"));
    if !holder.owner.label().is_empty() {
        say(format_args!("label `{}`", escaped(holder.owner.label())));
    }
    let held = SystemTime::now().duration_since(holder.since).unwrap_or_default();
    say(format_args!("since {}, for {}", utc(holder.since), rough(held)));
    if holder.remaining != Duration::MAX {
        say(format_args!("lease left {}", rough(holder.remaining)));
    }
    say(format_args!("fence {}", holder.fence));
}

/// Prints that this process runs under the holder of the name. With `-E 0`, too: this conflict never goes away.
pub(crate) fn enclosing(name: &str, holder: Option<&Holder>, fence: Fence) {
    let name = escaped(name);
    let pid =
        holder.and_then(|holder| holder.owner.pid()).map_or(String::new(), |pid| format!(" pid {pid},"));
    say(format_args!("you already hold it: this runs under `tenure run` of `{name}`,{pid} fence {fence}"));
    say("a lock is not re-entrant; leave out the inner one, or give it another name");
}

/// A name as a word for a shell.
pub(crate) fn word(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_./:@%+,=-".contains(c);
    if name.contains(disturbs) {
        // As bash, zsh and ksh read it.
        let escape = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if disturbs(c) => {
                let mut bytes = [0; 4];
                c.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:03o}")).collect()
            }
            c => c.to_string(),
        };
        format!("$'{}'", name.chars().map(escape).collect::<String>())
    } else if name.is_empty() || !name.chars().all(is_plain) {
        format!("'{}'", name.replace('\'', r"'\''"))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_for_a_shell() {
        for name in [
            "plain/name:1",
            "a b",
            "it's",
            "$HOME `x` \"y\" \\",
            "new\nline\u{1b}'\\ü",
            "turned\u{202e}",
            "ünï",
            "*?[a]",
            "~",
            "#a",
        ] {
            let script = format!("printf %s {}", word(name));
            let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), name, "{script}");
        }
        let nowhere = args::Domain::default();
        assert_eq!(typed("break", "a b", &nowhere, " --fence 7"), "tenure break 'a b' --fence 7");
        assert_eq!(typed("break", "-n", &nowhere, " --fence 7"), "tenure break --fence 7 -- -n");
    }

    #[test]
    fn a_url_is_shown_unless_a_password_is_in_it() {
        for (url, end) in [
            ("redis://host:7000/2?ttl=5s", " --url 'redis://host:7000/2?ttl=5s'"),
            ("file:///var/lock/it", " --url file:///var/lock/it"),
            ("redis://app:secret@host", " --url …"),
            ("redis://:secret@host", " --url …"),
            ("redis+sentinel://host/main?sentinel_password=secret", " --url …"),
        ] {
            let asked = args::Domain { url: Some(url.to_owned()), ..args::Domain::default() };
            assert_eq!(typed("status", "a", &asked, ""), format!("tenure status a{end}"));
        }
    }
}
