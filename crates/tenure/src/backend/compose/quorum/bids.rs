//! Where every bid of this client stands: what it asked which server, what it heard from it, and what may still haunt it there.
//!
//! A leave that was not answered may be executed at any time. If the same token were asked with again on that server, it could take away what
//! was granted since, and a majority that is believed would be none. So such a server is *lost to the token*: it is neither asked nor counted
//! with it while a leave is under way there, of which there may be several, and never again when one was not answered in time or is still to
//! be sent.
//!
//! A bid ends when it leaves, is refused, or is given back; its token may be asked with again all the same. So what is lost to the token
//! outlives the bid: an entry goes when its bid is over and nothing is lost to it, or else when nobody has touched it for long.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment};
use crate::types::owner::Token;

/// How many bids are remembered before it is looked which of them nobody touched for long.
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
pub(super) struct Standing {
    /// The server whose queue it waits in.
    pub(super) desk: Option<usize>,
    /// Its place in the queue of each server.
    pub(super) places: Vec<Option<u64>>,
    /// The servers that may know of it.
    pub(super) asked: Set,
    /// The servers that said, unasked, that it was granted.
    pub(super) pushed: Set,
    /// How many leaves are under way, by server.
    leaves: Vec<usize>,
    /// The servers that did not answer a leave in time, or that will be sent one.
    lost: Set,
    /// Only what is lost to the token is still of use.
    is_over: bool,
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
        let mut lost = self.lost;
        let leaving = self.leaves.iter().enumerate().filter(|(_, leaves)| **leaves > 0);
        leaving.for_each(|(server, _)| lost.add(server));
        lost
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
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    standings: HashMap<Token, Standing>,
    /// How many there were after it was last looked which of them nobody touches.
    living: usize,
}

impl Bids {
    pub(super) fn new(clock: Clock, servers: usize) -> Self {
        Bids { clock, servers, known: Mutex::default() }
    }

    /// The bid begins, or goes on; returns where it stands, and what rings when there is news. What was pushed is asked about now.
    pub(super) fn begin(&self, token: &Token, longest_ttl: Duration) -> (Standing, Arc<Notify>) {
        let mut known = self.known.lock();
        if known.standings.len() >= MANY.max(2 * known.living) {
            let (now, keep) = (self.clock.now(), LONG.max(2 * longest_ttl));
            known.standings.retain(|_, standing| now.since(standing.touched) < keep);
            known.living = known.standings.len();
        }
        let standing = self.entry(&mut known, token);
        standing.is_over = false;
        let seen = standing.clone();
        standing.pushed = Set::default();
        let news = Arc::clone(&standing.news);
        (seen, news)
    }

    /// What is known of a token, whether its bid is over or not.
    fn entry<'a>(&self, known: &'a mut Known, token: &Token) -> &'a mut Standing {
        let standing = known.standings.entry(token.clone()).or_insert_with(|| self.fresh());
        standing.touched = self.clock.now();
        standing
    }

    fn fresh(&self) -> Standing {
        Standing {
            desk: None,
            places: vec![None; self.servers],
            asked: Set::default(),
            pushed: Set::default(),
            leaves: vec![0; self.servers],
            lost: Set::default(),
            is_over: true,
            fence: None,
            ghosts: Vec::new(),
            news: Arc::default(),
            touched: self.clock.now(),
        }
    }

    /// Changes where a bid stands, if it is not over; returns what `change` does.
    pub(super) fn change<T>(&self, token: &Token, change: impl FnOnce(&mut Standing) -> T) -> Option<T> {
        let mut known = self.known.lock();
        known.standings.get_mut(token).filter(|standing| !standing.is_over).map(|standing| {
            standing.touched = self.clock.now();
            change(standing)
        })
    }

    /// Whether the bid is not over. Whatever was left while it goes on was left behind what was asked before, on the same line.
    pub(super) fn is_live(&self, token: &Token) -> bool {
        self.known.lock().standings.get(token).is_some_and(|standing| !standing.is_over)
    }

    /// The fence that the token holds its name with, as far as this client knows.
    pub(super) fn fence(&self, token: &Token) -> Option<u64> {
        self.known.lock().standings.get(token).and_then(|standing| standing.fence)
    }

    /// It is held, and must not be forgotten: what is lost to it, and the fence to heal servers with.
    pub(super) fn touch(&self, token: &Token) {
        self.change(token, |_| ());
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn tokens(&self) -> Vec<Token> {
        self.known.lock().standings.keys().cloned().collect()
    }

    /// The servers that must not be asked or counted with this token, whether its bid is over or not.
    pub(super) fn lost(&self, token: &Token) -> Set {
        self.known.lock().standings.get(token).map_or_else(Set::default, Standing::lost)
    }

    /// The bid is over; returns until when it is haunted on which servers.
    pub(super) fn end(&self, token: &Token) -> Vec<(usize, Moment)> {
        let mut known = self.known.lock();
        let Some(before) = known.standings.remove(token) else { return Vec::new() };
        if !before.lost().is_empty() {
            let Standing { leaves, lost, touched, .. } = before;
            let over = Standing { leaves, lost, touched, ..self.fresh() };
            known.standings.insert(token.clone(), over);
        }
        before.ghosts
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

    /// A leave is sent; until it is answered, that server is lost to the token.
    pub(super) fn leaving(&self, token: &Token, server: usize) {
        let mut known = self.known.lock();
        let standing = self.entry(&mut known, token);
        standing.leaves[server] += 1;
        standing.asked.remove(server);
        standing.places[server] = None;
        standing.pushed.remove(server);
    }

    /// A leave was answered.
    pub(super) fn has_left(&self, token: &Token, server: usize) {
        let mut known = self.known.lock();
        let standing = self.entry(&mut known, token);
        standing.leaves[server] = standing.leaves[server].saturating_sub(1);
        if standing.is_over && standing.lost().is_empty() {
            known.standings.remove(token);
        }
    }

    /// A leave will be sent at some time: the server is lost to the token for good.
    pub(super) fn lose(&self, token: &Token, server: usize) {
        self.entry(&mut self.known.lock(), token).lost.add(server);
    }

    /// A server says, unasked, that it granted the name.
    pub(super) fn heard(&self, token: &Token, server: usize) -> Heard {
        let mut known = self.known.lock();
        match known.standings.get_mut(token) {
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
