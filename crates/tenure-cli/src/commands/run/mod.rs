//! `tenure run`: two processes, the [wrapper] and the [holder]. The process forks before it has a thread or a connection.

mod child;
pub(crate) mod deadline;
pub(crate) mod enclosing;
mod environment;
mod holder;
mod limits;
mod messages;
mod min_hold;
mod options;
mod process_tree;
mod report;
pub(crate) mod shared;
mod signals;
mod supervisor;
mod under_lease;
mod without_holder;
mod wrapper;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Signal, getpid};
use rustix::time::{TimerfdFlags, timerfd_create};
use tenure::Domain;

use self::child::Group;
use self::enclosing::Enclosing;
use self::holder::HolderProcess;
pub(crate) use self::options::Run;
use self::report::{Report, RunOutcome, RunResult};
use self::shared::{SharedFacts, SharedState};
use self::wrapper::Wrapper;
use crate::address::{self, Source};
use crate::exit_code;
use crate::output;
use crate::sys::{self, Forked, Mask, SignalFd};

/// How many descriptors `tenure` opens at the same time. Checking them first gives one clear error instead of a different one for each failure.
const DESCRIPTORS: usize = 20;

/// Why `tenure` starts nothing if it can't find the processes below itself.
const NO_PROC: &str = "/proc does not show this process, so `tenure` could not stop all that a command starts; \
                       mount it (mount -t proc proc /proc, unshare --mount-proc, bwrap --proc /proc)";

/// The facts of a run that ends before the fork: none.
static NOTHING_YET: SharedFacts = SharedFacts::new();

impl Run {
    /// Holds the name while the command runs; returns the exit code.
    pub(crate) fn execute(&self) -> u8 {
        self.verbosity.take_effect();
        let report = match Report::open(self) {
            Ok(report) => report,
            Err(refused) => {
                output::failed(exit_code::USAGE, refused);
                return exit_code::USAGE;
            }
        };
        // The domain of the enclosing run is unknown, but a script that takes a name twice means the same domain.
        if address::is_withheld(&self.domain)
            && let Some(fence) = Enclosing::of(&self.name).fences.first()
        {
            output::enclosing(&self.name, None, *fence);
            let code = self.wait_options.conflict_exit_code;
            report.write(&NOTHING_YET, &RunResult::new(RunOutcome::Busy, code));
            return code;
        }
        // Checked before the fork. The holder connects.
        let checked = self.limits.check().map_err(|why| (why.to_owned(), exit_code::USAGE)).and_then(|()| {
            if process_tree::is_visible() { Ok(()) } else { Err((NO_PROC.to_owned(), exit_code::OS)) }
        });
        let domain = checked
            .and_then(|()| address::domain(&self.domain).map_err(|refused| (refused.message, refused.code)));
        let (domain, source) = match domain {
            Ok(domain) => domain,
            Err((message, code)) => {
                output::failed(code, message);
                report.write(&NOTHING_YET, &RunResult::failed(code));
                return code;
            }
        };
        if domain.counts_sleep() {
            deadline::count_sleep();
        }
        let refused = |facts: &'static SharedFacts, error| {
            output::refused_by_system(&error);
            report.write(facts, &RunResult::failed(exit_code::OS));
            exit_code::OS
        };
        match check_descriptors().and_then(|()| sys::shared_watch()) {
            Err(error) => refused(&NOTHING_YET, error),
            Ok(shared) => split(self, domain, source, &report, shared)
                .unwrap_or_else(|error| refused(&shared.facts, error)),
        }
    }
}

/// Fails if the process can't open as many descriptors as it needs.
fn check_descriptors() -> io::Result<()> {
    let one = File::open("/dev/null")?;
    let all: Result<Vec<_>, _> = (0..DESCRIPTORS).map(|_| fcntl_dupfd_cloexec(&one, 0)).collect();
    all?;
    Ok(())
}

fn split(
    run: &Run,
    domain: Domain,
    source: Source,
    report: &Report<'_>,
    shared: &'static SharedState,
) -> io::Result<u8> {
    let (wire, others_wire) = UnixStream::pair()?;
    let (wrapper, group) = (getpid(), Group::fitting());
    let unrelated = process_tree::children();
    process_tree::adopt_orphans()?;
    sys::keep_children();
    // Blocked before the fork, so that neither process misses a signal.
    let signals = Mask::of(signals::forwarded().chain([Signal::CHILD]));
    let mask = signals.block();
    let signals = SignalFd::new(&signals)?;
    let alarm = timerfd_create(deadline::timer_clock(), TimerfdFlags::CLOEXEC)?;
    match sys::fork()? {
        Forked::Parent(holder) => {
            drop(others_wire);
            // A terminal in `tostop` mode stops a background process that writes a message.
            Mask::of([Signal::TTOU]).block();
            let lifeline = None;
            Ok(Wrapper { run, report, holder, unrelated, group, wire, signals, alarm, shared, lifeline }
                .wait())
        }
        Forked::Child => {
            drop((wire, signals, alarm));
            HolderProcess { run, domain, source, report, wrapper, wire: others_wire, shared, group, mask }
                .execute()
        }
    }
}
