//! `tenure man`: pages made from the definition of the command line and its notes, so that they agree with `--help`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::Cli;
use crate::exit_code;
use crate::notes::{self, Notes};
use crate::output::{self, say};
use crate::text::escaped;

/// The variables that `tenure` reads, and those that it sets for a command.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("TENURE_URL", "Where names live, without --url and --url-file. Empty is an error."),
    ("TENURE_URL_FILE", "A file with the URL in it; not together with TENURE_URL."),
    ("TENURE_SHARED_ONLY", "1: the same as --shared-only. 0: nothing."),
    ("XDG_CONFIG_HOME, HOME", "Where the file of the user is. Without HOME, that of the user database."),
    ("NO_COLOR", "Set and not empty: no colour."),
    ("CLICOLOR_FORCE", "Set and not 0: colour, also where there is no terminal."),
    ("TENURE_NAME, TENURE_FENCE, TENURE_WAITED_MS", "Set by tenure run for the command that it runs."),
];

/// The files with a URL. The first that exists counts.
const FILES: [(&str, &str); 2] = [
    (
        "$XDG_CONFIG_HOME/tenure/url, or ~/.config/tenure/url",
        "Where names live, without an option and a variable: one URL on a line of its own. \
         Lines that begin with # are comments.",
    ),
    (
        "/etc/tenure/url",
        "The same, for all users. Without this file, names live in file:, on this machine only.",
    ),
];

/// Print a man page
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write the pages of all commands into this directory, and create it if needed
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,

    /// The command; without it, the page of `tenure` itself
    command: Option<String>,
}

impl Man {
    pub(crate) fn execute(&self) -> u8 {
        let mut cli = Cli::command().disable_help_subcommand(true);
        cli.build();
        if let Some(dir) = &self.dir {
            return write_all(&cli, dir);
        }
        let command = match &self.command {
            None => &cli,
            Some(name) => match cli.find_subcommand(name) {
                Some(command) => command,
                None => {
                    let names: Vec<_> = cli.get_subcommands().map(clap::Command::get_name).collect();
                    let (name, names) = (escaped(name), names.join(", "));
                    say(format_args!("unknown command `{name}`; expected one of {names}"));
                    return exit_code::USAGE;
                }
            },
        };
        output::print("man page", &page(command))
    }
}

fn write_all(cli: &clap::Command, dir: &Path) -> u8 {
    let written = fs::create_dir_all(dir).and_then(|()| {
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
        shown.chain([cli]).try_for_each(|command| {
            let title = command.get_display_name().unwrap_or("tenure");
            fs::write(dir.join(format!("{title}.1")), page(command))
        })
    });
    match written {
        Ok(()) => 0,
        Err(error) => {
            let dir = escaped(&dir.to_string_lossy());
            say(format_args!("man pages could not be written into `{dir}`: {error}"));
            exit_code::IO
        }
    }
}

fn page(command: &clap::Command) -> Vec<u8> {
    let source = concat!("tenure ", env!("CARGO_PKG_VERSION"));
    let page = Page::new(command.clone()).source(source).manual("Tenure");
    let mut text = Vec::new();
    let rendered = page
        .render_title(&mut text)
        .and_then(|()| page.render_name_section(&mut text))
        .and_then(|()| page.render_synopsis_section(&mut text))
        .and_then(|()| page.render_description_section(&mut text))
        .and_then(|()| description(command).to_writer(&mut text))
        .and_then(|()| page.render_options_section(&mut text))
        .and_then(|()| match command.has_subcommands() {
            true => page.render_subcommands_section(&mut text),
            false => Ok(()),
        })
        .and_then(|()| sections(notes::of(command.get_name())).to_writer(&mut text));
    rendered.expect("memory takes all that is written");
    once(&text)
}

/// Each part begins with the same definitions; a page needs them once. An empty date must be written as `""`.
fn once(text: &[u8]) -> Vec<u8> {
    let definitions = Roff::new().render();
    let text = String::from_utf8_lossy(text).replace(&definitions, "").replacen(" 1  ", " 1 \"\" ", 1);
    format!("{definitions}{text}").into_bytes()
}

/// The text of the command below its options.
fn description(command: &clap::Command) -> Roff {
    let mut roff = Roff::new();
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        roff.control("PP", []);
        for line in paragraph.lines() {
            roff.text([roman(line)]);
        }
    }
    roff
}

fn sections(notes: Option<&Notes>) -> Roff {
    let mut roff = Roff::new();
    let entries = |roff: &mut Roff, title: &str, entries: &[(&str, &str)]| {
        roff.control("SH", [title]);
        for (what, meaning) in entries {
            roff.control("TP", []).text([bold(*what)]).text([roman(*meaning)]);
        }
    };
    if let Some(notes) = notes {
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for (line, _) in notes.examples {
            roff.text([roman(*line)]);
        }
        roff.control("fi", []);
    }
    entries(&mut roff, "EXIT STATUS", notes.map_or(notes::EVERY_CODE, |notes| notes.codes));
    entries(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
    entries(&mut roff, "FILES", &FILES);
    roff
}
