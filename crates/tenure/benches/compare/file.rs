//! The file domain in one process, beside the calls that it can't do without, and beside memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tenure::Domain;

use crate::Scenario;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::tasks::{self, Contender};

pub(crate) const SCENARIOS: &[(&str, Scenario)] =
    &[("file/uncontended", uncontended), ("file/one-name-64-tasks", one_name_64_tasks)];

/// One task takes a lock and gives it back, beside one thread that locks a file, reads it, writes it and unlocks it.
fn uncontended(scenario: &str, report: &mut Report) {
    let (runtime, scratch) = (tasks::runtime(), Scratch::new());
    let domain = runtime.block_on(Domain::open(&scratch.url())).expect("a directory of our own opens");
    tasks::uncontended(&runtime, scenario, report, &domain.lock("bench"), &Raw::new(&scratch));
}

/// Many tasks of one process want one name all the time, in a directory and in memory.
fn one_name_64_tasks(scenario: &str, report: &mut Report) {
    let (runtime, scratch) = (tasks::runtime(), Scratch::new());
    let open = |url: &str| runtime.block_on(Domain::open(url)).expect("the domain opens").lock("bench");
    let (file, memory) = (open(&scratch.url()), open("memory:"));
    let (ours, theirs) = tasks::rounds(&runtime, &vec![file; 64], &vec![memory; 64]);
    tasks::add(report, scenario, "tenure", &ours);
    tasks::add(report, scenario, "memory", &theirs);
}

/// A file that is locked, read, written and unlocked.
#[derive(Clone)]
struct Raw(Arc<File>);

impl Raw {
    const LEN: usize = 256;

    fn new(scratch: &Scratch) -> Self {
        let options = File::options().read(true).write(true).create_new(true).clone();
        let file = options.open(scratch.path().join("raw")).expect("a file of our own");
        file.write_all_at(&[0; Self::LEN], 0).expect("there is space");
        Raw(Arc::new(file))
    }

    fn try_pair(&self) -> std::io::Result<()> {
        let mut bytes = [0; Self::LEN];
        self.0.lock()?;
        self.0.read_exact_at(&mut bytes, 0)?;
        bytes[0] = bytes[0].wrapping_add(1);
        self.0.write_all_at(&bytes, 0)?;
        self.0.unlock()
    }
}

impl Contender for Raw {
    async fn pair(&self) {
        self.try_pair().expect("the file can be used");
    }
}
