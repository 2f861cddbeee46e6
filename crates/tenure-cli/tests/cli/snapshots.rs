//! The words of every `--help` and of the common mistakes, in `tests/cmd`: a change of them is seen where it is reviewed.
//!
//! After a change that is meant, `TRYCMD=overwrite cargo test -p tenure-cli --test cli snapshots` writes them anew.

use std::path::Path;

use trycmd::TestCases;
use trycmd::schema::Bin;

fn compare(cases: &str) {
    let tests = TestCases::new();
    tests.register_bin("tenure", Bin::Path(env!("CARGO_BIN_EXE_tenure").into()));
    // What whoever runs this has set is not to be seen.
    for variable in ["TENURE_URL_WITHHELD", "NO_COLOR", "CLICOLOR_FORCE"] {
        tests.env(variable, "");
    }
    tests.env("TENURE_URL", "file:").env("TENURE_SHARED_ONLY", "0");
    tests.case(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd").join(cases));
}

#[test]
fn help() {
    compare("help/*.trycmd");
}

// R4.4
#[test]
fn mistakes() {
    compare("errors/*.trycmd");
}

#[test]
fn every_command_is_among_them() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_tenure")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    for line in list.lines().take_while(|line| !line.is_empty()) {
        let command = line.split_whitespace().next().unwrap();
        let file = format!("tests/cmd/help/{command}.trycmd");
        let exists = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file).exists();
        assert!(
            exists || command == "help",
            "{file} is missing: write it with the command alone, then overwrite"
        );
    }
}
