//! What was measured, with a line for each contender and a column for each metric; the last column says which rounds came to nothing.

use crate::report::Report;
use crate::turns::{Outcome, Round, failures};

const SCENARIO: usize = 26;

/// Which rounds came to nothing: scenario, contender and why.
#[derive(Default)]
pub(crate) struct Table(Vec<(String, String, String)>);

impl Table {
    /// Notes why rounds came to nothing; returns those that did not.
    pub(crate) fn note<'a>(&mut self, scenario: &str, kind: &str, rounds: &'a [Outcome]) -> Vec<&'a Round> {
        self.0.push((scenario.to_owned(), kind.to_owned(), failures(rounds)));
        rounds.iter().flatten().collect()
    }

    pub(crate) fn print(&self, report: &Report) {
        let mut scenarios: Vec<&str> = self.0.iter().map(|(scenario, ..)| &**scenario).collect();
        scenarios.dedup();
        for scenario in scenarios {
            self.print_scenario(scenario, report);
        }
    }

    fn print_scenario(&self, scenario: &str, report: &Report) {
        let rows: Vec<_> = report.rows().filter(|row| row.0 == scenario).collect();
        let mut metrics = Vec::new();
        for (_, _, metric, _) in &rows {
            if !metrics.contains(metric) {
                metrics.push(*metric);
            }
        }
        print!("\n| {scenario:<SCENARIO$} |");
        metrics.iter().for_each(|metric| print!(" {metric} |"));
        print!(" note |\n|{:-<1$}|", "", SCENARIO + 2);
        metrics.iter().for_each(|metric| print!("{:-<1$}:|", "", metric.len() + 1));
        print!("---|");
        for (_, contender, note) in self.0.iter().filter(|(of, ..)| of == scenario) {
            print!("\n| {contender:<SCENARIO$} |");
            for metric in &metrics {
                let value = rows.iter().find(|row| row.1 == contender && row.2 == *metric).map(|row| row.3);
                let text = value
                    .map_or(String::new(), |value| format!("{value:.*}", if value < 100.0 { 1 } else { 0 }));
                print!(" {text:>0$} |", metric.len());
            }
            print!(" {note} |");
        }
        println!();
    }
}
