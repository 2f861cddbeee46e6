//! `tenure` in a mount namespace of its own, as services and containers have.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use rustix::fs::{CWD, Mode};

use crate::support::{Place, eventually};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// Runs `tenure` as another user, who may not be able to reach it by its path. (A copy can't be run while a process that was started meanwhile has it
/// open for writing.)
const AS_A_USER: &str = "exec 9<\"$0\"; \
    exec setpriv --reuid=54321 --regid=54321 --clear-groups env -u TENURE_URL -u HOME /proc/self/fd/9 \"$@\"";

/// A command after these mounts, which nobody else sees.
fn after(place: &Place, mounts: &str, command: &[&str]) -> Output {
    let script = format!("{mounts}\nexec \"$@\"");
    let mut unshare = place.command("unshare");
    unshare.args(["--mount", "--propagation", "private", "--", "sh", "-ec", &script, "sh"]).args(command);
    unshare.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_container_with_a_boot_id_of_its_own_ends_no_lease() {
    let place = Place::new();
    let go = place.path("go");
    rustix::fs::mkfifoat(CWD, &go, Mode::RUSR | Mode::WUSR).unwrap();
    let holder = place.start(&["run", "name", "--", "sh", "-c", "read end < go"]);
    eventually("it is held", || place.inspect("name").is_held());
    let waiter = place.start(&["run", "name", "--", "true"]);
    place.await_queue(1);
    fs::write(place.path("boot_id"), "01234567-89ab-4cde-8f01-23456789abcd\n").unwrap();
    let mount = "mount --bind boot_id /proc/sys/kernel/random/boot_id";
    for command in [&[TENURE, "ls"][..], &[TENURE, "status", "name"]] {
        let refused = after(&place, mount, command);
        assert!(!refused.status.success(), "{command:?}");
        assert!(stderr(&refused).contains("another boot id"), "{command:?}: {}", stderr(&refused));
    }
    let status = place.inspect("name");
    assert!(status.is_held() && status.waiters.len() == 1, "{status:?}");
    fs::write(go, "\n").unwrap();
    assert_eq!((holder.finish().code, waiter.finish().code), (0, 0));
    let after_all = after(&place, mount, &[TENURE, "run", "name", "--", "true"]);
    assert!(after_all.status.success(), "{}", stderr(&after_all));
}

/// One place for all processes of a user, or an error that says what to do: never another place.
#[test]
fn the_default_directory_is_in_one_place_or_nowhere() {
    let place = Place::new();
    let ls = ["sh", "-c", AS_A_USER, TENURE, "ls"];
    let of_root = ["env", "-u", "TENURE_URL", TENURE, "ls"];
    let run_lock = |mode: &str| {
        format!(
            "mount -t tmpfs -o size=1m,mode=755 none /run; mkdir -m {mode} /run/lock; chmod {mode} /run/lock"
        )
    };
    let missing = "mount -t tmpfs -o size=1m,mode=755 none /run".to_owned();
    for (mounts, command, directory) in [
        (&missing, &of_root[..], "/run/lock/tenure-0"),
        (&missing, &ls, "/run/lock/tenure-54321"),
        (&run_lock("755"), &ls, "/run/lock/tenure-54321"),
    ] {
        let refused = after(&place, mounts, command);
        let said = stderr(&refused);
        assert!(!refused.status.success(), "{mounts}: {said}");
        assert!(said.contains(directory) && said.contains("file:///"), "{mounts}: {said}");
    }
    assert!(!fs::exists("/tmp/tenure-54321").unwrap(), "it is in another place");
    // It does what it says.
    let made = format!("{}; install -d -o 54321 -m 700 /run/lock/tenure-54321", run_lock("755"));
    for mounts in [&made, &run_lock("1777")] {
        let done = after(&place, mounts, &ls);
        assert!(done.status.success(), "{mounts}: {}", stderr(&done));
    }
}

// S1: in a user namespace of their own, a user has another id, and would lock in another place.
#[test]
fn a_user_namespace_does_not_lead_to_another_default_directory() {
    let place = Place::new();
    let lock = "mount -t tmpfs -o size=4m,mode=755 none /run; mkdir -m 1777 /run/lock; chmod 1777 /run/lock";
    // Holds the name, and asks for it in another namespace meanwhile.
    let twice = |unshare: &str| {
        format!(
            "exec 9<\"$0\"; exec setpriv --reuid=54321 --regid=54321 --clear-groups env -u TENURE_URL HOME=/ \
             /proc/self/fd/9 run name -- {unshare} /proc/self/fd/9 run -n --url file: name -- echo two"
        )
    };
    for unshare in ["unshare -Ur", "unshare -U", "unshare -Ur unshare -Ur", "unshare -U --map-user=54321"] {
        let run = after(&place, lock, &["sh", "-c", &twice(unshare), TENURE]);
        let said = stderr(&run);
        assert!(!run.status.success(), "{unshare}: {said}");
        assert!(!String::from_utf8_lossy(&run.stdout).contains("two"), "{unshare}: two hold it");
        assert!(said.contains("user namespace") && said.contains("file:///"), "{unshare}: {said}");
    }
    // Where an id means the same user, it is the same directory.
    let of_root = format!(
        "unset TENURE_URL; {TENURE} run name -- unshare -Ur {TENURE} run -n --url file: name -- echo two"
    );
    let run = after(&place, lock, &["sh", "-c", &of_root]);
    assert_eq!(run.status.code(), Some(75), "{}", stderr(&run));
    // From there, it does not see which URL the outer one has, so it has to be named.
    let run = after(&place, lock, &["sh", "-c", &of_root.replace("--url file:", "")]);
    assert_eq!(run.status.code(), Some(64), "{}", stderr(&run));
    // A container has a directory of its own, and users that are others outside.
    let container = r#"exec 9<"$0"
        unshare --user --mount sleep 600 & pid=$!
        until [ "$(readlink /proc/$pid/ns/user)" != "$(readlink /proc/self/ns/user)" ]; do :; done
        for map in uid_map gid_map; do echo 0 100000 65536 > /proc/$pid/$map; done
        tenure="env -u TENURE_URL HOME=/ /proc/self/fd/9 run name -- echo"
        nsenter --user --mount --target $pid sh -c "$tenure outside; mount -t tmpfs none /run/lock && $tenure inside"
        kill $pid"#;
    let run = after(&place, lock, &["sh", "-c", container, TENURE]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "inside\n", "{}", stderr(&run));
}

/// Where everyone can make directories, another user could make the default one of a group that its victim is in.
#[test]
fn the_default_directory_is_not_shared() {
    let place = Place::new();
    let ls = ["sh", "-c", AS_A_USER, TENURE, "ls"];
    for (owner, why) in [("0", "belongs to user root, not to 54321"), ("54321", "can be written by others")] {
        let mounts = format!(
            "mount -t tmpfs -o size=1m,mode=755 none /run; mkdir -m 1777 /run/lock; \
             install -d -m 2770 -o {owner} -g 54321 /run/lock/tenure-54321"
        );
        let refused = after(&place, &mounts, &ls);
        let said = stderr(&refused);
        assert!(refused.status.code() == Some(77) && said.contains(why), "{owner}: {said}");
        assert!(!said.contains("install"), "sharing it is no way out: {said}");
    }
}

/// As systemd does it for a service with `PrivateTmp=yes`.
#[test]
fn a_private_tmp_is_warned_of() {
    let place = Place::new();
    let own = place.path("systemd-private-0123-app.service-AbCd/tmp");
    fs::create_dir_all(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(own.join("tenure"), "").unwrap();
    // The program may be in the /tmp that is hidden then.
    let mounts = format!("mount --bind {TENURE} {0}/tenure; mount --rbind {0} /tmp; cd /tmp", own.display());
    let (tenure, url) = ("/tmp/tenure", "file:///tmp/locks");
    let run = after(&place, &mounts, &[tenure, "run", "--url", url, "name", "--", "true"]);
    assert!(run.status.success(), "{}", stderr(&run));
    assert!(stderr(&run).contains("private /tmp"), "{}", stderr(&run));
    let doctor = after(&place, &mounts, &[tenure, "doctor", "--url", url]);
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(found.contains("private /tmp"), "{found}");
    // What is shared with it from outside is not private.
    let shared = place.path("shared");
    fs::create_dir(&shared).unwrap();
    let mounts = format!(
        "exec 3<{}; {mounts}; mkdir -m 700 /tmp/shared; mount --bind /proc/self/fd/3 /tmp/shared",
        shared.display()
    );
    let run = after(&place, &mounts, &[tenure, "run", "--url", "file:///tmp/shared", "name", "--", "true"]);
    assert_eq!((run.status.code(), &*stderr(&run)), (Some(0), ""));
}
