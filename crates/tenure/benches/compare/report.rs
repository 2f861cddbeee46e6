//! What was measured: as a table for people, as JSON for programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::targets::{Bound, TARGETS, Target};

const OURS: &str = "tenure";

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    /// Scenario, contender, and which of its rounds came to nothing.
    notes: Vec<(String, String, String)>,
}

struct Row {
    scenario: String,
    contender: String,
    metric: String,
    /// What each round measured.
    rounds: Vec<f64>,
}

impl Row {
    fn value(&self) -> f64 {
        percentile(&mut self.rounds.clone(), 0.5)
    }

    /// Its share of another. Rounds that took turns are compared one by one: what slowed the machine down slowed both.
    fn share_of(&self, other: &Row) -> f64 {
        if self.scenario != other.scenario || self.rounds.len() != other.rounds.len() {
            return self.value() / other.value();
        }
        let mut shares: Vec<f64> =
            self.rounds.iter().zip(&other.rounds).map(|(ours, theirs)| ours / theirs).collect();
        percentile(&mut shares, 0.5)
    }
}

impl Report {
    /// Adds what the rounds of a contender measured, of which the median is told. The first contender that is not ours is the limit.
    pub(crate) fn add(&mut self, scenario: &str, contender: &str, metric: &str, rounds: &[f64]) {
        self.rows.push(Row {
            scenario: scenario.to_owned(),
            contender: contender.to_owned(),
            metric: metric.to_owned(),
            rounds: rounds.to_vec(),
        });
    }

    /// Adds a row that says which rounds of a contender came to nothing.
    pub(crate) fn note(&mut self, scenario: &str, contender: &str, note: &str) {
        self.notes.push((scenario.to_owned(), contender.to_owned(), note.to_owned()));
    }

    /// Scenario, contender, metric and median of each.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &str, &str, f64)> {
        self.rows.iter().map(|row| (&*row.scenario, &*row.contender, &*row.metric, row.value()))
    }

    /// Prints the table; behind a rate or a time of ours, what it is of the limit's. Then the targets.
    pub(crate) fn print(&self) {
        println!(
            "\n{:<28} {:<16} {:<21} {:>14} {:>10}",
            "scenario", "contender", "metric", "value", "of limit"
        );
        for row in &self.rows {
            let (Row { scenario, contender, metric, .. }, value) = (row, row.value());
            let digits = if value < 100.0 { 2 } else { 0 };
            let share = self.of_limit(row).map_or(String::new(), |share| format!("{share:.2}"));
            println!("{scenario:<28} {contender:<16} {metric:<21} {value:>14.digits$} {share:>10}");
        }
        for (scenario, contender, note) in &self.notes {
            println!("{scenario:<28} {contender:<16} {note}");
        }
        println!("\n{:<28} {:<21} {:<44} {:>6}", "scenario", "metric", "target", "is");
        for target in TARGETS {
            if let Some(value) = self.measured(target) {
                let (Target { scenario, metric, .. }, text) = (target, text_of(target));
                let verdict = if target.bound.is_met(value) { "met" } else { "not met" };
                println!("{scenario:<28} {metric:<21} {text:<44} {value:>6.2} {verdict}");
            }
        }
    }

    fn of_limit(&self, ours: &Row) -> Option<f64> {
        let is_limit =
            |row: &&Row| row.scenario == ours.scenario && row.metric == ours.metric && row.contender != OURS;
        let is_compared = ours.contender == OURS && !ours.metric.ends_with("_ratio");
        let limit = self.rows.iter().find(is_limit).filter(|_| is_compared)?;
        Some(ours.share_of(limit))
    }

    /// What a target is about; `None` when it was not measured.
    fn measured(&self, target: &Target) -> Option<f64> {
        let row = |scenario: &str, contender: &str, metric: &str| {
            let is_it =
                |row: &&Row| row.scenario == scenario && row.contender == contender && row.metric == metric;
            self.rows.iter().find(is_it)
        };
        let ours = row(target.scenario, OURS, target.metric)?;
        match target.beside {
            Some((scenario, contender, metric)) => Some(ours.share_of(row(scenario, contender, metric)?)),
            None => Some(ours.value()),
        }
    }

    /// Writes `results.json` into a folder.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<PathBuf> {
        let rows = self.rows().map(|(scenario, contender, metric, value)| {
            format!(
                "  {{\"scenario\": \"{scenario}\", \"contender\": \"{contender}\", \"metric\": \"{metric}\", \"value\": {value}}}"
            )
        });
        let mut json = String::from("[\n");
        let _ = writeln!(json, "{}", rows.collect::<Vec<_>>().join(",\n"));
        json.push_str("]\n");
        std::fs::create_dir_all(folder)?;
        let path = folder.canonicalize()?.join("results.json");
        std::fs::write(&path, json)?;
        Ok(path)
    }
}

/// A target in words, as a bound on what is divided by what.
fn text_of(target: &Target) -> String {
    let (sign, bound) = match target.bound {
        Bound::AtLeast(bound) => ("≥", bound),
        Bound::AtMost(bound) => ("≤", bound),
    };
    match target.beside {
        Some((scenario, contender, metric)) if scenario == target.scenario => {
            let other = if metric == target.metric { String::new() } else { format!(" {metric}") };
            format!("{sign} {bound} of {contender}{other}")
        }
        Some((scenario, ..)) => format!("{sign} {bound} of {scenario}"),
        None => format!("{sign} {bound}"),
    }
}

/// Where Cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    let in_workspace = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(in_workspace, PathBuf::from)
}

/// The value below which this share of them lies; sorts them.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * share) as usize).min(values.len() - 1)]
}

/// The most turns that one had, divided by the fewest.
pub(crate) fn max_min_ratio(turns: &[f64]) -> f64 {
    let (most, fewest) =
        turns.iter().fold((0f64, f64::MAX), |(most, fewest), &n| (most.max(n), fewest.min(n)));
    most / fewest.max(1.0)
}
