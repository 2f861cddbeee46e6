//! What follows from the replicas of a server, and from those that the URL demands.

use super::super::fault;
use super::super::replicas::RequiredReplicas;
use super::facts::Facts;
use super::remedy::Remedies;
use crate::types::error::Error;
use crate::types::finding::{FENCES_GROW, Finding, NO_SUCCESSOR};

const CHECK: &str = "replicas";

/// The URL demands `needed` acknowledgements for a lease, and the self-test got `acknowledged`; `None` if the user may not ask.
pub(super) fn demanded(
    facts: &Facts,
    needed: u64,
    acknowledged: Option<u64>,
    demand: &RequiredReplicas,
    remedies: &Remedies,
) -> Finding {
    let Some(acknowledged) = acknowledged else {
        let reason =
            "the user may not wait for replicas, as `replicas` in the URL demands: no lock can be taken";
        return Finding::unfit(CHECK, reason).remedy(remedies.permit_waiting());
    };
    judged(facts, needed, acknowledged, "knew of a lock within a second", demand)
}

/// All replicas must acknowledge, and their number is unknown.
pub(super) fn uncounted(error: &Error) -> Finding {
    let finding = Finding::unfit(CHECK, format!("{}: no lock can be taken", fault::listed(error)));
    error.remedy().into_iter().fold(finding, Finding::remedy)
}

/// The same for a server without a self-test, by its connected replicas.
pub(super) fn counted(facts: &Facts, needed: u64, demand: &RequiredReplicas) -> Finding {
    judged(facts, needed, facts.replicas(), "are connected", demand)
}

fn judged(facts: &Facts, needed: u64, acknowledged: u64, did: &str, demand: &RequiredReplicas) -> Finding {
    if acknowledged < needed {
        let option = demand.option();
        let reason = match demand.demands_all_of_none() {
            true => format!("none, and `{option}` in the URL demands at least one: no lock can be taken"),
            false => format!(
                "{acknowledged} of the {needed} that `{option}` in the URL demands {did}{}: no lock can be taken",
                behind(facts)
            ),
        };
        return Finding::unfit(CHECK, reason).remedy(demand.remedy());
    }
    let connected = facts.replicas().max(acknowledged);
    if needed < connected {
        let reason = format!(
            "{connected}, of which {needed} must know of every lease; another may be promoted, which does not: {FENCES_GROW}"
        );
        return Finding::doubtful(CHECK, reason).remedy("write `replicas=all` in the URL");
    }
    Finding::fit(CHECK, format!("{connected}, and {needed} must know of every lease"))
}

/// The URL demands no acknowledgements. `acknowledged` replicas knew of a lock soon, if that could be asked.
pub(super) fn undemanded(facts: &Facts, acknowledged: Option<u64>, remedies: &Remedies) -> Option<Finding> {
    let connected = facts.number("connected_slaves")?;
    let needed = facts.setting("min-replicas-to-write").and_then(|number| number.parse::<u64>().ok());
    let at_least = |number: &str| remedies.set(&[("min-replicas-to-write", number)]);
    let known = acknowledged
        .map(|count| format!(", of which {count} knew of a lock within a second"))
        .unwrap_or_default();
    let known = format!("{known}{}", behind(facts));
    let good = facts.number("min_slaves_good_slaves").unwrap_or(connected);
    Some(match (connected, needed) {
        (_, Some(needed)) if good < needed => Finding::unfit(
            CHECK,
            format!("{good} of {needed} that min-replicas-to-write demands: no lock can be taken"),
        )
        .remedy(format!("bring them back, or {}", at_least(&good.to_string()))),
        (0, _) => Finding::fit(CHECK, format!("none: {NO_SUCCESSOR}")),
        (_, Some(needed)) if needed > 0 => {
            let reason = format!(
                "{connected}{known}; at least {needed} must be connected, so that a master that is cut off grants no more"
            );
            Finding::fit(CHECK, reason)
        }
        (_, Some(_)) => {
            let reason = format!(
                "{connected}{known}; one that is promoted may not know the last locks, and a master that is cut off goes on: {FENCES_GROW}"
            );
            Finding::doubtful(CHECK, reason).remedy(at_least("1"))
        }
        (_, None) => {
            let reason = format!(
                "{connected}{known}; whether it goes on without them (min-replicas-to-write) may not be asked"
            );
            Finding::doubtful(CHECK, reason).remedy(remedies.permit_settings())
        }
    })
}

/// The lag of the slowest replica, if it is more than a second.
fn behind(facts: &Facts) -> String {
    let slowest = facts.lags().max().filter(|seconds| *seconds > 1);
    slowest.map(|seconds| format!(", one last answered {seconds} s ago")).unwrap_or_default()
}
