//! Whether a group is fit to hold locks: what is asked of one server is asked of all, and said once where they agree.
//!
//! What is a danger on one server need not be one here: a server that forgets is not counted for a while.

use std::sync::Arc;

use super::Group;
use crate::backend;
use crate::types::error::Error;
use crate::types::finding::{FENCES_GROW, Finding, NO_SUCCESSOR, TWO_HOLD, Verdict};

/// What follows here when a server forgets.
const NOT_COUNTED: &str = "it then does not count for one ttl; when most forget within that time, two may hold a name, and fences still grow";
/// What follows here when a server evicts a lock: a renewal gives the lease back to it.
const ONE_FEWER: &str = "and then the lock has one server fewer until its next renewal; a majority still has it, unless another server is away or forgets";
const MOST_FEWER: &str = "and when most of the servers evict a lock, two hold its name";
/// What follows here when a server has no replicas.
const NONE_NEEDED: &str = "while the server is away, the others go on if they are a majority";

impl Group {
    /// What the servers are found to be, and whether they are enough.
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

    /// Says of each server what follows for the group, and not for a lock on this server alone.
    fn weigh(&self, looked: &mut [(&str, Vec<Finding>)]) {
        let evicts = |finding: &Finding| finding.check == "eviction" && finding.verdict == Verdict::Unfit;
        let evicting = looked.iter().filter(|(_, found)| found.iter().any(evicts)).count();
        // The others are a majority, which every grant has to ask.
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
        let mut reason = format!("{in_reach} of {all} servers are in reach, {majority} are needed");
        if all % 2 == 0 {
            reason.push_str(&format!("; as many may be away as of {}", all - 1));
        }
        let finding = match in_reach {
            _ if in_reach == all => return Finding::fit("majority", reason),
            _ if in_reach >= majority => Finding::doubtful("majority", reason),
            _ => Finding::unfit("majority", reason),
        };
        finding.remedy("bring the servers back that are away")
    }
}

/// Of each check one finding for all servers that are fit, and one for all others of which the same is to be said.
fn together(looked: Vec<(&str, Vec<Finding>)>) -> Vec<Finding> {
    let (all, mut kinds) = (looked.len(), Vec::<Kind>::new());
    for (label, found) in looked {
        for finding in found {
            match kinds.iter_mut().find(|kind| kind.has(&finding)) {
                Some(kind) => kind.add(label, &finding),
                None => {
                    // Beside the others of its check.
                    let last = kinds.iter().rposition(|kind| kind.finding.check == finding.check);
                    let at = last.map_or(kinds.len(), |last| last + 1);
                    kinds.insert(at, Kind { finding, labels: vec![label.to_owned()], differs: false });
                }
            }
        }
    }
    kinds.into_iter().map(|kind| kind.said(all)).collect()
}

/// Servers of which the same is to be said.
struct Kind {
    /// That of the first of them, with what to do about all.
    finding: Finding,
    labels: Vec<String>,
    /// They are all fit, each for a reason of its own.
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
            // What a shell takes, it takes after each other.
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
    fn what_is_the_same_is_said_once() {
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
    fn one_that_is_worse_is_named() {
        let fit = || Finding::fit("eviction", "none");
        let bad = Finding::unfit("eviction", "evicts").remedy("set c");
        let found = together(vec![("a:1", vec![fit()]), ("b:1", vec![fit()]), ("c:1", vec![bad])]);
        let said: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["eviction: fit: a:1, b:1: none", "eviction: unfit: c:1: evicts; set c"]);
    }
}
