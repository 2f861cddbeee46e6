//! What was measured: as a table for people, as JSON for programs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

struct Row {
    scenario: String,
    contender: String,
    metric: String,
    value: f64,
}

impl Report {
    /// Adds the median of what the rounds of a contender measured.
    pub(crate) fn add(&mut self, scenario: &str, contender: &str, metric: &str, rounds: &[f64]) {
        self.0.push(Row {
            scenario: scenario.to_owned(),
            contender: contender.to_owned(),
            metric: metric.to_owned(),
            value: median(rounds),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Prints the table; behind a rate of ours, its share of the other contender's.
    pub(crate) fn print(&self) {
        println!(
            "\n{:<28} {:<14} {:<16} {:>14} {:>10}",
            "scenario", "contender", "metric", "value", "of limit"
        );
        for row in &self.0 {
            let Row { scenario, contender, metric, value } = row;
            let digits = if *value < 100.0 { 2 } else { 0 };
            let share = self.share_of_limit(row).map_or(String::new(), |share| format!("{share:.2}"));
            println!("{scenario:<28} {contender:<14} {metric:<16} {value:>14.digits$} {share:>10}");
        }
    }

    fn share_of_limit(&self, ours: &Row) -> Option<f64> {
        let is_limit = |row: &&Row| {
            row.scenario == ours.scenario && row.metric == ours.metric && row.contender != ours.contender
        };
        let is_our_rate = ours.contender == "tenure" && ours.metric.ends_with("_per_s");
        let limit = self.0.iter().find(is_limit).filter(|_| is_our_rate)?;
        Some(ours.value / limit.value)
    }

    /// Writes `target/bench/results.json`.
    pub(crate) fn write(&self) -> std::io::Result<PathBuf> {
        let rows = self.0.iter().map(|Row { scenario, contender, metric, value }| {
            format!(
                "  {{\"scenario\": \"{scenario}\", \"contender\": \"{contender}\", \"metric\": \"{metric}\", \"value\": {value}}}"
            )
        });
        let mut json = String::from("[\n");
        let _ = writeln!(json, "{}", rows.collect::<Vec<_>>().join(",\n"));
        json.push_str("]\n");
        let in_workspace = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(in_workspace, PathBuf::from);
        let folder = target.join("bench");
        std::fs::create_dir_all(&folder)?;
        let path = folder.canonicalize()?.join("results.json");
        std::fs::write(&path, json)?;
        Ok(path)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
