//! What the front and the minder tell each other, over a pair of sockets: one byte a message, so that none is ever cut in two.
//!
//! To the minder: the signals that the front got. To the front: the descriptor that keeps the session alive. That the other end closes
//! says that its process is gone.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;

/// The bit that says that a terminal sent the signal. The numbers of signals are below it.
const FROM_TERMINAL: u8 = 0x80;
const LIFELINE: u8 = b'l';

/// A signal that the front got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// Which one.
    pub(crate) signal: Signal,
    /// A terminal sent it, to all processes of its foreground group.
    pub(crate) from_terminal: bool,
}

impl Relayed {
    fn encode(self) -> u8 {
        let number = u8::try_from(self.signal.as_raw()).expect("signals have small numbers");
        number | if self.from_terminal { FROM_TERMINAL } else { 0 }
    }

    pub(crate) fn decode(byte: u8) -> Option<Self> {
        let signal = Signal::from_named_raw(i32::from(byte & !FROM_TERMINAL))?;
        Some(Relayed { signal, from_terminal: byte & FROM_TERMINAL != 0 })
    }

    pub(crate) fn send(self, minder: impl AsFd) {
        send(minder, self.encode(), None);
    }
}

/// Gives the front the descriptor that keeps the session alive.
pub(crate) fn send_lifeline(front: impl AsFd, lifeline: &OwnedFd) {
    send(front, LIFELINE, Some(lifeline));
}

fn send(to: impl AsFd, byte: u8, descriptor: Option<&OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        along.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // It fails when the other side is gone, which is seen where it is listened to.
    let _ = sendmsg(to, &[IoSlice::new(&[byte])], &mut along, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// What the front is told.
#[derive(Debug)]
pub(crate) enum Told {
    /// While this is open, the session counts as alive.
    Lifeline(OwnedFd),
    /// The minder is gone.
    Gone,
}

/// The next message for the front; `None` when there is none now.
pub(crate) fn receive(minder: impl AsFd) -> Option<Told> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(minder, &mut [IoSliceMut::new(&mut byte)], &mut along, flags) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
        Ok(message) if message.bytes == 1 => along.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next().map(Told::Lifeline),
            _ => None,
        }),
        _ => Some(Told::Gone),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_signal_survives_the_way() {
        for signal in [Signal::HUP, Signal::TERM, Signal::WINCH] {
            for from_terminal in [false, true] {
                let relayed = Relayed { signal, from_terminal };
                assert_eq!(Relayed::decode(relayed.encode()), Some(relayed));
            }
        }
        assert_eq!(Relayed::decode(0), None);
    }

    #[test]
    fn the_front_is_told_in_order_and_then_that_nobody_is_there() {
        let (front, minder) = UnixStream::pair().unwrap();
        assert!(receive(&front).is_none());
        let (reader, writer) = std::io::pipe().unwrap();
        send_lifeline(&minder, &writer.into());
        drop(minder);
        let Some(Told::Lifeline(lifeline)) = receive(&front) else { panic!("no descriptor") };
        // A process that another test starts has the other end, too, until it becomes its program.
        let next = std::iter::repeat_with(|| receive(&front)).flatten().next();
        assert!(matches!(next, Some(Told::Gone)));
        drop(lifeline);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "", "it was the last descriptor of the pipe");
    }
}
