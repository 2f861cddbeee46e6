//! Recipes of docs/library.md, pasted with the URL of a server: when such a program has ended, no lock of it is left (R1.7).
//!
//! The files of the folder are the recipes but for their URL; a test compares them with the document.

mod fences;
mod handler;
mod shutdown;

use std::process::Command;

use tenure_testkit::redis::{RedisServer, Reply};

const RECIPES: [(&str, &str); 3] = [
    ("fences", include_str!("recipes/fences.rs")),
    ("handler", include_str!("recipes/handler.rs")),
    ("shutdown", include_str!("recipes/shutdown.rs")),
];

/// Where a recipe locks.
fn url() -> String {
    std::env::var("TENURE_URL").expect("to be run by another test")
}

/// Formatting does not count.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn are_those_of_the_guide() {
    let guide = words(&include_str!("../../../../docs/library.md").replace("\"memory:app\"", "\"memory:\""));
    for (name, recipe) in RECIPES {
        let recipe = recipe.replace("super::url()", "\"memory:\"").replace("pub(super) ", "");
        assert!(guide.contains(&words(&recipe)), "docs/library.md has another text than recipes/{name}.rs");
    }
}

// R1.7
#[test]
fn leave_no_lock_behind() {
    let server = RedisServer::start();
    for (name, _) in RECIPES {
        let ended = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "redis::recipes::a_process_with_a_recipe", "--ignored", "--nocapture"])
            .envs([("TENURE_URL", server.url().as_str()), ("TENURE_RECIPE", name)])
            .status()
            .expect("a process");
        assert!(ended.success(), "{name}: {ended}");
        let locks = server.command(&["KEYS", "tenure:*"]);
        assert_eq!(locks, Reply::Array(vec![]), "{name}: still held");
    }
}

/// Ends when the recipe does, as a program whose `main` it is.
#[test]
#[ignore = "run by another test, as a process of its own"]
fn a_process_with_a_recipe() {
    match std::env::var("TENURE_RECIPE").expect("to be run by another test").as_str() {
        "fences" => fences::main().expect("a recipe"),
        "handler" => handler::main().expect("a recipe"),
        "shutdown" => shutdown::main().expect("a recipe"),
        other => panic!("no recipe: {other}"),
    }
    std::process::exit(0);
}
