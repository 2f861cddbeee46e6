//! How far every bid of this client got: what it asked which server, what that server pushed, and what that server may still execute.
//!
//! A server may execute an unacknowledged leave at any time. If the client asked that server with the same token again, the leave could
//! end the new grant, and a majority that the client believes in would be none. So a token is *unusable* on such a server: the client neither
//! asks nor counts it while a leave is under way there, and never again if the leave was not answered in time or is still to be sent.
//!
//! A bid ends when it leaves, is refused, or is released, but the client may ask with its token again. So its entry still says on which servers
//! the token is unusable. The entry goes when the token is usable everywhere, or when nobody has touched it for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment};
use crate::types::owner::Token;

/// How many bids are remembered before the table looks for those that nobody touched for long.
const MANY: usize = 1_024;
/// How long that is, beside twice the longest ttl.
const LONG: Duration = Duration::from_secs(60);

/// A set of servers, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    pub(super) fn has(self, server: usize) -> bool {
        self.0 & (1 << server) != 0
    }

    pub(super) fn add(&mut self, server: usize) {
        self.0 |= 1 << server;
    }

    pub(super) fn remove(&mut self, server: usize) {
        self.0 &= !(1 << server);
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// One bid.
#[derive(Clone, Debug)]
pub(super) struct QuorumBid {
    /// The server in whose queue it waits.
    pub(super) queue_server: Option<usize>,
    /// When it joined the queue of each server.
    pub(super) joined_at: Vec<Option<u64>>,
    /// The servers that may know of it.
    pub(super) asked: Set,
    /// The servers that pushed a grant of it.
    pub(super) pushed: Set,
    /// How many leaves are under way, by server.
    leaves: Vec<usize>,
    /// The servers that did not answer a leave in time, or will be sent one.
    unusable: Set,
    /// The bid is over; only the servers where its token is unusable still matter.
    is_over: bool,
    /// The fence that it is held with.
    pub(super) fence: Option<u64>,
    /// The unacknowledged requests: until when each server may execute one.
    unacknowledged: Vec<(usize, Moment)>,
    /// Notified when a server pushes a grant of it.
    news: Arc<Notify>,
    touched: Moment,
}

impl QuorumBid {
    fn unusable(&self) -> Set {
        let mut unusable = self.unusable;
        let leaving = self.leaves.iter().enumerate().filter(|(_, leaves)| **leaves > 0);
        leaving.for_each(|(server, _)| unusable.add(server));
        unusable
    }
}

/// What a pushed grant means to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushedGrant {
    /// The client waits for it.
    Wanted,
    /// The client holds the name with that token.
    Held,
    /// The bid is over.
    Unwanted,
}

pub(super) struct QuorumBids {
    clock: Clock,
    servers: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    bids: HashMap<Token, QuorumBid>,
    /// How many were left when the table last dropped those that nobody touched.
    kept: usize,
}

impl QuorumBids {
    pub(super) fn new(clock: Clock, servers: usize) -> Self {
        QuorumBids { clock, servers, table: Mutex::default() }
    }

    /// Begins or continues a bid; returns it, and what is notified of news. The caller asks about the grants that were pushed so far.
    pub(super) fn begin(&self, token: &Token, longest_ttl: Duration) -> (QuorumBid, Arc<Notify>) {
        let mut table = self.table.lock();
        if table.bids.len() >= MANY.max(2 * table.kept) {
            let (now, keep) = (self.clock.now(), LONG.max(2 * longest_ttl));
            table.bids.retain(|_, bid| now.since(bid.touched) < keep);
            table.kept = table.bids.len();
        }
        let bid = self.entry(&mut table, token);
        bid.is_over = false;
        let seen = bid.clone();
        bid.pushed = Set::default();
        let news = Arc::clone(&bid.news);
        (seen, news)
    }

    /// The entry of a token, whether its bid is over or not.
    fn entry<'a>(&self, table: &'a mut Table, token: &Token) -> &'a mut QuorumBid {
        let bid = table.bids.entry(token.clone()).or_insert_with(|| self.fresh());
        bid.touched = self.clock.now();
        bid
    }

    fn fresh(&self) -> QuorumBid {
        QuorumBid {
            queue_server: None,
            joined_at: vec![None; self.servers],
            asked: Set::default(),
            pushed: Set::default(),
            leaves: vec![0; self.servers],
            unusable: Set::default(),
            is_over: true,
            fence: None,
            unacknowledged: Vec::new(),
            news: Arc::default(),
            touched: self.clock.now(),
        }
    }

    /// Changes a bid that is not over; returns what `change` returns.
    pub(super) fn change<T>(&self, token: &Token, change: impl FnOnce(&mut QuorumBid) -> T) -> Option<T> {
        let mut table = self.table.lock();
        table.bids.get_mut(token).filter(|bid| !bid.is_over).map(|bid| {
            bid.touched = self.clock.now();
            change(bid)
        })
    }

    /// Whether the bid is not over. A leave of a bid that continues is sent behind its requests, on the same connection.
    pub(super) fn is_live(&self, token: &Token) -> bool {
        self.table.lock().bids.get(token).is_some_and(|bid| !bid.is_over)
    }

    /// The fence that the token holds its name with, as far as this client knows.
    pub(super) fn fence(&self, token: &Token) -> Option<u64> {
        self.table.lock().bids.get(token).and_then(|bid| bid.fence)
    }

    /// Keeps the entry of a held lease: where its token is unusable, and the fence to heal servers with.
    pub(super) fn touch(&self, token: &Token) {
        self.change(token, |_| ());
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.table.lock().bids.keys().cloned().collect()
    }

    /// The servers that the client must not ask or count with this token, whether its bid is over or not.
    pub(super) fn unusable(&self, token: &Token) -> Set {
        self.table.lock().bids.get(token).map_or_else(Set::default, QuorumBid::unusable)
    }

    /// Ends the bid; returns its unacknowledged requests.
    pub(super) fn end(&self, token: &Token) -> Vec<(usize, Moment)> {
        let mut table = self.table.lock();
        let Some(before) = table.bids.remove(token) else { return Vec::new() };
        if !before.unusable().is_empty() {
            let QuorumBid { leaves, unusable, touched, .. } = before;
            let over = QuorumBid { leaves, unusable, touched, ..self.fresh() };
            table.bids.insert(token.clone(), over);
        }
        before.unacknowledged
    }

    /// The client sends a request, which that server may execute until then.
    pub(super) fn request_sent(&self, token: &Token, server: usize, until: Moment) {
        self.change(token, |bid| {
            bid.asked.add(server);
            bid.unacknowledged.retain(|(other, before)| *other != server || *before > until);
            bid.unacknowledged.push((server, until));
        });
    }

    pub(super) fn request_answered(&self, token: &Token, server: usize, until: Moment) {
        self.change(token, |bid| bid.unacknowledged.retain(|request| *request != (server, until)));
    }

    /// The client sends a leave; until it is answered, the token is unusable there.
    pub(super) fn leave_sent(&self, token: &Token, server: usize) {
        let mut table = self.table.lock();
        let bid = self.entry(&mut table, token);
        bid.leaves[server] += 1;
        bid.asked.remove(server);
        bid.joined_at[server] = None;
        bid.pushed.remove(server);
    }

    pub(super) fn leave_answered(&self, token: &Token, server: usize) {
        let mut table = self.table.lock();
        let bid = self.entry(&mut table, token);
        bid.leaves[server] = bid.leaves[server].saturating_sub(1);
        if bid.is_over && bid.unusable().is_empty() {
            table.bids.remove(token);
        }
    }

    /// The client will send a leave at some time: the token is unusable there for good.
    pub(super) fn make_unusable(&self, token: &Token, server: usize) {
        self.entry(&mut self.table.lock(), token).unusable.add(server);
    }

    /// A server pushed a grant.
    pub(super) fn pushed(&self, token: &Token, server: usize) -> PushedGrant {
        let mut table = self.table.lock();
        match table.bids.get_mut(token) {
            Some(bid) if bid.fence.is_some() => PushedGrant::Held,
            Some(bid) if bid.asked.has(server) => {
                bid.pushed.add(server);
                bid.news.notify_one();
                PushedGrant::Wanted
            }
            _ => PushedGrant::Unwanted,
        }
    }
}
