//! A directory that root shares with a group: its users exclude each other, and see each other's deaths. All other users are refused.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::process::Command;

use rustix::process::Signal;

use super::*;
use crate::backend::file::directory::Directory;
use crate::backend::file::faults::{Action, Point};
use crate::backend::file::torture::names_of_one_stripe;

const GROUP: u32 = 60_700;
const ALICE: u32 = 60_701;
const BOB: u32 = 60_702;
/// A user who is not in the group.
const STRANGER: u32 = 60_703;

/// A correctly shared directory.
fn shared() -> Scratch {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.logs(), Permissions::from_mode(0o777)).unwrap();
    prepare(&scratch, 0o2770);
    scratch
}

fn prepare(scratch: &Scratch, mode: u32) {
    let (mode, group) = (format!("{mode:o}"), GROUP.to_string());
    let args = ["-d", "-m", &mode, "-o", "0", "-g", &group];
    assert!(Command::new("install").args(args).arg(scratch.store()).status().unwrap().success());
}

/// A process of this user, which has not opened the directory yet. The user may not have access to the path of the test binary.
fn spawn(scratch: &Scratch, user: u32, umask: &str) -> TestProcess {
    let groups = if user == STRANGER { "--clear-groups".to_owned() } else { format!("--groups={GROUP}") };
    let script = format!(
        "umask {umask}; exec 9<\"$0\"; exec setpriv --reuid={user} --regid={user} {groups} /proc/self/fd/9 \"$@\""
    );
    TestProcess::spawn(scratch, "", &["sh", "-c", &script])
}

/// The same, and it has opened the directory.
fn start(scratch: &Scratch, user: u32, umask: &str) -> TestProcess {
    let mut process = spawn(scratch, user, umask);
    process.tell("open");
    process.expect("opened");
    process
}

/// The id of a process's session.
fn session_of(scratch: &Scratch, process: &TestProcess) -> String {
    let line = format!("pid {}\n", process.pid());
    let ids = scratch.files().into_iter().filter_map(|name| name.strip_prefix("session-").map(str::to_owned));
    let is_its = |id: &String| {
        let about = fs::read_to_string(scratch.store().join(format!("session-{id}")));
        about.is_ok_and(|about| about.contains(&line))
    };
    ids.into_iter().find(is_its).expect("a session")
}

fn until_waited_for_by_one(process: &mut TestProcess) {
    while !process.ask(&format!("inspect {NAME}")).ends_with("waited for by 1") {}
}

/// With a ttl of an hour, so that no lease expires in a test.
fn take() -> String {
    format!("acquire 3600000 {NAME}")
}

#[test]
fn two_users_of_a_group_exclude_each_other_and_hand_over() {
    let scratch = shared();
    let mut alice = start(&scratch, ALICE, "077");
    let mut bob = start(&scratch, BOB, "077");
    alice.tell(&take());
    let first = alice.expect_granted();
    bob.tell(&format!("try 60000 {NAME}"));
    let busy = bob.expect("busy");
    assert!(busy.contains(&ALICE.to_string()), "it names the holder: {busy}");

    // The grant goes to the other user's pipe: the message is there while its reader is stopped.
    bob.tell(&take());
    until_waited_for_by_one(&mut alice);
    bob.signal(Signal::STOP);
    bob.until_stopped();
    alice.release(NAME);
    let pipe = scratch.store().join(format!("pipe-{}", session_of(&scratch, &bob)));
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    let mut pipe = fs::File::options().read(true).custom_flags(nonblocking).open(pipe).unwrap();
    let mut message = [0; 4_096];
    let len = pipe.read(&mut message).expect("a message in the pipe");
    assert!(String::from_utf8_lossy(&message[..len]).contains(NAME));
    bob.signal(Signal::CONT);
    let second = bob.expect_granted();
    assert!(second > first);

    // Root is a user like the others.
    let mut root = TestProcess::start(&scratch);
    root.tell(&take());
    until_waited_for_by_one(&mut alice);
    bob.release(NAME);
    assert!(root.expect_granted() > second);
    alice.tell(&format!("try 60000 {NAME}"));
    assert!(alice.expect("busy").contains("root"));
    root.release(NAME);
}

#[test]
fn the_death_of_another_users_process_is_seen_immediately() {
    let scratch = shared();
    let mut bob = start(&scratch, BOB, "022");
    for is_waited_for in [false, true] {
        let mut alice = start(&scratch, ALICE, "022");
        alice.tell(&take());
        let fence = alice.expect_granted();
        bob.tell(&format!("try 60000 {NAME}"));
        bob.expect("busy");
        if is_waited_for {
            bob.tell(&take());
            until_waited_for_by_one(&mut alice);
        }
        alice.signal(Signal::KILL);
        alice.until_dead();
        if !is_waited_for {
            bob.tell(&format!("try 60000 {NAME}"));
        }
        assert!(bob.expect_granted() > fence);
        bob.release(NAME);
    }
    // Another user removes the files of a killed process, even if a file did not have its mode yet.
    for name in ["unborn-0123456789abcdef", "draft-0123456789abcdef-lifeline", "pipe-0123456789abcdef"] {
        let path = scratch.store().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        chown(&path, Some(ALICE), None).unwrap();
    }
    let _another = start(&scratch, BOB, "022");
    let is_bobs =
        |name: &String| fs::metadata(scratch.store().join(name)).is_ok_and(|stat| stat.uid() == BOB);
    let files = scratch.files();
    assert!(files.iter().filter(|name| !name.starts_with("stripe-")).all(is_bobs), "{files:?}");
}

#[test]
fn a_stripe_that_one_user_replaced_is_used_by_the_other() {
    let scratch = shared();
    let [name, other] = names_of_one_stripe();
    let mut alice = start(&scratch, ALICE, "077");
    let mut bob = start(&scratch, BOB, "077");
    let fence = alice.acquire(&other);
    alice.release(&other);
    alice.arm(Point::Locked, Action::Stop);
    alice.tell(&format!("acquire 60000 {name}"));
    alice.until_stopped();
    let next = bob.acquire(&other);
    assert!(next > fence, "the stripe of a stuck process is replaced, and keeps its fences");
    let stripe = stripe_file(&name).replace(".1", ".2");
    let stat = fs::metadata(scratch.store().join(&stripe)).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o777), (BOB, GROUP, 0o660));
    // Bob removes the file of the other user, who continues with the new one.
    scratch.files_once(|files| !files.contains(&stripe_file(&name)));
    alice.signal(Signal::CONT);
    alice.expect_granted();
    alice.tell(&format!("try 60000 {other}"));
    alice.expect("busy");
    bob.tell(&format!("try 60000 {name}"));
    bob.expect("busy");
}

#[test]
fn files_belong_to_the_group_whatever_the_umask_is() {
    for umask in ["0", "077", "0777"] {
        let scratch = shared();
        let mut alice = start(&scratch, ALICE, umask);
        alice.acquire(NAME);
        alice.ask("lifeline");
        let files = scratch.files();
        assert_eq!(files.len(), 4, "a stripe, a session, its pipe and its lifeline: {files:?}");
        for name in files {
            let stat = fs::metadata(scratch.store().join(&name)).unwrap();
            let found = (stat.uid(), stat.gid(), stat.mode() & 0o777);
            assert_eq!(found, (ALICE, GROUP, 0o660), "{name} with umask {umask}");
        }
        alice.ask("take-away");
    }
}

#[test]
fn a_user_outside_of_the_group_is_refused_and_learns_what_to_do() {
    let scratch = shared();
    // Even if every user can read the directory.
    for mode in [0o2770, 0o2775] {
        prepare(&scratch, mode);
        let said = spawn(&scratch, STRANGER, "022").ask("open");
        assert!(said.starts_with("error Denied"), "{mode:o}: {said}");
        for part in [
            format!("user {STRANGER} is not in group {GROUP}"),
            format!("as root: usermod -aG {GROUP} {STRANGER}"),
        ] {
            assert!(said.contains(&part), "{mode:o}: {said}");
        }
        assert!(scratch.files().is_empty(), "a refused client leaves no files");
        // Also if it has the session of another user.
        let alice = start(&scratch, ALICE, "022");
        let said = spawn(&scratch, STRANGER, "022").ask("open");
        assert!(said.contains("is not in group"), "{mode:o}: {said}");
        drop(alice);
        scratch.files().iter().for_each(|name| fs::remove_file(scratch.store().join(name)).unwrap());
    }
}

/// The first command in an error, in backquotes.
fn remedy(error: &str) -> &str {
    error.split('`').nth(1).unwrap_or_else(|| panic!("no command in: {error}"))
}

fn sh(command: &str) {
    assert!(Command::new("sh").args(["-ec", command]).status().unwrap().success(), "{command}");
}

#[test]
fn a_directory_that_is_almost_shared_is_refused_for_every_user() {
    for (mode, owner, why) in [
        (0o2777, 0, "every user can write to it"),
        (0o3770, 0, "it is sticky"),
        (0o770, 0, "it is not setgid"),
        (0o777, 0, "every user can write to it"),
        (0o1777, 0, "every user can write to it"),
        (0o1770, 0, "it is sticky"),
        (0o770, ALICE, "belongs to user 60701, not to root"),
        (0o777, ALICE, "belongs to user 60701, not to root"),
        (0o2720, 0, "its group can't read it"),
        (0o2770, ALICE, "belongs to user 60701, not to root"),
    ] {
        let scratch = shared();
        fs::set_permissions(scratch.store(), Permissions::from_mode(mode)).unwrap();
        chown(scratch.store(), Some(owner), None).unwrap();
        let mut said = spawn(&scratch, 0, "022").ask("open");
        assert!(said.starts_with("error Denied") && said.contains(why), "{mode:o}: {said}");
        let shared_with = format!("is not shared with group {GROUP}");
        assert!(said.contains(&shared_with), "{mode:o}: {said}");
        if mode & 0o070 == 0o070 {
            for user in [ALICE, BOB] {
                said = spawn(&scratch, user, "022").ask("open");
                assert!(said.contains(why), "{mode:o} for {user}: {said}");
            }
        }
        sh(remedy(&said));
        start(&scratch, ALICE, "022").acquire(NAME);
    }
}

/// A directory whose group is root's says nothing about sharing.
#[test]
fn a_directory_that_is_not_meant_for_a_group_is_another_users() {
    for (mode, group) in [(0o777, 0), (0o1777, 0), (0o755, GROUP)] {
        let scratch = shared();
        chown(scratch.store(), None, Some(group)).unwrap();
        fs::set_permissions(scratch.store(), Permissions::from_mode(mode)).unwrap();
        let said = spawn(&scratch, ALICE, "022").ask("open");
        let owner = format!("belongs to user root, not to {ALICE}");
        assert!(said.starts_with("error Denied") && said.contains(&owner), "{mode:o}: {said}");
    }
    // The owner's own group is not meant either.
    let scratch = shared();
    chown(scratch.store(), Some(ALICE), Some(ALICE)).unwrap();
    fs::set_permissions(scratch.store(), Permissions::from_mode(0o770)).unwrap();
    let said = spawn(&scratch, ALICE, "022").ask("open");
    assert!(said.contains("can be written by others; `chmod 700"), "{said}");
    sh(remedy(&said));
    start(&scratch, ALICE, "022").acquire(NAME);
}

/// An administrator forgot that the group has to write. Root can use the directory, and root's files in it are private: one command repairs
/// both.
#[test]
fn a_directory_that_its_group_cannot_write_to_says_so() {
    for mode in [0o2750, 0o2755, 0o2700, 0o700, 0o750] {
        for is_used in [false, true] {
            let scratch = shared();
            // `chmod` with a number keeps the setgid bit of a directory, and this does not.
            fs::set_permissions(scratch.store(), Permissions::from_mode(mode)).unwrap();
            if is_used {
                let mut root = start(&scratch, 0, "022");
                root.acquire(NAME);
                root.release(NAME);
            }
            let said = spawn(&scratch, ALICE, "022").ask("open");
            assert!(said.starts_with("error Denied"), "{mode:o}: {said}");
            assert!(said.contains("its group can't write to it; as root: `chmod 2770"), "{mode:o}: {said}");
            assert_eq!(said.contains("chmod g-s"), mode & 0o2000 != 0, "{mode:o}: {said}");
            if mode & 0o040 != 0 {
                assert_eq!(said.contains("chmod -R g+rwX"), is_used, "{mode:o}: {said}");
            }
            sh(remedy(&said));
            start(&scratch, ALICE, "022").acquire(NAME);
        }
    }
}

/// Root can use such a directory, and the members of the group can't.
#[tokio::test]
async fn root_is_warned_of_a_directory_that_is_almost_shared() {
    let scratch = shared();
    let warnings = async || open(&scratch).await.health().await.unwrap().warnings.join("\n");
    assert_eq!(warnings().await, "");
    for mode in [0o2750, 0o2755] {
        fs::set_permissions(scratch.store(), Permissions::from_mode(mode)).unwrap();
        let said = warnings().await;
        assert!(said.contains(&format!("is not shared with group {GROUP}")), "{mode:o}: {said}");
    }
    fs::set_permissions(scratch.store(), Permissions::from_mode(0o750)).unwrap();
    assert_eq!(warnings().await, "", "a directory of root that others may read");
}

/// Nobody should have to join the group of root for a lock.
#[test]
fn a_directory_that_is_shared_with_the_group_of_root_needs_another_group() {
    for mode in [0o2770, 0o2750, 0o770] {
        let scratch = shared();
        chown(scratch.store(), None, Some(0)).unwrap();
        fs::set_permissions(scratch.store(), Permissions::from_mode(mode)).unwrap();
        let said = spawn(&scratch, ALICE, "022").ask("open");
        assert!(said.starts_with("error Denied") && !said.contains("usermod -aG root"), "{mode:o}: {said}");
        // A directory that a user can't read may be anything.
        if mode != 0o770 {
            assert!(said.contains("chgrp"), "{mode:o}: {said}");
        }
    }
}

/// Files from before the directory was shared are refused, even for their owner, until they belong to the group.
#[test]
fn files_from_before_the_directory_was_shared() {
    let scratch = shared();
    fs::set_permissions(scratch.store(), Permissions::from_mode(0o700)).unwrap();
    chown(scratch.store(), None, Some(0)).unwrap();
    sh(&format!("chmod g-s {}", scratch.store().display()));
    let mut root = TestProcess::start(&scratch);
    root.acquire(NAME);
    prepare(&scratch, 0o2770);
    for user in [0, ALICE] {
        let said = spawn(&scratch, user, "022").ask("open");
        assert!(said.starts_with("error Denied") && said.contains("session-"), "{user}: {said}");
        assert!(said.contains("before the directory was shared"), "{user}: {said}");
    }
    let said = spawn(&scratch, ALICE, "022").ask("open");
    sh(remedy(&said));
    // The lock that was taken before still excludes.
    let mut alice = start(&scratch, ALICE, "022");
    alice.tell(&format!("try 60000 {NAME}"));
    assert!(alice.expect("busy").contains("root"));
    root.release(NAME);
    alice.acquire(NAME);
}

/// A member of the group may replace a pipe by a link before root sets the mode of the pipe.
#[test]
fn a_link_in_the_place_of_a_pipe_is_not_followed() {
    let scratch = shared();
    let target = scratch.path().join("target");
    fs::write(&target, "").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
    let dir = Directory::open(Some(&scratch.store()), false).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o660);
    std::os::unix::fs::symlink(&target, scratch.store().join("pipe-link")).unwrap();
    fs::hard_link(&target, scratch.store().join("pipe-file")).unwrap();
    for name in ["pipe-link", "pipe-file"] {
        assert_eq!(dir.set_mode_of_pipe(name, mode), Err(rustix::io::Errno::NOENT));
    }
    assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600);
}

/// Tenure does not read, lock or write a file of another group, even as root if the file belongs to root.
#[test]
fn a_file_of_another_group_is_refused_for_its_owner_too() {
    let scratch = shared();
    let mut root = TestProcess::start(&scratch);
    let planted = scratch.store().join(stripe_file(NAME));
    fs::write(&planted, "root's").unwrap();
    chown(&planted, None, Some(0)).unwrap();
    root.tell(&format!("try 60000 {NAME}"));
    let said = root.expect("error Denied");
    assert!(said.contains("can't be used by group"), "{said}");
    assert_eq!(fs::read(&planted).unwrap(), b"root's");
}

// S1: a session whose file can't be checked lives. A directory that can't be searched for a while has lost nothing.
#[test]
fn a_file_that_cannot_be_checked_exists() {
    let scratch = shared();
    let dir = Directory::open(Some(&scratch.store()), false).unwrap();
    assert!(!dir.has("session-0123456789abcdef"), "this one can be checked");
    assert!(dir.has(&"s".repeat(300)), "the kernel refuses to check this name");
}

// S1: no error tells a user to remove a file that another user may be using.
#[test]
fn no_error_says_to_remove_a_file_of_another_user() {
    let scratch = shared();
    let mut alice = start(&scratch, ALICE, "077");
    alice.tell(&take());
    alice.expect_granted();
    fs::set_permissions(scratch.store(), Permissions::from_mode(0o700)).unwrap();
    let error = Directory::open(Some(&scratch.store()), false)
        .and_then(|dir| dir.open_file(&format!("session-{}", session_of(&scratch, &alice))))
        .unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Denied);
    let said = error.to_string();
    assert!(
        said.contains("belongs to another user, who may be using it") && !said.contains("remove"),
        "{said}"
    );
}
