//! Asks who has which slots: first the masters that are connected, then everybody who was ever named.
//!
//! One question at a time, in the background, for all who need the answer: whoever asked may give up before it comes. Where several answer,
//! the newest configuration counts; a node that would not execute commands is believed only where nobody else answers.

#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::super::connect::{Connector, TIMEOUT};
use super::super::sentinel::shown;
use super::map::{self, Map};
use super::node::Node;
use super::router::Router;
use crate::backend::together;
use crate::time::backoff::Backoff;
use crate::types::duration;
use crate::types::error::{Error, ErrorKind};
use crate::url::HostPort;

/// How many connected masters are asked for the map.
const MOST_ASKED: usize = 5;
/// How soon the map is asked for again at the earliest.
const NOT_BEFORE: Duration = Duration::from_millis(50);
const SILENCE: &str = "did not answer within";

impl Router {
    /// Something is not as it was: asks for the map, in the background.
    pub(in super::super) fn look_again(&self) {
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let asking = Asking(self.me.clone());
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(asking.run())),
            Err(_) => drop(asking),
        }
    }

    /// Asks for the map.
    pub(super) async fn ask(&self) -> Result<(), Error> {
        let last = self.known.lock().last;
        if let Some(pause) = last.and_then(|last| NOT_BEFORE.checked_sub(last.elapsed())) {
            tokio::time::sleep(pause).await;
        }
        let (known_before, epoch) = {
            let known = self.known.lock();
            (known.nodes.clone(), known.map.epoch)
        };
        let answer = match self.ask_connected(&known_before, epoch).await {
            Some(map) => Ok(map),
            None => self.ask_everybody(epoch).await,
        };
        let answer = answer.and_then(|map| self.learn(map));
        let mut known = self.known.lock();
        known.last = Some(Instant::now());
        known.failure = answer.as_ref().err().cloned();
        answer
    }

    /// Those to whom a connection stands; none of them may know better than what is known.
    async fn ask_connected(&self, nodes: &[Arc<Node>], epoch: u64) -> Option<Map> {
        let lines = nodes.iter().filter_map(|node| Some((node, node.client.link.standing()?)));
        let patience = self.patience();
        let asked = lines.take(MOST_ASKED).map(|(node, mut line)| async move {
            let asked = map::ask(&mut line.connection, &node.host);
            tokio::time::timeout(patience, asked).await.ok()?.ok()
        });
        let answers = together::most(asked.collect()).await;
        answers.into_iter().flatten().filter(|map| is_good(map, epoch)).max_by_key(|map| map.epoch)
    }

    /// The seeds, and everybody who was ever named, on new connections. One that knows less than what is known may have been away, and is
    /// believed only when nobody who knows as much has answered in time.
    async fn ask_everybody(&self, epoch: u64) -> Result<Map, Error> {
        let mut hosts = self.url.hosts().to_vec();
        for host in self.map().hosts() {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        let asked = hosts.iter().map(|host| async move { (host.clone(), self.ask_one(host).await) });
        let answers = together::first_good(asked.collect(), |(_, answer)| {
            answer.as_ref().is_ok_and(|map| is_good(map, epoch))
        });
        let answers = answers.await;
        let best = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        // A cluster that is down still knows who has which slots.
        match best.filter(|map| !map.is_empty()).max_by_key(|map| (map.is_up, map.epoch)) {
            Some(map) => Ok(map.clone()),
            None => Err(unknown(answers)),
        }
    }

    async fn ask_one(&self, host: &HostPort) -> Result<Map, Error> {
        let connector = Connector::of_node(&self.url, &self.access, host, self.timeout)?;
        let asked = async {
            let mut connection = connector.connect(connector.timeout, |_| ()).await?;
            map::ask(&mut connection, host).await
        };
        let silent = |_| Error::unavailable(format!("{SILENCE} {}", duration::shown(self.patience())));
        tokio::time::timeout(self.patience(), asked).await.map_err(silent)?
    }

    /// How long one may take to say who has which slots.
    fn patience(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT) / 2
    }
}

/// Whether nobody else need be asked, where this epoch is known.
fn is_good(map: &Map, epoch: u64) -> bool {
    map.is_up && !map.is_empty() && map.epoch >= epoch
}

/// One question for the map, in the background.
struct Asking(Weak<Router>);

impl Asking {
    async fn run(self) {
        let mut backoff = Backoff::new();
        while let Some(router) = self.0.upgrade() {
            let answer = router.ask().await;
            router.asked.send_modify(|asked| *asked += 1);
            let Err(error) = answer else { break };
            tracing::debug!(target: "tenure", %error, "it is not known who has which slots");
            // Whoever knows of a node asks again when it needs to.
            if !router.masters().is_empty() {
                break;
            }
            drop(router);
            tokio::time::sleep(backoff.pause()).await;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(router) = self.0.upgrade() {
            router.is_asking.store(false, Ordering::Release);
            // Somebody may have begun to wait for an answer since the last one.
            router.asked.send_modify(|asked| *asked += 1);
        }
    }
}

/// It was waited for in vain.
fn is_silence(error: &Error) -> bool {
    error.to_string().starts_with(SILENCE)
}

/// Nobody says who has which slots.
fn unknown(answers: Vec<(HostPort, Result<Map, Error>)>) -> Error {
    let is = |kind: ErrorKind| move |(_, answer): &(HostPort, Result<Map, Error>)| matches!(answer, Err(error) if error.kind() == kind);
    let (kind, fix) = if answers.iter().all(is(ErrorKind::Unsupported)) {
        (
            // The URL is wrong about them.
            ErrorKind::Invalid,
            "write redis:// for one server or redis+sentinel:// for sentinels, or set `cluster-enabled yes`",
        )
    } else if answers.iter().any(is(ErrorKind::Denied)) {
        (ErrorKind::Denied, "correct the user and the password of the URL, and allow `+cluster|slots`")
    } else if answers.iter().any(|(_, answer)| answer.is_ok()) {
        (ErrorKind::Unavailable, "name a node that is part of the cluster")
    } else if answers.iter().any(|(_, answer)| matches!(answer, Err(error) if is_silence(error))) {
        (ErrorKind::Unavailable, "are they running, at these ports, with TLS or without as the URL says?")
    } else {
        (ErrorKind::Unavailable, "are they running, at these ports?")
    };
    let each = answers.iter().map(|(host, answer)| match answer {
        Ok(_) => format!("{} knows of no slots", shown(host)),
        Err(error) => {
            let said = error.to_string();
            let said = said.split("; ").next().unwrap_or_default();
            // What others say of a server begins with its address.
            let said = said.strip_prefix(&format!("redis at {} ", shown(host))).unwrap_or(said);
            format!("{} {said}", shown(host))
        }
    });
    let each = each.collect::<Vec<_>>().join(", ");
    Error::new(kind, format!("no node of the cluster says where names are: {each}")).fix(fix)
}
