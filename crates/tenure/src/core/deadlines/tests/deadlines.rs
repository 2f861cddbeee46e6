//! When a lease stops being believed: always before the store can give it away.

use super::*;

// I2
#[test]
fn the_deadline_counts_from_before_the_send_with_a_margin() {
    let sent = at(Duration::ZERO);
    let lease = Deadlines::granted(&terms(TTL), sent);
    let deadline = sent + Duration::from_millis(10_000 - 100 - 2);
    assert_eq!(lease.deadline(), deadline);
    assert!(!is_over(&lease, deadline - Duration::from_micros(1)));
    assert!(is_over(&lease, deadline), "at the deadline it is over");
    let careful = Deadlines::granted(&terms_with(TTL, 16), sent);
    assert_eq!(careful.deadline(), sent + Duration::from_millis(10_000 - 1_600 - 2));
}

// I2: rule 4 of the hand-over. A process that was stopped with the grant in its socket finds it expired.
#[test]
fn a_push_is_believed_from_when_the_store_made_it() {
    let sent = at(Duration::ZERO);
    let pair = TimePair { sent, server: STORE_START, connection: 0 };
    let made = STORE_START + 300_000;
    let pushed = |received| Deadlines::pushed(&terms(TTL), pair, made, PROBATION, at(received));
    let prompt = pushed(Duration::from_millis(300)).unwrap();
    let margin = Duration::from_millis(10 + 2);
    assert_eq!(prompt.deadline(), at(Duration::from_millis(1_300)) - margin - Duration::from_millis(3));
    let stopped = pushed(Duration::from_millis(5_300)).unwrap();
    assert!(is_over(&stopped, at(Duration::from_millis(5_300))));
    let late = pushed(Duration::from_millis(900)).unwrap();
    assert_eq!(
        prompt.deadline().since(late.deadline()),
        Duration::from_millis(6),
        "the older the pair, the more it may have drifted"
    );
}

#[test]
fn a_push_after_a_jump_of_the_stores_clock_has_to_be_confirmed() {
    let pair = TimePair { sent: at(Duration::ZERO), server: STORE_START, connection: 0 };
    let pushed = |made| Deadlines::pushed(&terms(TTL), pair, made, PROBATION, at(300 * MS));
    assert!(pushed(STORE_START + 300_000).is_some());
    assert_eq!(pushed(STORE_START + 300_001), None, "more time than has passed here");
    assert_eq!(pushed(STORE_START - 1), None, "set back");
    assert_eq!(pushed(0), None);
    assert_eq!(pushed(u64::MAX), None);
}

#[test]
fn a_push_is_never_believed_for_longer_than_its_term() {
    let pair = TimePair { sent: at(Duration::ZERO), server: STORE_START, connection: 0 };
    let term = 100 * MS;
    let now = at(Duration::from_secs(1));
    let lease = Deadlines::pushed(&terms(TTL), pair, STORE_START + 1_000_000, term, now).unwrap();
    assert!(lease.deadline() <= now + term - 3 * MS);
}

#[test]
fn the_unknown_is_not_lost() {
    let sent = at(Duration::ZERO);
    let mut lease = Deadlines::granted(&terms(TTL), sent);
    let asked = at(Duration::from_secs(4));
    lease.not_answered(asked);
    assert_eq!(
        lease.step(asked),
        Step::Rest { until: asked + 500 * MS },
        "a twentieth of the ttl later, again"
    );
    assert_eq!(lease.step(asked + 500 * MS), Step::Renew { ttl: TTL });
    assert_eq!(
        lease.step(lease.deadline()),
        Step::Over { unanswered: true },
        "and it says so when time runs out"
    );
    lease.renewed(asked + 500 * MS, TTL);
    assert_eq!(lease.step(lease.deadline()), Step::Over { unanswered: false }, "an answer settles it");
    let mut day = Deadlines::granted(&terms(MAX_TTL), sent);
    day.not_answered(asked);
    let again = Step::Rest { until: asked + LONGEST_PAUSE };
    assert_eq!(day.step(asked), again, "no pause is longer than a second");
}

#[test]
fn a_renewal_never_shortens() {
    let sent = at(Duration::ZERO);
    let mut lease = Deadlines::granted(&terms(TTL), sent);
    let before = lease.deadline();
    lease.renewed(sent + MS, 200 * MS);
    assert_eq!(lease.deadline(), before);
    lease.renewed(sent - Duration::from_secs(1), TTL);
    assert_eq!(lease.deadline(), before, "a late answer to an earlier renewal adds nothing");
    lease.renewed(sent + MS, TTL);
    assert_eq!(lease.deadline(), before + MS);
}

fn ttls() -> impl Strategy<Value = Duration> {
    let micros = prop_oneof![100_000..3_000_000u64, 3_000_000..86_400_000_000u64];
    micros.prop_map(Duration::from_micros)
}

/// A margin in per cent, and how many thousandths faster or slower the store's clock runs: at most what the margin allows for.
fn drifts() -> impl Strategy<Value = (u8, f64)> {
    let shares = prop_oneof![Just(0.0), Just(1.0), Just(-1.0), -1.0..1.0];
    let margins = prop_oneof![Just(Margin::LEAST), Just(Margin::MOST), Margin::LEAST..=Margin::MOST];
    (margins, shares).prop_map(|(percent, share): (u8, f64)| {
        let believed = believed_share(Margin::new(percent).unwrap());
        (percent, share * (1.0 / believed - 1.0) * 1_000.0)
    })
}

fn micros(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_micros)
}

proptest! {
    // I2: for any delay of the request and of its answer, and any legal drift.
    #[test]
    fn a_grant_is_over_before_the_store_can_give_it_away(
        ttl in ttls(), (margin, drift) in drifts(), start in micros(0..2_000_000), delay in micros(0..3_000_000)
    ) {
        let mut store = Store::new(drift);
        let (sent, executed) = (at(start), at(start + delay));
        store.acquire("a", ttl, executed);
        let lease = Deadlines::granted(&terms_with(ttl, margin), sent);
        let deadline = lease.deadline();
        prop_assert!(is_over(&lease, deadline));
        prop_assert!(deadline <= executed || !store.would_give_away("a", deadline));
    }

    // I2: the same over a life of renewals, some unanswered, some not even executed: belief implies that the store agrees.
    #[test]
    fn a_renewed_lease_is_over_before_the_store_can_give_it_away(
        ttl in ttls(),
        (margin, drift) in drifts(),
        lives in prop::collection::vec((0.0..1.2f64, 0.0..0.6f64, 0..4u8), 1..12),
    ) {
        let mut store = Store::new(drift);
        let mut now = at(Duration::ZERO);
        store.acquire("a", ttl, now);
        let mut lease = Deadlines::granted(&terms_with(ttl, margin), now);
        for (rest, delay, fate) in lives {
            now = now + ttl.mul_f64(rest);
            let asked = match lease.step(now) {
                Step::Over { .. } => break,
                Step::Rest { .. } => lease.renewal_by_hand(now),
                Step::Renew { ttl } => ttl,
            };
            prop_assert!(!store.would_give_away("a", now), "believed, and the store agrees");
            let (executed, answered) = (now + ttl.mul_f64(delay), now + ttl.mul_f64(2.0 * delay));
            match fate {
                0 => lease.not_answered(answered),
                1 => {
                    store.renew("a", asked, executed);
                    lease.not_answered(answered);
                }
                _ => match store.renew("a", asked, executed) {
                    Reply::Done => lease.renewed(now, asked),
                    _ => break,
                },
            }
            now = answered;
            let last = lease.deadline() - Duration::from_micros(1);
            prop_assert!(!store.would_give_away("a", last.max(now)) || last < now);
        }
    }

    // I2: rule 4, for any age of the pair, any delay of its answer, any time that the grant lay in the socket.
    #[test]
    fn a_pushed_lease_is_over_before_the_store_can_give_it_away(
        ttl in ttls(),
        (margin, drift) in drifts(),
        to_pair in micros(0..500_000),
        to_grant in micros(0..400_000_000),
        to_receipt in micros(0..3_000_000),
    ) {
        let mut store = Store::new(drift);
        let sent = at(Duration::from_secs(1));
        store.acquire("a", MAX_TTL, sent);
        let paired = sent + to_pair;
        store.acquire("b", ttl, paired);
        let pair = TimePair { sent, server: store.clock(paired).lease, connection: 0 };
        // A beat whose answer was lost keeps the waiter alive, and the pair old.
        let granted = paired + to_grant;
        store.acquire("b", ttl, granted);
        let notices = store.release("a", granted);
        let Some(Notice::Granted { at, term, .. }) = notices.first() else { panic!("{notices:?}") };
        let received = granted + to_receipt;
        if let Some(lease) = Deadlines::pushed(&terms_with(ttl, margin), pair, *at, *term, received) {
            let last = lease.deadline() - Duration::from_micros(1);
            prop_assert!(!store.would_give_away("b", last.max(granted)));
            prop_assert!(lease.deadline() <= received + *term);
        } else {
            prop_assert!(drift > 0.0, "with clocks of one speed a push needs no confirmation");
        }
    }
}
