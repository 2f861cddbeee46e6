//! A directory for one scenario.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that only this user can use; removed when it is dropped. `TMPDIR` says on which file system.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("tenure-bench-{pid}-{next}"));
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory for temporary files");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The domain of this directory.
    pub(crate) fn url(&self) -> String {
        format!("file://{}", text(&self.0))
    }
}

/// A path as an argument.
pub(crate) fn text(dir: &Path) -> String {
    dir.to_str().expect("a directory for temporary files has a readable name").to_owned()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
