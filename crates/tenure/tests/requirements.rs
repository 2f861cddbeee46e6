//! What docs/requirements.md says is shown, is cited by a test.
//!
//! A row names where its requirement is shown; one that waits for a part that does not exist yet says "with …". This reads the page and
//! the sources, so that a claim without a test, or a test that was renamed away, fails here.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_requirement_that_is_claimed_is_cited() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/requirements.md")).unwrap();
    let mut sources = String::new();
    for folder in
        ["crates/tenure/src", "crates/tenure/tests", "crates/tenure-testkit/src", "crates/tenure-cli/tests"]
    {
        read_all(&root.join(folder), &mut sources);
    }
    let claimed: Vec<&str> = page.lines().filter_map(claimed_number).collect();
    assert!(claimed.len() > 20, "the page is read: {claimed:?}");
    let is_cited = |number: &str| {
        sources
            .match_indices(number)
            .any(|(at, _)| !sources[at + number.len()..].starts_with(|c: char| c.is_ascii_digit()))
    };
    let uncited: Vec<&str> = claimed.into_iter().filter(|number| !is_cited(number)).collect();
    assert!(uncited.is_empty(), "claimed in docs/requirements.md, and cited by no test: {uncited:?}");
}

/// The number of a row that says where it is shown today.
fn claimed_number(line: &str) -> Option<&str> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let (number, _, shown_by) = (cells.next()?, cells.next()?, cells.next()?);
    let is_number = number.starts_with(['R', 'B']) && number[1..].starts_with(|c: char| c.is_ascii_digit());
    (is_number && !shown_by.starts_with("with ")).then_some(number)
}

fn read_all(folder: &Path, sources: &mut String) {
    let entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in entries {
        if path.is_dir() {
            read_all(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
