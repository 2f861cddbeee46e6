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

    pub(crate) fn print(&self) {
        println!("\n{:<28} {:<14} {:<16} {:>14}", "scenario", "contender", "metric", "value");
        for Row { scenario, contender, metric, value } in &self.0 {
            let digits = if *value < 100.0 { 2 } else { 0 };
            println!("{scenario:<28} {contender:<14} {metric:<16} {value:>14.digits$}");
        }
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
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
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
