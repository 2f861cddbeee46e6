//! What was measured, with a line for each contender and a column for each metric.

use crate::report::Report;

const SCENARIO: usize = 26;

pub(crate) fn print(report: &Report) {
    let mut scenarios: Vec<&str> = report.rows().map(|(scenario, ..)| scenario).collect();
    scenarios.dedup();
    for scenario in scenarios {
        let rows: Vec<_> = report.rows().filter(|row| row.0 == scenario).collect();
        let (mut contenders, mut metrics) = (Vec::new(), Vec::new());
        for (_, contender, metric, _) in &rows {
            if !contenders.contains(contender) {
                contenders.push(*contender);
            }
            if !metrics.contains(metric) {
                metrics.push(*metric);
            }
        }
        print!("\n| {scenario:<SCENARIO$} |");
        metrics.iter().for_each(|metric| print!(" {metric} |"));
        print!("\n|{:-<1$}|", "", SCENARIO + 2);
        metrics.iter().for_each(|metric| print!("{:-<1$}:|", "", metric.len() + 1));
        for contender in contenders {
            print!("\n| {contender:<SCENARIO$} |");
            for metric in &metrics {
                let value = rows.iter().find(|row| row.1 == contender && row.2 == *metric).map(|row| row.3);
                let text = value
                    .map_or(String::new(), |value| format!("{value:.*}", if value < 100.0 { 1 } else { 0 }));
                print!(" {text:>0$} |", metric.len());
            }
        }
        println!();
    }
}
