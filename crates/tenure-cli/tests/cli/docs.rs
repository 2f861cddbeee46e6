//! The documentation shows what happens: this test types every block that is marked `console` into a shell, and compares the output.
//!
//! Each block has its own shell, directory, store and `./backup.sh`. Blocks that can't be run (another machine, a terminal, a long time) are marked
//! `console no_run`. A comment before a block says what to do first: `<!-- first: tenure … -->`. Values that differ between runs (people, processes, times,
//! fences, tickets) count as equal; `[..]` stands for any text, and a line `...` for any lines.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::Place;

/// A block of a document.
struct Block {
    /// Where it is.
    at: String,
    first: Option<String>,
    /// Commands, each with the lines that it shows.
    steps: Vec<(String, Vec<String>)>,
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                documents.push(path);
            }
        }
    }
    documents
}

fn blocks(document: &Path) -> Vec<Block> {
    let text = fs::read_to_string(document).unwrap();
    let file = document.file_name().unwrap().to_string_lossy();
    let (mut blocks, mut first) = (Vec::new(), None);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line == "```console" {
            let shown = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            blocks.push(Block {
                at: format!("{file}:{}", number + 1),
                first: first.take(),
                steps: steps(shown),
            });
        } else if let Some(comment) = line.strip_prefix("<!-- first: ") {
            first = Some(comment.strip_suffix(" -->").expect("a comment of one line").to_owned());
        } else {
            assert!(first.is_none(), "{file}:{number}: nothing comes second");
        }
    }
    blocks
}

fn steps<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, Vec<String>)> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push((command.to_owned(), Vec::new()));
        } else {
            let (command, shown) = steps.last_mut().expect("a block begins with a command");
            match line.strip_prefix("> ") {
                Some(more) if shown.is_empty() => command.push_str(&format!("\n{more}")),
                _ => shown.push(line.to_owned()),
            }
        }
    }
    steps
}

/// What the shell shows for each step.
fn shown(block: &Block) -> Vec<Vec<String>> {
    let place = Place::new();
    fs::create_dir(place.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tenure"), place.path("bin/tenure")).unwrap();
    fs::write(place.path("backup.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(place.path("backup.sh"), fs::Permissions::from_mode(0o755)).unwrap();

    let mut script = String::from("exec 2>&1\ncut() { local code=$?; printf '\\0'; return $code; }\n");
    script += &format!("{{ {}\n}} >/dev/null\ncut\n", block.first.as_deref().unwrap_or(":"));
    for (command, _) in &block.steps {
        script += &format!("{command}\ncut\n");
    }
    fs::write(place.path("script"), script).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = place.command("setsid");
    command.args(["bash", "script"]).env("PATH", format!("{}:{path}", place.path("bin").display()));
    let done = place.spawn(command).finish();
    let parts = done.stdout.split('\0').skip(1);
    parts.map(|part| part.lines().map(str::to_owned).collect()).collect()
}

/// With one word for whatever differs from run to run.
fn normal(line: &str) -> String {
    let mut normal = String::new();
    // The domain of a block is a directory.
    let line: String = line
        .split_inclusive(' ')
        .map(|word| match word.split_once("://") {
            Some(("file" | "redis", rest)) => {
                if rest.ends_with(' ') {
                    "[url] "
                } else {
                    "[url]"
                }
            }
            _ => word,
        })
        .collect();
    for word in line.split_inclusive(|c: char| !c.is_alphanumeric() && !"@._-".contains(c)) {
        let end = word.find(|c: char| !c.is_alphanumeric() && !"@._-".contains(c)).unwrap_or(word.len());
        let (word, rest) = word.split_at(end);
        let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
        // 2026-11-15, then 13:34:40.
        let is_date = word.len() == 10 && word.chars().all(|c| c.is_ascii_digit() || c == '-');
        let is_of_time = is_number && (rest == ":" || normal.ends_with("[time]:"));
        let is_of_process = is_number && ["pid", "pid:"].iter().any(|key| normal.trim_end().ends_with(key));
        let is_duration = word.starts_with(|c: char| c.is_ascii_digit())
            && word.ends_with(['s', 'm', 'h', 'd'])
            && word.chars().all(|c| c.is_ascii_digit() || "msdh".contains(c));
        normal += match () {
            () if word.contains('@') => "[who]",
            () if is_date => "[date]",
            () if is_of_time => "[time]",
            () if is_duration => "[duration]",
            () if is_of_process || (is_number && word.len() > 4) => "[number]",
            () => word,
        };
        normal += rest;
    }
    normal
}

fn is_equal(expected: &[String], shown: &[String]) -> bool {
    match (expected, shown) {
        ([], []) => true,
        ([any, rest @ ..], shown) if any == "..." => (0..=shown.len()).any(|n| is_equal(rest, &shown[n..])),
        ([line, rest @ ..], [other, others @ ..]) => is_alike(line, other) && is_equal(rest, others),
        _ => false,
    }
}

fn is_alike(pattern: &str, line: &str) -> bool {
    // A duration in an option is what was typed.
    let (pattern, line) = (normal(pattern), normal(line));
    let mut parts = pattern.split("[..]");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut is_open = false;
    for part in parts {
        is_open = part.is_empty();
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

#[test]
fn the_documentation_shows_what_happens() {
    let mut wrong = String::new();
    let blocks: Vec<Block> = documents().iter().flat_map(|document| blocks(document)).collect();
    assert!(blocks.len() > 3, "they are found");
    for block in blocks {
        let shown = shown(&block);
        for (number, (command, expected)) in block.steps.iter().enumerate() {
            let shown = shown.get(number).cloned().unwrap_or_default();
            if !is_equal(expected, &shown) {
                wrong += &format!("\n{}: $ {command}\n", block.at);
                wrong += &format!("--- documented\n{}\n", expected.join("\n"));
                wrong += &format!("--- shown\n{}\n", shown.join("\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_documents_have_the_versions_of_the_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let (readme, versions, changelog) = (read("README.md"), read("docs/versions.md"), read("CHANGELOG.md"));
    let (rust, version) = (env!("CARGO_PKG_RUST_VERSION"), env!("CARGO_PKG_VERSION"));
    assert!(readme.contains(&format!("Rust {rust} or later")), "README.md names another Rust than {rust}");
    assert!(versions.contains(&format!("the oldest Rust ({rust})")), "docs/versions.md, another than {rust}");

    let releases = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let is_released = releases.filter(|heading| *heading != "Unreleased").count() > 0;
    let says_none = versions.contains("**Nothing has been released yet.**");
    assert_eq!(says_none, !is_released, "docs/versions.md and CHANGELOG.md differ in what is released");
    let is_named = versions.contains(&format!("The source calls itself {version} "));
    assert!(is_released || is_named, "docs/versions.md names another version than {version}");
}

#[test]
fn only_values_that_differ_between_runs_are_alike() {
    let alike = [
        ("held by root@web1, pid 7", "held by ann@host-2.lan, pid 4711"),
        ("since 2026-11-15 13:34:40 UTC, for 2m30s", "since 2027-01-02 03:04:05 UTC, for 65ms"),
        ("fence 1794749680123456", "fence 1794749680123457"),
        ("domain redis://db:6379 (from TENURE_URL)", "domain file:///tmp/a (from TENURE_URL)"),
        ("a [..] c", "a b b c"),
        ("[..]", ""),
    ];
    for (pattern, line) in alike {
        assert!(is_alike(pattern, line), "{pattern}: {line}");
    }
    for (pattern, line) in
        [("75", "79"), ("1 waiting", "2 waiting"), ("a [..] c", "a b"), ("a", "a b"), ("a b", "a")]
    {
        assert!(!is_alike(pattern, line), "{pattern}: {line}");
    }
}
