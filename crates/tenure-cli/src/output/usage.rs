//! What is wrong with a command line, and what to type instead.
//!
//! Most messages are the parser's. The others are for users of flock(1), which has no commands: they leave out `run`, or write options before it.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::refusal::word as word_of_shell;
use super::say_always;
use crate::args::Cli;
use crate::exit_code;
use crate::text::escaped;

/// For a ticket that is missing or is not one.
pub(crate) const WHERE_TICKETS_COME_FROM: &str = "a ticket is what this prints: tenure acquire NAME";

/// Prints the message of the parser; returns the exit code.
pub(crate) fn usage(mut refused: clap::Error) -> u8 {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help that nobody reads to its end is not a failure.
            let _ = refused.print();
            return 0;
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refused.print();
            return exit_code::USAGE;
        }
        ErrorKind::InvalidSubcommand => {
            unknown_command(&refused);
            return exit_code::USAGE;
        }
        _ => {}
    }
    // The parser suggests a mistyped option as a NAME.
    refused.remove(ContextKind::Suggested);
    let text = refused.to_string();
    let lines = text.strip_prefix("error: ").unwrap_or(&text).lines().filter(|line| !line.is_empty());
    // The parser lists missing arguments over several lines; here they are one line.
    let is_list = |line: &&str| {
        let is_in_list = !line.starts_with("Usage: ") && !line.starts_with("       ");
        is_in_list && !line.starts_with("For more")
    };
    let missing = missing(&refused);
    missing.iter().for_each(say_always);
    let is_before_command = is_option_before_command();
    // The parser takes what resembles `--version` for that, and shows how to use it.
    let misleads = |line: &&str| is_before_command && line.starts_with("Usage: ");
    for line in lines.filter(|line| (missing.is_none() || !is_list(line)) && !misleads(line)) {
        say_always(line);
    }
    if refused.kind() == ErrorKind::MissingRequiredArgument && text.contains("--fence") {
        say_always("the fence of the lease that you mean is what this shows: tenure status NAME");
    }
    if missing.as_deref() == Some("TICKET is missing") {
        say_always(WHERE_TICKETS_COME_FROM);
    }
    let unknown = refused.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let of_flock = OPTIONS_OF_FLOCK.iter().find(|(option, _)| *option == unknown);
    if let Some((option, hint)) = of_flock.filter(|_| refused.kind() == ErrorKind::UnknownArgument) {
        say_always(format_args!("{option} of flock: {hint}"));
    }
    if is_before_command {
        say_always("options come after the command, as in: tenure run -v -n NAME -- COMMAND");
        say_always("before the command there are only --help and --version");
    }
    exit_code::USAGE
}

/// Whether the first word is an option, as after `flock`.
fn is_option_before_command() -> bool {
    std::env::args_os().nth(1).is_some_and(|first| first.as_encoded_bytes().starts_with(b"-"))
}

/// What was not given, as one line.
fn missing(refused: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(arguments)) = refused.get(ContextKind::InvalidArg) else { return None };
    if refused.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let names: Vec<_> =
        arguments.iter().map(|argument| argument.replace(['<', '>'], "").replace("...", "")).collect();
    let (last, others) = names.split_last()?;
    Some(match others {
        [] => format!("{last} is missing"),
        others => format!("{} and {last} are missing", others.join(", ")),
    })
}

/// Options of flock(1), and what to do instead.
const OPTIONS_OF_FLOCK: [(&str, &str); 10] = [
    ("-s", NO_SHARING),
    ("--shared", NO_SHARING),
    ("-x", "leave it out; a name always has one holder at most"),
    ("-e", "leave it out; a name always has one holder at most"),
    ("--exclusive", "leave it out; a name always has one holder at most"),
    ("-u", NO_UNLOCKING),
    ("--unlock", NO_UNLOCKING),
    ("-o", "leave it out; processes that COMMAND leaves running do not hold NAME"),
    ("--close", "leave it out; processes that COMMAND leaves running do not hold NAME"),
    ("-F", "there is none; `tenure` stays, and renews the lease"),
];
const NO_SHARING: &str = "there is no shared mode; a name has one holder at most";
const NO_UNLOCKING: &str =
    "NAME is given back when COMMAND ends; in a script, use tenure acquire and tenure release";

/// Commands of other tools, and their names here.
const OTHER_WORDS: [(&str, &str); 9] = [
    ("lock", "run"),
    ("exec", "run"),
    ("flock", "run"),
    ("unlock", "release"),
    ("free", "release"),
    ("show", "status"),
    ("list", "ls"),
    ("version", "--version"),
    ("completion", "completions"),
];

fn unknown_command(refused: &clap::Error) {
    let word = refused.get(ContextKind::InvalidSubcommand).map(ToString::to_string).unwrap_or_default();
    let cli = <Cli as clap::CommandFactory>::command();
    let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
    let other = OTHER_WORDS.iter().find(|(theirs, _)| *theirs == word).map(|(_, ours)| *ours);
    let near = other.or_else(|| nearest(&word, &commands));
    let shown = escaped(&word);
    match &near {
        Some(near) => say_always(format_args!("unknown command `{shown}`; did you mean `{near}`?")),
        None => {
            say_always(format_args!("unknown command `{shown}`; expected one of {}", commands.join(", ")));
        }
    }
    // `flock NAME COMMAND` has no command before the name. (`tenure help WORD` comes here, too.)
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let is_name = words.first() == Some(&word);
    if is_name && near != Some("run") && (near.is_none() || words.iter().any(|word| word == "--")) {
        say_always(format_args!("to run something while `{shown}` is held: {}", with_run(&words)));
    }
}

/// The command that was most likely meant, if that is clear. Never `break`, because it ends someone else's lease.
fn nearest<'a>(word: &str, commands: &[&'a str]) -> Option<&'a str> {
    let candidates = || commands.iter().copied().filter(|command| *command != "break");
    let begun: Vec<&str> =
        candidates().filter(|command| word.len() > 1 && command.starts_with(word)).collect();
    if let [only] = begun[..] {
        return Some(only);
    }
    // At most a third of the letters may be wrong. Of equally near commands the first counts, which is used most.
    let near = candidates().map(|command| (distance(word, command), command));
    let near = near.filter(|(distance, command)| distance * 3 <= command.len().max(word.len()));
    near.min_by_key(|(distance, _)| *distance).map(|(_, command)| command)
}

/// How many letters are missing, too many, wrong or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// The typed words with the missing `run`. They are not repeated if there is a URL, which may contain a password.
fn with_run(words: &[String]) -> String {
    let (name, rest) = (word_of_shell(&words[0]), &words[1..]);
    if rest.is_empty() || rest.iter().any(|word| word.contains("://")) {
        return format!("tenure run {name} -- COMMAND");
    }
    let rest: Vec<String> = rest.iter().map(|word| word_of_shell(word)).collect();
    let dashes = if rest[0].starts_with('-') { "" } else { " --" };
    format!("tenure run {name}{dashes} {}", rest.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_is_the_one_that_was_meant() {
        let cli = <Cli as clap::CommandFactory>::command();
        let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        for (typed, meant) in [
            ("rn", Some("run")),
            ("rum", Some("run")),
            ("rnu", Some("run")),
            ("urn", Some("run")),
            ("runn", Some("run")),
            ("sttaus", Some("status")),
            ("stat", Some("status")),
            ("relase", Some("release")),
            ("renw", Some("renew")),
            ("docter", Some("doctor")),
            ("aquire", Some("acquire")),
            ("comp", Some("completions")),
            ("list", None),
            ("l", None),
            ("re", None),
            ("brake", None),
            ("beak", None),
            ("brea", None),
            ("nightly", None),
            ("backup", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, &commands), meant, "{typed}");
        }
    }
}
