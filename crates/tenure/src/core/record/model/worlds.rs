//! The worlds that are explored to their end.

use super::*;

// S1, I2, I3, I5: any delay of any message, and one request that goes unanswered.
#[test]
fn two_clients_and_a_slow_network() {
    static SCOPE: Scope = Scope { budget: Budget::UNANSWERED, ..TWO };
    holds(&SCOPE);
}

// R1.3, R1.4
#[test]
fn two_clients_a_crash_and_a_cancelled_wait() {
    static SCOPE: Scope = Scope { budget: Budget { crashes: 1, cancels: 1, ..Budget::UNANSWERED }, ..COARSE };
    holds(&SCOPE);
}

// R1.6
#[test]
fn two_clients_and_a_message_that_arrives_twice() {
    static SCOPE: Scope = Scope { budget: Budget { duplicates: 1, ..Budget::NONE }, ..TWO };
    holds(&SCOPE);
}

// R2.1
#[test]
fn two_clients_that_come_twice() {
    static SCOPE: Scope = Scope { attempts: 2, budget: Budget::UNANSWERED, ..COARSE };
    holds(&SCOPE);
}

// R1.5: renewals of different lengths overtake each other.
#[test]
fn two_clients_that_also_renew_for_longer() {
    static SCOPE: Scope = Scope { renews_longer: true, budget: Budget::UNANSWERED, ..COARSE };
    holds(&SCOPE);
}

// I3, rule 5
#[test]
fn two_clients_and_a_wall_clock_that_is_set_back() {
    static SCOPE: Scope = Scope { budget: Budget { set_backs: 1, crashes: 1, ..Budget::NONE }, ..COARSE };
    holds(&SCOPE);
}

// R1.1
#[test]
fn three_clients_and_a_crash() {
    static SCOPE: Scope = Scope { clients: 3, budget: Budget { crashes: 1, ..Budget::NONE }, ..COARSE };
    holds(&SCOPE);
}

// Rule 5: waiters that came from far back, and may be silent for longer than a probation. The first one, if it crashes, costs a lapse.
#[test]
fn two_clients_that_pause_for_long() {
    static SCOPE: Scope = Scope {
        pause: Duration::from_secs(1),
        budget: Budget { crashes: 1, ..Budget::UNANSWERED },
        patience: Duration::from_secs(4),
        patience_per_crash: Duration::from_secs(2),
        ..COARSE
    };
    holds(&SCOPE);
}

#[test]
fn large_worlds() {
    static SCOPES: [Scope; 6] = [
        Scope { budget: Budget { crashes: 1, cancels: 1, ..Budget::UNANSWERED }, ..TWO },
        Scope {
            budget: Budget { unanswered: 1, duplicates: 1, crashes: 1, cancels: 1, set_backs: 0 },
            ..COARSE
        },
        Scope { attempts: 2, budget: Budget { crashes: 1, cancels: 1, ..Budget::UNANSWERED }, ..COARSE },
        Scope { budget: Budget { unanswered: 2, ..Budget::NONE }, ..TWO },
        Scope { clients: 3, budget: Budget { crashes: 1, cancels: 1, ..Budget::NONE }, ..COARSE },
        Scope { clients: 3, budget: Budget::UNANSWERED, ..COARSE },
    ];
    if is_large() {
        SCOPES.iter().for_each(holds);
    }
}
