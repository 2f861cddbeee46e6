//! What is to be reached.

/// A bound on what was measured, or on its ratio to another measurement.
pub(crate) struct Target {
    pub(crate) scenario: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) bound: Bound,
    /// Scenario, contender and metric of what it is divided by.
    pub(crate) beside: Option<(&'static str, &'static str, &'static str)>,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => value >= bound,
            Bound::AtMost(bound) => value <= bound,
        }
    }
}

use Bound::{AtLeast, AtMost};

impl Target {
    /// A bound on a measurement itself.
    const fn of(scenario: &'static str, metric: &'static str, bound: Bound) -> Self {
        Target { scenario, metric, bound, beside: None }
    }

    /// A bound on its ratio to what another contender of the same scenario measured.
    const fn beside(
        scenario: &'static str,
        metric: &'static str,
        bound: Bound,
        contender: &'static str,
    ) -> Self {
        Target { scenario, metric, bound, beside: Some((scenario, contender, metric)) }
    }

    /// A bound on its ratio to what we measured in another scenario.
    const fn across(scenario: &'static str, metric: &'static str, bound: Bound, other: &'static str) -> Self {
        Target { scenario, metric, bound, beside: Some((other, "tenure", metric)) }
    }
}

pub(crate) const TARGETS: &[Target] = &[
    Target::beside("memory/one-name-64-tasks", "pairs_per_s", AtLeast(0.25), "tokio-mutex"),
    Target::of("memory/one-name-64-tasks", "max_min_ratio", AtMost(1.2)),
    Target::beside("file/uncontended", "pairs_per_s", AtLeast(0.33), "raw"),
    Target::beside("file/one-name-64-tasks", "pairs_per_s", AtLeast(0.5), "memory"),
    Target::beside("file/handover-8", "p50_us", AtMost(2.5), "fifo-pingpong"),
    Target {
        scenario: "file/handover-8",
        metric: "p99_us",
        bound: AtMost(10.0),
        beside: Some(("file/handover-8", "fifo-pingpong", "p50_us")),
    },
    Target::of("file/handover-8", "max_min_ratio", AtMost(1.1)),
    Target::across("file/handover-32", "p50_us", AtMost(1.5), "file/handover-8"),
    Target::beside("file/handover-1000", "p50_us", AtMost(3.0), "tenure-8"),
    Target::beside("cli/startup", "p50_ms", AtMost(2.0), "flock"),
    Target::beside("redis/uncontended", "pairs_per_s", AtLeast(0.9), "raw"),
    Target::beside("redis/own-names-64", "pairs_per_s", AtLeast(0.75), "raw"),
    Target::beside("redis/own-names-512", "pairs_per_s", AtLeast(0.75), "raw"),
    Target::beside("redis/one-name-64-tasks", "pairs_per_s", AtLeast(20.0), "raw"),
    Target::of("redis/one-name-64-tasks", "max_min_ratio", AtMost(1.2)),
    Target::beside("redis/handover-2", "p50_us", AtMost(2.0), "raw-script"),
    Target::of("redis/handover-2", "commands_per_handover", AtMost(2.2)),
    Target::of("redis/handover-2", "max_min_ratio", AtMost(1.1)),
    Target::of("redis/handover-8", "commands_per_handover", AtMost(2.2)),
    Target::of("redis/handover-8", "max_min_ratio", AtMost(1.1)),
    Target::beside("redis/handover-32", "p50_us", AtMost(2.5), "raw-script"),
    Target::of("redis/handover-32", "commands_per_handover", AtMost(2.2)),
    Target::of("redis/handover-32", "max_min_ratio", AtMost(1.1)),
    Target::across("redis/handover-128", "handovers_per_s", AtLeast(0.7), "redis/handover-8"),
    Target::of("redis/handover-128", "commands_per_handover", AtMost(2.2)),
    Target::of("redis/handover-128", "max_min_ratio", AtMost(1.1)),
    Target::beside("redis/handover-8-held-1ms", "p50_us", AtMost(3.0), "raw-script"),
    Target::of("redis/handover-8-held-1ms", "commands_per_handover", AtMost(2.2)),
    Target::of("redis/dead-holder", "p99_ms", AtMost(50.0)),
    Target::of("redis/loss-push", "p99_ms", AtMost(20.0)),
    Target::of("redis/held-100k", "client_cpu_percent", AtMost(15.0)),
    Target::of("redis/held-100k", "bytes_per_lease", AtMost(1024.0)),
    Target::of("redis/held-100k", "losses", AtMost(0.0)),
    Target::of("redis/waiting-1k", "server_cpu_percent", AtMost(2.0)),
    Target::of("redis/waiting-10k", "server_cpu_percent", AtMost(10.0)),
    Target::beside("redis/handover-among-1k", "handovers_per_s", AtLeast(0.7), "8-clients"),
    Target::beside("redis/dead-waiter-1k", "killed_p50_ms", AtMost(2.0), "8-clients"),
    Target::beside("redis/dead-waiter-1k", "stopped_p50_ms", AtMost(2.0), "8-clients"),
    Target::beside("quorum/handover-8", "handovers_per_s", AtLeast(3.0), "rslock"),
    Target::of("quorum/handover-8", "max_min_ratio", AtMost(2.0)),
];
