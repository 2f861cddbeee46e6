//! The text below the options of every command: examples and exit codes. `--help` and the man pages show the same.
//!
//! It is one table, so that a code means the same everywhere, and a test can find a command without examples or codes.

use std::fmt::Write as _;

/// An exit code and its meaning; or an example and what it does.
type Entry = (&'static str, &'static str);

const DONE: Entry = ("0", "done");
const PRINTED: Entry = ("0", "printed");
const USAGE: Entry = ("64", "wrong command line: an option, a URL, a name, a duration, a ticket");
const UNAVAILABLE: Entry = ("69", "the store can't be reached or used");
const OS: Entry = ("71", "the operating system refused a process, a descriptor or memory");
const IO: Entry = ("74", "the output could not be written");
const BUSY: Entry = ("75, or -E", "someone else holds NAME");
const DENIED: Entry = ("77", "the store refused: credentials or permissions are missing");
const LOST: Entry = ("79", "the lease was lost");
const BY_SIGNAL: Entry = ("128 + n", "ended by signal n: 130 for Ctrl-C, 143 for TERM");

/// The codes of all commands, for the page of `tenure` itself.
pub(crate) const EVERY_CODE: &[Entry] = &[
    ("0", "done; tenure run exits as its command does"),
    ("1", "tenure doctor: the store is not fit to hold locks"),
    USAGE,
    UNAVAILABLE,
    OS,
    IO,
    BUSY,
    DENIED,
    LOST,
    ("124", "tenure run: the command ran for longer than --max-hold, and was stopped"),
    ("126, 127", "tenure run: the command can't be executed; was not found"),
    BY_SIGNAL,
];

/// The notes to one command.
#[derive(Debug)]
pub(crate) struct Notes {
    command: &'static str,
    pub(crate) examples: &'static [Entry],
    pub(crate) codes: &'static [Entry],
}

const ALL: [Notes; 14] = [
    Notes {
        command: "run",
        examples: &[
            ("tenure run nightly -- ./backup.sh", "wait, run, give back"),
            ("tenure run -n -E 0 nightly -- ./backup.sh", "cron: skipping is fine"),
            ("tenure run -w 30s --url redis://host nightly -- ./backup.sh", "between machines"),
        ],
        codes: &[
            ("that of COMMAND", "it ran, and ended under the lease; 128 + n if signal n killed it"),
            BUSY,
            ("79", "the lease was lost, and COMMAND was stopped"),
            ("124", "COMMAND ran for longer than --max-hold, and was stopped"),
            UNAVAILABLE,
            DENIED,
            USAGE,
            OS,
            ("126, 127", "COMMAND can't be executed; was not found"),
            ("128 + n", "signal n came while waiting: 130 for Ctrl-C, 143 for TERM"),
        ],
    },
    Notes {
        command: "ls",
        examples: &[("tenure ls", "all names"), ("tenure ls 'orders/*'", "those that match")],
        codes: &[PRINTED, USAGE, UNAVAILABLE, IO, DENIED],
    },
    Notes {
        command: "status",
        examples: &[
            ("tenure status nightly", "who holds it, who waits"),
            ("tenure status -q nightly && echo free", "in a script"),
        ],
        codes: &[("0", "printed; with -q: free"), ("75", "with -q: held"), USAGE, UNAVAILABLE, IO, DENIED],
    },
    Notes {
        command: "watch",
        examples: &[
            ("tenure watch", "what happens, until Ctrl-C"),
            ("tenure watch --json 'orders/*' | jq .", "for programs"),
        ],
        codes: &[("0", "its reader closed the pipe"), USAGE, UNAVAILABLE, OS, IO, DENIED, BY_SIGNAL],
    },
    Notes {
        command: "top",
        examples: &[("tenure top", "q ends it, ? shows its keys")],
        codes: &[DONE, USAGE, UNAVAILABLE, OS, DENIED, BY_SIGNAL],
    },
    Notes {
        command: "acquire",
        examples: &[
            ("ticket=$(tenure acquire --ttl 5m deploy) || exit", "take it"),
            ("tenure renew \"$ticket\"", "5 minutes from now"),
            ("tenure release \"$ticket\"", "give it back"),
        ],
        codes: &[
            ("0", "acquired, and the ticket was printed"),
            BUSY,
            UNAVAILABLE,
            DENIED,
            USAGE,
            OS,
            ("74", "the ticket could not be written; NAME was given back"),
            ("79", "the lease was lost before there was a ticket"),
            ("128 + n", "signal n came first: 130 for Ctrl-C, 143 for TERM"),
        ],
    },
    Notes {
        command: "renew",
        examples: &[
            ("tenure renew \"$ticket\"", "its ttl from now"),
            ("tenure renew - <ticket-file", "not shown by ps"),
        ],
        codes: &[
            ("0", "renewed"),
            ("79", "the lease had ended: the ticket is useless now"),
            UNAVAILABLE,
            DENIED,
            USAGE,
            IO,
        ],
    },
    Notes {
        command: "release",
        examples: &[
            ("tenure release \"$ticket\"", "give it back"),
            ("tenure release - <ticket-file", "not shown by ps"),
        ],
        codes: &[
            ("0", "given back"),
            ("79", "the lease had ended before: work since then was not protected"),
            UNAVAILABLE,
            DENIED,
            USAGE,
            IO,
        ],
    },
    Notes {
        command: "hold",
        examples: &[
            ("coproc tenure hold deploy", "bash: hold it in the background"),
            ("read -r held <&\"${COPROC[0]}\" || exit", "until it is held"),
            ("exec {COPROC[1]}>&-", "give it back"),
        ],
        codes: &[
            ("0", "stdin was closed, and NAME given back"),
            BUSY,
            LOST,
            UNAVAILABLE,
            DENIED,
            USAGE,
            OS,
            ("74", "the line could not be written; NAME was given back"),
            ("128 + n", "signal n came, and NAME was given back: 130 for Ctrl-C, 143 for TERM"),
        ],
    },
    Notes {
        command: "break",
        examples: &[
            ("tenure status nightly", "shows the fence"),
            ("tenure break nightly --fence 1794749680000000", "asks for the name"),
        ],
        codes: &[
            ("0", "taken away from its holder; or nobody holds NAME"),
            ("75", "another lease is on NAME, or the name was not typed; nothing was changed"),
            USAGE,
            UNAVAILABLE,
            IO,
            DENIED,
        ],
    },
    Notes {
        command: "doctor",
        examples: &[
            ("tenure doctor", "the directory of this user"),
            ("tenure doctor --url redis://host", "a server"),
        ],
        codes: &[
            ("0", "fit to hold locks, perhaps with doubts"),
            ("1", "not fit"),
            USAGE,
            UNAVAILABLE,
            OS,
            IO,
            DENIED,
            ("128 + n", "signal n ended it, after the self-test"),
        ],
    },
    Notes {
        command: "bench",
        examples: &[("tenure bench", "this machine"), ("tenure bench --url redis://host", "a server")],
        codes: &[
            ("0", "measured"),
            USAGE,
            UNAVAILABLE,
            OS,
            IO,
            DENIED,
            ("128 + n", "signal n ended it: 130 for Ctrl-C, 143 for TERM"),
        ],
    },
    Notes {
        command: "completions",
        examples: &[
            (
                "mkdir -p ~/.local/share/bash-completion/completions ~/.zfunc ~/.config/fish/completions",
                "once",
            ),
            ("tenure completions bash > ~/.local/share/bash-completion/completions/tenure", "bash"),
            ("tenure completions zsh > ~/.zfunc/_tenure", "zsh"),
            ("tenure completions fish > ~/.config/fish/completions/tenure.fish", "fish"),
        ],
        codes: &[PRINTED, USAGE, IO],
    },
    Notes {
        command: "man",
        examples: &[
            ("tenure man run | man -l -", "read one"),
            ("tenure man --dir ~/.local/share/man/man1", "for man tenure-run"),
        ],
        codes: &[PRINTED, USAGE, IO],
    },
];

/// Where names live, for every command that asks for it.
const DOMAIN: &str = "\
Where names live, the first of these that is set or exists:
  --url or --url-file; TENURE_URL or TENURE_URL_FILE; ~/.config/tenure/url; /etc/tenure/url.
  Else file:, this machine and this user only: /run/lock/tenure-UID;
  --shared-only or TENURE_SHARED_ONLY=1 refuses that.";

/// The notes to a command.
pub(crate) fn of(command: &str) -> Option<&'static Notes> {
    const { &ALL }.iter().find(|notes| notes.command == command)
}

/// Adds the notes to the help of every command, below what the command says itself.
pub(crate) fn add(mut cli: clap::Command) -> clap::Command {
    for notes in const { &ALL } {
        cli = cli.mut_subcommand(notes.command, |command| {
            let own = command.get_after_help().map(ToString::to_string);
            let has_domain = command.get_arguments().any(|argument| argument.get_id() == "url");
            let above: Vec<String> = own.into_iter().chain(has_domain.then(|| DOMAIN.to_owned())).collect();
            command.after_help(notes.below(&above))
        });
    }
    cli
}

impl Notes {
    fn below(&self, above: &[String]) -> String {
        let mut text: String = above.iter().map(|paragraph| format!("{paragraph}\n\n")).collect();
        text.push_str("Examples:\n");
        list(&mut text, self.examples, "  # ");
        text.push_str("\nExit codes:\n");
        list(&mut text, self.codes, "  ");
        text
    }
}

fn list(text: &mut String, entries: &[Entry], between: &str) {
    let width = entries.iter().map(|(first, _)| first.len()).max().unwrap_or_default();
    for (first, second) in entries {
        let _ = writeln!(text, "  {first:width$}{between}{second}");
    }
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;

    #[test]
    fn every_command_has_examples_and_codes_that_fit_a_terminal() {
        let mut cli = Cli::definition();
        cli.build();
        let mut long = Vec::new();
        for command in cli.get_subcommands_mut().filter(|command| command.get_name() != "help") {
            let name = command.get_name().to_owned();
            let help = command.get_after_help().unwrap_or_else(|| panic!("{name} has no notes")).to_string();
            assert!(help.contains(&format!("tenure {name}")), "{name}: an example");
            let whole = command.render_help().to_string();
            long.extend(whole.lines().filter(|line| line.chars().count() > 100).map(str::to_owned));
        }
        assert_eq!(long, [""; 0]);
    }
}
