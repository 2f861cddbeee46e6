//! A lease clock that is set back: nobody's belief is cut short, and nobody's death keeps the name for longer than a ttl.
//!
//! Real time and the store's clock are two things here. Holders believe by real time, from the moment at which they asked, for no longer
//! than the ttl in their token; the clock is only ever set back, as one that is set forward ends leases early whatever a store does.

use super::*;

/// The ttl in each client's tokens.
const LONGEST: [u64; CLIENTS as usize] = [300, 1_000, 2_500, 10_000];

#[derive(Clone, Debug)]
enum Act {
    Pass {
        ms: u64,
    },
    SetBack {
        ms: u64,
    },
    /// Joins the queue, beats, or asks again for what it has.
    Ask {
        who: u8,
        waits: bool,
    },
    /// A share of its ttl, in percent.
    Renew {
        who: u8,
        percent: u64,
    },
    Release {
        who: u8,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => prop_oneof![0..50u64, 100..1_000u64, 1_000..12_000u64].prop_map(|ms| Act::Pass { ms }),
        2 => prop_oneof![1..50u64, 50..5_000u64, Just(3_600_000)].prop_map(|ms| Act::SetBack { ms }),
        8 => (who(), any::<bool>()).prop_map(|(who, waits)| Act::Ask { who, waits }),
        4 => (who(), 1..=100u64).prop_map(|(who, percent)| Act::Renew { who, percent }),
        1 => who().prop_map(|who| Act::Release { who }),
    ]
}

/// A client's token; a fresh one after each release.
fn token_of(who: u8, count: u32) -> Token {
    let (random, session) = (u128::from(count) << 8 | u128::from(who), 0);
    let ttl = LONGEST[usize::from(who)];
    Token::from_store(&format!("{random:032x}:{session:016x}:host:user:7::{ttl}"))
}

struct World {
    store: Store,
    /// In ms.
    real: u64,
    counts: [u32; CLIENTS as usize],
    /// Until when each client believes that it holds the name, in real ms.
    believed: [u64; CLIENTS as usize],
}

impl World {
    fn new() -> Self {
        World { store: Store::new(), real: 0, counts: [0; 4], believed: [0; 4] }
    }

    fn token(&self, who: u8) -> Token {
        token_of(who, self.counts[usize::from(who)])
    }

    fn believe(&mut self, token: &Token, ms: u64) {
        let who = (0..CLIENTS).find(|who| self.token(*who) == *token);
        // A grant to a token that was given up is nobody's.
        if let Some(who) = who {
            let until = &mut self.believed[usize::from(who)];
            *until = (*until).max(self.real + ms);
        }
    }

    fn ask(&mut self, who: u8, waits: bool) {
        let (token, ttl) = (self.token(who), LONGEST[usize::from(who)]);
        if !self.store.record.is_held_by(&token) {
            self.store.record.trim(self.store.now);
        }
        let wait = if waits { Wait::Join } else { Wait::No };
        let (ttl, not_after) = (Duration::from_millis(ttl), u64::MAX);
        let op = Op::Acquire { token: token.clone(), ttl, wait, polls: true, floor: 0, not_after };
        self.apply(&token, op, LONGEST[usize::from(who)]);
    }

    fn apply(&mut self, token: &Token, op: Op, ms: u64) {
        let is_renewal = matches!(op, Op::Renew { .. });
        let (reply, notices) = self.store.apply(op);
        if matches!(reply, Reply::Granted { .. }) || (is_renewal && reply == Reply::Done) {
            self.believe(token, ms);
        }
        for wake in notices {
            if let Notice::Granted { token, term, .. } = wake {
                self.believe(&token, u64::try_from(term.as_millis()).unwrap());
            }
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Pass { ms } => {
                self.real += ms;
                self.store.pass(ms);
            }
            Act::SetBack { ms } => {
                let back = -i64::try_from(ms).unwrap();
                self.store.set_clocks(back, back);
            }
            Act::Ask { who, waits } => self.ask(who, waits),
            Act::Renew { who, percent } => {
                let (token, ms) = (self.token(who), (LONGEST[usize::from(who)] * percent / 100).max(1));
                self.apply(&token.clone(), Op::Renew { token, ttl: Duration::from_millis(ms) }, ms);
            }
            Act::Release { who } => {
                let token = self.token(who);
                self.believed[usize::from(who)] = 0;
                self.counts[usize::from(who)] += 1;
                self.apply(&token.clone(), Op::Release { token, used: u64::MAX }, 0);
            }
        }
    }

    /// Who believes to hold the name.
    fn believers(&self) -> Vec<Token> {
        let believes = |who: &u8| self.believed[usize::from(*who)] > self.real;
        (0..CLIENTS).filter(believes).map(|who| self.token(who)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    // I1, I2: whoever believes to hold the name does.
    #[test]
    fn a_clock_that_is_set_back_cuts_no_belief_short(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new();
        for act in acts {
            world.act(&act);
            let believers = world.believers();
            prop_assert!(believers.len() <= 1, "two believe after {act:?}");
            if let [believer] = &believers[..] {
                prop_assert_eq!(world.store.holder(), Some(believer.clone()), "after {:?}", act);
            }
        }
    }

    // I5: after everybody is dead, the clock is set back, and somebody comes new: it has the name after a ttl of the dead holder, and
    // the probations of the dead waiters, whose last beats are in the future.
    #[test]
    fn a_dead_holder_keeps_the_name_for_a_ttl(
        acts in prop::collection::vec(act(), 1..40),
        back in prop_oneof![1..5_000u64, Just(3_600_000)],
    ) {
        let mut world = World::new();
        acts.iter().for_each(|act| world.act(act));
        world.act(&Act::SetBack { ms: back });
        let newcomer = token_of(0, u32::MAX);
        let give_up = world.real + LONGEST[3] + u64::from(CLIENTS) * 1_000 + 400;
        loop {
            world.store.record.trim(world.store.now);
            let (wait, ttl) = (Wait::Join, Duration::from_millis(LONGEST[0]));
            let op = Op::Acquire { token: newcomer.clone(), ttl, wait, polls: true, floor: 0, not_after: u64::MAX };
            world.store.apply(op);
            if world.store.holder().as_ref() == Some(&newcomer) {
                break;
            }
            prop_assert!(world.real <= give_up, "still held by {:?}", world.store.holder());
            world.act(&Act::Pass { ms: 100 });
        }
    }
}
