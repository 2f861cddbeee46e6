//! A change is told once, through tracing.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::sync::Once;

use tenure::Degrade;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::scene::{LONG, Scene};

thread_local! {
    /// What was said of the outer store on this thread.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what is said, for each thread. One for the process: of several, each for its own thread, tracing may take one for the other.
struct Log;

impl Log {
    fn listen() {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| tracing::subscriber::set_global_default(Log).expect("the only one"));
    }

    fn said() -> Vec<String> {
        SAID.with_borrow(Clone::clone)
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").expect("a string takes it");
    }
}

impl Subscriber for Log {
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
        if line.0.contains("outer store is") {
            SAID.with_borrow_mut(|said| said.push(line.0));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

// R0.2, R0.8
#[tokio::test]
async fn every_change_is_told_once() {
    let scene = Scene::new();
    Log::listen();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    let mut fence = 0;
    for round in 1..=2 {
        let guard = peer.acquire_both(fence).await;
        fence = guard.fence().get();
        guard.release().await.expect("to release");
        assert_eq!(Log::said().len(), 2 * round - 2);
        scene.server.kill();
        for _ in 0..3 {
            let guard = peer.acquire().await;
            assert!(guard.degraded());
            guard.release().await.expect("to release");
        }
        scene.server.restart();
        drop(peer.acquire_both(fence).await.release().await.expect("to release"));
        let lines = Log::said();
        assert_eq!(lines.len(), 2 * round, "{lines:?}");
        assert!(lines[2 * round - 2].contains("out of reach"), "{lines:?}");
        assert!(lines[2 * round - 1].contains("is back"), "{lines:?}");
    }
}

// R0.2
#[tokio::test]
async fn without_leave_to_degrade_it_is_told_too() {
    let scene = Scene::new();
    Log::listen();
    let peer = scene.peer(Degrade::Never, LONG).await;
    scene.server.kill();
    for _ in 0..3 {
        peer.domain.lock("orders/42").acquire().await.expect_err("nobody is there");
    }
    let lines = Log::said();
    assert!(matches!(&lines[..], [line] if line.contains("nothing is acquired")), "{lines:?}");
}
