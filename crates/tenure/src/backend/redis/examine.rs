//! Whether this server is fit to hold locks: what it says about itself ([`facts`]), what follows from that ([`checks`]), and a
//! [self-test](crate::backend::self_test) of a lease with the permissions of this user.
//!
//! The user may lack the permission for any question. Then the answer is unknown, which a finding says, and is doubtful if it matters.
//! Remedies are commands for the server's administrator: the user of the URL need not be allowed to run them.

mod checks;
pub(super) mod cluster;
mod facts;
mod rate;
mod remedy;
mod replicas;
mod sentinels;

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use self::facts::Facts;
use self::remedy::Remedies;
use super::Redis;
use super::client::{ServerClient, SessionContext};
use super::connect::Connector;
use crate::backend::self_test::{self, SelfTest, TestListener, shown};
use crate::backend::{Admin as _, Presence, Sink};
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::{Finding, Verdict};
use crate::types::owner::Session;

/// How long replicas may take to acknowledge a lock.
const LONGEST_REPLICATION: Duration = Duration::from_secs(1);

pub(super) async fn examine(client: Arc<ServerClient>) -> Result<Vec<Finding>, Error> {
    let start = Instant::now();
    let mut active = client.link.active().await?;
    let connector = &client.link.connector;
    let mut facts = Facts::ask(&mut active, &connector.address(), client.context()).await?;
    let remedies =
        Remedies::new(connector, &client.context().keys, facts.user.as_deref().or(connector.user()));
    let store =
        format!("server at {} answered all questions in {}", connector.address(), shown(start.elapsed()));
    let mut findings = vec![Finding::fit("store", store)];
    let demand = client.listener.required.as_ref();
    let needed = demand.map(|demand| (demand, demand.needed()));
    let known = needed.as_ref().and_then(|(_, needed)| needed.as_ref().ok().copied());
    let self_test = ServerSelfTest::run(&client, facts.replicas().max(known.unwrap_or(0))).await;
    let acknowledged = self_test.acknowledged;
    let replicas = match needed {
        Some((_, Err(error))) => Some(replicas::uncounted(&error)),
        Some((demand, Ok(needed))) if self_test.lease_test.lease.is_ok() => {
            Some(replicas::demanded(&facts, needed, acknowledged, demand, &remedies))
        }
        _ => replicas::undemanded(&facts, acknowledged, &remedies),
    };
    let mut beside = Vec::new();
    if let Some(sentinels) = connector.sentinels() {
        beside.push(sentinels::finding(sentinels, &sentinels.ask_each(|_| false).await));
    }
    beside.extend(replicas);
    facts.measure_rate(&mut active, client.context()).await;
    let mut of_server = of_server(&facts, connector, &remedies, beside);
    // The identity of the server comes first, and the least important finding last.
    let listing = of_server.pop();
    findings.extend(of_server.drain(..2));
    findings.push(checks::encryption(connector));
    findings.extend(of_server);
    findings.extend(self_test.findings(&remedies, demand.is_some()));
    findings.extend(listing);
    Ok(findings)
}

/// The findings for one server, and those about its replicas and Sentinels.
fn of_server(
    facts: &Facts,
    connector: &Connector,
    remedies: &Remedies,
    beside: Vec<Finding>,
) -> Vec<Finding> {
    let mut findings = vec![checks::version(facts), checks::role(facts)];
    findings.push(checks::user(facts, connector, remedies));
    findings.extend(checks::info(facts, remedies));
    findings.extend(facts.clock().map(|clock| checks::clock(&clock)));
    findings.extend(facts.rate.map(|rate| rate.finding(connector.margin)));
    findings.extend(checks::eviction(facts, remedies));
    findings.extend(checks::persistence(facts, remedies));
    findings.extend(beside);
    findings.extend(checks::connections(facts, remedies));
    findings.push(checks::listing(facts, remedies));
    findings
}

/// The self-test of a lease.
struct ServerSelfTest {
    lease_test: SelfTest,
    /// Why clients cannot publish grants or listen for them, in the words of the server.
    grants_refused: Option<String>,
    /// Why the server does not report losses.
    untracked: Option<String>,
    /// How many replicas acknowledged it soon.
    acknowledged: Option<u64>,
}

impl ServerSelfTest {
    async fn run(client: &Arc<ServerClient>, replicas: u64) -> Self {
        ServerSelfTest::try_run(client, replicas).await.unwrap_or_else(|error| ServerSelfTest {
            lease_test: SelfTest { lease: Err(error), hand_over: None, loss: None },
            grants_refused: None,
            untracked: None,
            acknowledged: None,
        })
    }

    async fn try_run(client: &Arc<ServerClient>, replicas: u64) -> Result<Self, Error> {
        let (unused, sink, name) =
            (Arc::new(TestListener::default()), Arc::new(TestListener::default()), self_test::name());
        let (holder, waiter) = (another(client, &unused).await?, another(client, &sink).await?);
        let lease_test = self_test::run(&name, &holder, &waiter, &sink).await;
        let acknowledged = if replicas > 0 { acknowledged(&holder, replicas).await } else { None };
        // If the server refuses this, it refused the lease too.
        drop(holder.forget(&name).await);
        let grants_refused = waiter.0.listener.grants.refusal().map(|error| server_words(&error));
        let grants_refused = grants_refused.or_else(|| holder.0.unpublished().cloned());
        let untracked = waiter.0.server().and_then(|server| server.tracking_refused.clone());
        Ok(ServerSelfTest { lease_test, grants_refused, untracked, acknowledged })
    }

    /// As findings, with the server's words and the permissions to grant. The lease is on the master alone, even if the URL demands
    /// replicas.
    fn findings(&self, remedies: &Remedies, is_demanding: bool) -> Vec<Finding> {
        let mut findings = self.lease_test.findings();
        if is_demanding && self.lease_test.lease.is_ok() {
            let lease = findings.iter_mut().filter(|finding| finding.check == "lease");
            lease.for_each(|lease| lease.reason.push_str(", on the master alone"));
        }
        for finding in findings.iter_mut().filter(|finding| finding.verdict > Verdict::Fit) {
            let refusal = match (finding.check, &self.lease_test.lease) {
                ("hand-over", _) => self.grants_refused.clone(),
                ("loss", _) => self.untracked.clone(),
                (_, Err(error)) if error.kind() == ErrorKind::Denied => Some(server_words(error)),
                _ => None,
            };
            let Some(refusal) = refusal else { continue };
            // The finding about the lease has the whole error already.
            if finding.check != "lease" {
                finding.reason = format!("{} ({refusal})", finding.reason);
            }
            finding.remedy = Some(remedies.permit(&refusal));
        }
        findings
    }
}

/// The words of the server in an error, if it has them.
fn server_words(error: &Error) -> String {
    error.reason().unwrap_or(error.what()).to_owned()
}

/// Another client of the same server.
async fn another(client: &ServerClient, sink: &Arc<TestListener>) -> Result<Redis, Error> {
    let sink: Weak<dyn Sink> = Arc::<TestListener>::downgrade(sink);
    let (connector, context) = (Arc::clone(&client.link.connector), client.context());
    let context =
        SessionContext::new(Session::random(), context.keys.clone(), context.clock.clone(), sink, false);
    Ok(Redis(Arc::new(ServerClient::open(connector, context, None, Presence::Required).await?)))
}

/// How many replicas have acknowledged the last write of this client; `None` if the user may not ask.
async fn acknowledged(client: &Redis, replicas: u64) -> Option<u64> {
    let mut wait = Cmd::new();
    wait.arg("WAIT").arg(replicas).arg(LONGEST_REPLICATION.as_millis().to_string());
    let mut active = client.0.link.active().await.ok()?;
    match active.connection.send(&wait).await {
        Ok(Value::Int(count)) => u64::try_from(count).ok(),
        _ => None,
    }
}
