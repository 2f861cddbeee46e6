//! A file that a power cut left empty: its name was on disk, its data were not.

use std::fs;

use super::*;
use crate::ErrorKind;
use crate::backend::file::directory::Directory;
use crate::backend::file::generation::highest;
use crate::backend::file::place::{Place, begin_session};
use crate::backend::file::stripe::Outcome;
use crate::backend::file::{platform, replace};

/// A client for which everything in the directory was last changed before this boot.
fn after_a_boot(scratch: &Scratch) -> Place {
    let dir = || Directory::open(Some(&scratch.store()), false).unwrap();
    let clock = ClockIdentity::of_this_process().unwrap();
    let process = platform::process_identity(&clock).unwrap();
    let (session, files) = begin_session(&dir(), clock, process).unwrap();
    let mut place = Place::new(dir(), session.id(), files, clock, process, false).unwrap();
    assert!((place.booted_at)().is_some());
    place.booted_at = || Some(u64::MAX);
    place
}

fn clock_before_the_boot() -> ClockIdentity {
    let mut clock = ClockIdentity::of_this_process().unwrap();
    clock.boot[0] ^= 1;
    clock
}

/// The same stripe under a higher number, with this in it.
fn put_above(scratch: &Scratch, number: u64, content: &[u8]) {
    let file = stripe_file(NAME).replace(".1", &format!(".{number}"));
    fs::write(scratch.store().join(file), content).unwrap();
}

/// Takes the name, as a request does it that finds the file dead; the fence.
fn take(place: &Place) -> Result<u64, crate::Error> {
    let name = Name::new(NAME).unwrap();
    let acquire = Op::Acquire {
        token: Token::fresh(&Session::random(), "", HOUR),
        ttl: HOUR,
        wait: Wait::No,
        polls: false,
        floor: 0,
        not_after: u64::MAX,
    };
    loop {
        let mut stripe = place.stripe(&name).lock();
        let outcome =
            stripe.change(place, |state, now| state.apply(&name, acquire.clone(), now, &mut Vec::new()));
        match outcome? {
            Outcome::Done(crate::core::record::Reply::Granted { fence }) => return Ok(fence),
            Outcome::Done(reply) => panic!("{reply:?}"),
            Outcome::Dead => {
                let dead = stripe.condemn(place)?;
                drop(stripe);
                replace::replace(place, index_of(&name), dead)?;
            }
            Outcome::Locked | Outcome::Removed => panic!("nobody else is here"),
        }
    }
}

fn look(place: &Place) -> State {
    let name = Name::new(NAME).unwrap();
    place.stripe(&name).lock().look(place, State::from_bytes).unwrap().expect("a state")
}

// B1
#[test]
fn a_stripe_that_a_power_cut_left_empty_goes_on_with_its_fences() {
    const FENCE: u64 = u64::MAX / 4;
    // Several times: the files below go in the background.
    for content in [&[][..], &[0; 100], &[0; 8_192], &[0; 20_000]].repeat(5) {
        // The file below has the fences; it is removed only when what follows it is on disk.
        let scratch = Scratch::new();
        put_stripe(&scratch, NAME, &stripe_with(clock_before_the_boot(), &[NAME.to_owned()], FENCE));
        put_above(&scratch, 2, content);
        put_above(&scratch, 3, content);
        let place = after_a_boot(&scratch);
        assert!(look(&place).is_vacant(), "leases are over");
        assert!(take(&place).unwrap() > FENCE, "{} bytes", content.len());
        assert!(!look(&place).is_vacant(), "what follows counts");
        drop(place);
        scratch
            .files_once(|files| files.len() == 1 && files.contains(&stripe_file(NAME).replace(".1", ".4")));

        // The first file of a stripe: fences go on by the wall clock.
        let scratch = Scratch::new();
        drop(after_a_boot(&scratch));
        put_above(&scratch, 1, content);
        let place = after_a_boot(&scratch);
        assert!(look(&place).is_vacant());
        take(&place).unwrap();
    }
}

/// A client may have the empty file open when another one has replaced and removed it.
#[test]
fn an_empty_stripe_that_was_removed_does_not_count() {
    let scratch = Scratch::new();
    drop(after_a_boot(&scratch));
    put_above(&scratch, 1, b"");
    let mut place = after_a_boot(&scratch);
    place.booted_at = platform::booted_at;
    let generation = highest(&place, index_of(&Name::new(NAME).unwrap())).unwrap().expect("a file");
    assert!(!generation.was_emptied(&place).unwrap());
    fs::remove_file(scratch.store().join(stripe_file(NAME))).unwrap();
    assert!(generation.was_emptied(&place).unwrap());
}

// S1
#[test]
fn an_empty_stripe_is_refused_where_it_may_have_held_a_lease() {
    let refused = |scratch: &Scratch, place: &Place, what: &str| {
        let before: Vec<_> = scratch.files().into_iter().collect();
        let error = take(place).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{what}: {error}");
        assert!(error.to_string().contains("remove this file: rm "), "{what}: {error}");
        assert_eq!(scratch.files().into_iter().collect::<Vec<_>>(), before, "{what}");
    };
    let scratch = || {
        let scratch = Scratch::new();
        drop(after_a_boot(&scratch));
        scratch
    };
    // Somebody emptied it since the boot, or when the boot was is not known.
    for booted_at in [platform::booted_at, || None] {
        let scratch = scratch();
        put_above(&scratch, 1, b"");
        let mut place = after_a_boot(&scratch);
        place.booted_at = booted_at;
        refused(&scratch, &place, "emptied since");
    }
    // The file below it was used in this boot.
    let used = scratch();
    let state = stripe_with(ClockIdentity::of_this_process().unwrap(), &[NAME.to_owned()], 1);
    fs::remove_dir_all(used.store()).unwrap();
    put_stripe(&used, NAME, &state);
    put_above(&used, 2, b"");
    refused(&used, &after_a_boot(&used), "used in this boot");
    // What is below it can't be read.
    let corrupt = scratch();
    put_above(&corrupt, 1, b"something else");
    put_above(&corrupt, 2, b"");
    refused(&corrupt, &after_a_boot(&corrupt), "a corrupt file below");
    // Not only zeros.
    let written = scratch();
    put_above(&written, 1, &[&[0; 9_000][..], b"1"].concat());
    refused(&written, &after_a_boot(&written), "something in it");
}
