//! Whether a cluster is fit to hold locks: what is asked of one server is asked of every master, and the worst of each is said. A lease is
//! played through once, on whichever node has its name.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

use redis::Cmd;

use super::super::client::Asker;
use super::super::cluster::{Cluster, Node, Router};
use super::super::fault;
use super::super::server::{field, string};
use super::facts::{Facts, setting};
use super::remedy::Remedies;
use super::{Rehearsal, checks, of_server, replicas};
use crate::backend::rehearsal::{self, Ear, Rehearsed, rehearse, shown};
use crate::backend::{Backend as _, Sink};
use crate::types::error::Error;
use crate::types::finding::Finding;
use crate::types::owner::Session;

const CHECK: &str = "cluster";
const SLOTS: u64 = 16_384;

/// Looks at everything.
pub(in super::super) async fn examine(router: Arc<Router>) -> Result<Vec<Finding>, Error> {
    let (start, masters) = (Instant::now(), router.masters());
    let mut asked = Vec::new();
    let mut away = Vec::new();
    for node in &masters {
        match ask(node, &router).await {
            Ok(facts) => asked.push((node, facts)),
            Err(error) => away.push(format!("{} does not answer ({error})", node.address())),
        }
    }
    let took = start.elapsed();
    let Some(first) = masters.iter().find(|node| node.client.link.standing().is_some()) else {
        let error = router.failure().unwrap_or_else(|| Error::unavailable(away.join(", ")));
        return Err(error);
    };
    let connector = &first.client.link.connector;
    let remedies = Remedies::for_cluster(connector, &router.asker.keys, connector.user());
    let mut findings = vec![match away.is_empty() {
        true => Finding::fit(
            "store",
            format!("{} masters answered all questions in {}", masters.len(), shown(took)),
        ),
        false => {
            Finding::unfit("store", away.join(", ")).remedy("bring it back, or its replica into its place")
        }
    }];
    findings.push(cluster(first, &router).await?);
    findings.push(checks::encryption(connector));
    let rehearsal = Rehearsal::on_cluster(&router).await;
    let mut looked = Vec::new();
    for (node, mut facts) in asked {
        // Since the first of them was asked, it is the same time for all.
        if let Some(mut line) = node.client.link.standing() {
            facts.measure_rate(&mut line, &router.asker).await;
        }
        looked.push((node.address(), look(node, &router, &facts)?));
    }
    findings.extend(worst(looked));
    findings.extend(rehearsal.findings(&remedies, first.client.ear.acknowledgement.is_some()));
    Ok(findings)
}

/// One master.
async fn ask(node: &Node, router: &Router) -> Result<Facts, Error> {
    let mut line = node.client.link.line().await?;
    Facts::ask(&mut line, &node.address(), &router.asker).await
}

/// What is to be said of it.
fn look(node: &Node, router: &Router, facts: &Facts) -> Result<Vec<Finding>, Error> {
    let connector = &node.client.link.connector;
    let user = facts.user.as_deref().or(connector.user());
    let remedies = Remedies::for_cluster(connector, &router.asker.keys, user);
    let beside = match &node.client.ear.acknowledgement {
        Some(demand) => Some(replicas::counted(facts, demand.needed()?, demand)),
        None => replicas::undemanded(facts, None, &remedies),
    };
    let beside = beside.into_iter().collect();
    Ok(of_server(facts, connector, &remedies, beside))
}

/// Of each check the worst, and on which of them, where they differ.
fn worst(looked: Vec<(String, Vec<Finding>)>) -> Vec<Finding> {
    let mut all: Vec<(Finding, bool, String)> = Vec::new();
    for (address, found) in looked {
        for finding in found {
            match all.iter_mut().find(|(known, ..)| known.check == finding.check) {
                None => all.push((finding, false, address.clone())),
                Some((known, differs, whose)) => {
                    *differs |= known.reason != finding.reason;
                    if finding.verdict > known.verdict {
                        (*known, *whose) = (finding, address.clone());
                    }
                }
            }
        }
    }
    let said = all.into_iter().map(|(mut finding, differs, whose)| {
        if differs {
            finding.reason = format!("{whose}: {}", finding.reason);
        }
        finding
    });
    said.collect()
}

/// The cluster as a whole, as one of its masters has it; and which slots are on their way, as each of them has it.
async fn cluster(node: &Node, router: &Router) -> Result<Finding, Error> {
    let mut line = node.client.link.line().await?;
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO").cmd("CONFIG").arg("GET").arg("cluster-node-timeout");
    let answers = line.connection.send_all(&questions).await;
    let answers = answers.map_err(|error| fault::of_command(&error, &node.address()))?;
    let info = answers.first().and_then(string).unwrap_or_default();
    let replaced = answers.get(1).and_then(setting);
    let replaced = replaced.map(|ms| format!("; a master that is silent for {ms} ms is replaced"));
    let covered = field(info, "cluster_slots_ok").and_then(|slots| slots.parse().ok()).unwrap_or(SLOTS);
    let fix = format!("redis-cli --cluster fix {}", node.address());
    Ok(match field(info, "cluster_state") {
        Some(state) if state != "ok" => {
            let reason = format!("its state is {state}: {covered} of {SLOTS} slots are served");
            Finding::unfit(CHECK, reason).remedy(fix)
        }
        _ if covered < SLOTS => {
            let reason =
                format!("{covered} of {SLOTS} slots are served: names in the others can't be locked");
            Finding::unfit(CHECK, reason).remedy(fix)
        }
        _ if is_moving(router).await => {
            let reason =
                "a slot is being moved: until it has arrived, its names can't be acquired or released";
            Finding::doubtful(CHECK, reason)
                .remedy(format!("wait for it, or end a move that broke off: `{fix}`"))
        }
        _ => {
            let (map, masters) = (router.map(), router.masters().len());
            let replicas = map.hosts().collect::<HashSet<_>>().len().saturating_sub(masters);
            let replaced = replaced.unwrap_or_default();
            Finding::fit(CHECK, format!("{masters} masters, {replicas} replicas, all slots{replaced}"))
        }
    })
}

/// Whether a slot is on its way. Each node tells of its own, if it may be asked.
async fn is_moving(router: &Router) -> bool {
    let mut question = Cmd::new();
    question.arg("CLUSTER").arg("NODES");
    for node in router.masters() {
        let Some(mut line) = node.client.link.standing() else { continue };
        let answer = line.connection.send(&question).await;
        let nodes = answer.as_ref().ok().and_then(string).unwrap_or_default();
        if nodes.contains("->-") || nodes.contains("-<-") {
            return true;
        }
    }
    false
}

impl Rehearsal {
    async fn on_cluster(router: &Arc<Router>) -> Self {
        Rehearsal::try_on_cluster(router).await.unwrap_or_else(|error| Rehearsal {
            rehearsed: Rehearsed { lease: Err(error), hand_over: None, loss: None },
            missed_grants: None,
            untracked: None,
            acknowledged: None,
        })
    }

    async fn try_on_cluster(router: &Arc<Router>) -> Result<Self, Error> {
        let (deaf, ear, name) = (Arc::new(Ear::default()), Arc::new(Ear::default()), rehearsal::name());
        let (holder, waiter) = (another(router, &deaf).await?, another(router, &ear).await?);
        let rehearsed = rehearse(&name, &holder, &waiter, &ear).await;
        // If that is refused, so was the lease.
        drop(holder.forget(&name).await);
        let nodes = |of: &Cluster| of.owner_of(&name);
        let missed_grants = nodes(&waiter).and_then(|node| node.client.ear.hearing.refusal());
        let missed_grants = missed_grants.map(|error| error.to_string());
        let missed_grants = missed_grants.or_else(|| nodes(&holder)?.client.unpublished().cloned());
        let untracked = nodes(&waiter).and_then(|node| node.client.server()?.tracking_refused.clone());
        Ok(Rehearsal { rehearsed, missed_grants, untracked, acknowledged: None })
    }
}

/// Another client of the same cluster.
async fn another(router: &Router, ear: &Arc<Ear>) -> Result<Cluster, Error> {
    let sink: Weak<dyn Sink> = Arc::<Ear>::downgrade(ear);
    let (keys, clock) = (router.asker.keys.clone(), router.asker.clock.clone());
    Cluster::connect(router.another(Asker::new(Session::random(), keys, clock, sink, false))?, true).await
}
