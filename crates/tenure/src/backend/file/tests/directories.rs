//! Directories that are unfit, removed, full or read-only.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use super::*;
use crate::ErrorKind;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Waits until the next operation checks for removed files, which happens every 10 ms.
async fn until_next_check() {
    tokio::time::sleep(Duration::from_millis(15)).await;
}

#[tokio::test]
async fn a_directory_that_others_own_or_may_write_is_refused() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.store()).unwrap();
    for refused in [0o777, 0o770, 0o720, 0o702, 0o1777] {
        fs::set_permissions(scratch.store(), Permissions::from_mode(refused)).unwrap();
        let error = Domain::open(&scratch.url()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{refused:o}: {error}");
        assert!(error.to_string().contains("can be written by others"), "{error}");
    }
    for fit in [0o755, 0o750, 0o700] {
        fs::set_permissions(scratch.store(), Permissions::from_mode(fit)).unwrap();
        drop(hold(&open(&scratch).await, NAME).await);
    }
    chown(scratch.store(), Some(12_345), None).unwrap();
    let error = Domain::open(&scratch.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("belongs to user 12345"), "{error}");
}

/// Systems clean these directories by age.
#[tokio::test]
async fn a_directory_in_tmp_is_not_recommended() {
    for parent in ["/tmp", "/var/tmp"] {
        let error = Domain::open(format!("file://{parent}")).await.unwrap_err();
        assert!(error.to_string().contains("`file:///var/lib/NAME`"), "{error}");
        assert!(!error.to_string().contains(&format!("{parent}/")), "{error}");
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_says_why() {
    let error = Domain::open("file:///proc/x").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "directory /proc/x could not be made: the file system of /proc takes no directories; name another one: `file:///path`"
    );
    let scratch = Scratch::new();
    let user = "60701";
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scratch.logs(), Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "exec 9<\"$0\"; exec setpriv --reuid={user} --regid={user} --clear-groups /proc/self/fd/9 \"$@\""
    );
    let said = TestProcess::spawn(&scratch, "", &["sh", "-c", &script]).ask("open");
    let expected = format!(
        "directory {0} does not exist, and user {user} may not make it in {1}; as root: install -d -m 700 -o {user} {0}",
        scratch.store().display(),
        scratch.path().display()
    );
    assert!(said.starts_with("error Denied") && said.contains(&expected), "{said}");
}

#[test]
fn nobody_else_can_read_what_is_in_it() {
    let scratch = Scratch::new();
    // Whatever the umask.
    let mut process = TestProcess::start_as(&scratch, "", &["sh", "-c", "umask 0; exec \"$@\"", "sh"]);
    process.acquire(NAME);
    process.ask("lifeline");
    assert_eq!(mode(&scratch.store()), 0o700);
    let files = scratch.files();
    assert_eq!(files.len(), 4, "a stripe, a session, its pipe and its lifeline: {files:?}");
    for name in files {
        assert_eq!(mode(&scratch.store().join(&name)), 0o600, "{name}");
    }
    process.ask("take-away");
}

#[tokio::test]
async fn a_directory_that_is_removed_is_unavailable_until_it_is_there_again() {
    let scratch = Scratch::new();
    let domain = open(&scratch).await;
    let guard = hold(&domain, NAME).await;
    fs::remove_dir_all(scratch.store()).unwrap();
    let error = domain.lock("another").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("store"), "{error}");
    until_next_check().await;

    let other = open(&scratch).await;
    let taken = hold(&other, NAME).await;
    assert!(taken.fence() > guard.fence());
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(taken);
    let again = hold(&domain, NAME).await;
    assert!(is_busy(&other, NAME).await && again.is_held());
}

/// A cleanup tool may move it.
#[tokio::test]
async fn a_directory_that_is_moved_away_is_no_longer_used() {
    let scratch = Scratch::new();
    let domain = open(&scratch).await;
    let guard = hold(&domain, NAME).await;
    fs::rename(scratch.store(), scratch.path().join("moved")).unwrap();
    until_next_check().await;
    assert_eq!(domain.lock("another").acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let other = open(&scratch).await;
    let theirs = hold(&other, NAME).await;
    assert!(theirs.fence() > guard.fence());
    assert!(guard.renew().await.is_err(), "the lease in the other directory is lost, and its holder knows");
    assert!(!guard.is_held());
}

#[tokio::test]
async fn a_session_that_is_removed_is_begun_again() {
    let scratch = Scratch::new();
    let domain = open(&scratch).await;
    let guard = hold(&domain, NAME).await;
    for name in scratch.files().iter().filter(|name| name.starts_with("session-")) {
        fs::remove_file(scratch.store().join(name)).unwrap();
    }
    until_next_check().await;
    let other = open(&scratch).await;
    let taken = hold(&other, NAME).await;
    assert!(taken.fence() > guard.fence());
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(taken);
    // Later leases of this session stay.
    let again = hold(&domain, NAME).await;
    assert!(is_busy(&other, NAME).await, "other clients see that the session lives");
    assert!(again.is_held());
}

#[tokio::test]
async fn a_stripe_that_is_removed_is_made_again() {
    let scratch = Scratch::new();
    let (domain, other) = (open(&scratch).await, open(&scratch).await);
    let guard = hold(&domain, NAME).await;
    fs::remove_file(scratch.store().join(stripe_file(NAME))).unwrap();
    until_next_check().await;
    let taken = hold(&other, NAME).await;
    assert!(taken.fence() > guard.fence());
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(is_busy(&domain, NAME).await);
}

/// Runs a test of this binary in its own mount namespace.
fn in_a_mount_namespace(test: &str) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.store()).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("backend::file::tests::directories::{test}"), "--ignored", "--nocapture"])
        .env("TENURE_TEST_DIR", scratch.store())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn mount(args: &[&str]) {
    assert!(Command::new("mount").args(args).status().unwrap().success(), "mount {args:?}");
}

fn test_dir() -> String {
    std::env::var("TENURE_TEST_DIR").expect("to be run by another test")
}

#[test]
fn a_full_disk_is_unavailable_and_no_write_is_partial() {
    in_a_mount_namespace("on_a_disk_that_fills_up");
}

#[tokio::test]
#[ignore = "run by another test, in a mount namespace"]
async fn on_a_disk_that_fills_up() {
    let dir = test_dir();
    mount(&["-t", "tmpfs", "-o", "size=64k,mode=700", "none", &dir]);
    let url = format!("file://{dir}");
    let domain = Domain::open(&url).await.unwrap();
    let guard = hold(&domain, NAME).await;
    let filler = Path::new(&dir).join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4_096]).is_ok() {}

    // On a missing stripe, on a stripe that has to grow, and for another client.
    let error = domain.lock("elsewhere").try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("free some space"), "{error}");
    let mut many = Vec::new();
    let stripe = index_of(&Name::new(NAME).unwrap());
    let mut names =
        (0..).map(|n| format!("{n:0900}")).filter(|name| index_of(&Name::new(name).unwrap()) == stripe);
    let error = loop {
        match domain.lock(names.next().unwrap()).ttl(HOUR).acquire().await {
            Ok(guard) => many.push(guard),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(Domain::open(&url).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 4, "the filler, a stripe, a session and its pipe: {files:?}");
    assert!(guard.is_held() && many.iter().all(|guard| guard.is_held()));
    guard.renew().await.unwrap();

    drop(file);
    fs::remove_file(&filler).unwrap();
    let other = Domain::open(&url).await.unwrap();
    assert!(is_busy(&other, NAME).await);
    for guard in &many {
        assert!(is_busy(&other, guard.name()).await);
    }
    assert_eq!(other.list("").await.unwrap().len(), 1 + many.len());
    drop(hold(&domain, "elsewhere").await);
    drop(hold(&domain, &names.next().unwrap()).await);
}

#[test]
fn a_directory_that_can_only_be_read_is_unavailable() {
    in_a_mount_namespace("on_a_disk_that_can_only_be_read");
}

#[tokio::test]
#[ignore = "run by another test, in a mount namespace"]
async fn on_a_disk_that_can_only_be_read() {
    let dir = test_dir();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    mount(&["--bind", &dir, &dir]);
    mount(&["-o", "remount,bind,ro", &dir]);
    let error = Domain::open(format!("file://{dir}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test]
async fn a_path_that_is_not_a_directory_is_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.store(), "").unwrap();
    assert_eq!(Domain::open(&scratch.url()).await.unwrap_err().kind(), ErrorKind::Invalid);
    let missing = format!("file://{}/not/there", scratch.path().display());
    assert_eq!(Domain::open(&missing).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let proc = Domain::open("file:///proc/self").await.unwrap_err();
    assert!(matches!(proc.kind(), ErrorKind::Unsupported | ErrorKind::Denied), "{proc}");
}

/// Another user can make a file or a link with the path of the default directory, and remove it while a name is held. That must not lead this
/// user's processes to different directories, and neither must a missing parent.
#[test]
fn the_default_directory_is_always_the_same_or_an_error() {
    let scratch = Scratch::new();
    let parent = scratch.path().join("parent");
    let open = || crate::backend::file::directory::Directory::open_default(parent.to_str().unwrap());
    let dir = parent.join(format!("tenure-{}", rustix::process::geteuid().as_raw()));
    let error = open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for part in [dir.to_str().unwrap(), "file:///", "install -d"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    fs::create_dir(&parent).unwrap();
    assert_eq!(open().unwrap().path(), dir);
    assert_eq!(mode(&dir), 0o700);

    fs::remove_dir(&dir).unwrap();
    fs::write(&dir, "").unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Denied, "a file");
    fs::remove_file(&dir).unwrap();
    std::os::unix::fs::symlink(&parent, &dir).unwrap();
    assert_eq!(open().unwrap_err().kind(), ErrorKind::Denied, "a link");

    // The same when it is opened again after it was removed.
    fs::remove_file(&dir).unwrap();
    let opened = open().unwrap();
    let elsewhere = scratch.path().join("elsewhere");
    fs::rename(&dir, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &dir).unwrap();
    assert_eq!(opened.reopen(false).unwrap_err().kind(), ErrorKind::Denied, "a link later");
}
