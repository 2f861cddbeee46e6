//! What tenure warns of, as `tracing` is told.
//!
//! There is one subscriber for the process, which keeps lines for each thread: of several, each for its own thread, `tracing` may take one
//! for the other. So whoever asks for its lines runs on one thread, as `#[tokio::test]` does.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What this thread was warned of.
#[derive(Debug)]
pub struct Warnings(());

impl Warnings {
    /// Those from now on.
    ///
    /// # Panics
    /// When this process has another subscriber.
    #[must_use]
    pub fn listen() -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| tracing::subscriber::set_global_default(Listener).expect("the only one"));
        SAID.take();
        Warnings(())
    }

    /// A line each, with all its fields.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        SAID.with_borrow(Clone::clone)
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "tenure" && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        SAID.with_borrow_mut(|said| said.push(line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").expect("a string takes it");
    }
}
