//! The directories of a test of the file domain.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::test_process::HANGS;
use crate::backend::file::open_directory::index_of;
use crate::types::name::Name;

/// A directory for locks, and one for logs.
pub(in crate::backend::file) struct Scratch {
    path: PathBuf,
    names: AtomicU64,
}

impl Scratch {
    pub(in crate::backend::file) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tenure-scratch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let scratch = Scratch { path: std::env::temp_dir().join(name), names: AtomicU64::new(0) };
        std::fs::create_dir_all(scratch.logs()).expect("a directory for logs");
        scratch
    }

    pub(in crate::backend::file) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::backend::file) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub(in crate::backend::file) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub(in crate::backend::file) fn url(&self) -> String {
        format!("file://{}", self.store().display())
    }

    /// A new name for a process.
    pub(in crate::backend::file) fn next_name(&self) -> String {
        format!("p{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// The names of the files in the store.
    pub(in crate::backend::file) fn files(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.store()).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a text")).collect()
    }

    /// Waits until the files are as expected: replaced stripes are removed in the background.
    pub(in crate::backend::file) fn files_once(
        &self,
        is_so: impl Fn(&BTreeSet<String>) -> bool,
    ) -> BTreeSet<String> {
        let give_up = Instant::now() + HANGS;
        loop {
            let files = self.files();
            if is_so(&files) {
                return files;
            }
            assert!(Instant::now() < give_up, "there are still {files:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}

/// Names on the same stripe.
pub(in crate::backend::file) fn names_of_one_stripe<const N: usize>() -> [String; N] {
    let stripe = index_of(&Name::new("orders/0").expect("a name"));
    let mut names = (0..).map(|n| format!("orders/{n}"));
    std::array::from_fn(|_| {
        let is_there = |name: &String| index_of(&Name::new(name).expect("a name")) == stripe;
        names.find(is_there).expect("a name on every stripe")
    })
}
