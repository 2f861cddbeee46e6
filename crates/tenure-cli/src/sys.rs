//! What has no safe form: fork, signal masks, signalfd, memory shared with a child, code between fork and exec.
//!
//! The one file with `unsafe`. Signals are blocked and read from a descriptor rather than caught, so that what the command inherits is what
//! `tenure` was given: an ignored signal stays ignored.
#![expect(unsafe_code, reason = "these calls have no safe form; each says why it is sound")]

use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal};

use crate::deadline::Watch;

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The process that was there before, with its new child.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Makes a second process of this one. Only for a process with one thread: in the child, locks that another thread held would stay
/// locked for good.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: called before anything in this program starts a thread, so the child is a full copy and may go on as it likes.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).map_or(Forked::Child, Forked::Parent)),
    }
}

/// Runs `prepare` in the new process, between fork and exec. It may only make system calls: no allocation, no locks.
pub(crate) fn before_exec(
    command: &mut Command,
    prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: the one caller, `child::start`, passes a closure that makes system calls and nothing else.
    unsafe { command.pre_exec(prepare) };
}

/// A [`Watch`] that this process and those that it forks see alike.
pub(crate) fn shared_watch() -> io::Result<&'static Watch> {
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let page = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            size_of::<Watch>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )?
    };
    let watch = page.cast::<Watch>();
    // SAFETY: the mapping is page-aligned, large enough, writable, and never unmapped. A `Watch` is made of atomics: it may be
    // read and written from several processes.
    unsafe {
        watch.write(Watch::new());
        Ok(&*watch)
    }
}

/// A set of signals.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

impl Mask {
    pub(crate) fn of(signals: impl IntoIterator<Item = Signal>) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set.
        let mut set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            set.assume_init()
        };
        for signal in signals {
            // SAFETY: the set is initialised, and `Signal` is a valid number.
            unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
        }
        Mask(set)
    }

    /// Blocks these signals as well; returns what was blocked before.
    pub(crate) fn block(&self) -> Mask {
        self.change(libc::SIG_BLOCK)
    }

    /// Blocks exactly these signals. Safe between fork and exec.
    pub(crate) fn set(&self) {
        self.change(libc::SIG_SETMASK);
    }

    fn change(&self, how: libc::c_int) -> Mask {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are valid for the call, which initialises `before`: it fails only for a bad `how`.
        unsafe {
            libc::pthread_sigmask(how, &raw const self.0, before.as_mut_ptr());
            Mask(before.assume_init())
        }
    }
}

/// Whether this process was started with the signal ignored, as nohup(1) does.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only fills in the present one; the number is valid.
    unsafe {
        libc::sigaction(signal.as_raw(), ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Children are to be waited for, also when this process was started with SIGCHLD ignored.
pub(crate) fn keep_children() {
    // SAFETY: sets the default action, which is no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Signals that are blocked, to be read.
pub(crate) struct SignalFd(File);

impl SignalFd {
    pub(crate) fn new(mask: &Mask) -> io::Result<Self> {
        // SAFETY: the set is valid; the descriptor is new, and ours alone.
        unsafe {
            match libc::signalfd(-1, &raw const mask.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(SignalFd(OwnedFd::from_raw_fd(fd).into())),
            }
        }
    }

    /// The next signal that has come, and whether the kernel sent it: a terminal, not a process.
    pub(crate) fn next(&self) -> Option<(Signal, bool)> {
        let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
        (&self.0).read_exact(&mut bytes).ok()?;
        // SAFETY: any bytes are a valid `signalfd_siginfo`, which is made of integers; it is copied, so alignment does not matter.
        let signal = unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() };
        let number = i32::try_from(signal.ssi_signo).ok()?;
        Some((Signal::from_named_raw(number)?, signal.ssi_code == libc::SI_KERNEL))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
