//! Whether the caller's tokio runtime has what a store needs.
//!
//! A runtime that was built without a driver panics where the driver is first used, which may be in the background, where nobody sees it, or in a
//! drop, where it aborts the process. So the drivers are tried out when a store is opened. tokio can't be asked whether it has them: the
//! only way is to use them, and to catch the panic.

use std::panic::catch_unwind;
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::runtime::Handle;

use crate::error::Error;

/// Refuses a runtime that can't measure time, or can't wait for sockets and pipes.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid), with what to do. No runtime at all is not an error: a store in the same process needs none.
pub(crate) fn check() -> Result<(), Error> {
    if Handle::try_current().is_err() {
        return Ok(());
    }
    let has_time = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
    // What else can go wrong, as a lack of descriptors, is found by whoever needs one.
    let has_io = has_io();
    let missing = match (has_time, has_io) {
        (true, true) => return Ok(()),
        (false, true) => "time",
        (true, false) => "I/O",
        (false, false) => "time and I/O",
    };
    Err(Error::invalid(format!(
        "tokio runtime was built without its driver for {missing}; call `enable_all()` on its builder"
    )))
}

/// Whether the runtime can wait for sockets and pipes.
pub(crate) fn has_io() -> bool {
    catch_unwind(|| drop(UnixDatagram::unbound())).is_ok()
}

/// There is no runtime that would do it.
pub(crate) fn missing() -> Error {
    Error::invalid("no tokio runtime to connect on; call this inside of one, as under `#[tokio::main]`")
}
