//! Waiting for a name in `run`, `acquire` and `hold`, and what they show meanwhile.
//!
//! A free name costs nothing extra: only if the name is not acquired immediately does `tenure` ask the store who holds it, and /proc whether a process
//! above holds it. These questions may fail; that is shown, too, and never ends the wait.
//!
//! The caller handles signals. A signal that ends the wait drops the future, which erases what it drew. For a signal that stops the process, see
//! [`Screen::pause`].

mod facts;
mod screen;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::pin;
use std::time::{Duration, Instant};

use tenure::{Attempt, Busy, Domain, Error, Guard, Holder, Lock};
use tokio::time::{Instant as Wakeup, sleep, sleep_until};

use self::facts::Facts;
pub(crate) use self::screen::Screen;
use super::run::enclosing::Enclosing;
use crate::args::{self, WaitOptions};
use crate::output::{self, say_more};
use crate::presence::is_on_this_machine;
use crate::text::escaped;

/// A free name is usually acquired within this time.
const AT_ONCE: Duration = Duration::from_millis(20);
/// When the waiting line appears.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// How often the line on a terminal changes.
const FRAME: Duration = Duration::from_millis(250);
/// How often the store is asked.
const POLL: Duration = Duration::from_secs(1);
/// How often the line is printed without a terminal.
const LINE: Duration = Duration::from_secs(30);

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum WaitResult {
    /// The name was acquired, after this time.
    Acquired(Guard, Duration),
    /// The wait is over, and someone else holds the name.
    Busy(Busy),
    /// A `tenure run` above this process holds it, so this process would wait for itself.
    Enclosing(Holder),
}

/// A wait for a name.
pub(crate) struct Wait<'a> {
    pub(crate) domain: &'a Domain,
    pub(crate) name: &'a str,
    /// The claim on it.
    pub(crate) lock: &'a Lock,
    pub(crate) wait_options: &'a WaitOptions,
}

impl Wait<'_> {
    /// Waits until the limit, and shows it. The line is erased when this returns or is dropped.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    pub(crate) async fn acquire(&self, screen: &Screen) -> Result<WaitResult, Error> {
        let begun = Instant::now();
        let lock = self.wait_options.through_outages(self.lock);
        let acquiring = pin!(async {
            match self.wait_options.limit() {
                Some(limit) => lock.try_acquire_for(limit).await,
                None => lock.acquire().await.map(Attempt::Acquired),
            }
        });
        let _erased = screen.erased_at_end();
        let outcome = tokio::select! {
            biased;
            attempt = acquiring => match attempt? {
                Attempt::Acquired(guard) => WaitResult::Acquired(guard, begun.elapsed()),
                Attempt::Busy(busy) => match &busy.holder {
                    Some(holder) if Enclosing::of(self.name).has(holder) => {
                        WaitResult::Enclosing(holder.clone())
                    }
                    _ => WaitResult::Busy(busy),
                },
            },
            holder = self.show(begun, screen) => WaitResult::Enclosing(holder),
        };
        Ok(outcome)
    }

    /// Shows the wait. Returns the holder if it is above this process.
    async fn show(&self, begun: Instant, screen: &Screen) -> Holder {
        sleep(AT_ONCE).await;
        say_more(format_args!("waiting for `{}`", escaped(self.name)));
        let enclosing = Enclosing::of(self.name);
        let facts = RefCell::new(Facts::new(self.name));
        if !enclosing.is_empty()
            && let Some(holder) = self.poll(&facts, &enclosing).await
        {
            return holder;
        }
        sleep_until(Wakeup::from_std(begun + SHOWN_AFTER)).await;
        let content = match self.wait_options.conflict_exit_code {
            _ if output::is_quiet() => Content::Nothing,
            0 => Content::Outages,
            _ => Content::All,
        };
        let lines = Lines { content, due: Cell::new(begun + SHOWN_AFTER) };
        tokio::select! {
            holder = self.keep_polling(&facts, &enclosing, &lines, screen) => holder,
            never = keep_showing(&facts, &lines, screen) => match never {},
        }
    }

    /// Asks the store once. Returns the holder if it is above this process.
    async fn poll(&self, facts: &RefCell<Facts>, enclosing: &Enclosing) -> Option<Holder> {
        let asked = Instant::now();
        let answer = self.domain.inspect(self.name).await;
        if answer.as_ref().is_ok_and(|status| status.holder.as_ref().is_some_and(is_this_process)) {
            // This process has it, and waits for its replicas only.
            return None;
        }
        facts.borrow_mut().learn(asked, &answer);
        answer.ok()?.holder.filter(|holder| enclosing.has(holder))
    }

    async fn keep_polling(
        &self,
        facts: &RefCell<Facts>,
        enclosing: &Enclosing,
        lines: &Lines,
        screen: &Screen,
    ) -> Holder {
        loop {
            let asked = Instant::now();
            if screen.is_fit() || lines.is_due(asked) {
                if let Some(holder) = self.poll(facts, enclosing).await {
                    return holder;
                }
                screen.redraw();
            }
            sleep_until(Wakeup::from_std(asked + POLL)).await;
        }
    }
}

fn is_this_process(holder: &Holder) -> bool {
    holder.owner.pid() == Some(std::process::id()) && is_on_this_machine(&holder.owner)
}

/// The lines that are printed if nothing can be drawn.
struct Lines {
    content: Content,
    /// When the next line is due.
    due: Cell<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    All,
    /// With `-E 0` a conflict is fine, but an outage is not.
    Outages,
    Nothing,
}

impl Lines {
    fn is_due(&self, now: Instant) -> bool {
        self.content != Content::Nothing && now >= self.due.get()
    }

    /// The line that is due, if there is news.
    fn line(&self, now: Instant, facts: &Facts) -> Option<String> {
        let line = facts.said(now, self.due.get()).filter(|_| self.is_due(now))?;
        self.due.set(now + LINE);
        Some(line).filter(|_| self.content == Content::All || facts.is_away())
    }
}

async fn keep_showing(facts: &RefCell<Facts>, lines: &Lines, screen: &Screen) -> Infallible {
    for frame in 0.. {
        let now = Instant::now();
        // The store usually answers before the second frame. A first frame without facts would only flicker.
        let is_worth_it = frame > 0 || facts.borrow().is_known();
        if is_worth_it && screen.is_fit() {
            screen.draw(&facts.borrow().drawn(now, frame, screen.width()));
        } else if !screen.is_paused()
            && let Some(line) = lines.line(now, &facts.borrow())
        {
            output::say_without_blocking(line);
        }
        tokio::select! {
            () = sleep(FRAME) => {}
            () = screen.changed() => {}
        }
    }
    unreachable!("frames do not end")
}

/// Prints why a name was not acquired; returns the exit code.
pub(crate) fn refused(wait: &Wait<'_>, asked: &args::Domain, outcome: &WaitResult) -> u8 {
    match outcome {
        WaitResult::Acquired(..) => return 0,
        WaitResult::Busy(busy) => output::busy(wait.name, asked, wait.wait_options, busy),
        WaitResult::Enclosing(holder) => output::enclosing(wait.name, Some(holder), holder.fence),
    }
    wait.wait_options.conflict_exit_code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_terminal_a_line_comes_at_once_and_then_twice_a_minute() {
        let domain = Domain::open("memory:").await.unwrap();
        let _guard = domain.lock("a").acquire().await.unwrap();
        let mut facts = Facts::new("a");
        let begun = Instant::now();
        let lines = Lines { content: Content::All, due: Cell::new(begun) };
        assert!(lines.line(begun, &facts).is_none(), "nothing is known");
        let mut said = Vec::new();
        for quarter in 0..400 {
            let now = begun + FRAME * quarter;
            if lines.is_due(now) {
                facts.learn_at(now, now, &domain.inspect("a").await);
            }
            if lines.line(now, &facts).is_some() {
                said.push(quarter / 4);
            }
        }
        assert_eq!(said, [0, 30, 60, 90], "in seconds");
        for content in [Content::Nothing, Content::Outages] {
            assert!(Lines { content, due: Cell::new(begun) }.line(begun, &facts).is_none());
        }
    }
}
