//! A file that a power cut left empty: its name was on disk, and its data were not.

use std::fs;

use super::*;
use crate::ErrorKind;
use crate::backend::file::directory::Directory;
use crate::backend::file::generation::highest;
use crate::backend::file::open_directory::{OpenDirectory, begin_session};
use crate::backend::file::stripe::Outcome;
use crate::backend::file::{platform, replace};

/// A client for which everything in the directory was last changed before this boot.
fn after_a_boot(scratch: &Scratch) -> OpenDirectory {
    let dir = || Directory::open(Some(&scratch.store()), false).unwrap();
    let clock = ClockIdentity::of_this_process().unwrap();
    let process = platform::process_identity(&clock).unwrap();
    let (session, files) = begin_session(&dir(), clock, process).unwrap();
    let mut store = OpenDirectory::new(dir(), session.id(), files, clock, process, false).unwrap();
    assert!((store.booted_at)().is_some());
    store.booted_at = || Some(u64::MAX);
    store
}

fn clock_before_the_boot() -> ClockIdentity {
    let mut clock = ClockIdentity::of_this_process().unwrap();
    clock.boot[0] ^= 1;
    clock
}

/// A file of the same stripe with a higher number and this content.
fn put_above(scratch: &Scratch, number: u64, content: &[u8]) {
    let file = stripe_file(NAME).replace(".1", &format!(".{number}"));
    fs::write(scratch.store().join(file), content).unwrap();
}

/// Takes the name like an operation that finds the file dead; returns the fence.
fn take(store: &OpenDirectory) -> Result<u64, crate::Error> {
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
        let mut stripe = store.stripe(&name).lock();
        let outcome =
            stripe.change(store, |state, now| state.apply(&name, acquire.clone(), now, &mut Vec::new()));
        match outcome? {
            Outcome::Done(crate::core::record::Reply::Granted { fence }) => return Ok(fence),
            Outcome::Done(reply) => panic!("{reply:?}"),
            Outcome::Dead => {
                let dead = stripe.mark_dead(store)?;
                drop(stripe);
                replace::replace(store, index_of(&name), dead)?;
            }
            Outcome::Locked | Outcome::Removed => panic!("there is no other client"),
        }
    }
}

fn look(store: &OpenDirectory) -> State {
    let name = Name::new(NAME).unwrap();
    store.stripe(&name).lock().look(store, State::from_bytes).unwrap().expect("a state")
}

// B1
#[test]
fn a_stripe_that_a_power_cut_left_empty_keeps_its_fences() {
    const FENCE: u64 = u64::MAX / 4;
    // Several times, because the lower files are removed in the background.
    for content in [&[][..], &[0; 100], &[0; 8_192], &[0; 20_000]].repeat(5) {
        // The lower file has the fences; it is removed only after a sync of the next one.
        let scratch = Scratch::new();
        put_stripe(&scratch, NAME, &stripe_with(clock_before_the_boot(), &[NAME.to_owned()], FENCE));
        put_above(&scratch, 2, content);
        put_above(&scratch, 3, content);
        let store = after_a_boot(&scratch);
        assert!(look(&store).is_vacant(), "leases are over");
        assert!(take(&store).unwrap() > FENCE, "{} bytes", content.len());
        assert!(!look(&store).is_vacant(), "the new file counts");
        drop(store);
        scratch
            .files_once(|files| files.len() == 1 && files.contains(&stripe_file(NAME).replace(".1", ".4")));

        // The first file of a stripe: fences grow by the wall clock.
        let scratch = Scratch::new();
        drop(after_a_boot(&scratch));
        put_above(&scratch, 1, content);
        let store = after_a_boot(&scratch);
        assert!(look(&store).is_vacant());
        take(&store).unwrap();
    }
}

/// A client may have the empty file open when another one has replaced and removed it.
#[test]
fn an_empty_stripe_that_was_removed_does_not_count() {
    let scratch = Scratch::new();
    drop(after_a_boot(&scratch));
    put_above(&scratch, 1, b"");
    let mut store = after_a_boot(&scratch);
    store.booted_at = platform::booted_at;
    let generation = highest(&store, index_of(&Name::new(NAME).unwrap())).unwrap().expect("a file");
    assert!(!generation.was_emptied(&store).unwrap());
    fs::remove_file(scratch.store().join(stripe_file(NAME))).unwrap();
    assert!(generation.was_emptied(&store).unwrap());
}

// S1
#[test]
fn an_empty_stripe_is_refused_if_it_may_have_had_a_lease() {
    let refused = |scratch: &Scratch, store: &OpenDirectory, what: &str| {
        let before: Vec<_> = scratch.files().into_iter().collect();
        let error = take(store).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{what}: {error}");
        assert!(error.to_string().contains("remove this file: rm "), "{what}: {error}");
        assert_eq!(scratch.files().into_iter().collect::<Vec<_>>(), before, "{what}");
    };
    let scratch = || {
        let scratch = Scratch::new();
        drop(after_a_boot(&scratch));
        scratch
    };
    // A person emptied it since the boot, or the time of the boot is unknown.
    for booted_at in [platform::booted_at, || None] {
        let scratch = scratch();
        put_above(&scratch, 1, b"");
        let mut store = after_a_boot(&scratch);
        store.booted_at = booted_at;
        refused(&scratch, &store, "emptied since");
    }
    // The lower file was used in this boot.
    let used = scratch();
    let state = stripe_with(ClockIdentity::of_this_process().unwrap(), &[NAME.to_owned()], 1);
    fs::remove_dir_all(used.store()).unwrap();
    put_stripe(&used, NAME, &state);
    put_above(&used, 2, b"");
    refused(&used, &after_a_boot(&used), "used in this boot");
    // The lower file can't be read.
    let corrupt = scratch();
    put_above(&corrupt, 1, b"something else");
    put_above(&corrupt, 2, b"");
    refused(&corrupt, &after_a_boot(&corrupt), "a corrupt file below");
    // Not only zeros.
    let written = scratch();
    put_above(&written, 1, &[&[0; 9_000][..], b"1"].concat());
    refused(&written, &after_a_boot(&written), "not empty");
}
