//! `tenure run`: one process becomes two before there is a thread or a connection, the [front] and the [minder].

mod child;
pub(crate) mod deadline;
pub(crate) mod enclosing;
mod environment;
mod front;
mod holding;
mod minder;
mod options;
mod signals;
mod tree;
mod wire;

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Signal, getpid};
use tenure::Domain;

use self::child::Group;
use self::front::Front;
use self::minder::Minder;
pub(crate) use self::options::Run;
use crate::address::{self, Source};
use crate::exit_code;
use crate::output;
use crate::sys::{self, Forked, Mask, SignalFd};

/// How many descriptors `tenure` opens at the same time. Too few are told here: further on, each thing that fails has a reason of its own
/// at hand.
const DESCRIPTORS: usize = 20;

impl Run {
    /// Holds the name while the command runs; returns the exit code.
    pub(crate) fn execute(&self) -> u8 {
        self.voice.take_effect();
        // Checked before there are two processes; it connects in the minder.
        let (domain, source) = match address::domain(&self.domain) {
            Ok(domain) => domain,
            Err(refused) => {
                output::failed(refused.code, refused.message);
                return refused.code;
            }
        };
        let code = check_descriptors().and_then(|()| split(self, domain, source));
        code.unwrap_or_else(|error| {
            output::refused_by_system(&error);
            exit_code::OS
        })
    }
}

/// Fails when the descriptors that are needed can't be opened.
fn check_descriptors() -> io::Result<()> {
    let one = File::open("/dev/null")?;
    let all: Result<Vec<_>, _> = (0..DESCRIPTORS).map(|_| fcntl_dupfd_cloexec(&one, 0)).collect();
    all?;
    Ok(())
}

fn split(run: &Run, domain: Domain, source: Source) -> io::Result<u8> {
    let (wire, others_wire) = UnixStream::pair()?;
    let (front, group, watch) = (getpid(), Group::fitting(), sys::shared_watch()?);
    tree::adopt_orphans()?;
    sys::keep_children();
    // Blocked before there are two, so that neither misses one.
    let signals = Mask::of(signals::forwarded().chain([Signal::CHILD]));
    let mask = signals.block();
    let signals = SignalFd::new(&signals)?;
    match sys::fork()? {
        Forked::Parent(minder) => {
            drop(others_wire);
            // A terminal in `tostop` mode would stop this process for writing a message.
            Mask::of([Signal::TTOU]).block();
            Ok(Front { name: &run.name, minder, wire, signals, watch, lifeline: None }.stand())
        }
        Forked::Child => {
            drop((wire, signals));
            Minder { run, domain, source, front, wire: others_wire, watch, group, mask }.mind()
        }
    }
}
