//! A container with its own boot id, which LXC and systemd-nspawn mount over the kernel's.

use super::*;
use crate::ErrorKind;
use crate::backend::file::directory::Directory;
use crate::backend::file::open_directory::{OpenDirectory, begin_session};
use crate::backend::file::platform;

const ANOTHER: &str = "01234567-89ab-4cde-8f01-23456789abcd";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A process that sees another boot id, and has not opened the directory yet. `unshare` may add a process namespace.
fn stranger(scratch: &Scratch, unshare: &[&str]) -> TestProcess {
    let boot_id = scratch.path().join("boot_id");
    std::fs::write(&boot_id, format!("{ANOTHER}\n")).unwrap();
    let mount = format!("mount --bind {} {BOOT_ID} && exec \"$@\"", boot_id.display());
    let mut wrapper = vec!["unshare", "--mount", "--propagation", "private"];
    wrapper.extend(unshare);
    wrapper.extend(["--", "sh", "-c", &mount, "sh"]);
    TestProcess::spawn(scratch, "", &wrapper)
}

fn clock_of_another_boot() -> ClockIdentity {
    let mut clock = ClockIdentity::of_this_process().unwrap();
    clock.boot[0] ^= 1;
    clock
}

/// A refused client changes nothing: the holder keeps its lease, the waiter waits, and no file is made or removed.
#[test]
fn another_boot_id_is_refused_while_the_directory_is_in_use() {
    for unshare in [&[][..], &["--pid", "--fork", "--kill-child", "--mount-proc"]] {
        let scratch = Scratch::new();
        let mut holder = TestProcess::start(&scratch);
        let fence = holder.acquire(NAME);
        let mut waiter = TestProcess::start(&scratch);
        waiter.tell(&format!("acquire 60000 {NAME}"));
        while !holder.ask(&format!("inspect {NAME}")).ends_with("waited for by 1") {}
        let files = scratch.files();

        let mut stranger = stranger(&scratch, unshare);
        let said = stranger.ask("open");
        assert!(said.starts_with("error Unsupported"), "{said}");
        assert!(said.contains("another boot id") && said.contains("directory"), "{said}");
        assert_eq!(scratch.files(), files);
        let said = holder.ask(&format!("inspect {NAME}"));
        assert_eq!(said, format!("held by {} {fence}, waited for by 1", holder.pid()));
        holder.release(NAME);
        let next = waiter.expect_granted();
        assert!(next > fence);

        // Without a living session, it may as well be another boot.
        drop((holder, waiter));
        assert_eq!(stranger.ask("open"), "opened");
        assert!(stranger.acquire(NAME) > next);
        let mut refused = TestProcess::spawn(&scratch, "", &[]);
        let said = refused.ask("open");
        assert!(said.starts_with("error Unsupported"), "{said}");
        stranger.release(NAME);
    }
}

/// Two clients that open at the same time may both find no session. Then neither drops the records of the other.
#[test]
fn a_client_that_has_the_directory_open_is_refused_too() {
    let scratch = Scratch::new();
    let dir = || Directory::open(Some(&scratch.store()), false).unwrap();
    let clock = clock_of_another_boot();
    let process = platform::process_identity(&clock).unwrap();
    let (session, files) = begin_session(&dir(), clock, process).unwrap();
    let store = OpenDirectory::new(dir(), session.id(), files, clock, process, false).unwrap();
    // A session beside this one would be refused, so its file is hidden meanwhile.
    let session_file = scratch.store().join(format!("session-{}", session.id().as_str()));
    let hidden = scratch.path().join("hidden");
    std::fs::rename(&session_file, &hidden).unwrap();
    let mut holder = TestProcess::start(&scratch);
    let fence = holder.acquire(NAME);
    std::fs::rename(&hidden, &session_file).unwrap();

    let name = Name::new(NAME).unwrap();
    let mut stripe = store.stripe(&name).lock();
    assert_eq!(stripe.look(&store, |_| Some(())).unwrap(), None);
    let error = stripe.mark_dead(&store).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let error = stripe.change(&store, |_, _| ()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("another boot id"), "{error}");
    let said = holder.ask(&format!("inspect {NAME}"));
    assert_eq!(said, format!("held by {} {fence}, waited for by 0", holder.pid()));
    holder.release(NAME);
}

/// A detached lease has no living process. A client whose boot id is not the kernel's can't know whether the lease is over.
#[tokio::test]
async fn another_boot_id_does_not_end_a_detached_lease() {
    let scratch = Scratch::new();
    let state = stripe_with(ClockIdentity::of_this_process().unwrap(), &[NAME.to_owned()], 1);
    put_stripe(&scratch, NAME, &state);
    let mut stranger = stranger(&scratch, &[]);
    assert_eq!(stranger.ask("open"), "opened");
    let said = stranger.ask(&format!("inspect {NAME}"));
    assert!(said.starts_with("error Unsupported") && said.contains("detached"), "{said}");
    drop(stranger);
    assert!(is_busy(&open(&scratch).await, NAME).await);
}
