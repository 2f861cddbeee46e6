//! Whether this server is fit to hold locks: what it says of itself ([`facts`]), what follows from that ([`checks`]), and a lease that is played
//! through with the permissions of this user ([`rehearsal`](crate::backend::rehearsal)).
//!
//! A user may lack the permission for any question. Then the answer is not known, which is said, and is a doubt where it matters. Remedies are
//! commands for whoever administrates the server: the user of the URL need not be allowed to do them.

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
use super::client::{Asker, Client};
use super::connect::Connector;
use crate::backend::rehearsal::{self, Ear, Rehearsed, rehearse, shown};
use crate::backend::{Backend as _, Sink};
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::{Finding, Verdict};
use crate::types::owner::Session;

/// How long replicas have to say that they know of a lock.
const LONGEST_REPLICATION: Duration = Duration::from_secs(1);

/// Looks at everything.
pub(super) async fn examine(client: Arc<Client>) -> Result<Vec<Finding>, Error> {
    let start = Instant::now();
    let mut line = client.link.line().await?;
    let connector = &client.link.connector;
    let mut facts = Facts::ask(&mut line, &connector.address(), client.asker()).await?;
    let remedies = Remedies::new(connector, &client.asker().keys, facts.user.as_deref().or(connector.user()));
    let store =
        format!("server at {} answered all questions in {}", connector.address(), shown(start.elapsed()));
    let mut findings = vec![Finding::fit("store", store)];
    let demand = client.ear.acknowledgement.as_ref();
    let needed = demand.map(|demand| (demand, demand.needed()));
    let known = needed.as_ref().and_then(|(_, needed)| needed.as_ref().ok().copied());
    let rehearsal = Rehearsal::play(&client, facts.replicas().max(known.unwrap_or(0))).await;
    let acknowledged = rehearsal.acknowledged;
    let replicas = match needed {
        Some((_, Err(error))) => Some(replicas::uncounted(&error)),
        Some((demand, Ok(needed))) if rehearsal.rehearsed.lease.is_ok() => {
            Some(replicas::demanded(&facts, needed, acknowledged, demand, &remedies))
        }
        _ => replicas::undemanded(&facts, acknowledged, &remedies),
    };
    let mut beside = Vec::new();
    if let Some(sentinels) = connector.sentinels() {
        beside.push(sentinels::finding(sentinels, &sentinels.ask_each(|_| false).await));
    }
    beside.extend(replicas);
    facts.measure_rate(&mut line, client.asker()).await;
    let mut of_server = of_server(&facts, connector, &remedies, beside);
    // What it is comes first, and what matters least last.
    let listing = of_server.pop();
    findings.extend(of_server.drain(..2));
    findings.push(checks::encryption(connector));
    findings.extend(of_server);
    findings.extend(rehearsal.findings(&remedies, demand.is_some()));
    findings.extend(listing);
    Ok(findings)
}

/// What is to be said of each server, and of those beside it.
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

/// A lease that was played through.
struct Rehearsal {
    rehearsed: Rehearsed,
    /// Why grants can't be published or heard.
    missed_grants: Option<String>,
    /// Why losses are not told.
    untracked: Option<String>,
    /// How many replicas knew of it soon.
    acknowledged: Option<u64>,
}

impl Rehearsal {
    async fn play(client: &Arc<Client>, replicas: u64) -> Self {
        Rehearsal::try_play(client, replicas).await.unwrap_or_else(|error| Rehearsal {
            rehearsed: Rehearsed { lease: Err(error), hand_over: None, loss: None },
            missed_grants: None,
            untracked: None,
            acknowledged: None,
        })
    }

    async fn try_play(client: &Arc<Client>, replicas: u64) -> Result<Self, Error> {
        let (deaf, ear, name) = (Arc::new(Ear::default()), Arc::new(Ear::default()), rehearsal::name());
        let (holder, waiter) = (another(client, &deaf).await?, another(client, &ear).await?);
        let rehearsed = rehearse(&name, &holder, &waiter, &ear).await;
        let acknowledged = if replicas > 0 { acknowledged(&holder, replicas).await } else { None };
        // If that is refused, so was the lease.
        drop(holder.forget(&name).await);
        let missed_grants = waiter.0.ear.hearing.refusal().map(|error| error.to_string());
        let missed_grants = missed_grants.or_else(|| holder.0.unpublished().cloned());
        let untracked = waiter.0.server().and_then(|server| server.tracking_refused.clone());
        Ok(Rehearsal { rehearsed, missed_grants, untracked, acknowledged })
    }

    /// As findings, with what the server said, and what to allow. The lease is the master's alone, also if the URL demands replicas.
    fn findings(&self, remedies: &Remedies, is_demanding: bool) -> Vec<Finding> {
        let mut findings = self.rehearsed.findings();
        if is_demanding && self.rehearsed.lease.is_ok() {
            let lease = findings.iter_mut().filter(|finding| finding.check == "lease");
            lease.for_each(|lease| lease.reason.push_str(", on the master alone"));
        }
        for finding in findings.iter_mut().filter(|finding| finding.verdict > Verdict::Fit) {
            let said = match (finding.check, &self.rehearsed.lease) {
                ("hand-over", _) => self.missed_grants.clone(),
                ("loss", _) => self.untracked.clone(),
                (_, Err(error)) if error.kind() == ErrorKind::Denied => Some(error.to_string()),
                _ => None,
            };
            let Some(said) = said else { continue };
            if !finding.reason.contains("permission") {
                finding.reason =
                    format!("{} ({})", finding.reason, said.split("; ").next().unwrap_or_default());
            }
            finding.remedy = Some(remedies.permit(&said));
        }
        findings
    }
}

/// Another client of the same server.
async fn another(client: &Client, ear: &Arc<Ear>) -> Result<Redis, Error> {
    let sink: Weak<dyn Sink> = Arc::<Ear>::downgrade(ear);
    let (connector, asker) = (Arc::clone(&client.link.connector), client.asker());
    let asker = Asker::new(Session::random(), asker.keys.clone(), asker.clock.clone(), sink, false);
    Ok(Redis(Arc::new(Client::open(connector, asker, None, true).await?)))
}

/// How many replicas know of what this client last wrote; `None` when that may not be asked.
async fn acknowledged(client: &Redis, replicas: u64) -> Option<u64> {
    let mut wait = Cmd::new();
    wait.arg("WAIT").arg(replicas).arg(LONGEST_REPLICATION.as_millis().to_string());
    let mut line = client.0.link.line().await.ok()?;
    match line.connection.send(&wait).await {
        Ok(Value::Int(count)) => u64::try_from(count).ok(),
        _ => None,
    }
}
