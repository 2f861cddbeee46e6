//! `tenure bench`: measures how long this store takes to grant a name, and to hand it over to another process.
//!
//! The other process is this program, started again, because clients of one process meet differently in a directory. Both measure with the monotonic
//! clock, which all processes of a machine share, and order their turns by fences.
//!
//! It is not a benchmark to compare with; docs/performance.md has one. It uses a name of its own and forgets it afterwards, so it polls for signals
//! between turns. It prints at the end, because a reader that does not read would prevent the forgetting.

mod chart;
mod partner;
mod progress;
mod turns;

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tenure::{Domain as Store, Error};

use self::partner::Partner;
use self::progress::Progress;
use self::turns::{hand_overs, take_turns};
use super::blocked_signals::{BlockedSignals, uninterrupted};
use super::on_domain;
use crate::args::{self, Domain, Format};
use crate::exit_code;
use crate::json;
use crate::output::{self, say};
use crate::sample::Sample;
use crate::table::terminal_width;
use crate::text::{fine, folded, in_ascii, is_unicode};

/// The shortest turn: longer than the other process needs to ask again.
const SHORTEST_TURN: Duration = Duration::from_millis(2);
/// The longest measurement.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A quick look at the speed of this store
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// How long to measure
    #[arg(long, value_name = "DURATION", value_parser = seconds, allow_hyphen_values = true, default_value = "5")]
    seconds: Duration,

    /// Be the other process: take turns on this name
    #[arg(long, hide = true, requires = "turn")]
    partner: Option<String>,

    /// How long a turn of the other process lasts
    #[arg(long, hide = true, value_parser = args::duration)]
    turn: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match args::duration(text)? {
        Duration::ZERO => Err("write more than nothing".to_owned()),
        duration if duration > LONGEST => Err("write an hour at most".to_owned()),
        duration => Ok(duration),
    }
}

/// What was measured.
#[derive(Serialize)]
struct Measured {
    measure: &'static str,
    count: usize,
    p50_us: u64,
    p99_us: u64,
    longest_us: u64,
    histogram: Vec<Bar>,
}

#[derive(Serialize)]
struct Bar {
    from_us: u64,
    to_us: u64,
    count: usize,
}

/// Both measurements.
struct Samples {
    acquires: Sample,
    hand_overs: Sample,
}

impl Bench {
    pub(crate) fn execute(&self) -> u8 {
        if let (Some(name), Some(turn)) = (&self.partner, self.turn) {
            return on_domain(&self.domain, async |domain| partner::be(domain, name, turn).await);
        }
        on_domain(&self.domain, async |domain| {
            let measured = uninterrupted(domain, async |blocked| self.look(domain, blocked).await).await?;
            Ok(match measured.flatten() {
                Ok(samples) => self.print(&samples).err().unwrap_or(0),
                Err(code) => code,
            })
        })
    }

    /// Measures on a name of its own, which is forgotten. An exit code is that of a failure that has been told.
    async fn look(&self, domain: &Store, blocked: &mut BlockedSignals) -> Result<Result<Samples, u8>, Error> {
        let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let name = format!("tenure/bench/{}-{nanos:x}", std::process::id());
        let measured = self.measure(domain, &name, blocked).await;
        // Also after an error; that one is told.
        let forgotten = domain.forget(&name).await;
        let measured = measured?;
        forgotten.map(|()| measured)
    }

    async fn measure(
        &self,
        domain: &Store,
        name: &str,
        blocked: &mut BlockedSignals,
    ) -> Result<Result<Samples, u8>, Error> {
        let half = self.seconds / 2;
        let acquires = acquires(domain, name, half, blocked).await?;
        let mut samples = Samples { acquires, hand_overs: Sample::default() };
        if blocked.has_come() {
            return Ok(Ok(samples));
        }
        let turn = SHORTEST_TURN.max(samples.acquires.quantile(50) * 2);
        let partner = match Partner::start(&self.domain, name, turn) {
            Ok(partner) => partner,
            Err(error) => {
                output::refused_by_system(&error);
                return Ok(Err(exit_code::OS));
            }
        };
        let (start, mut progress) = (Instant::now(), Progress::new("hand-over", half));
        let ours =
            take_turns(domain, name, turn, || progress.is_over(start.elapsed()) || blocked.has_come()).await;
        drop(progress);
        // It ends as soon as it is told to, and must have ended before the name is forgotten.
        let theirs = partner.end();
        let ours = ours?;
        match theirs {
            Some(theirs) => samples.hand_overs = hand_overs(&ours, &theirs),
            None if blocked.has_come() => {}
            None => {
                say("the other process could not take its turns; what it said stands above");
                return Ok(Err(exit_code::UNAVAILABLE));
            }
        }
        Ok(Ok(samples))
    }

    fn print(&self, samples: &Samples) -> Result<(), u8> {
        let measures = [
            ("acquire", "a free name is granted", &samples.acquires),
            ("hand-over", "a name passes to a process that waits for it", &samples.hand_overs),
        ];
        if self.format.json {
            let lines =
                measures.map(|(measure, _, sample)| json::to_line(&Measured::new(measure, sample)) + "\n");
            return output::show("measurement", &lines.concat());
        }
        let mut text: String = measures.map(|(measure, what, sample)| block(measure, what, sample)).concat();
        let end =
            "a quick look, on this machine and as busy as it is; docs/performance.md says what to compare";
        text += &fold(end);
        output::show("measurement", &if is_unicode() { text } else { in_ascii(&text) })
    }
}

impl Measured {
    fn new(measure: &'static str, sample: &Sample) -> Self {
        let bars = sample.classes().into_iter().map(|class| Bar {
            from_us: json::micros(class.from),
            to_us: json::micros(class.to),
            count: class.count,
        });
        Measured {
            measure,
            count: sample.len(),
            p50_us: json::micros(sample.quantile(50)),
            p99_us: json::micros(sample.quantile(99)),
            longest_us: json::micros(sample.longest()),
            histogram: bars.collect(),
        }
    }
}

/// One measurement, for people.
fn block(measure: &str, what: &str, sample: &Sample) -> String {
    let columns = terminal_width(std::io::stdout());
    folded_to(&headline(measure, what, sample), columns)
        + &chart::bars(&sample.classes(), is_unicode(), columns)
}

fn headline(measure: &str, what: &str, sample: &Sample) -> String {
    let (p50, p99, longest) = (sample.quantile(50), sample.quantile(99), sample.longest());
    let times = match sample.len() {
        0 => return format!("{measure}: not once; measure for longer, with --seconds"),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    format!(
        "{measure}: {what}, {times}: p50{NO_BREAK}{}, p99{NO_BREAK}{}, longest{NO_BREAK}{}",
        together(p50),
        together(p99),
        together(longest)
    )
}

/// A space at which a line is not broken. It is printed as a plain space.
const NO_BREAK: char = '\u{a0}';

/// A time that stays on one line with its unit.
fn together(time: Duration) -> String {
    fine(time).replace(' ', &NO_BREAK.to_string())
}

/// Folds a line at words for the terminal.
fn fold(line: &str) -> String {
    folded_to(line, terminal_width(std::io::stdout()))
}

fn folded_to(line: &str, columns: Option<usize>) -> String {
    let folded = columns.map_or_else(|| line.to_owned(), |columns| folded(line, columns, 0, 2, ""));
    folded.replace(NO_BREAK, " ") + "\n"
}

/// How long it takes to acquire a name that nobody else wants.
async fn acquires(
    domain: &Store,
    name: &str,
    length: Duration,
    blocked: &mut BlockedSignals,
) -> Result<Sample, Error> {
    let (lock, start) = (domain.lock(name).label("tenure bench"), Instant::now());
    let (mut taken, mut progress) = (Vec::new(), Progress::new("acquire", length));
    while !progress.is_over(start.elapsed()) && !blocked.has_come() {
        let asked = Instant::now();
        let guard = lock.acquire().await?;
        taken.push(asked.elapsed());
        guard.release().await.map_err(|returned| returned.error)?;
        // A store that always answers immediately would let nothing else run.
        tokio::task::yield_now().await;
    }
    Ok(Sample::new(taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_measurement_is_counted_in_plain_words() {
        let of = |durations: &[u64]| {
            let sample = Sample::new(durations.iter().copied().map(Duration::from_micros).collect());
            headline("acquire", "a free name is granted", &sample)
        };
        assert!(of(&[31]).starts_with("acquire: a free name is granted, once: p50"), "{}", of(&[31]));
        assert!(of(&[31, 32]).contains(", 2 times: p50"), "{}", of(&[31, 32]));
        assert!(of(&[]).contains("not once"), "{}", of(&[]));
    }

    #[test]
    fn a_time_stays_on_one_line_with_its_unit() {
        let sample = Sample::new(vec![Duration::from_micros(31), Duration::from_millis(106)]);
        for columns in 40..120 {
            let text = folded_to(&headline("acquire", "a free name is granted", &sample), Some(columns));
            assert!(text.contains("longest 106 ms\n") && text.contains("p50 "), "{columns}: {text}");
            assert!(
                !text.contains(NO_BREAK) && text.lines().all(|line| line.chars().count() <= columns),
                "{text}"
            );
        }
    }
}
