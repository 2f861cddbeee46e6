//! Fifty at once on one name: one at a time, in the order in which they came, and nothing is left behind.

use super::both::on_both_stores;
use crate::support::{Place, Running};

on_both_stores!(never_two_at_the_same_time, who_came_first_is_served_first);

const MANY: usize = 50;

/// Writes down its fence and its number.
fn start(place: &Place, number: usize) -> Running {
    place.start_script(&["--ttl", "20s"], &format!("echo $TENURE_FENCE {number} >> log; sleep .01"))
}

/// The numbers in the order in which they were served.
#[track_caller]
fn finish(place: &Place, all: Vec<Running>) -> Vec<usize> {
    for running in all {
        let done = running.finish();
        assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    }
    assert_eq!(place.read("overlaps"), "", "never two at the same time");
    let log = place.read("log");
    let lines = log.lines().map(|line| line.split_once(' ').unwrap());
    let (fences, numbers): (Vec<u64>, Vec<usize>) = lines
        .map(|(fence, number)| (fence.parse::<u64>().unwrap(), number.parse::<usize>().unwrap()))
        .unzip();
    assert!(fences.is_sorted_by(|a, b| a < b), "fences strictly increase: {fences:?}");
    place.assert_nothing_left();
    assert!(place.inspect("name").waiters.is_empty());
    assert_eq!(place.leftovers(), [""; 0]);
    numbers
}

// B4, R1.1
fn never_two_at_the_same_time(place: &Place) {
    let all = (0..MANY).map(|number| start(place, number)).collect();
    let mut numbers = finish(place, all);
    numbers.sort_unstable();
    assert_eq!(numbers, Vec::from_iter(0..MANY), "each was served once");
}

// R1.1
fn who_came_first_is_served_first(place: &Place) {
    let holder = place.start_script(&[], "echo $$ > pid; while ! [ -e go ]; do sleep .01; done");
    place.pid("pid");
    let mut all = vec![holder];
    for number in 0..MANY {
        all.push(start(place, number));
        place.await_queue(number + 1);
    }
    let waiters = place.inspect("name").waiters.len();
    assert_eq!(waiters, MANY, "nobody was dropped");
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(finish(place, all), Vec::from_iter(0..MANY));
}
