//! Several users of one machine: each has a default directory of their own, and those of a group share one that root has prepared.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Finished, Place, Running, eventually};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const GROUP: u32 = 60_700;
const ALICE: u32 = 60_701;
const BOB: u32 = 60_702;
/// A user who is not in the group.
const STRANGER: u32 = 60_703;

/// A directory in memory that root shares with the group.
struct Shared {
    place: Place,
    dir: PathBuf,
}

impl Shared {
    fn new() -> Self {
        let place = Place::new();
        let dir = PathBuf::from("/dev/shm").join(place.path("").file_name().unwrap());
        let shared = Shared { place, dir };
        // As the documents say.
        shared.sh(&format!("install -d -m 2770 -g {GROUP} {}", shared.dir.display()));
        shared
    }

    fn url(&self) -> String {
        format!("file://{}", self.dir.display())
    }

    fn sh(&self, command: &str) {
        assert!(self.place.command("sh").args(["-ec", command]).status().unwrap().success(), "{command}");
    }

    /// `tenure` as this user, who may not be able to reach it by its path.
    fn tenure(&self, user: u32, args: &[&str]) -> Command {
        let groups = if user == STRANGER { "--clear-groups".to_owned() } else { format!("--groups={GROUP}") };
        let script = format!(
            "umask 077; exec 9<\"$0\"; exec setpriv --reuid={user} --regid={user} {groups} /proc/self/fd/9 \"$@\""
        );
        let mut command = self.place.command("sh");
        command.args(["-c", &script, TENURE]).args(args).env("TENURE_URL", self.url());
        command
    }

    fn start(&self, user: u32, args: &[&str]) -> Running {
        self.place.spawn(self.tenure(user, args))
    }

    fn end(&self, user: u32, args: &[&str]) -> Finished {
        self.start(user, args).finish()
    }

    fn has(&self, text: &str) -> bool {
        self.end(0, &["status", "--json", "backup"]).stdout.contains(text)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn users_of_one_group_run_one_at_a_time() {
    let shared = Shared::new();
    let sleep = ["run", "--ttl", "10m", "backup", "--", "sleep", "600"];
    for (holder, other) in [(0, ALICE), (ALICE, BOB), (BOB, 0)] {
        let holding = shared.start(holder, &sleep);
        eventually("it is held", || shared.has(r#""state":"held""#));
        let busy = shared.end(other, &["run", "-n", "backup", "--", "true"]);
        assert_eq!(busy.code, 75, "{busy:?}");
        let who = if holder == 0 { "root".to_owned() } else { holder.to_string() };
        assert!(busy.stderr.contains(&who), "{busy:?}");

        // Killed, wrapper and holder: the other user's process, which waits, goes on at once, and not after ten minutes.
        let waiting = shared.start(other, &["run", "backup", "--", "true"]);
        eventually("it waits", || {
            shared.has(&format!(
                r#""user":"{}""#,
                if other == 0 { "root".to_owned() } else { other.to_string() }
            ))
        });
        let holder = holding.holder();
        holding.signal(Signal::KILL);
        let _ = rustix::process::kill_process(holder, Signal::KILL);
        assert_eq!(waiting.finish().code, 0);
        holding.finish();
    }
}

// B5
#[test]
fn doctor_finds_files_that_the_group_cannot_use() {
    let shared = Shared::new();
    for user in [0, ALICE] {
        let fit = shared.end(user, &["doctor"]);
        assert_eq!(fit.code, 0, "{fit:?}");
        assert!(fit.stdout.contains(&format!("mode 2770, shared with group {GROUP}")), "{}", fit.stdout);
        assert!(fit.stdout.contains("can use all of them"), "{}", fit.stdout);
    }
    // As they are if the directory was private before.
    assert_eq!(shared.end(ALICE, &["run", "backup", "--", "true"]).code, 0);
    let stripes = || fs::read_dir(&shared.dir).unwrap().map(|entry| entry.unwrap().path());
    stripes().for_each(|stripe| fs::set_permissions(stripe, fs::Permissions::from_mode(0o600)).unwrap());
    let unfit = shared.end(BOB, &["doctor"]);
    assert_eq!(unfit.code, 1, "{unfit:?}");
    let mut lines = unfit.stdout.lines().skip_while(|line| !line.contains(" files "));
    let (found, remedy) = (lines.next().expect("a finding"), lines.next().expect("a remedy"));
    assert!(found.contains(&format!("can't be used by group {GROUP}")), "{}", unfit.stdout);
    shared.sh(remedy.trim().strip_prefix("as root: ").expect("it says who can do it"));
    assert!(stripes().all(|stripe| fs::metadata(stripe).unwrap().mode() & 0o777 == 0o660));
    let fit = shared.end(BOB, &["doctor"]);
    assert_eq!(fit.code, 0, "{fit:?}");
}

// B5
#[test]
fn doctor_says_which_bit_is_missing() {
    let [for_root, shared] = [(); 2].map(|()| {
        let shared = Shared::new();
        shared.sh(&format!("chmod 2750 {}", shared.dir.display()));
        shared
    });
    let doubtful = for_root.end(0, &["doctor"]);
    assert_eq!(doubtful.code, 0, "{doubtful:?}");
    assert!(doubtful.stdout.contains("its group can't write to it"), "{}", doubtful.stdout);
    let refused = shared.end(ALICE, &["doctor"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    let command = refused.stdout.split('`').nth(1).expect("a command");
    assert!(refused.stdout.contains("as root: `chmod 2770"), "{}", refused.stdout);
    shared.sh(command);
    assert_eq!(shared.end(ALICE, &["doctor"]).code, 0);
}

// B5
#[test]
fn doctor_says_who_can_make_a_directory() {
    let shared = Shared::new();
    let (dir, url) = (shared.dir.join("private"), format!("{}/private", shared.url()));
    shared.sh(&format!("chmod 755 {}", shared.dir.display()));
    for user in [0, ALICE] {
        let missing = shared.end(user, &["doctor", "--url", &url]);
        assert_eq!(missing.code, 69, "{missing:?}");
        let who = if user == 0 { String::new() } else { " as root".to_owned() };
        let (_, command) = missing.stdout.split_once(&format!("make it{who}: ")).expect("a command");
        shared.sh(command.lines().next().unwrap());
        assert_eq!(shared.end(user, &["doctor", "--url", &url]).code, 0);
        fs::remove_dir_all(&dir).unwrap();
    }
}

// B5
#[test]
fn a_user_outside_of_the_group_learns_what_to_do() {
    let shared = Shared::new();
    let refused = shared.end(STRANGER, &["run", "-n", "backup", "--", "true"]);
    assert_eq!(refused.code, 77, "{refused:?}");
    let what = format!("user {STRANGER} is not in group {GROUP}");
    assert!(refused.stderr.contains(&what) && refused.stderr.contains("usermod -aG"), "{refused:?}");
    let doctor = shared.end(STRANGER, &["doctor"]);
    assert_eq!(doctor.code, 77, "{doctor:?}");
    assert!(doctor.stdout.contains(&what) && doctor.stdout.contains("usermod -aG"), "{doctor:?}");
}
