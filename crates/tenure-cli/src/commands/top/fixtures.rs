//! Rows for the tests of the screen. Their `Holder` is that of a real lease.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use tenure::Holder;

use super::row::{Row, RowHolder, RowWaiter};
use super::state::{Answer, Poll, State};
use crate::text::escaped;

/// 2026-11-15 13:34:40 UTC.
pub(super) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_749_680)
}

/// A lease on a store in memory.
pub(super) fn holder() -> Holder {
    static HOLDER: OnceLock<Holder> = OnceLock::new();
    let take = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let domain = tenure::Domain::open("memory:").await.unwrap();
            let _guard = domain.lock("name").acquire().await.unwrap();
            domain.inspect("name").await.unwrap().holder.unwrap()
        })
    };
    HOLDER.get_or_init(take).clone()
}

/// A name that is held for so many seconds, with so many left of ten.
pub(super) fn row(name: &str, held: u64, left: u64, waits: &[u64]) -> Row {
    let holding = RowHolder {
        who: "ada@web1 pid 4711".to_owned(),
        label: "by hand".to_owned(),
        fence: 1_794_749_530_000_000 + held,
        since: Some(now() - Duration::from_secs(held)),
        held_for: Some(Duration::from_secs(held)),
        left: Some(Duration::from_secs(left)),
        longest: Duration::from_secs(10),
        renewed: None,
        holder: holder(),
    };
    let waiting = |(number, seconds): (u32, &u64)| RowWaiter {
        who: format!("bob@web2 pid {number}"),
        label: String::new(),
        waited: Duration::from_secs(*seconds),
    };
    Row {
        name: name.to_owned(),
        shown: escaped(name),
        holding: Some(holding),
        queue: (501..).zip(waits).map(waiting).collect(),
    }
}

/// A screen with rows, fresh from the store.
pub(super) fn state(rows: Vec<Row>) -> State {
    let address = "redis://ada:***@db.example:6379/0".to_owned();
    let mut state = State::new(address, Duration::from_millis(250), now());
    let answer = Answer { statuses: Vec::new(), round_trip: Duration::from_micros(340) };
    state.look(Poll { at: now(), answer: Ok(answer) });
    state.show(rows);
    state
}
