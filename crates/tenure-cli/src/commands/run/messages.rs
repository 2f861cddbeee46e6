//! Messages between the wrapper and the holder, over a pair of sockets. Each is one byte, so that none is ever split.
//!
//! The wrapper sends the signals that it got. The holder sends the descriptor that keeps the session alive. If one end closes, its process is gone.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::Signal;

/// Set if a terminal sent the signal. Signal numbers are below it.
const FROM_TERMINAL: u8 = 0x80;
const LIFELINE: u8 = b'l';

/// A signal that the wrapper got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayedSignal {
    /// Which one.
    pub(crate) signal: Signal,
    /// A terminal sent it, to all processes of its foreground group.
    pub(crate) from_terminal: bool,
}

impl RelayedSignal {
    fn encode(self) -> u8 {
        let number = u8::try_from(self.signal.as_raw()).expect("signals have small numbers");
        number | if self.from_terminal { FROM_TERMINAL } else { 0 }
    }

    pub(crate) fn decode(byte: u8) -> Option<Self> {
        let signal = Signal::from_named_raw(i32::from(byte & !FROM_TERMINAL))?;
        Some(RelayedSignal { signal, from_terminal: byte & FROM_TERMINAL != 0 })
    }

    pub(crate) fn send(self, holder: impl AsFd) {
        send(holder, self.encode(), None);
    }
}

/// Gives the wrapper the descriptor that keeps the session alive.
pub(crate) fn send_lifeline(wrapper: impl AsFd, lifeline: &OwnedFd) {
    send(wrapper, LIFELINE, Some(lifeline));
}

fn send(to: impl AsFd, byte: u8, descriptor: Option<&OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        along.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // It fails if the other process is gone, which the reader of the socket notices.
    let _ = sendmsg(to, &[IoSlice::new(&[byte])], &mut along, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// A message to the wrapper.
#[derive(Debug)]
pub(crate) enum FromHolder {
    /// While this is open, the session counts as alive.
    Lifeline(OwnedFd),
    /// The holder is gone.
    Gone,
}

/// The next message for the wrapper; `None` if there is none now.
pub(crate) fn receive(holder: impl AsFd) -> Option<FromHolder> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(holder, &mut [IoSliceMut::new(&mut byte)], &mut along, flags) {
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => None,
        Ok(message) if message.bytes == 1 => along.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next().map(FromHolder::Lifeline),
            _ => None,
        }),
        _ => Some(FromHolder::Gone),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_signal_is_decoded_as_it_was_encoded() {
        for signal in [Signal::HUP, Signal::TERM, Signal::WINCH] {
            for from_terminal in [false, true] {
                let relayed = RelayedSignal { signal, from_terminal };
                assert_eq!(RelayedSignal::decode(relayed.encode()), Some(relayed));
            }
        }
        assert_eq!(RelayedSignal::decode(0), None);
    }

    #[test]
    fn the_wrapper_gets_messages_in_order_and_then_the_end() {
        let (wrapper, holder) = UnixStream::pair().unwrap();
        assert!(receive(&wrapper).is_none());
        let (reader, writer) = std::io::pipe().unwrap();
        send_lifeline(&holder, &writer.into());
        drop(holder);
        let Some(FromHolder::Lifeline(lifeline)) = receive(&wrapper) else { panic!("no descriptor") };
        // A process that another test starts has the other end, too, until it becomes its program.
        let next = std::iter::repeat_with(|| receive(&wrapper)).flatten().next();
        assert!(matches!(next, Some(FromHolder::Gone)));
        drop(lifeline);
        assert_eq!(std::io::read_to_string(reader).unwrap(), "", "it was the last descriptor of the pipe");
    }
}
