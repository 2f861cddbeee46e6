//! System calls without a safe wrapper: fork, starting a program, signal masks, signalfd, memory shared with a child, the user database.
//!
//! This is the only file with `unsafe`. Signals are blocked and read from a descriptor instead of being caught, so that the command inherits the
//! dispositions that `tenure` was given: an ignored signal stays ignored.
#![expect(unsafe_code, reason = "these calls have no safe form; each says why it is sound")]

use std::ffi::{CStr, CString, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, Signal};

use crate::commands::run::shared::SharedState;

/// The stack of a new process before exec, besides its arguments.
const STACK: usize = 64 * 1024;
/// No entry of the user database is longer.
const LONGEST_ENTRY: usize = 1 << 20;

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The process that was there before, with its new child.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks. Only for a process with one thread: in the child, locks of other threads would stay locked.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: called before anything in this program starts a thread, so the child is a full copy and may go on as it likes.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).map_or(Forked::Child, Forked::Parent)),
    }
}

/// The process group of a process; `None` if its leader is in an outer pid namespace, and so has no number here.
pub(crate) fn group_of(pid: Pid) -> Option<Pid> {
    // SAFETY: it only reads. rustix takes the answer for a number above zero, which it is not for such a group.
    let group = unsafe { libc::getpgid(pid.as_raw_pid()) };
    Pid::from_raw(group.max(0))
}

/// The home directory of this user in the user database.
pub(crate) fn home() -> Option<PathBuf> {
    let home = in_user_database(rustix::process::geteuid().as_raw(), |entry| entry.pw_dir)?;
    Some(home).filter(|home| !home.is_empty()).map(|home| OsString::from_vec(home).into())
}

/// A user for messages: `alice (1000)`, or only the number.
pub(crate) fn shown_user(user: u32) -> String {
    match user_name(user) {
        name if name == user.to_string() => name,
        name => format!("{name} ({user})"),
    }
}

/// The name of a user, or the number if it has none.
pub(crate) fn user_name(user: u32) -> String {
    let name = in_user_database(user, |entry| entry.pw_name);
    name.map_or_else(|| user.to_string(), |name| String::from_utf8_lossy(&name).into_owned())
}

/// The name of a group in `/etc/group`, or the number if it has none there.
pub(crate) fn group_name(group: u32) -> String {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(group)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| group.to_string())
}

/// One field of a user's entry.
fn in_user_database(user: u32, field: fn(&libc::passwd) -> *mut libc::c_char) -> Option<Vec<u8>> {
    let mut entry = MaybeUninit::uninit();
    let mut texts = vec![0; 1_024];
    loop {
        let mut found = ptr::null_mut();
        // SAFETY: all of it is valid for the call, which writes within the length of `texts`.
        let answer = unsafe {
            libc::getpwuid_r(user, entry.as_mut_ptr(), texts.as_mut_ptr(), texts.len(), &raw mut found)
        };
        match answer {
            libc::ERANGE if texts.len() < LONGEST_ENTRY => texts.resize(texts.len() * 2, 0),
            libc::EINTR => {}
            _ if found.is_null() => return None,
            _ => {
                // SAFETY: it was found, so `entry` is initialised, and its texts are in `texts`, each with a NUL at its end.
                let text = unsafe { CStr::from_ptr(field(entry.assume_init_ref())) };
                return Some(text.to_bytes().to_vec());
            }
        }
    }
}

/// Whether user ids here are those of the machine.
pub(crate) fn is_first_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// A program with its arguments and environment, as exec takes them.
pub(crate) struct Program {
    strings: Vec<CString>,
    args: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
}

impl Program {
    /// The first argument is what to look for in PATH.
    ///
    /// # Errors
    /// When one of them has a NUL in it.
    pub(crate) fn new(
        args: impl Iterator<Item = OsString>,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        let mut strings = args.map(|arg| CString::new(arg.into_vec())).collect::<Result<Vec<_>, _>>()?;
        let count = strings.len();
        for (name, value) in environment {
            let variable = [name.into_vec(), value.into_vec()].join(&b'=');
            strings.push(CString::new(variable)?);
        }
        let pointers = |strings: &[CString]| {
            strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>()
        };
        let (args, environment) = (pointers(&strings[..count]), pointers(&strings[count..]));
        Ok(Program { strings, args, environment })
    }

    /// Starts it, after `prepare` in the new process, which may only make system calls: no allocation, no locks, no panic. The signals in
    /// `caught` get their default action, and the mask is `mask`.
    ///
    /// The new process borrows the memory of this one until exec, and this one waits as long: nothing is copied, which fork would do
    /// with every page that either of them touches (half a millisecond). posix_spawn(3) is made the same way, but can't do all of `prepare`.
    ///
    /// # Errors
    /// Those of `prepare` and of execvp(3).
    pub(crate) fn spawn(
        &self,
        caught: &[Signal],
        mask: &Mask,
        prepare: impl Fn() -> rustix::io::Result<()>,
    ) -> io::Result<Pid> {
        // For a file that is no program, execvp makes a copy of the arguments for a shell.
        let stack_size = STACK + self.strings.len() * size_of::<usize>();
        let mut stack = Vec::<MaybeUninit<u128>>::with_capacity(stack_size / size_of::<u128>());
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
        let mut spawning = Spawning { program: self, caught, mask, prepare: &prepare, errno: 0 };
        // No handler of this process may run in the new one.
        let before = Mask::full().block();
        // SAFETY: the stack is aligned, grows down from its end, and outlives the new process's use of it, as does `spawning`, since CLONE_VFORK
        // suspends this thread until the new process has called exec or has ended. `run` makes system calls only.
        let pid = unsafe {
            libc::clone(
                Spawning::run,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&raw mut spawning).cast(),
            )
        };
        let error = io::Error::last_os_error();
        before.set();
        let pid = if pid > 0 { Pid::from_raw(pid) } else { None }.ok_or(error)?;
        if spawning.errno == 0 {
            return Ok(pid);
        }
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        Err(io::Error::from_raw_os_error(spawning.errno))
    }
}

/// What the new process needs, in the memory of the one that starts it.
struct Spawning<'a> {
    program: &'a Program,
    caught: &'a [Signal],
    mask: &'a Mask,
    prepare: &'a dyn Fn() -> rustix::io::Result<()>,
    /// Why there is no new program.
    errno: i32,
}

impl Spawning<'_> {
    extern "C" fn run(spawning: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `spawn` passes one of these, and does not touch it until this process has ended or called exec.
        let spawning = unsafe { &mut *spawning.cast::<Spawning<'_>>() };
        for signal in spawning.caught {
            // SAFETY: sets the default action, in this process only.
            unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
        }
        if let Err(error) = (spawning.prepare)() {
            spawning.errno = error.raw_os_error();
            return 1;
        }
        spawning.mask.set();
        let Program { args, environment, .. } = spawning.program;
        // SAFETY: both lists end with a null pointer, and their strings live in `program`. The call does not allocate.
        unsafe { libc::execvpe(args[0], args.as_ptr(), environment.as_ptr()) };
        spawning.errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        1
    }
}

/// Takes an inherited descriptor, so that programs started here do not inherit it. Of stdin, stdout and stderr it takes a copy. Call it before this
/// process opens any descriptor.
pub(crate) fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call makes a new descriptor, ours alone, or fails when the number is that of none.
    let copy = unsafe {
        match libc::fcntl(number, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) {
            -1 => return Err(io::Error::last_os_error()),
            copy => OwnedFd::from_raw_fd(copy),
        }
    };
    if number > libc::STDERR_FILENO {
        // SAFETY: it was open, and nothing in this process knows of it but by this number.
        unsafe { libc::close(number) };
    }
    Ok(copy)
}

/// A [`SharedState`] in memory that this process shares with its forks.
pub(crate) fn shared_watch() -> io::Result<&'static SharedState> {
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let page = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            size_of::<SharedState>(),
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )?
    };
    let watch = page.cast::<SharedState>();
    // SAFETY: the mapping is page-aligned, large enough, writable, and never unmapped. A `SharedState` is made of atomics: it may be
    // read and written from several processes.
    unsafe {
        watch.write(SharedState::new());
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

    /// All signals.
    fn full() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises the set.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Mask(set.assume_init())
        }
    }

    /// Blocks these signals, too; returns the mask before.
    pub(crate) fn block(&self) -> Mask {
        self.change(libc::SIG_BLOCK)
    }

    /// Blocks exactly these signals. Safe between fork and exec.
    pub(crate) fn set(&self) {
        self.change(libc::SIG_SETMASK);
    }

    /// Unblocks these signals.
    pub(crate) fn unblock(&self) {
        self.change(libc::SIG_UNBLOCK);
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

/// The signals that ask a process to end.
pub(crate) const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// The same without those that this process was started to ignore.
pub(crate) fn termination_signals() -> impl Iterator<Item = Signal> {
    ENDING.into_iter().filter(|signal| !is_ignored(*signal))
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

/// Makes children wait for being reaped, even if this process was started with SIGCHLD ignored.
pub(crate) fn keep_children() {
    catch_no_more(Signal::CHILD);
}

/// The signal gets its default action.
pub(crate) fn catch_no_more(signal: Signal) {
    // SAFETY: sets the default action, which is no handler; the number is valid.
    unsafe { libc::signal(signal.as_raw(), libc::SIG_DFL) };
}

/// Reads blocked signals.
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

    /// The next signal that has come, and whether a terminal sent it, to all of its foreground group. The kernel sends others to one process alone:
    /// SIGHUP to the leader of a session whose terminal is gone, SIGALRM when a timer of this process is over.
    pub(crate) fn next(&self) -> Option<(Signal, bool)> {
        let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
        (&self.0).read_exact(&mut bytes).ok()?;
        // SAFETY: any bytes are a valid `signalfd_siginfo`, which is made of integers; it is copied, so alignment does not matter.
        let signal = unsafe { bytes.as_ptr().cast::<libc::signalfd_siginfo>().read_unaligned() };
        let number = i32::try_from(signal.ssi_signo).ok()?;
        let to_group = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH].contains(&number);
        Some((Signal::from_named_raw(number)?, to_group && signal.ssi_code == libc::SI_KERNEL))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
