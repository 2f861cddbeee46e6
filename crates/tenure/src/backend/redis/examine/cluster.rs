//! Whether a cluster is fit to hold locks. Every master gets the questions of one server, and the worst finding of each check counts. The
//! self-test runs once, on the node that has its name.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Instant;

use redis::Cmd;

use super::super::client::SessionContext;
use super::super::cluster::{Cluster, Node, Router};
use super::super::fault;
use super::super::server::{field, string};
use super::facts::{Facts, setting};
use super::remedy::Remedies;
use super::{ServerSelfTest, checks, of_server, replicas, server_words};
use crate::backend::self_test::{self, SelfTest, TestListener, shown};
use crate::backend::{Admin as _, Sink};
use crate::types::error::Error;
use crate::types::finding::Finding;
use crate::types::owner::Session;

const CHECK: &str = "cluster";
const SLOTS: u64 = 16_384;

pub(in super::super) async fn examine(router: Arc<Router>) -> Result<Vec<Finding>, Error> {
    let (start, masters) = (Instant::now(), router.masters());
    let mut asked = Vec::new();
    let mut away = Vec::new();
    for node in &masters {
        match ask(node, &router).await {
            Ok(facts) => asked.push((node, facts)),
            Err(error) => away.push(fault::listed(&error)),
        }
    }
    let took = start.elapsed();
    let Some(first) = masters.iter().find(|node| node.client.link.try_active().is_some()) else {
        let error = router.failure().unwrap_or_else(|| Error::unavailable(away.join(", ")));
        return Err(error);
    };
    let connector = &first.client.link.connector;
    let remedies = Remedies::for_cluster(connector, &router.context.keys, connector.user());
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
    let self_test = ServerSelfTest::on_cluster(&router).await;
    let mut looked = Vec::new();
    for (node, mut facts) in asked {
        // This time counts for all nodes.
        if let Some(mut active) = node.client.link.try_active() {
            facts.measure_rate(&mut active, &router.context).await;
        }
        looked.push((node.address(), look(node, &router, &facts)?));
    }
    findings.extend(worst(looked));
    findings.extend(self_test.findings(&remedies, first.client.listener.required.is_some()));
    Ok(findings)
}

/// The facts of one master.
async fn ask(node: &Node, router: &Router) -> Result<Facts, Error> {
    let mut active = node.client.link.active().await?;
    Facts::ask(&mut active, &node.address(), &router.context).await
}

/// The findings for one master.
fn look(node: &Node, router: &Router, facts: &Facts) -> Result<Vec<Finding>, Error> {
    let connector = &node.client.link.connector;
    let user = facts.user.as_deref().or(connector.user());
    let remedies = Remedies::for_cluster(connector, &router.context.keys, user);
    let beside = match &node.client.listener.required {
        Some(demand) => Some(replicas::counted(facts, demand.needed()?, demand)),
        None => replicas::undemanded(facts, None, &remedies),
    };
    let beside = beside.into_iter().collect();
    Ok(of_server(facts, connector, &remedies, beside))
}

/// The worst finding of each check, with its node if the nodes differ.
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

/// The cluster as one of its masters knows it, and the moving slots as each master knows them.
async fn cluster(node: &Node, router: &Router) -> Result<Finding, Error> {
    let mut active = node.client.link.active().await?;
    let mut questions = redis::pipe();
    questions.cmd("CLUSTER").arg("INFO").cmd("CONFIG").arg("GET").arg("cluster-node-timeout");
    let answers = active.connection.send_all(&questions).await;
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
            let reason = "a slot is moving: until it has arrived, its names can't be acquired or released";
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

/// Whether a slot is moving. Each node knows of its own slots, if the user may ask.
async fn is_moving(router: &Router) -> bool {
    let mut question = Cmd::new();
    question.arg("CLUSTER").arg("NODES");
    for node in router.masters() {
        let Some(mut active) = node.client.link.try_active() else { continue };
        let answer = active.connection.send(&question).await;
        let nodes = answer.as_ref().ok().and_then(string).unwrap_or_default();
        if nodes.contains("->-") || nodes.contains("-<-") {
            return true;
        }
    }
    false
}

impl ServerSelfTest {
    async fn on_cluster(router: &Arc<Router>) -> Self {
        ServerSelfTest::try_on_cluster(router).await.unwrap_or_else(|error| ServerSelfTest {
            lease_test: SelfTest { lease: Err(error), hand_over: None, loss: None },
            grants_refused: None,
            untracked: None,
            acknowledged: None,
        })
    }

    async fn try_on_cluster(router: &Arc<Router>) -> Result<Self, Error> {
        let (unused, sink, name) =
            (Arc::new(TestListener::default()), Arc::new(TestListener::default()), self_test::name());
        let (holder, waiter) = (another(router, &unused).await?, another(router, &sink).await?);
        let lease_test = self_test::run(&name, &holder, &waiter, &sink).await;
        // If the server refuses this, it refused the lease too.
        drop(holder.forget(&name).await);
        let nodes = |of: &Cluster| of.owner_of(&name);
        let grants_refused = nodes(&waiter).and_then(|node| node.client.listener.grants.refusal());
        let grants_refused = grants_refused.map(|error| server_words(&error));
        let grants_refused = grants_refused.or_else(|| nodes(&holder)?.client.unpublished().cloned());
        let untracked = nodes(&waiter).and_then(|node| node.client.server()?.tracking_refused.clone());
        Ok(ServerSelfTest { lease_test, grants_refused, untracked, acknowledged: None })
    }
}

/// Another client of the same cluster.
async fn another(router: &Router, sink: &Arc<TestListener>) -> Result<Cluster, Error> {
    let sink: Weak<dyn Sink> = Arc::<TestListener>::downgrade(sink);
    let (keys, clock) = (router.context.keys.clone(), router.context.clock.clone());
    Cluster::connect(router.another(SessionContext::new(Session::random(), keys, clock, sink, false))?, true)
        .await
}
