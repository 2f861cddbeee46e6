//! `tenure bench`: a quick look at how long this store takes to grant a name, and to hand it over to another process.
//!
//! The other process is this program, started again: on a directory, clients of one process would not meet as processes do. The two tell their turns
//! apart by fences, and compare times of one clock, which all processes of a machine share.
//!
//! It is no benchmark that anything can be compared with: docs/performance.md has that. What is measured is a name of its own, which is forgotten
//! afterwards; signals that end the program are therefore looked for between two turns.

mod chart;
mod partner;
mod progress;
mod turns;

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;
use serde::Serialize;
use tenure::{Domain as Store, Error};

use self::partner::Partner;
use self::progress::Progress;
use self::turns::{hand_overs, take_turns};
use super::on_domain;
use crate::args::{self, Domain, Format};
use crate::exit_code;
use crate::json;
use crate::output::{self, say};
use crate::sample::Sample;
use crate::sys::{self, Mask, SignalFd};
use crate::text::{fine, in_ascii, is_unicode};

/// The shortest turn: longer than the other process needs to ask again.
const SHORTEST_TURN: Duration = Duration::from_millis(2);
/// How long a measurement may take at most: an hour is no quick look.
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

/// The signals that end a program, while they are not to end this one at once.
struct Endings {
    signals: SignalFd,
    came: Option<Signal>,
}

impl Endings {
    fn new() -> std::io::Result<Self> {
        let endings = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
        let mask = Mask::of(endings.into_iter().filter(|signal| !sys::is_ignored(*signal)));
        mask.block();
        Ok(Endings { signals: SignalFd::new(&mask)?, came: None })
    }

    fn has_come(&mut self) -> bool {
        if self.came.is_none() {
            self.came = self.signals.next().map(|(signal, _)| signal);
        }
        self.came.is_some()
    }
}

impl Bench {
    pub(crate) fn execute(&self) -> u8 {
        if let (Some(name), Some(turn)) = (&self.partner, self.turn) {
            return on_domain(&self.domain, async |domain| partner::be(domain, name, turn).await);
        }
        on_domain(&self.domain, async |domain| {
            // Whoever waits for a connection can be interrupted at once.
            domain.capabilities().await?;
            match Endings::new() {
                Ok(mut endings) => self.look(domain, &mut endings).await,
                Err(error) => {
                    output::refused_by_system(&error);
                    Ok(exit_code::OS)
                }
            }
        })
    }

    async fn look(&self, domain: &Store, endings: &mut Endings) -> Result<u8, Error> {
        let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let name = format!("tenure/bench/{}-{nanos:x}", std::process::id());
        let measured = self.measure(domain, &name, endings).await;
        // Also after an error; that one is told.
        let forgotten = domain.forget(&name).await;
        let code = measured?;
        forgotten?;
        Ok(endings.came.map_or(code, |signal| exit_code::by_signal(signal.as_raw())))
    }

    async fn measure(&self, domain: &Store, name: &str, endings: &mut Endings) -> Result<u8, Error> {
        let half = self.seconds / 2;
        let acquires = acquires(domain, name, half, endings).await?;
        if endings.has_come() {
            return Ok(0);
        }
        if !self.print("acquire", "a free name is granted", &acquires) {
            return Ok(exit_code::IO);
        }
        let turn = SHORTEST_TURN.max(acquires.quantile(50) * 2);
        let partner = match Partner::start(&self.domain, name, turn) {
            Ok(partner) => partner,
            Err(error) => {
                output::refused_by_system(&error);
                return Ok(exit_code::OS);
            }
        };
        let (start, mut progress) = (Instant::now(), Progress::new("hand-over", half));
        let ours =
            take_turns(domain, name, turn, || progress.is_over(start.elapsed()) || endings.has_come()).await;
        drop(progress);
        // It ends as soon as it is told to, and must have ended before the name is forgotten.
        let theirs = partner.end();
        let ours = ours?;
        if endings.has_come() {
            return Ok(0);
        }
        let Some(theirs) = theirs else {
            say("the other process could not take its turns; what it said stands above");
            return Ok(exit_code::UNAVAILABLE);
        };
        let is_printed = self.print(
            "hand-over",
            "a name passes to a process that waits for it",
            &hand_overs(&ours, &theirs),
        );
        if !self.format.json && is_printed {
            let _ = writeln!(
                anstream::stdout(),
                "a quick look, on this machine and as busy as it is; docs/performance.md says what to compare"
            );
        }
        Ok(if is_printed { 0 } else { exit_code::IO })
    }

    /// False when nobody reads it.
    fn print(&self, measure: &'static str, what: &str, sample: &Sample) -> bool {
        let (p50, p99, longest) = (sample.quantile(50), sample.quantile(99), sample.longest());
        if self.format.json {
            let bars = sample.classes().into_iter().map(|class| Bar {
                from_us: json::micros(class.from),
                to_us: json::micros(class.to),
                count: class.count,
            });
            return json::print(&Measured {
                measure,
                count: sample.len(),
                p50_us: json::micros(p50),
                p99_us: json::micros(p99),
                longest_us: json::micros(longest),
                histogram: bars.collect(),
            });
        }
        let mut text = match sample.is_empty() {
            true => format!("{measure}: not once; measure for longer, with --seconds\n"),
            false => format!(
                "{measure}: {what}, {} times: p50 {}, p99 {}, longest {}\n",
                sample.len(),
                fine(p50),
                fine(p99),
                fine(longest)
            ),
        };
        text.push_str(&chart::bars(&sample.classes(), is_unicode()));
        if !is_unicode() {
            text = in_ascii(&text);
        }
        let mut stdout = anstream::stdout();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
    }
}

/// How long it takes to acquire a name that nobody else wants.
async fn acquires(
    domain: &Store,
    name: &str,
    length: Duration,
    endings: &mut Endings,
) -> Result<Sample, Error> {
    let (lock, start) = (domain.lock(name).label("tenure bench"), Instant::now());
    let (mut taken, mut progress) = (Vec::new(), Progress::new("acquire", length));
    while !progress.is_over(start.elapsed()) && !endings.has_come() {
        let asked = Instant::now();
        let guard = lock.acquire().await?;
        taken.push(asked.elapsed());
        guard.release().await.map_err(|returned| returned.error)?;
        // A store that always answers at once would let nothing else run.
        tokio::task::yield_now().await;
    }
    Ok(Sample::new(taken))
}
