//! Whether a group is fit to hold locks: every server is examined, and findings that agree are reported once.
//!
//! What makes a single server unfit may be harmless here: a server that forgets does not count for a while.

use std::sync::Arc;

use super::Group;
use crate::backend;
use crate::types::error::Error;
use crate::types::finding::{FENCES_GROW, Finding, NO_SUCCESSOR, TWO_HOLD, Verdict};

/// What follows in a group if a server forgets.
const NOT_COUNTED: &str = "it then does not count for one ttl; if most servers forget at once, nobody is granted a lock for that long";
/// What follows in a group if a server evicts a lock: the next renewal gives the lease back to it.
const ONE_FEWER: &str = "and then the lock has one server fewer until its next renewal; a majority still has it, unless another server is away or forgets";
const MOST_FEWER: &str = "and when most of the servers evict a lock, two hold its name";
/// What follows in a group if a server has no replicas.
const NONE_NEEDED: &str = "while the server is away, the others go on if they are a majority";

impl Group {
    /// Examines every server, and whether they are enough.
    pub(super) async fn examine(self: &Arc<Self>) -> Result<Vec<Finding>, Error> {
        let mut findings = vec![self.examine_group()];
        let examining: Vec<_> = self.members.iter().map(|member| member.backend.examine()).collect();
        let (mut looked, mut away) = (Vec::new(), Vec::new());
        for (member, examined) in self.members.iter().zip(backend::together::all(examining).await) {
            match examined {
                Ok(found) => looked.push((&*member.label, found)),
                Err(error) => {
                    let Finding { reason, remedy, .. } = Finding::of_error(Verdict::Doubtful, &error);
                    let finding = Finding::doubtful("member", format!("{}: {reason}", member.label));
                    away.push(finding.remedy(remedy.unwrap_or_else(|| "bring the server back".to_owned())));
                }
            }
        }
        findings.extend(away);
        self.weigh(&mut looked);
        findings.extend(together(looked));
        Ok(findings)
    }

    /// Replaces what a finding means for one server by what it means for the group.
    fn weigh(&self, looked: &mut [(&str, Vec<Finding>)]) {
        let evicts = |finding: &Finding| finding.check == "eviction" && finding.verdict == Verdict::Unfit;
        let evicting = looked.iter().filter(|(_, found)| found.iter().any(evicts)).count();
        // Every grant needs a server that keeps its locks.
        let is_minority = self.members.len() - evicting >= self.majority();
        for finding in looked.iter_mut().flat_map(|(_, found)| found) {
            let (alone, here) = match finding.check {
                "persistence" => (FENCES_GROW, NOT_COUNTED),
                "replicas" => (NO_SUCCESSOR, NONE_NEEDED),
                "eviction" if is_minority => (TWO_HOLD, ONE_FEWER),
                "eviction" => (TWO_HOLD, MOST_FEWER),
                _ => continue,
            };
            if is_minority && evicts(finding) {
                finding.verdict = Verdict::Doubtful;
            }
            finding.reason = finding.reason.replace(alone, here);
        }
    }

    fn examine_group(&self) -> Finding {
        let in_reach = self.members.iter().filter(|member| member.backend.outage().is_none()).count();
        let (all, majority) = (self.members.len(), self.majority());
        let warm_ups: Vec<_> = self.warm_ups().into_iter().flatten().collect();
        let mut reason = format!("{in_reach} of {all} servers are in reach, {majority} are needed");
        if let Some(longest) = warm_ups.iter().map(|warm_up| warm_up.left.as_secs()).max() {
            let count = warm_ups.len();
            reason.push_str(&format!(
                "; {count} of them started a short time ago and may not count for {longest} s"
            ));
        }
        if all % 2 == 0 {
            reason.push_str(&format!("; as many may be away as of {}", all - 1));
        }
        let finding = match in_reach {
            _ if in_reach == all && warm_ups.is_empty() => return Finding::fit("majority", reason),
            _ if in_reach == all => {
                return Finding::doubtful("majority", reason).remedy("wait until they count");
            }
            _ if in_reach >= majority => Finding::doubtful("majority", reason),
            _ => Finding::unfit("majority", reason),
        };
        finding.remedy("bring the servers back that are away")
    }
}

/// For each check, one finding for all servers that are fit, and one for all others that share a reason.
fn together(looked: Vec<(&str, Vec<Finding>)>) -> Vec<Finding> {
    let (all, mut kinds) = (looked.len(), Vec::<Kind>::new());
    for (label, found) in looked {
        for finding in found {
            match kinds.iter_mut().find(|kind| kind.has(&finding)) {
                Some(kind) => kind.add(label, &finding),
                None => {
                    // Next to the other findings of its check.
                    let last = kinds.iter().rposition(|kind| kind.finding.check == finding.check);
                    let at = last.map_or(kinds.len(), |last| last + 1);
                    kinds.insert(at, Kind { finding, labels: vec![label.to_owned()], differs: false });
                }
            }
        }
    }
    kinds.into_iter().map(|kind| kind.said(all)).collect()
}

/// Servers that share a finding.
struct Kind {
    /// The finding of the first server, with the remedies of all.
    finding: Finding,
    labels: Vec<String>,
    /// They are all fit, for different reasons.
    differs: bool,
}

impl Kind {
    fn has(&self, other: &Finding) -> bool {
        let (one, is_fit) = (&self.finding, other.verdict == Verdict::Fit);
        one.check == other.check && one.verdict == other.verdict && (is_fit || one.reason == other.reason)
    }

    fn add(&mut self, label: &str, other: &Finding) {
        self.labels.push(label.to_owned());
        self.differs |= self.finding.reason != other.reason;
        if let (Some(all), Some(one)) = (&mut self.finding.remedy, &other.remedy)
            && !all.contains(one.as_str())
        {
            // A shell executes them one after the other.
            *all = format!("{all} && {one}");
        }
    }

    fn said(self, all: usize) -> Finding {
        let Kind { mut finding, labels, differs } = self;
        finding.reason = match &labels[..] {
            [first, others @ ..] if differs => {
                format!("{first}: {}; {} more fit", finding.reason, others.len())
            }
            [_, _, ..] if labels.len() == all => format!("each of {all}: {}", finding.reason),
            _ => format!("{}: {}", labels.join(", "), finding.reason),
        };
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_that_agree_are_reported_once() {
        let of = |label: &'static str, time: &str, fix: &str| {
            let forgets = Finding::doubtful("persistence", format!("nothing is saved; {NOT_COUNTED}"));
            (label, vec![forgets.remedy(fix), Finding::fit("lease", time)])
        };
        let found = together(vec![of("a:1", "1 ms", "set a"), of("b:1", "2 ms", "set b")]);
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        let forgets =
            format!("persistence: doubtful: each of 2: nothing is saved; {NOT_COUNTED}; set a && set b");
        assert_eq!(said, [forgets, "lease: fit: a:1: 1 ms; 1 more fit".to_owned()]);
    }

    #[test]
    fn a_server_that_is_worse_is_named() {
        let fit = || Finding::fit("eviction", "none");
        let bad = Finding::unfit("eviction", "evicts").remedy("set c");
        let found = together(vec![("a:1", vec![fit()]), ("b:1", vec![fit()]), ("c:1", vec![bad])]);
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["eviction: fit: a:1, b:1: none", "eviction: unfit: c:1: evicts; set c"]);
    }
}
