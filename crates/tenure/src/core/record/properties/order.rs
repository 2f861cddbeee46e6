//! Order among the living: clients that keep to the protocol, and die at any point of it.
//!
//! A living waiter beats when its pause is over, a living holder renews. Whoever is granted the name, no living waiter that came before it is
//! still waiting; and fences that were really used (each task of a holder uses one) only grow.

use super::*;

const STEP: u64 = 100;
const TTL: Duration = Duration::from_secs(3);
/// Enough that the last ones pause for longer than the first.
const CLIENTS: u8 = 40;

#[derive(Clone, Debug)]
enum Action {
    Join(u8),
    /// From here on it says nothing; nobody notices.
    Kill(u8),
    /// The process is dead, and the store is told.
    Bury(u8),
    Leave(u8),
    Release,
    /// The next task of the holder's process gets its turn, under the next fence of the range.
    PassOn,
    TakeOver(u8),
    SetBack {
        lease_ms: u16,
        wall_ms: i16,
    },
    Nothing,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let who = || 0..CLIENTS;
    let action = prop_oneof![
        6 => who().prop_map(Action::Join),
        1 => who().prop_map(Action::Kill),
        1 => who().prop_map(Action::Bury),
        1 => who().prop_map(Action::Leave),
        3 => Just(Action::Release),
        2 => Just(Action::PassOn),
        1 => who().prop_map(Action::TakeOver),
        1 => (0..3_000u16, any::<i16>()).prop_map(|(lease_ms, wall_ms)| Action::SetBack { lease_ms, wall_ms }),
        6 => Just(Action::Nothing),
    ];
    let crowd = prop_oneof![1 => Just(0), 1 => 0..CLIENTS];
    (crowd, prop::collection::vec(action, 1..120))
        .prop_map(|(crowd, actions)| (0..crowd).map(Action::Join).chain(actions).collect())
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Out,
    /// `came`: the how-manieth it was to join. `silent`: ms since its last beat. `pause`: until its next.
    Waiting {
        came: usize,
        joined_at: u64,
        silent: u64,
        pause: Duration,
    },
    Holding {
        fence: u64,
    },
    Dead,
}

struct Clients {
    store: Store,
    states: Vec<State>,
    came: usize,
    /// The highest fence that a task has run under.
    used: u64,
}

impl Clients {
    fn new() -> Self {
        Clients { store: Store::new(), states: vec![State::Out; usize::from(CLIENTS)], came: 0, used: 0 }
    }

    fn send(&mut self, op: Op) -> Reply {
        let (reply, notices) = self.store.apply(op);
        for wake in notices {
            match wake {
                Notice::Granted { token, fence, .. } => self.granted(index(&token), fence),
                Notice::Revoked { token } => self.states[index(&token)] = State::Out,
            }
        }
        reply
    }

    fn granted(&mut self, who: usize, fence: u64) {
        if self.states[who] == State::Dead {
            return;
        }
        let State::Waiting { came, .. } = self.states[who] else {
            panic!("{who} was granted the name, but is {:?}", self.states[who])
        };
        let overtaken = self
            .states
            .iter()
            .position(|other| matches!(other, State::Waiting { came: earlier, .. } if *earlier < came));
        assert_eq!(overtaken, None, "overtaken by {who} (R1.1)");
        assert!(!self.states.iter().any(|other| matches!(other, State::Holding { .. })), "two holders");
        self.run(who, fence);
    }

    fn run(&mut self, who: usize, fence: u64) {
        assert!(fence > self.used, "fence {fence} after {} (I3)", self.used);
        self.used = fence;
        self.states[who] = State::Holding { fence };
    }

    fn acquire(&mut self, who: usize, wait: Wait) {
        let op = Op::Acquire {
            token: token(u8::try_from(who).unwrap()),
            ttl: TTL,
            wait,
            polls: false,
            floor: 0,
            not_after: u64::MAX,
        };
        match self.send(op) {
            Reply::Granted { fence } => self.granted(who, fence),
            Reply::Waiting { joined_at, ahead, .. } => match &mut self.states[who] {
                State::Waiting { joined_at: known, silent, pause, .. } => {
                    assert!(*known == 0 || *known == joined_at, "it keeps its place");
                    (*known, *silent, *pause) = (joined_at, 0, pause_behind(ahead));
                }
                other => panic!("{other:?} has to wait"),
            },
            other => panic!("{other:?}"),
        }
    }

    fn holder(&self) -> Option<(usize, u64)> {
        self.states.iter().enumerate().find_map(|(who, state)| match state {
            State::Holding { fence } => Some((who, *fence)),
            _ => None,
        })
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Join(who) if self.states[usize::from(who)] == State::Out => {
                self.came += 1;
                let came = self.came;
                self.states[usize::from(who)] =
                    State::Waiting { came, joined_at: 0, silent: 0, pause: HEARTBEAT };
                self.acquire(usize::from(who), Wait::Join);
            }
            Action::Kill(who) => self.states[usize::from(who)] = State::Dead,
            Action::Bury(who) => {
                self.states[usize::from(who)] = State::Dead;
                self.send(Op::Death { token: token(who) });
                self.states[usize::from(who)] = State::Out;
            }
            Action::Leave(who) if matches!(self.states[usize::from(who)], State::Waiting { .. }) => {
                self.states[usize::from(who)] = State::Out;
                self.send(Op::Leave { token: token(who) });
            }
            Action::Release => {
                if let Some((who, used)) = self.holder() {
                    self.states[who] = State::Out;
                    let token = token(u8::try_from(who).unwrap());
                    assert_eq!(self.send(Op::Release { token, used }), Reply::Done);
                }
            }
            Action::PassOn => {
                let last = self.store.record.last_fence();
                if let Some((who, fence)) = self.holder().filter(|(_, fence)| *fence < last) {
                    self.run(who, fence + 1);
                }
            }
            Action::TakeOver(who) if self.states[usize::from(who)] == State::Out => {
                let op = Op::TakeOver { token: token(who), ttl: TTL, floor: 0, not_after: u64::MAX };
                let Reply::Granted { fence } = self.send(op) else { panic!("refused") };
                self.run(usize::from(who), fence);
            }
            Action::SetBack { lease_ms, wall_ms } => {
                self.store.set_clocks(-i64::from(lease_ms), i64::from(wall_ms));
            }
            _ => {}
        }
    }

    /// 100 ms pass: waiters beat when it is time, the holder renews.
    fn step(&mut self) {
        self.store.pass(STEP);
        if let Some((who, _)) = self.holder() {
            let token = token(u8::try_from(who).unwrap());
            let renewal = Op::Renew { token, ttl: TTL };
            assert_eq!(self.send(renewal), Reply::Done);
        }
        for who in 0..self.states.len() {
            if let State::Waiting { joined_at, silent, pause, .. } = &mut self.states[who] {
                *silent += STEP;
                let joined_at = *joined_at;
                if Duration::from_millis(*silent) >= *pause {
                    self.acquire(who, Wait::Keep { joined_at });
                }
            }
        }
    }
}

fn index(token: &Token) -> usize {
    token.as_str().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    // R1.1, R1.3, I1, I3
    #[test]
    fn the_living_are_served_in_order(actions in actions()) {
        let mut clients = Clients::new();
        for action in actions {
            clients.act(action);
            clients.step();
        }
    }

    // R1.3: once nothing more happens, every living waiter gets its turn, at a probation for each dead one.
    #[test]
    fn every_living_waiter_gets_its_turn(actions in actions()) {
        let mut clients = Clients::new();
        for action in actions {
            clients.act(action);
            clients.step();
        }
        let waits = |state: &&State| matches!(state, State::Waiting { .. });
        // All the clock was ever set back by, a ttl, and a probation for each.
        let patience = 120 * 3_000 + 3_000 + u64::from(CLIENTS) * 1_100;
        for _ in 0..patience / STEP {
            clients.act(Action::Release);
            clients.step();
        }
        let left = clients.states.iter().filter(waits).count();
        prop_assert_eq!(left, 0);
        prop_assert!(clients.store.record.is_idle(clients.store.now));
    }
}
