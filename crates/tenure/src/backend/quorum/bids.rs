//! Where every bid of this client stands: what it asked which server, what it heard from it, and what may still haunt it there.
//!
//! A leave that was not answered may be executed at any time. If the same token were asked with again on that server, it could take away what
//! was granted since, and a majority that is believed would be none. So such a server is *lost to the bid*: it is never asked or counted with
//! this token again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::owner::Token;
use crate::sync::Mutex;

/// How many bids are remembered before those that nobody touched for long are forgotten.
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
}

/// One bid.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// The server whose queue it waits in.
    pub(super) desk: Option<usize>,
    /// Its place in the queue of each server.
    pub(super) places: Vec<Option<u64>>,
    /// The servers that may know of it.
    pub(super) asked: Set,
    /// The servers that said, unasked, that it was granted.
    pub(super) pushed: Set,
    /// The servers that were told that it leaves, and did not answer yet.
    leaving: Set,
    /// The servers that were told that it leaves, and did not answer in time, or that will be told so.
    lost: Set,
    /// The fence that it is held with.
    pub(super) fence: Option<u64>,
    /// Until when a request that was not answered may be executed, by server.
    ghosts: Vec<(usize, Moment)>,
    /// Rung by what a server says of it unasked.
    news: Arc<Notify>,
    touched: Moment,
}

impl Standing {
    fn lost(&self) -> Set {
        Set(self.leaving.0 | self.lost.0)
    }
}

/// What a grant that was pushed is to this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is waited for.
    Wanted,
    /// The name is held with that token.
    Held,
    /// The bid is over.
    Unwanted,
}

pub(super) struct Bids {
    clock: Clock,
    servers: usize,
    standings: Mutex<HashMap<Token, Standing>>,
}

impl Bids {
    pub(super) fn new(clock: Clock, servers: usize) -> Self {
        Bids { clock, servers, standings: Mutex::default() }
    }

    /// The bid begins, or goes on; returns where it stands, and what rings when there is news. What was pushed is asked about now.
    pub(super) fn begin(&self, token: &Token, longest_ttl: Duration) -> (Standing, Arc<Notify>) {
        let now = self.clock.now();
        let mut standings = self.standings.lock();
        if standings.len() >= MANY {
            let keep = LONG.max(2 * longest_ttl);
            standings.retain(|_, standing| now.since(standing.touched) < keep);
        }
        let standing = standings.entry(token.clone()).or_insert_with(|| self.fresh());
        standing.touched = now;
        let seen = standing.clone();
        standing.pushed = Set::default();
        let news = Arc::clone(&standing.news);
        (seen, news)
    }

    fn fresh(&self) -> Standing {
        Standing {
            desk: None,
            places: vec![None; self.servers],
            asked: Set::default(),
            pushed: Set::default(),
            leaving: Set::default(),
            lost: Set::default(),
            fence: None,
            ghosts: Vec::new(),
            news: Arc::default(),
            touched: self.clock.now(),
        }
    }

    /// Changes where a bid stands, if it is not over; returns what `change` does.
    pub(super) fn change<T>(&self, token: &Token, change: impl FnOnce(&mut Standing) -> T) -> Option<T> {
        self.standings.lock().get_mut(token).map(|standing| {
            standing.touched = self.clock.now();
            change(standing)
        })
    }

    /// Whether the bid is not over. Whatever was left while it goes on was left behind what was asked before, on the same line.
    pub(super) fn is_live(&self, token: &Token) -> bool {
        self.standings.lock().contains_key(token)
    }

    /// The fence that the token holds its name with, as far as this client knows.
    pub(super) fn fence(&self, token: &Token) -> Option<u64> {
        self.standings.lock().get(token).and_then(|standing| standing.fence)
    }

    /// It is held, and must not be forgotten: what is lost to it, and the fence to heal servers with.
    pub(super) fn touch(&self, token: &Token) {
        self.change(token, |_| ());
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.standings.lock().keys().cloned().collect()
    }

    /// The servers that must not be asked or counted with this token.
    pub(super) fn lost(&self, token: &Token) -> Set {
        self.standings.lock().get(token).map_or_else(Set::default, Standing::lost)
    }

    /// The bid is over, and its token is never used again; returns until when it is haunted on which servers.
    pub(super) fn end(&self, token: &Token) -> Vec<(usize, Moment)> {
        self.standings.lock().remove(token).map(|standing| standing.ghosts).unwrap_or_default()
    }

    /// A request is sent, which that server may execute until then.
    pub(super) fn haunt(&self, token: &Token, server: usize, until: Moment) {
        self.change(token, |standing| {
            standing.asked.add(server);
            standing.ghosts.retain(|(haunted, before)| *haunted != server || *before > until);
            standing.ghosts.push((server, until));
        });
    }

    /// It was answered.
    pub(super) fn unhaunt(&self, token: &Token, server: usize, until: Moment) {
        self.change(token, |standing| standing.ghosts.retain(|ghost| *ghost != (server, until)));
    }

    /// A leave is sent; until it is answered, that server is lost to the bid.
    pub(super) fn leaving(&self, token: &Token, server: usize) {
        self.change(token, |standing| {
            standing.leaving.add(server);
            standing.asked.remove(server);
            standing.places[server] = None;
            standing.pushed.remove(server);
        });
    }

    /// The leave was answered.
    pub(super) fn has_left(&self, token: &Token, server: usize) {
        self.change(token, |standing| standing.leaving.remove(server));
    }

    /// A leave will be sent at some time: the server is lost to the bid for good.
    pub(super) fn lose(&self, token: &Token, server: usize) {
        self.change(token, |standing| standing.lost.add(server));
    }

    /// A server says, unasked, that it granted the name.
    pub(super) fn heard(&self, token: &Token, server: usize) -> Heard {
        let mut standings = self.standings.lock();
        match standings.get_mut(token) {
            Some(standing) if standing.fence.is_some() => Heard::Held,
            Some(standing) if standing.asked.has(server) => {
                standing.pushed.add(server);
                standing.news.notify_one();
                Heard::Wanted
            }
            _ => Heard::Unwanted,
        }
    }
}
