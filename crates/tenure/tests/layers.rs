//! The folders of `src` are layers: imports point downwards only, and no two modules need each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up. A module may import from its own layer and from those before it.
const LAYERS: [&str; 8] = ["sync", "types", "time", "core", "url", "backend", "engine", "api"];
/// Folders and files of tests, which may import what they like.
const TESTS: [&str; 9] =
    ["tests", "gate_tests", "schedules", "model", "properties", "torture", "gate", "fuzz", "mistakes"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if TESTS.contains(&&*stem) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Which layer and module imports which others, by the code that is not a test.
fn imports() -> BTreeMap<(String, String), BTreeSet<(String, String)>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut imports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for file in files {
        let parts: Vec<String> = file
            .strip_prefix(&src)
            .expect("a file below src")
            .with_extension("")
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        let module = (parts[0].clone(), parts.get(1).cloned().unwrap_or_default());
        let text = fs::read_to_string(&file).expect("a text");
        let product = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for line in product.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for path in line.split("crate::").skip(1) {
                let mut words = path.split(|c: char| !c.is_alphanumeric() && c != '_');
                let layer = words.next().unwrap_or_default().to_owned();
                words.next();
                let other = words.next().unwrap_or_default().to_owned();
                if LAYERS.contains(&&*layer) {
                    imports.entry(module.clone()).or_default().insert((layer, other));
                }
            }
        }
    }
    imports
}

#[test]
fn imports_point_downwards() {
    let rank = |layer: &str| LAYERS.iter().position(|other| *other == layer);
    let mut seen = 0;
    for (module, others) in imports() {
        let Some(own) = rank(&module.0) else { continue };
        for other in others {
            seen += 1;
            assert!(rank(&other.0) <= Some(own), "{module:?} imports {other:?}, which is above it");
        }
    }
    assert!(seen > 100, "the imports were not found");
}

#[test]
fn no_two_modules_of_a_layer_need_each_other() {
    let imports = imports();
    for layer in ["types", "time", "core", "engine", "api"] {
        // What a module needs, and what that needs, until nothing new comes.
        for module in imports.keys().filter(|module| module.0 == layer && module.1 != "mod") {
            let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
            while let Some(one) = next.pop() {
                for other in imports.get(one).into_iter().flatten() {
                    if other.0 == layer && other.1 != one.1 && reached.insert(other) {
                        assert_ne!(other, module, "{module:?} needs itself, by way of {one:?}");
                        next.push(other);
                    }
                }
            }
        }
    }
}

// `error` is one type with fields: no code finds the remedy in its text.
#[test]
fn no_code_takes_a_message_apart() {
    let mut files = Vec::new();
    for krate in ["tenure", "tenure-cli"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
        sources(&root.join(krate).join("src"), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        for method in ["split_once", "split", "rsplit_once", "find", "splitn"] {
            let code = format!("{method}(\"; \"");
            assert!(!text.contains(&code), "{} takes a message apart: {code}", file.display());
        }
    }
}
