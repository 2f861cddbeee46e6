//! When a lease is renewed and for how long: a third of its term, within what was allowed.

use super::*;

// R1.5, R2.6
#[test]
fn renewed_at_a_third_of_the_term() {
    let sent = at(Duration::ZERO);
    let mut lease = Deadlines::granted(&terms(TTL), sent);
    let third = TTL / 3;
    assert_eq!(lease.step(at(third) - Duration::from_micros(1)), Step::Rest { until: at(third) });
    assert_eq!(lease.step(at(third)), Step::Renew { ttl: TTL });
    lease.renewed(at(third), TTL);
    assert_eq!(lease.step(at(third)), Step::Rest { until: at(third + third) });
    lease.verify(at(third + MS));
    assert_eq!(lease.step(at(third + MS)), Step::Renew { ttl: TTL });
}

#[test]
fn the_first_renewal_of_a_hand_over_comes_at_a_third_of_its_probation() {
    let pair = TimePair { sent: at(Duration::ZERO), server: STORE_START, connection: 0 };
    let now = at(20 * MS);
    let lease = Deadlines::pushed(&terms(TTL), pair, STORE_START + 10_000, PROBATION, now).unwrap();
    let due = at(10 * MS + PROBATION / 3);
    assert_eq!(lease.step(now), Step::Rest { until: due });
    assert_eq!(lease.step(due), Step::Renew { ttl: TTL }, "and asks for the full ttl");
}

#[test]
fn a_lease_shorter_than_its_renewal_rests_until_its_deadline() {
    let mut lease = Deadlines::granted(&terms(TTL), at(Duration::ZERO));
    lease.not_answered(lease.deadline() - MS);
    let until = lease.deadline();
    assert_eq!(lease.step(until - MS), Step::Rest { until });
}

// R2.6
#[test]
fn a_ttl_outside_of_100_ms_to_24_h_is_invalid() {
    let day = Duration::from_secs(86_400);
    for ttl in [100 * MS, TTL, day] {
        assert!(terms(ttl).check().is_ok(), "{ttl:?}");
    }
    for ttl in
        [Duration::ZERO, 100 * MS - Duration::from_nanos(1), day + Duration::from_nanos(1), Duration::MAX]
    {
        let error = terms(ttl).check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{ttl:?}");
        assert!(error.to_string().contains("100 ms to 24 h"), "{error}");
    }
    let held_for = |max_hold| Terms { max_hold: Some(max_hold), ..terms(TTL) };
    assert!(held_for(100 * MS).check().is_ok());
    assert_eq!(held_for(99 * MS).check().unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_command_may_take_a_quarter_of_the_ttl_and_no_more_than_two_seconds() {
    assert_eq!(terms(Duration::from_secs(1)).timeout(), 250 * MS);
    assert_eq!(terms(MAX_TTL).timeout(), LONGEST_TIMEOUT);
    assert_eq!(Terms::new(TTL, Some(MS)).timeout(), MS);
    assert!(Terms::new(TTL, Some(TTL / 2)).check().is_ok());
    let late = Terms::new(TTL, Some(TTL / 2 + MS)).check().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Invalid, "an answer that late is worth nothing");
}

#[test]
fn without_renewal_a_lease_lasts_for_one_ttl() {
    let fixed = Terms { renewed: false, ..terms(TTL) };
    assert!(!fixed.can_be_passed());
    let lease = Deadlines::granted(&fixed, at(Duration::ZERO));
    let until = lease.deadline();
    assert_eq!(lease.step(at(Duration::from_secs(9))), Step::Rest { until });
    let pair = TimePair { sent: at(Duration::ZERO), server: STORE_START, connection: 0 };
    let mut pushed = Deadlines::pushed(&fixed, pair, STORE_START, PROBATION, at(Duration::ZERO)).unwrap();
    let due = at(PROBATION / 3);
    let ttl = at(TTL).since(due);
    assert_eq!(pushed.step(due), Step::Renew { ttl }, "out of probation, to one ttl since the grant");
    pushed.renewed(due, ttl);
    let until = pushed.deadline();
    assert_eq!(pushed.step(at(Duration::from_secs(9))), Step::Rest { until });
}

// R4.3
#[test]
fn a_renewal_by_hand_starts_another_ttl() {
    let fixed = Terms { renewed: false, ..terms(TTL) };
    let mut lease = Deadlines::granted(&fixed, at(Duration::ZERO));
    let now = at(Duration::from_secs(8));
    assert_eq!(lease.renewal_by_hand(now), TTL);
    lease.renewed(now, TTL);
    let until = now + believed(TTL, Margin::default());
    assert_eq!(lease.step(now + Duration::from_secs(5)), Step::Rest { until }, "still not by itself");
    let capped = Terms { max_hold: Some(TTL), ..terms(TTL) };
    let mut capped = Deadlines::granted(&capped, at(Duration::ZERO));
    assert_eq!(capped.renewal_by_hand(now), Duration::from_secs(2), "max_hold caps this too");
}

#[test]
fn a_lease_is_fresh_while_half_of_it_or_of_a_probation_is_left() {
    for (ttl, left) in [(400 * MS, 200 * MS), (TTL, 500 * MS)] {
        let lease = Deadlines::granted(&terms(ttl), at(Duration::ZERO));
        assert!(lease.is_fresh(lease.deadline() - left));
        assert!(!lease.is_fresh(lease.deadline() - left + Duration::from_micros(1)));
    }
}

proptest! {
    // The holder that renews as told never makes the store keep the name past the start and max_hold; nor does it stop early.
    #[test]
    fn max_hold_caps_what_the_store_is_asked_for(
        ttl_ms in 100..20_000u64,
        hold_ms in 100..60_000u64,
        late in prop::collection::vec((0.0..0.2f64, any::<bool>()), 1..80),
    ) {
        let (ttl, max_hold) = (Duration::from_millis(ttl_ms), Duration::from_millis(hold_ms));
        let capped = Terms { max_hold: Some(max_hold), ..terms(ttl) };
        prop_assert!(!capped.can_be_passed());
        let mut store = Store::new(0.0);
        let start = at(Duration::ZERO);
        store.acquire("a", capped.first_term(), start);
        let mut lease = Deadlines::granted(&capped, start);
        let (mut now, mut late) = (start, late.into_iter().cycle());
        loop {
            // The store keeps whole milliseconds, rounded up, and to the end of the last one.
            prop_assert!(store.would_give_away("a", start + max_hold + 2 * MS));
            match lease.step(now) {
                Step::Over { .. } => break,
                Step::Rest { until } => {
                    prop_assert!(until > now);
                    now = until + ttl.mul_f64(late.next().unwrap().0);
                }
                Step::Renew { ttl: asked } => {
                    prop_assert!(asked <= ttl);
                    if late.next().unwrap().1 {
                        let reply = store.renew("a", asked, now);
                        prop_assert_eq!(reply, Reply::Done);
                        lease.renewed(now, asked);
                    } else {
                        lease.not_answered(now);
                    }
                }
            }
        }
    }

    // Without faults a lease lasts as long as it is allowed to, but for the margin.
    #[test]
    fn a_lease_that_is_renewed_lasts_for_max_hold(ttl_ms in 100..20_000u64, hold_ms in 100..60_000u64) {
        let (ttl, max_hold) = (Duration::from_millis(ttl_ms), Duration::from_millis(hold_ms));
        let capped = Terms { max_hold: Some(max_hold), ..terms(ttl) };
        let start = at(Duration::ZERO);
        let mut lease = Deadlines::granted(&capped, start);
        let mut now = start;
        loop {
            match lease.step(now) {
                Step::Over { unanswered } => {
                    prop_assert!(!unanswered);
                    break;
                }
                Step::Rest { until } => now = until,
                Step::Renew { ttl } => lease.renewed(now, ttl),
            }
        }
        prop_assert!(now <= start + max_hold);
        prop_assert!(now >= start + max_hold - ttl / 100 - 3 * MS);
    }
}
