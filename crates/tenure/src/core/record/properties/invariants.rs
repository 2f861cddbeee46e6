//! Safety under blind operations: one holder, growing fences, harmless repetition, nothing left behind.

use super::*;

/// What the clients were told so far: an account of the promises, kept apart from the record that made them.
#[derive(Default)]
struct Promises {
    /// Who was promised the name, and until when on the store's clock.
    held: Option<(Token, u64)>,
    detached: bool,
    /// The promise has run out. A clock that is set back later may or may not revive it.
    ran_out: bool,
    /// The range that was promised with it starts here.
    start: u64,
    /// Every fence up to here may have been used.
    used: u64,
}

impl Promises {
    /// Books an operation and its outcome; panics when a promise is broken.
    fn book(&mut self, op: &Op, reply: &Reply, notices: &[Notice], now: Now) {
        self.note_time(now);
        self.end(op, reply);
        if let (Some((token, ttl)), Reply::Granted { fence }) = (asked(op), reply) {
            self.promise(token, *fence, now.lease + micros(ttl));
        }
        if let (Op::Renew { token, ttl } | Op::Detach { token, ttl }, Reply::Done) = (op, reply) {
            self.promise(token.clone(), self.start, now.lease + micros(*ttl));
            self.detached |= matches!(op, Op::Detach { .. });
        }
        for wake in notices {
            if let Notice::Granted { token, fence, at, term, .. } = wake {
                assert_eq!(*at, now.lease);
                self.promise(token.clone(), *fence, at + micros(*term));
            }
        }
    }

    fn note_time(&mut self, now: Now) {
        self.ran_out |= self.held.as_ref().is_some_and(|(_, until)| now.lease > *until);
    }

    /// Ends the promise that this operation ends by name.
    fn end(&mut self, op: &Op, reply: &Reply) {
        let Some((holder, _)) = self.held.clone() else {
            return;
        };
        let used = match op {
            Op::Release { token, used } if *token == holder => {
                (*used).clamp(self.start, self.start + RANGE - 1)
            }
            Op::Leave { token } if *token == holder => self.start + RANGE - 1,
            // A detached lease does not end with its process.
            Op::Death { token } if *token == holder && !self.detached => self.start + RANGE - 1,
            Op::Break { token, .. } if *token == holder && *reply == Reply::Done => self.start + RANGE - 1,
            Op::Adopt { from, token, .. }
                if *from == holder && *token != holder && *reply != Reply::TooLate =>
            {
                self.start + RANGE - 1
            }
            Op::TakeOver { token, .. } if *token != holder && *reply != Reply::TooLate => {
                self.start + RANGE - 1
            }
            _ => return,
        };
        self.used = self.used.max(used);
        (self.held, self.detached, self.ran_out) = (None, false, false);
    }

    fn promise(&mut self, token: Token, fence: u64, until: u64) {
        let mut known = 0;
        if let Some((holder, promised)) = self.held.take() {
            assert!(holder == token || self.ran_out, "promised to one, granted to another (I1)");
            if holder == token && fence == self.start {
                known = promised;
            } else {
                self.detached &= holder == token && !self.ran_out;
                // What a holder whose time ran out, or whose range was raised, has used is not known.
                self.used = self.start + RANGE - 1;
            }
        }
        assert!(fence > self.used, "fence {fence} after {} (I3)", self.used);
        (self.start, self.ran_out) = (fence, false);
        self.held = Some((token, until.max(known)));
    }
}

/// Who asks for the name with this operation, and for how long.
fn asked(op: &Op) -> Option<(Token, Duration)> {
    match op {
        Op::Acquire { token, ttl, .. } | Op::Adopt { token, ttl, .. } | Op::TakeOver { token, ttl, .. } => {
            Some((token.clone(), *ttl))
        }
        _ => None,
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

/// A record without what a repetition may change: how long the lease lasts, and when its waiters were heard of.
fn without_times(mut record: Record) -> Record {
    if let Some(holder) = &mut record.holder {
        holder.expires = 0;
    }
    for waiter in &mut record.queue {
        waiter.beat = 0;
    }
    record
}

fn without_time_left(mut reply: Reply) -> Reply {
    match &mut reply {
        Reply::Waiting { holding, .. } | Reply::Busy { holding, .. } => holding.left = Duration::ZERO,
        Reply::Seen { holding: Some(holding), .. } => holding.left = Duration::ZERO,
        _ => {}
    }
    reply
}

/// The same operation, sent again later.
fn again(op: &Op, now: Now) -> Op {
    let mut op = op.clone();
    match &mut op {
        Op::Acquire { not_after, .. } | Op::Adopt { not_after, .. } | Op::TakeOver { not_after, .. } => {
            *not_after += now.lease - (*not_after).max(1) + 1;
        }
        _ => {}
    }
    op
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    // I1, I3, and never shorten: who was promised the name has it until then, and no fence is given out twice. The wall clock
    // jumps; the clock of the leases jumps too, and promises are kept by that clock.
    #[test]
    fn promises_are_kept(
        events in events(60),
        jumps in prop::collection::vec((0..60usize, jump(), jump()), 0..4),
    ) {
        let mut store = Store::new();
        let mut promises = Promises::default();
        for (index, event) in events.into_iter().enumerate() {
            for (_, lease, wall) in jumps.iter().filter(|(at, ..)| *at == index) {
                store.set_clocks(*lease, *wall);
            }
            let draft = match event {
                Event::Pass { ms } => { store.pass(ms); continue }
                Event::Do(draft) => draft,
            };
            let op = store.op(draft);
            let (reply, notices) = store.apply(op.clone());
            promises.book(&op, &reply, &notices, store.now);
            if let Some((token, _)) = promises.held.as_ref().filter(|_| !promises.ran_out) {
                prop_assert_eq!(store.holder(), Some(token.clone()), "after {:?}", op);
            }
            let queue = &store.record.queue;
            prop_assert!(queue.is_sorted_by(|a, b| (a.joined_at, &a.token) < (b.joined_at, &b.token)), "sorted, and nobody twice");
        }
    }

    // Nobody waits for what it holds: it would be granted the name again after it gave it back.
    #[test]
    fn the_holder_is_not_in_the_queue(events in events(60)) {
        let mut store = Store::new();
        for event in events {
            match event {
                Event::Pass { ms } => store.pass(ms),
                Event::Do(draft) => { let op = store.op(draft); store.apply(op); }
            }
            if let Some(holder) = &store.record.holder {
                prop_assert!(store.record.queue.iter().all(|waiter| waiter.token != holder.token));
            }
        }
    }

    // R1.6: whatever is sent twice, at once or a little later, has the effect and the answer of once.
    #[test]
    fn everything_is_idempotent(events in events(40), draft in draft(), later in 0..90u64) {
        let mut store = Store::new();
        for event in events {
            match event {
                Event::Pass { ms } => store.pass(ms),
                Event::Do(draft) => { let op = store.op(draft); store.apply(op); }
            }
        }
        let op = store.op(draft);
        // A waiter leaves; it does not release, has no ticket to be adopted, and can't be broken.
        let waits = |token: &Token| store.record.queue.iter().any(|waiter| waiter.token == *token);
        if let Op::Release { token, .. } | Op::Break { token, .. } | Op::Adopt { from: token, .. } = &op
            && waits(token)
        {
            return Ok(());
        }
        let (first, _) = store.apply(op.clone());
        let once = store.clone();
        store.pass(later);
        if store.holder() != once.holder() {
            return Ok(());
        }
        let op = again(&op, store.now);
        let (second, notices) = store.apply(op.clone());
        if first == Reply::TooLate {
            return Ok(());
        }
        prop_assert_eq!(without_times(store.record), without_times(once.record), "{:?}", op);
        prop_assert_eq!(notices, vec![]);
        match op {
            // What was given back is not held any more, and the second answer says so.
            Op::Release { .. } | Op::Break { .. } => prop_assert!(
                matches!(second, Reply::NotHeld { .. }), "{:?} after {:?}", second, first
            ),
            // What it shows changes with time alone.
            Op::Inspect => {}
            _ => prop_assert_eq!(without_time_left(second), without_time_left(first)),
        }
    }

    // What is refused, and what only looks, changes nothing and wakes nobody.
    #[test]
    fn what_has_no_business_changes_nothing(events in events(60)) {
        let mut store = Store::new();
        for event in events {
            let draft = match event {
                Event::Pass { ms } => { store.pass(ms); continue }
                Event::Do(draft) => draft,
            };
            let op = store.op(draft);
            let before = store.record.clone();
            let (reply, notices) = store.apply(op.clone());
            let looks_only = match &op {
                Op::Inspect => true,
                Op::Renew { .. } | Op::Detach { .. } => matches!(reply, Reply::NotHeld { .. }),
                _ => reply == Reply::TooLate,
            };
            if looks_only {
                prop_assert_eq!(&store.record, &before, "{:?}", op);
                prop_assert_eq!(notices, vec![]);
            }
        }
    }

    // I5: when everybody has gone without a word, the next touch finds an empty record; only the last fence stays.
    #[test]
    fn a_name_that_everybody_left_is_empty_again(
        events in events(60),
        jumps in prop::collection::vec((0..60usize, -5_000..5_000i64, jump()), 0..4),
    ) {
        let mut store = Store::new();
        for (index, event) in events.into_iter().enumerate() {
            for (_, lease, wall) in jumps.iter().filter(|(at, ..)| *at == index) {
                store.set_clocks(*lease, *wall);
            }
            match event {
                Event::Pass { ms } => store.pass(ms),
                Event::Do(draft) => { let op = store.op(draft); store.apply(op); }
            }
        }
        // The longest ttl, a lapse, and what the clock was set back by; then what is remembered of force.
        store.pass(10_000 + 1_500 + 4 * 5_000 + 1);
        prop_assert!(store.record.is_idle(store.now));
        store.pass(60_000);
        prop_assert!(store.record.is_over(store.now));
        let (_, notices) = store.apply(Op::Leave { token: token(u8::MAX) });
        prop_assert_eq!(notices, vec![]);
        prop_assert_eq!(&store.record, &Record::new(store.record.last_fence()));
    }
}
