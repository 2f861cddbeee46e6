//! stdout, for output that must not get lost: a ticket that nobody reads holds its name until it expires.
//!
//! It bypasses the buffer of the standard library, so that a full disk or a closed pipe is an error of the write. If stdout was closed when the
//! program started, Rust replaces it by `/dev/null`, open for reading and writing. No shell opens it like that, so it is recognised.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, major, minor};
use tokio::sync::oneshot;

/// The numbers of `/dev/null` on Linux.
const NULL_DEVICE: (u32, u32) = (1, 3);
const WRITER_STACK: usize = 64 * 1_024;

/// Writes all of it.
///
/// # Errors
/// If it can't be written, or stdout was closed.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let stdout = io::stdout();
    if was_closed(&stdout)? {
        return Err(io::Error::other("stdout is closed"));
    }
    File::from(stdout.as_fd().try_clone_to_owned()?).write_all(bytes)
}

/// Writes all of it in a thread: if the reader does not read, the caller still handles signals and renews its lease.
///
/// # Errors
/// As [`write`].
pub(crate) async fn write_aside(text: String) -> io::Result<()> {
    let (written, is_written) = oneshot::channel();
    std::thread::Builder::new().stack_size(WRITER_STACK).spawn(move || {
        let _ = written.send(write(text.as_bytes()));
    })?;
    is_written.await.unwrap_or_else(|_| Err(io::Error::other("it could not be written")))
}

fn was_closed(stdout: &io::Stdout) -> io::Result<bool> {
    let stat = fstat(stdout)?;
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (major(stat.st_rdev), minor(stat.st_rdev)) == NULL_DEVICE;
    Ok(is_null && fcntl_getfl(stdout)? & OFlags::RWMODE == OFlags::RDWR)
}
