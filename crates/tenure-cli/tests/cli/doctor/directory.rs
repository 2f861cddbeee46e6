//! Directories.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use super::doctor_at;
use crate::support::{Place, eventually};

/// A directory in memory, which nothing cleans.
struct InMemory(PathBuf);

impl InMemory {
    fn new(place: &Place) -> Self {
        let dir = Path::new("/dev/shm").join(place.path("").file_name().unwrap());
        fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        InMemory(dir)
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

// B5
#[test]
fn a_fit_directory() {
    let place = Place::new();
    let dir = InMemory::new(&place);
    let report = doctor_at(&place, &dir.url());
    assert_eq!((report.troubles(), report.code), (vec![], 0));
    assert!(report.reason("file system").starts_with("tmpfs"), "{}", report.reason("file system"));
    assert!(report.reason("owner").contains("mode 700"), "{}", report.reason("owner"));
    assert_eq!(report.reason("leftovers"), "none");
    let files: Vec<_> = fs::read_dir(&dir.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(files.iter().all(|file| file.starts_with("stripe-")), "only empty stripes stay: {files:?}");
}

// B5
#[test]
fn a_directory_that_is_cleaned_by_age() {
    let place = Place::new();
    let report = doctor_at(&place, &place.url());
    assert_eq!((report.troubles(), report.code), (vec![("store", "doubtful")], 0));
    assert!(
        report.reason("store").contains("cleaning /tmp by age may remove files in use"),
        "{}",
        report.reason("store")
    );
}

// B5
#[test]
fn a_directory_that_others_can_write_to() {
    let place = Place::new();
    let dir = InMemory::new(&place);
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o777)).unwrap();
    let report = doctor_at(&place, &dir.url());
    assert_eq!((report.troubles(), report.code), (vec![("store", "unfit")], 77));
    let remedy = report.finding("store")["remedy"].as_str().unwrap();
    let command = remedy.split('`').nth(1).expect("a command in it");
    assert!(place.command("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    assert_eq!(doctor_at(&place, &dir.url()).troubles(), []);
}

// B5
#[test]
fn a_directory_of_another_user() {
    let place = Place::new();
    let dir = InMemory::new(&place);
    // Only root can give one away; for everyone else, root's are another user's.
    let url = match chown(&dir.0, Some(1), None) {
        Ok(()) => dir.url(),
        Err(_) => "file:///usr".to_owned(),
    };
    let report = doctor_at(&place, &url);
    assert_eq!((report.troubles(), report.code), (vec![("store", "unfit")], 77));
    assert!(report.reason("store").contains("belongs to user"), "{}", report.reason("store"));
}

// B5: names on these files are refused, so the directory is not fit, whether it is shared or not.
#[test]
fn files_that_cannot_be_used() {
    let place = Place::new();
    let dir = InMemory::new(&place);
    assert_eq!(doctor_at(&place, &dir.url()).troubles(), []);
    let (stripe, session) = (dir.0.join("stripe-3f.7"), dir.0.join("session-0123456789abcdef"));
    let mut other = vec![0; 8_192];
    other[4_056..4_064].copy_from_slice(b"tenure2\n");
    for (content, why) in [
        (&other[..], "was written by another version of tenure"),
        (b"something else", "is corrupt, or not a file of tenure"),
        (b"", "is empty"),
    ] {
        fs::write(&stripe, content).unwrap();
        let report = doctor_at(&place, &dir.url());
        assert!(
            report.troubles().contains(&("files", "unfit")) && report.code == 1,
            "{:?}",
            report.troubles()
        );
        assert!(
            report.reason("files").starts_with(&format!("{} {why}", stripe.display())),
            "{}",
            report.reason("files")
        );
        let remedy = report.finding("files")["remedy"].as_str().unwrap();
        assert!(
            remedy.contains("use that version") || remedy.ends_with(&format!("rm {}", stripe.display())),
            "{remedy}"
        );
        assert_eq!(fs::read(&stripe).unwrap(), content, "nothing is written to it");
    }
    fs::create_dir(&session).unwrap();
    let report = doctor_at(&place, &dir.url());
    assert!(report.reason("files").ends_with("and 1 more file is refused"), "{}", report.reason("files"));
    fs::remove_file(&stripe).unwrap();
    let report = doctor_at(&place, &dir.url());
    assert!(report.reason("files").contains(&session.display().to_string()), "{}", report.reason("files"));
    fs::remove_dir(&session).unwrap();
    assert_eq!(doctor_at(&place, &dir.url()).troubles(), []);
}

// B5: stripes that lie among other files may be tidied up.
#[test]
fn a_directory_with_other_files() {
    let place = Place::new();
    let dir = InMemory::new(&place);
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.0.join("report.csv"), "").unwrap();
    let report = doctor_at(&place, &dir.url());
    assert_eq!((report.troubles(), report.code), (vec![("files", "doubtful")], 0));
    assert!(report.reason("files").starts_with("beside `report.csv`: "), "{}", report.reason("files"));
    fs::write(dir.0.join("a.txt"), "").unwrap();
    let report = doctor_at(&place, &dir.url());
    let several = "beside 2 other files, such as `a.txt`: ";
    assert!(report.reason("files").starts_with(several), "{}", report.reason("files"));
    let remedy = report.finding("files")["remedy"].as_str().unwrap();
    let url = remedy.rsplit(' ').next().unwrap();
    fs::create_dir(url.strip_prefix("file://").unwrap()).unwrap();
    assert_eq!(doctor_at(&place, url).troubles(), []);
}

// B5
#[test]
fn files_of_killed_processes_are_counted_and_removed() {
    let place = Place::new();
    let dir = InMemory::new(&place);
    let has_session = || {
        let files = fs::read_dir(&dir.0).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_str().unwrap().starts_with("session-"))
    };
    let mut hold = place.tenure(&["hold", "name", "--url", &dir.url()]);
    hold.stdin(Stdio::piped());
    let hold = place.spawn(hold);
    eventually("there is a session", has_session);
    hold.signal(Signal::KILL);
    hold.finish();
    let report = doctor_at(&place, &dir.url());
    assert_eq!(report.reason("leftovers"), "of 1 killed process: removed");
    assert!(!has_session());
    assert_eq!(doctor_at(&place, &dir.url()).reason("leftovers"), "none");
}
