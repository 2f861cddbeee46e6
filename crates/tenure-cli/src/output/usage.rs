//! What is wrong with a command line, and what to type instead.
//!
//! Most of it is what the parser says, a line each. Where it does not know what people mean who come from flock(1), which has no commands and
//! so neither a word before the name nor options after that word, it is said here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::insist;
use super::refusal::word as word_of_shell;
use crate::args::Cli;
use crate::exit_code;
use crate::text::escaped;

/// For a ticket that is missing or is not one.
pub(crate) const WHERE_TICKETS_COME_FROM: &str = "a ticket is what this prints: tenure acquire NAME";

/// Says what the parser of the command line has to say; returns the exit code.
pub(crate) fn usage(mut refused: clap::Error) -> u8 {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Help that nobody reads to its end is no failure.
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
    // Nobody who mistypes an option means to name a lock after it.
    refused.remove(ContextKind::Suggested);
    let text = refused.to_string();
    let lines = text.strip_prefix("error: ").unwrap_or(&text).lines().filter(|line| !line.is_empty());
    // A list over several lines, which is seldom longer than one word.
    let is_list = |line: &&str| {
        let is_in_list = !line.starts_with("Usage: ") && !line.starts_with("       ");
        is_in_list && !line.starts_with("For more")
    };
    let missing = missing(&refused);
    missing.iter().for_each(insist);
    for line in lines.filter(|line| missing.is_none() || !is_list(line)) {
        insist(line);
    }
    if refused.kind() == ErrorKind::MissingRequiredArgument && text.contains("--fence") {
        insist("the fence of the lease that you mean is what this shows: tenure status NAME");
    }
    if missing.as_deref() == Some("TICKET is missing") {
        insist(WHERE_TICKETS_COME_FROM);
    }
    let unknown = refused.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let of_flock = OPTIONS_OF_FLOCK.iter().find(|(option, _)| *option == unknown);
    if let Some((option, hint)) = of_flock.filter(|_| refused.kind() == ErrorKind::UnknownArgument) {
        insist(format_args!("{option} of flock: {hint}"));
    }
    // As after `flock`.
    if std::env::args_os().nth(1).is_some_and(|first| first.as_encoded_bytes().starts_with(b"-")) {
        insist("options stand after a command, as in: tenure run -n NAME -- COMMAND");
    }
    exit_code::USAGE
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

/// What flock(1) has, and what stands for it here.
const OPTIONS_OF_FLOCK: [(&str, &str); 10] = [
    ("-s", NO_SHARING),
    ("--shared", NO_SHARING),
    ("-x", "leave it out; a name always has one holder at most"),
    ("-e", "leave it out; a name always has one holder at most"),
    ("--exclusive", "leave it out; a name always has one holder at most"),
    ("-u", NO_UNLOCKING),
    ("--unlock", NO_UNLOCKING),
    ("-o", "leave it out; what COMMAND leaves running keeps no name"),
    ("--close", "leave it out; what COMMAND leaves running keeps no name"),
    ("-F", "there is none; `tenure` stays, and renews the lease"),
];
const NO_SHARING: &str = "there is no shared mode; a name has one holder at most";
const NO_UNLOCKING: &str =
    "NAME is given back when COMMAND ends; in a script, use tenure acquire and tenure release";

/// What people type who know other tools, and what it is called here.
const OTHER_WORDS: [(&str, &str); 8] = [
    ("lock", "run"),
    ("exec", "run"),
    ("flock", "run"),
    ("unlock", "release"),
    ("free", "release"),
    ("show", "status"),
    ("version", "--version"),
    ("completion", "completions"),
];

fn unknown_command(refused: &clap::Error) {
    let of = |kind| refused.get(kind).map(ToString::to_string).unwrap_or_default();
    let (word, near) = (of(ContextKind::InvalidSubcommand), of(ContextKind::SuggestedSubcommand));
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let cli = <Cli as clap::CommandFactory>::command();
    let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).chain(["help"]).collect();
    // What clap takes for similar does not include letters in a wrong order.
    let swapped = commands.iter().find(|command| sorted(command) == sorted(&word)).copied();
    let other = OTHER_WORDS.iter().find(|(theirs, _)| *theirs == word).map(|(_, ours)| *ours);
    // Who mistyped it reads its help first: it ends the lease of another.
    let near = other.or(swapped).map_or(near, str::to_owned);
    let near = Some(near).filter(|near| !near.is_empty() && near != "break");
    let shown = escaped(&word);
    match &near {
        Some(near) => insist(format_args!("unknown command `{shown}`; did you mean `{near}`?")),
        None => {
            insist(format_args!("unknown command `{shown}`; expected one of {}", commands.join(", ")));
        }
    }
    // `flock NAME COMMAND` has no word before the name. (`tenure help WORD` comes here, too.)
    let words: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let is_name = words.first() == Some(&word);
    if is_name && near.as_deref() != Some("run") && (near.is_none() || words.iter().any(|word| word == "--"))
    {
        insist(format_args!("to run something while `{shown}` is held: {}", with_run(&words)));
    }
}

/// The words that were typed, with the command that was left out. A URL may have a password in it: then they are not repeated.
fn with_run(words: &[String]) -> String {
    let (name, rest) = (word_of_shell(&words[0]), &words[1..]);
    if rest.is_empty() || rest.iter().any(|word| word.contains("://")) {
        return format!("tenure run {name} -- COMMAND");
    }
    let rest: Vec<String> = rest.iter().map(|word| word_of_shell(word)).collect();
    let dashes = if rest[0].starts_with('-') { "" } else { " --" };
    format!("tenure run {name}{dashes} {}", rest.join(" "))
}
