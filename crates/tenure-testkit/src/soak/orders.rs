//! What a worker is told, by its environment.

use std::path::PathBuf;
use std::process::Command;

pub(super) struct Orders {
    /// The domain whose names it takes.
    pub(super) url: String,
    /// Where it writes down what it does.
    pub(super) dir: PathBuf,
    /// How it is called.
    pub(super) id: String,
    /// Where its chance begins.
    pub(super) seed: u64,
}

impl Orders {
    pub(super) fn give(self, command: &mut Command) {
        command
            .env("TENURE_WORKER_URL", self.url)
            .env("TENURE_WORKER_DIR", self.dir)
            .env("TENURE_WORKER_ID", self.id)
            .env("TENURE_WORKER_SEED", self.seed.to_string());
    }

    /// Those of this process, if it is a worker.
    pub(super) fn received() -> Option<Self> {
        let var = |name: &str| std::env::var(format!("TENURE_WORKER_{name}"));
        let url = var("URL").ok()?;
        let var = |name: &str| var(name).expect("orders are whole");
        let (dir, seed) = (PathBuf::from(var("DIR")), var("SEED").parse().expect("a number"));
        Some(Orders { url, dir, id: var("ID"), seed })
    }
}
