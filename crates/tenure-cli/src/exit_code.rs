//! Exit codes of `tenure` itself. `tenure run` exits with the code of its command, or 128 + n if signal n killed it.
//!
//! The numbers are those of sysexits(3) if it has one, and those of the shell for a command that can't be started.

use tenure::{Error, ErrorKind};

/// `doctor` found the store unfit to hold locks.
pub(crate) const UNFIT: u8 = 1;
/// The command line is wrong: an option, a URL, a name, a duration (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The store can't be reached or used (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The operating system refused what `tenure` needs to start a command (`EX_OSERR`).
pub(crate) const OS: u8 = 71;
/// The output could not be written (`EX_IOERR`).
pub(crate) const IO: u8 = 74;
/// Someone else holds the name, and the wait is over (`EX_TEMPFAIL`). `-E` changes it.
pub(crate) const BUSY: u8 = 75;
/// The store refused: credentials or permissions are missing (`EX_NOPERM`).
pub(crate) const DENIED: u8 = 77;
/// The lease was lost, and the command was stopped.
pub(crate) const LOST: u8 = 79;
/// The command was stopped because it ran for too long, as with timeout(1).
pub(crate) const TIMED_OUT: u8 = 124;
/// The command was found and can't be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Added to the number of a signal.
const BY_SIGNAL: u8 = 128;

/// A signal ended the command, or `tenure` while it waited.
pub(crate) fn by_signal(signal: i32) -> u8 {
    BY_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or(u8::MAX))
}

/// For an error of the library.
pub(crate) fn of_error(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Invalid => USAGE,
        ErrorKind::Denied => DENIED,
        ErrorKind::Lost => LOST,
        // The holder opens its domain after the fork: no command meets `Forked`.
        ErrorKind::Unavailable
        | ErrorKind::Unsupported
        | ErrorKind::Protocol
        | ErrorKind::Closed
        | ErrorKind::Forked => UNAVAILABLE,
        _ => UNAVAILABLE,
    }
}

/// For a command that could not be started.
pub(crate) fn of_start(error: &std::io::Error) -> u8 {
    match error.raw_os_error() {
        Some(libc::ENOENT) => NOT_FOUND,
        // A lack of resources, not a fault of the command.
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => OS,
        _ => NOT_EXECUTABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_resources_is_not_the_fault_of_the_command() {
        for (errno, code) in [
            (libc::ENOENT, 127),
            (libc::EACCES, 126),
            (libc::ENOEXEC, 126),
            (libc::E2BIG, 126),
            (libc::EAGAIN, 71),
            (libc::ENOMEM, 71),
            (libc::EMFILE, 71),
            (libc::ENFILE, 71),
        ] {
            assert_eq!(of_start(&std::io::Error::from_raw_os_error(errno)), code, "errno {errno}");
        }
    }
}
