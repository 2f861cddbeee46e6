//! What follows from the answers of the Sentinels.

use super::super::sentinel::{Answered, Sentinels, shown};
use crate::types::finding::Finding;

const CHECK: &str = "sentinels";
/// With fewer Sentinels, the master is not replaced when one of them is down.
const ENOUGH: u64 = 3;

/// The finding for these answers, one for each Sentinel.
pub(super) fn finding(sentinels: &Sentinels, answers: &[Answered]) -> Finding {
    let each = || sentinels.sentinels.iter().zip(answers);
    let named: Vec<_> =
        each().filter_map(|(one, answer)| Some((one, answer.as_ref()?.as_ref().ok()?))).collect();
    let silent =
        each().filter_map(|(one, answer)| Some(answer.as_ref()?.as_ref().err()?.listed(&one.address)));
    let silent: Vec<_> = silent.collect();
    let quorum = named.iter().map(|(_, named)| named.quorum).max().unwrap_or(0);
    let known = named.iter().map(|(_, named)| named.sentinels).max().unwrap_or(0);
    let count = format!("{} of {} answer, quorum {quorum}", named.len(), answers.len());
    let is_another = |(_, one): &&(_, &super::super::sentinel::Named)| one.master != named[0].1.master;
    if let Some((other, another)) = named.iter().find(is_another) {
        let (first, master) = (&named[0].0.address, shown(&named[0].1.master));
        let reason = format!(
            "{count}; {first} names {master} and {} names {}: the newest is believed",
            other.address,
            shown(&another.master)
        );
        return Finding::doubtful(CHECK, reason)
            .remedy("wait until a failover is over, or see to the sentinel that is cut off");
    }
    if !silent.is_empty() {
        let reason = format!("{count}; {}", silent.join(", "));
        return Finding::doubtful(CHECK, reason).remedy("bring them back, or correct the hosts in the URL");
    }
    if known < ENOUGH {
        let reason = format!("{count}, and they know of {known}: with one away, a master is not replaced");
        return Finding::doubtful(CHECK, reason).remedy("run three, on machines of their own");
    }
    if answers.len() == 1 {
        let reason = format!("{count}, and it knows of {known}: without this one the master is not found");
        return Finding::doubtful(CHECK, reason).remedy("name all of them in the URL");
    }
    Finding::fit(CHECK, format!("{count}, of {known} that they know of"))
}
