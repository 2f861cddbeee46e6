//! Which reply belongs to which command of a connection. Pure.
//!
//! Replies come in the order of the commands, and would only need counting, but for publish and subscribe. Messages answer nothing:
//! in RESP3 they are pushes, in RESP2 they look like arrays, on connections that have subscribed. And a subscription is answered by one
//! confirmation for each channel, a push in RESP3 as well, or by one plain reply where it is refused.

use super::rules::Fault;
use crate::redis::Reply;
use std::collections::{HashSet, VecDeque};

#[derive(Debug, Default)]
pub(super) struct Matching {
    waiting: VecDeque<Waiting>,
    /// By kind: channels, patterns, channels of shards.
    subscribed: [HashSet<Vec<u8>>; 3],
    is_resp3: bool,
}

/// A command that was sent on and is not answered.
#[derive(Debug)]
struct Waiting {
    owed: Owed,
    words: Vec<Vec<u8>>,
    /// Confirmations still to come; known when the first one comes, since only then it is known what there is to unsubscribe.
    confirmations: Option<usize>,
}

/// What is to be done with the reply to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owed {
    /// Its number in the journal; none for the second copy of a command.
    pub(super) number: Option<u64>,
    pub(super) fault: Option<Fault>,
}

/// What a value from the server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// To no command.
    Nobody,
    /// A part of the reply to a command, and more will come.
    Partly(Owed),
    /// The reply to a command, or the end of it.
    To(Owed),
}

impl Matching {
    pub(super) fn sent(&mut self, words: Vec<Vec<u8>>, owed: Owed) {
        self.waiting.push_back(Waiting { owed, words, confirmations: None });
    }

    pub(super) fn came(&mut self, reply: &Reply) -> Belongs {
        if let Some(confirmation) = Confirmation::of(reply)
            && let Some(belongs) = self.confirmed(&confirmation, reply)
        {
            return belongs;
        }
        if matches!(reply, Reply::Push(_)) || self.is_message(reply) {
            return Belongs::Nobody;
        }
        let Some(command) = self.waiting.pop_front() else { return Belongs::Nobody };
        if !matches!(reply, Reply::Error(_)) {
            self.executed(&command.words);
        }
        Belongs::To(command.owed)
    }

    fn confirmed(&mut self, confirmation: &Confirmation, reply: &Reply) -> Option<Belongs> {
        let channels = &mut self.subscribed[confirmation.kind];
        let command = self.waiting.front_mut();
        let asked = command.filter(|command| command.words[0].eq_ignore_ascii_case(&confirmation.name));
        let Some(command) = asked else {
            // One that nobody asked for: a push when a slot moved, else an array that only looks like one.
            return matches!(reply, Reply::Push(_)).then(|| {
                confirmation.note(channels);
                Belongs::Nobody
            });
        };
        let all = if command.words.len() > 1 { command.words.len() - 1 } else { channels.len().max(1) };
        let left = command.confirmations.unwrap_or(all) - 1;
        command.confirmations = Some(left);
        confirmation.note(channels);
        let owed = command.owed;
        if left > 0 {
            return Some(Belongs::Partly(owed));
        }
        self.waiting.pop_front();
        Some(Belongs::To(owed))
    }

    fn is_message(&self, reply: &Reply) -> bool {
        let is_subscriber = self.subscribed.iter().any(|channels| !channels.is_empty());
        let Reply::Array(items) = reply else { return false };
        let Some(Reply::Bulk(first)) = items.first() else { return false };
        !self.is_resp3 && is_subscriber && [&b"message"[..], b"pmessage", b"smessage"].contains(&&first[..])
    }

    fn executed(&mut self, words: &[Vec<u8>]) {
        if words[0].eq_ignore_ascii_case(b"HELLO") && words.len() > 1 {
            self.is_resp3 = words[1] == b"3";
        } else if words[0].eq_ignore_ascii_case(b"RESET") {
            self.is_resp3 = false;
            self.subscribed = Default::default();
        }
    }
}

struct Confirmation {
    name: Vec<u8>,
    kind: usize,
    channel: Option<Vec<u8>>,
}

impl Confirmation {
    fn of(reply: &Reply) -> Option<Self> {
        let (Reply::Push(items) | Reply::Array(items)) = reply else { return None };
        let [Reply::Bulk(name), channel, Reply::Int(_)] = &items[..] else { return None };
        let kind = match &name[..] {
            b"subscribe" | b"unsubscribe" => 0,
            b"psubscribe" | b"punsubscribe" => 1,
            b"ssubscribe" | b"sunsubscribe" => 2,
            _ => return None,
        };
        let channel = if let Reply::Bulk(channel) = channel { Some(channel.clone()) } else { None };
        Some(Confirmation { name: name.clone(), kind, channel })
    }

    fn note(&self, channels: &mut HashSet<Vec<u8>>) {
        let Some(channel) = &self.channel else { return };
        if self.name.ends_with(b"unsubscribe") {
            channels.remove(channel);
        } else {
            channels.insert(channel.clone());
        }
    }
}
