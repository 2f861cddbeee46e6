//! A damaged stripe, and any other file in its place, leads to an error that names it, and never to a grant.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::ErrorKind;
use crate::backend::file::copies::{Header, mark_dead, read, read_head, write};

/// Both copies with short data. The mark is in the middle, then come the headers, then the data.
const BOTH: usize = 8_192;
const MARK: std::ops::Range<usize> = BOTH / 2 - 8..BOTH / 2 + 8;
const HEADERS: [usize; 2] = [MARK.start - 32, MARK.end];
const DATA: [usize; 2] = [MARK.start - 33, MARK.end + 32];

/// A held name, and its stripe file.
struct Held {
    scratch: Scratch,
    file: PathBuf,
    _guard: Guard,
    _domain: Domain,
}

impl Held {
    async fn new() -> Self {
        let scratch = Scratch::new();
        let domain = open(&scratch).await;
        // Both copies have data.
        drop(hold(&domain, NAME).await);
        let guard = hold(&domain, NAME).await;
        let file = scratch.store().join(stripe_file(NAME));
        Held { scratch, file, _guard: guard, _domain: domain }
    }

    /// The answer to a new client: an error, or `None` if the name is busy.
    async fn ask(&self) -> Option<crate::Error> {
        let client = open(&self.scratch).await;
        match client.lock(NAME).try_acquire().await {
            Ok(Attempt::Acquired(_)) => panic!("a damaged file granted what is held"),
            Ok(Attempt::Busy(_)) => None,
            Err(error) => Some(error),
        }
    }

    async fn is_refused(&self, what: &str) {
        self.is_refused_as(ErrorKind::Protocol, what).await;
    }

    async fn is_refused_as(&self, kind: ErrorKind, what: &str) {
        let error = self.ask().await.unwrap_or_else(|| panic!("{what}: not noticed"));
        assert_eq!(error.kind(), kind, "{what}: {error}");
        assert!(error.to_string().contains(&stripe_file(NAME)), "{what}: {error}");
        let client = open(&self.scratch).await;
        assert_eq!(client.inspect(NAME).await.unwrap_err().kind(), kind, "{what}");
        assert_eq!(client.list("").await.unwrap_err().kind(), kind, "{what}");
    }
}

#[tokio::test]
async fn no_byte_of_a_stripe_can_be_changed_into_a_grant() {
    let held = Held::new().await;
    let file = fs::File::options().read(true).write(true).open(&held.file).unwrap();
    let whole = fs::read(&held.file).unwrap();
    let newest = read_head(&file).unwrap().unwrap().newest().unwrap();
    let copy = usize::try_from(newest.seq % 2).unwrap();
    assert_eq!(whole.len(), BOTH);
    let (mut refused, mut asked) = (0, 0);
    // Every byte of the headers, and some of the data.
    let bytes = (0..BOTH).filter(|at| !MARK.contains(at) && ((4_040..4_152).contains(at) || at % 19 == 0));
    for at in bytes {
        file.write_all_at(&[whole[at] ^ 0x10], at as u64).unwrap();
        let error = held.ask().await;
        // Four bytes at the end of a header are not used yet.
        let is_in_header = (HEADERS[copy]..HEADERS[copy] + 28).contains(&at);
        assert!(error.is_some() || !is_in_header, "a change at {at} in the header was not noticed");
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::Protocol, "{at}: {error}");
            refused += 1;
        }
        file.write_all_at(&whole[at..=at], at as u64).unwrap();
        asked += 1;
    }
    println!("{asked} bytes were changed: {refused} errors, no grant");
    assert!(held.ask().await.is_none(), "it is intact again");
}

#[tokio::test]
async fn damage_in_the_newest_data_is_an_error() {
    let held = Held::new().await;
    let file = fs::File::options().read(true).write(true).open(&held.file).unwrap();
    let newest = read_head(&file).unwrap().unwrap().newest().unwrap();
    // The last byte of copy 0, the first of copy 1.
    let newest = usize::try_from(newest.seq % 2).unwrap();
    let [at, other] = [DATA[newest], DATA[1 - newest]].map(|at| at as u64);
    let mut byte = [0];
    file.read_exact_at(&mut byte, other).unwrap();
    file.write_all_at(&[!byte[0]], other).unwrap();
    assert!(held.ask().await.is_none_or(|error| error.kind() == ErrorKind::Protocol), "the older copy");
    file.write_all_at(&byte, other).unwrap();
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    held.is_refused("data").await;
}

#[tokio::test]
async fn a_file_that_is_cut_off_or_empty_is_an_error() {
    let held = Held::new().await;
    let whole = fs::read(&held.file).unwrap();
    for len in [0, 1, HEADERS[0], MARK.start, HEADERS[1], BOTH - 1] {
        fs::write(&held.file, &whole[..len]).unwrap();
        held.is_refused(&format!("{len} bytes")).await;
    }
    fs::write(&held.file, [0; BOTH]).unwrap();
    held.is_refused("zeros").await;
    fs::write(&held.file, "something else\n".repeat(1_000)).unwrap();
    held.is_refused("another file").await;
    fs::write(&held.file, whole).unwrap();
    assert!(held.ask().await.is_none(), "it is intact again");
}

#[tokio::test]
async fn something_else_in_place_of_a_stripe_is_an_error() {
    let held = Held::new().await;
    let aside = held.scratch.path().join("aside");
    fs::rename(&held.file, &aside).unwrap();
    fs::create_dir(&held.file).unwrap();
    held.is_refused("a directory").await;
    fs::remove_dir(&held.file).unwrap();
    // Even a link to the right file.
    symlink(&aside, &held.file).unwrap();
    held.is_refused("a link").await;
    fs::remove_file(&held.file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &held.file, rustix::fs::Mode::RUSR).unwrap();
    held.is_refused("a pipe").await;
    fs::remove_file(&held.file).unwrap();
    fs::copy(&aside, &held.file).unwrap();
    std::os::unix::fs::chown(&held.file, Some(12_345), None).unwrap();
    held.is_refused_as(ErrorKind::Denied, "a file of another user").await;
    fs::remove_file(&held.file).unwrap();
    fs::rename(&aside, &held.file).unwrap();
    assert!(held.ask().await.is_none(), "it is there again");
}

// R2.8: a later version may write another layout. This version can't read it, and grants nothing: not even if the other copy is intact and
// from before a reboot, as after a power cut.
#[tokio::test]
async fn a_stripe_of_another_version_is_refused() {
    let held = Held::new().await;
    let file = fs::File::options().read(true).write(true).open(&held.file).unwrap();
    let whole = fs::read(&held.file).unwrap();
    for versions in [[b"2", b"2"], [b"1", b"2"], [b"2", b"1"]] {
        for (at, version) in HEADERS.iter().zip(versions) {
            file.write_all_at(version, (at + "tenure".len()) as u64).unwrap();
        }
        held.is_refused("another version").await;
        let error = held.ask().await.unwrap().to_string();
        assert!(error.contains("another version of tenure"), "{error}");
    }
    fs::write(&held.file, whole).unwrap();
    assert!(held.ask().await.is_none(), "it is intact again");

    let mut older = read(&file).unwrap().unwrap();
    older.data[0] ^= 1; // the boot id
    let seq = older.header.seq + 1;
    write(&file, Header::of(seq, &older.data), &older.data).unwrap();
    let other = HEADERS[usize::from(seq.is_multiple_of(2))];
    file.write_all_at(b"2", (other + "tenure".len()) as u64).unwrap();
    held.is_refused("another version, and an earlier boot").await;
}

// R2.8, S1: if another process has the lock of a file that is not a stripe of this version, Tenure does not mark it as dead, and writes nothing to it.
#[tokio::test]
async fn only_a_stripe_of_this_version_is_marked_as_dead() {
    let held = Held::new().await;
    let whole = fs::read(&held.file).unwrap();
    let mut other = whole.clone();
    HEADERS.iter().for_each(|at| other[at + "tenure".len()] = b'2');
    let text = b"something else\n".repeat(1_000);
    for (content, why) in [
        (other, "another version"),
        (text, "is corrupt"),
        (vec![0; BOTH], "is empty"),
        (vec![0; 10], "is empty"),
        (Vec::new(), "is empty"),
    ] {
        fs::write(&held.file, &content).unwrap();
        let stuck = fs::File::open(&held.file).unwrap();
        stuck.lock().unwrap();
        let error = held.ask().await.expect("an error").to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(fs::read(&held.file).unwrap(), content, "{why}");
        stuck.unlock().unwrap();
    }
    fs::write(&held.file, whole).unwrap();
    assert!(held.ask().await.is_none(), "it is intact again");
}

/// A version is a number and a newline. Anything else is damage, and the error has the command that removes this file only.
#[tokio::test]
async fn damage_is_not_taken_for_another_version() {
    let held = Held::new().await;
    let file = fs::File::options().read(true).write(true).open(&held.file).unwrap();
    for (magic, is_version) in [
        ("tenure2\n", true),
        ("tenure12\n", true),
        ("tenure\n\n", false),
        ("tenurex\n", false),
        ("tenure2x", false),
    ] {
        HEADERS.iter().for_each(|&at| file.write_all_at(magic.as_bytes(), at as u64).unwrap());
        let error = held.ask().await.expect("an error").to_string();
        assert_eq!(error.contains("another version"), is_version, "{magic:?}: {error}");
        let remove = format!("remove this file: rm {}", held.file.display());
        assert_eq!(error.ends_with(&remove), !is_version, "{magic:?}: {error}");
    }
}

/// No number can follow the highest one.
#[tokio::test]
async fn a_stripe_whose_numbers_are_used_up_is_refused() {
    let held = Held::new().await;
    let whole = fs::read(&held.file).unwrap();
    let file = fs::File::options().read(true).write(true).open(&held.file).unwrap();
    let data = read(&file).unwrap().unwrap().data;
    crate::backend::file::copies::write_new(&file, u64::MAX, &data).unwrap();
    let error = held.ask().await.expect("an error");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");

    fs::write(&held.file, whole).unwrap();
    mark_dead(&file).unwrap();
    fs::rename(&held.file, held.file.with_extension(u64::MAX.to_string())).unwrap();
    let error = held.ask().await.expect("an error");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
}

/// A file that has the name of a session and is not one does no harm, whatever its length and content. It is removed like a dead session.
#[tokio::test]
async fn a_file_that_cannot_be_a_session_does_no_harm() {
    let held = Held::new().await;
    let planted = held.scratch.store().join("session-0123456789abcdef");
    fs::write(&planted, [0xff, 0xfe, 0x00]).unwrap();
    assert!(held.ask().await.is_none() && !planted.exists(), "bytes that are not text");
    fs::File::create(&planted).unwrap().set_len(1 << 40).unwrap();
    assert!(held.ask().await.is_none() && !planted.exists(), "more than fits into memory");
    fs::create_dir(&planted).unwrap();
    assert!(held.ask().await.is_none(), "a directory");
    fs::remove_dir(&planted).unwrap();
    symlink("/dev/zero", &planted).unwrap();
    assert!(held.ask().await.is_none(), "a link");
}

// S1: a file that a process has locked is a session, whatever its content.
#[tokio::test]
async fn a_locked_session_lives_whatever_its_content() {
    let scratch = Scratch::new();
    let mut process = TestProcess::start(&scratch);
    process.acquire(NAME);
    let session = scratch.files().into_iter().find(|name| name.starts_with("session-")).unwrap();
    let file = scratch.store().join(session);
    let said = fs::read(&file).unwrap();
    for content in [&[0xff, 0xfe][..], b"", b"boot 0\n"] {
        fs::write(&file, content).unwrap();
        let error = Domain::open(&scratch.url()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    fs::write(&file, said).unwrap();
    assert!(is_busy(&open(&scratch).await, NAME).await);
}

/// The process that set the mark died before it replaced the file.
#[tokio::test]
async fn a_stripe_that_is_marked_as_dead_is_replaced_with_its_content() {
    let held = Held::new().await;
    mark_dead(&fs::File::options().write(true).open(&held.file).unwrap()).unwrap();
    assert!(held.ask().await.is_none());
    let files = held.scratch.files_once(|files| !files.contains(&stripe_file(NAME)));
    assert!(files.contains(&stripe_file(NAME).replace(".1", ".2")), "{files:?}");
}
