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

pub(crate) const TARGETS: &[Target] = &[
    Target {
        scenario: "memory/one-name-64-tasks",
        metric: "pairs_per_s",
        bound: AtLeast(0.25),
        beside: Some(("memory/one-name-64-tasks", "tokio-mutex", "pairs_per_s")),
    },
    Target {
        scenario: "memory/one-name-64-tasks",
        metric: "max_min_ratio",
        bound: AtMost(1.2),
        beside: None,
    },
    Target {
        scenario: "file/uncontended",
        metric: "pairs_per_s",
        bound: AtLeast(0.33),
        beside: Some(("file/uncontended", "raw", "pairs_per_s")),
    },
    Target {
        scenario: "file/one-name-64-tasks",
        metric: "pairs_per_s",
        bound: AtLeast(0.5),
        beside: Some(("file/one-name-64-tasks", "memory", "pairs_per_s")),
    },
    Target {
        scenario: "file/handover-8",
        metric: "p50_us",
        bound: AtMost(2.5),
        beside: Some(("file/handover-8", "fifo-pingpong", "p50_us")),
    },
    Target {
        scenario: "file/handover-8",
        metric: "p99_us",
        bound: AtMost(10.0),
        beside: Some(("file/handover-8", "fifo-pingpong", "p50_us")),
    },
    Target { scenario: "file/handover-8", metric: "max_min_ratio", bound: AtMost(1.1), beside: None },
    Target {
        scenario: "file/handover-32",
        metric: "p50_us",
        bound: AtMost(1.5),
        beside: Some(("file/handover-8", "tenure", "p50_us")),
    },
    Target {
        scenario: "cli/startup",
        metric: "p50_ms",
        bound: AtMost(2.0),
        beside: Some(("cli/startup", "flock", "p50_ms")),
    },
];
