//! `tenure run`: one process becomes two before there is a thread or a connection, the [front] and the [minder].

mod child;
pub(crate) mod deadline;
pub(crate) mod enclosing;
mod environment;
mod front;
mod holding;
mod keeping;
mod leased;
mod limits;
mod minder;
mod options;
mod orphan;
mod report;
mod signals;
mod tree;
pub(crate) mod watch;
mod wire;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Signal, getpid};
use rustix::time::{TimerfdFlags, timerfd_create};
use tenure::Domain;

use self::child::Group;
use self::enclosing::Enclosing;
use self::front::Front;
use self::minder::Minder;
pub(crate) use self::options::Run;
use self::report::{Kind, Report, Verdict};
use self::watch::{Facts, Watch};
use crate::address::{self, Source};
use crate::exit_code;
use crate::output;
use crate::sys::{self, Forked, Mask, SignalFd};

/// How many descriptors `tenure` opens at the same time. Too few are told here: further on, each thing that fails has a reason of its own
/// at hand.
const DESCRIPTORS: usize = 20;

/// Why nothing is started where the processes below this one can't be found.
const NO_PROC: &str = "/proc does not show this process, so that not all that a command starts could be stopped; \
                       mount it (mount -t proc proc /proc, unshare --mount-proc, bwrap --proc /proc)";

/// What is known before there are two processes.
static NOTHING_YET: Facts = Facts::new();

impl Run {
    /// Holds the name while the command runs; returns the exit code.
    pub(crate) fn execute(&self) -> u8 {
        self.voice.take_effect();
        let report = match Report::open(self) {
            Ok(report) => report,
            Err(refused) => {
                output::failed(exit_code::USAGE, refused);
                return exit_code::USAGE;
            }
        };
        // Not which domain it is, but that the one above holds the name in it: who takes a name twice means the same one.
        if address::is_withheld(&self.domain)
            && let Some(fence) = Enclosing::of(&self.name).fences.first()
        {
            output::enclosing(&self.name, None, *fence);
            let code = self.patience.conflict_exit_code;
            report.write(&NOTHING_YET, &Verdict::new(Kind::Busy, code));
            return code;
        }
        // Checked before there are two processes; it connects in the minder.
        let checked = self.limits.check().map_err(|why| (why.to_owned(), exit_code::USAGE)).and_then(|()| {
            if tree::is_visible() { Ok(()) } else { Err((NO_PROC.to_owned(), exit_code::OS)) }
        });
        let domain = checked
            .and_then(|()| address::domain(&self.domain).map_err(|refused| (refused.message, refused.code)));
        let (domain, source) = match domain {
            Ok(domain) => domain,
            Err((message, code)) => {
                output::failed(code, message);
                report.write(&NOTHING_YET, &Verdict::failed(code));
                return code;
            }
        };
        if domain.counts_sleep() {
            deadline::count_sleep();
        }
        let refused = |facts: &'static Facts, error| {
            output::refused_by_system(&error);
            report.write(facts, &Verdict::failed(exit_code::OS));
            exit_code::OS
        };
        match check_descriptors().and_then(|()| sys::shared_watch()) {
            Err(error) => refused(&NOTHING_YET, error),
            Ok(watch) => split(self, domain, source, &report, watch)
                .unwrap_or_else(|error| refused(&watch.facts, error)),
        }
    }
}

/// Fails when the descriptors that are needed can't be opened.
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
    watch: &'static Watch,
) -> io::Result<u8> {
    let (wire, others_wire) = UnixStream::pair()?;
    let (front, group) = (getpid(), Group::fitting());
    let strangers = tree::children();
    tree::adopt_orphans()?;
    sys::keep_children();
    // Blocked before there are two, so that neither misses one.
    let signals = Mask::of(signals::forwarded().chain([Signal::CHILD]));
    let mask = signals.block();
    let signals = SignalFd::new(&signals)?;
    let alarm = timerfd_create(deadline::timer_clock(), TimerfdFlags::CLOEXEC)?;
    match sys::fork()? {
        Forked::Parent(minder) => {
            drop(others_wire);
            // A terminal in `tostop` mode would stop this process for writing a message.
            Mask::of([Signal::TTOU]).block();
            let lifeline = None;
            Ok(Front { run, report, minder, strangers, group, wire, signals, alarm, watch, lifeline }.stand())
        }
        Forked::Child => {
            drop((wire, signals, alarm));
            Minder { run, domain, source, report, front, wire: others_wire, watch, group, mask }.mind()
        }
    }
}
