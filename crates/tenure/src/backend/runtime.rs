//! Whether a tokio runtime has what a store needs.
//!
//! A runtime that was built without a driver panics where the driver is first used, which may be in the background, where nobody sees it, or in a
//! drop, where it aborts the process. So the drivers are tried out when a store is opened that needs them. tokio can't be asked whether it has
//! them: the only way is to use them, and to catch the panic. A program that is built with `panic = "abort"` could not catch it, so
//! nothing is tried out there, and a missing driver shows where it is first used.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::runtime::Handle;

use crate::types::error::Error;

/// Refuses a runtime that can't measure time, or can't wait for sockets and pipes.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid), with what to do. No runtime at all is not an error here: a store that has to connect says so.
pub(crate) fn check() -> Result<(), Error> {
    let Ok(runtime) = Handle::try_current() else { return Ok(()) };
    // What else can go wrong, as a lack of descriptors, is found by whoever needs one.
    let missing = match (has_time(&runtime), has_io()) {
        (true, true) => return Ok(()),
        (false, true) => "time",
        (true, false) => "I/O",
        (false, false) => "time and I/O",
    };
    Err(Error::invalid(format!("tokio runtime was built without its driver for {missing}"))
        .fix("call `enable_all()` on its builder"))
}

/// Whether this runtime can measure time.
pub(crate) fn has_time(runtime: &Handle) -> bool {
    does_not_panic(|| {
        let _inside = runtime.enter();
        drop(tokio::time::sleep(Duration::ZERO));
    })
}

/// Whether the caller's runtime can wait for sockets and pipes.
pub(crate) fn has_io() -> bool {
    does_not_panic(|| drop(UnixDatagram::unbound()))
}

/// Tries it out, unless that could end the program.
fn does_not_panic(attempt: impl FnOnce()) -> bool {
    cfg!(not(panic = "unwind")) || catch_unwind(AssertUnwindSafe(attempt)).is_ok()
}

/// There is no runtime that would connect.
pub(crate) fn missing() -> Error {
    Error::invalid("no tokio runtime to connect on").fix("call this inside of one, as under `#[tokio::main]`")
}

/// There is no runtime that would renew a lease.
pub(crate) fn missing_for_renewal() -> Error {
    Error::invalid("no tokio runtime to renew the lease on")
        .fix("call this inside of one, as under `#[tokio::main]`, or use `no_renewal`")
}
