//! A file with a URL in it: one line, and comments. Unlike variables, files survive cron, sudo and `env -i`.
//!
//! A file that exists counts, even if it can't be read: to ignore it would be to guess where names live. Only a file that certainly does not exist is
//! skipped: nothing has its name, and every directory above it is a directory.
//!
//! It is a plain file. A pipe would be empty for the next reader, or wait for a writer. So only `--url-file` may name a pipe, as in
//! `--url-file <(pass show tenure)`, and the wait for its writer has a limit.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::mistakes;
use crate::sys;
use crate::text::escaped;

/// For all users of this machine.
pub(crate) const SYSTEM: &str = "/etc/tenure/url";
/// Below the config directory of a user.
const OF_USER: &str = "tenure/url";
/// No URL is longer, with all its comments.
const LONGEST: u64 = 64 * 1_024;
/// How long to read a pipe: somebody may have to type the password of a password manager.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// The owner that the kernel shows for a file whose owner is not in this user namespace.
const UNMAPPED: u32 = 65_534;

/// What was read.
#[derive(Debug)]
pub(super) struct Contents {
    /// The URL, as it is written there.
    pub(super) url: String,
    /// `None` for a pipe.
    about: Option<Metadata>,
    /// The owner of the link, if it is one.
    linked_by: Option<u32>,
}

impl Contents {
    /// The mode of the file, if every user can do this with it: 4 is read, 2 is write.
    pub(super) fn mode_for_all(&self, right: u32) -> Option<u32> {
        let mode = self.about.as_ref()?.permissions().mode() & 0o777;
        (mode & right != 0).then_some(mode)
    }

    /// The owner of the file, or of the link to it, if that is neither root nor this user.
    pub(super) fn stranger(&self) -> Option<u32> {
        let owners = [Some(self.about.as_ref()?.uid()), self.linked_by];
        owners.into_iter().flatten().find(|owner| is_stranger(*owner))
    }
}

/// Whether this user is neither root nor the one of this process.
fn is_stranger(owner: u32) -> bool {
    // In an unprivileged container, a file of the machine's root looks like that.
    let is_unmapped = || owner == UNMAPPED && !sys::is_first_user_namespace();
    owner != 0 && owner != rustix::process::geteuid().as_raw() && !is_unmapped()
}

/// How another user could replace a file.
#[derive(Debug)]
pub(super) enum Weakness {
    /// This directory or link belongs to another user.
    Of(PathBuf, u32),
    /// Every user can rename what is in this directory, which has this mode.
    Open(PathBuf, u32),
}

/// The first directory or link on the path that another user can change. A sticky directory such as /tmp does not count: users can change only their
/// own files there.
pub(super) fn weakness_above(path: &Path) -> Option<Weakness> {
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut left: Vec<OsString> = names(&std::path::absolute(path).ok()?);
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(name);
        // Reading the file reports that it is missing.
        let about = next.symlink_metadata().ok()?;
        if (about.is_symlink() || about.is_dir()) && is_stranger(about.uid()) {
            return Some(Weakness::Of(next, about.uid()));
        }
        if about.is_symlink() {
            links += 1;
            let target = fs::read_link(&next).ok().filter(|_| links <= MOST_LINKS)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            left.extend(names(&target));
            continue;
        }
        let mode = about.permissions().mode() & 0o7777;
        if about.is_dir() && mode & 0o1002 == 0o2 {
            return Some(Weakness::Open(next, mode));
        }
        at = next;
    }
    None
}

/// The names in a path, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// The directory above a file that this user may not search. Whether the file exists is then unknown.
pub(super) fn unsearchable_above(path: &Path) -> Option<&Path> {
    let is_denied =
        |path: &Path| path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    path.ancestors().take_while(|path| is_denied(path)).last()?.parent()
}

/// Where files are looked for.
#[derive(Debug)]
pub(super) struct Places {
    /// The first that exists counts.
    pub(super) all: Vec<PathBuf>,
    /// The file that is ignored because `XDG_CONFIG_HOME` names another directory.
    pub(super) replaced: Option<PathBuf>,
}

impl Places {
    /// Those of this process.
    pub(super) fn of_this() -> Self {
        Places::of(|name| env::var_os(name))
    }

    /// Those of a process of this user with these variables.
    pub(super) fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let directory = |name| variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let home = directory("HOME").or_else(sys::home).filter(|home| home.is_absolute());
        // Some system users have this home, which means none.
        let home = home.filter(|home| home != Path::new("/dev/null"));
        let usual = home.map(|home| home.join(".config"));
        let named = directory("XDG_CONFIG_HOME");
        let replaced = usual.clone().filter(|usual| named.as_ref().is_some_and(|named| named != usual));
        let settings = named.or(usual);
        let of_user = |dir: PathBuf| dir.join(OF_USER);
        let all = settings.map(of_user).into_iter().chain([PathBuf::from(SYSTEM)]).collect();
        Places { all, replaced: replaced.map(of_user) }
    }
}

/// Whether a file exists; false only if that is certain.
///
/// # Errors
/// Says why that is unknown. Behind a link to nothing, a file system may not be mounted yet.
pub(super) fn is_there(path: &Path) -> Result<bool, String> {
    let Err(error) = path.symlink_metadata() else { return Ok(true) };
    if error.kind() != ErrorKind::NotFound {
        return Err(unreadable(path, &error));
    }
    for directory in path.ancestors().skip(1) {
        match directory.symlink_metadata() {
            Ok(about) if about.is_symlink() && directory.metadata().is_err() => {
                let directory = escaped(&directory.to_string_lossy());
                return Err(format!(
                    "can't be read: {directory} is a link to nothing; repair or remove the link, or name a file: --url-file"
                ));
            }
            Ok(_) => break,
            Err(_) => {}
        }
    }
    Ok(false)
}

/// Whether both are the same file.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
    one == other || identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    let fix = match error.kind() {
        ErrorKind::PermissionDenied => how_to_read(path),
        _ => "check its name, or name another file: --url-file".to_owned(),
    };
    format!("can't be read: {error}; {fix}")
}

/// How this user gets to read a file, by its owner, its group and its mode. Not by `--url`: the file may have a password in it, which ps would show.
fn how_to_read(path: &Path) -> String {
    let shown = escaped(&path.to_string_lossy());
    let user = rustix::process::geteuid().as_raw();
    match fs::metadata(path) {
        Ok(about) if about.uid() == user => format!("chmod u+r {shown}"),
        Ok(about) if about.permissions().mode() & 0o040 != 0 => {
            let (user, group) = (sys::user_name(user), sys::group_name(about.gid()));
            format!(
                "add this user to the file's group, as root: usermod -aG {group} {user}, and log in again"
            )
        }
        Ok(_) => {
            format!("let a group of this user read it, as root: chgrp GROUP {shown} && chmod 640 {shown}")
        }
        Err(_) => "let this user search its directory, or name another file: --url-file".to_owned(),
    }
}

/// Reads the URL in a file.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn read(path: &Path, may_be_pipe: bool) -> Result<Contents, String> {
    let unreadable = |error: io::Error| unreadable(path, &error);
    // Before it is opened: opening a device may have an effect.
    let is_pipe = check_kind(&fs::metadata(path).map_err(unreadable)?, may_be_pipe)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    let bytes = match check_kind(&about, may_be_pipe)? || is_pipe {
        true => read_pipe(file, path, LONGEST_WAIT)?,
        false => {
            let mut bytes = Vec::new();
            file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
            bytes
        }
    };
    if bytes.len() as u64 > LONGEST {
        return Err("too long for a file with a URL; name one with a single URL in it".to_owned());
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err("is in UTF-16; save it as UTF-8".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| super::NOT_UTF8.to_owned())?;
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let link = path.symlink_metadata().ok().filter(Metadata::is_symlink);
    Ok(Contents {
        url: only_line(text)?.to_owned(),
        about: Some(about).filter(Metadata::is_file),
        linked_by: link.map(|link| link.uid()),
    })
}

/// Whether it is a pipe; fails for what is neither that nor a plain file.
fn check_kind(about: &Metadata, may_be_pipe: bool) -> Result<bool, String> {
    let kind = about.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(false),
        () if kind.is_fifo() && may_be_pipe => return Ok(true),
        () if kind.is_fifo() => "a pipe",
        () if kind.is_dir() => "a directory",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    let only = if kind.is_fifo() { "; only --url-file may name a pipe" } else { "" };
    Err(format!("can't be read: it is {what}; write the URL into a plain file{only}"))
}

/// Reads a pipe to its end.
fn read_pipe(mut pipe: File, path: &Path, longest: Duration) -> Result<Vec<u8>, String> {
    let (start, mut bytes) = (Instant::now(), Vec::new());
    while bytes.len() as u64 <= LONGEST {
        let left = longest.saturating_sub(start.elapsed());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let count = poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)], Some(&left));
        if count == Ok(0) {
            let seconds = longest.as_secs();
            return Err(format!(
                "can't be read: it is a pipe, and its writer did not end within {seconds} s; use a plain file"
            ));
        }
        let mut piece = [0; 4_096];
        match pipe.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(unreadable(path, &error)),
        }
    }
    Ok(bytes)
}

/// The one line that is neither empty nor a comment.
fn only_line(text: &str) -> Result<&str, String> {
    let lines = text.lines().map(str::trim).zip(1..);
    let lines: Vec<(&str, usize)> =
        lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')).collect();
    if let Some((why, number)) = lines.iter().find_map(|(line, number)| Some((mistakes::of(line)?, number))) {
        return Err(format!("line {number} {why}"));
    }
    match lines[..] {
        [] => Err("has no URL; write one into it, such as redis://host:6379, or remove the file".to_owned()),
        [(line, _)] => Ok(line),
        [(_, first), (_, second), ..] => Err(format!(
            "has more than one URL, in lines {first} and {second}; keep one, and write # before the others"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    use super::*;

    fn places(variables: &[(&str, &str)]) -> (Vec<PathBuf>, Option<PathBuf>) {
        let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        let Places { all, replaced } = Places::of(get);
        (all, replaced)
    }

    #[test]
    fn without_an_absolute_home_the_user_database_counts() {
        let database = sys::home().expect("this user has one").join(".config/tenure/url");
        let all = |first: PathBuf| vec![first, PathBuf::from(SYSTEM)];
        for variables in
            [&[][..], &[("HOME", "")], &[("HOME", "relative")], &[("XDG_CONFIG_HOME", "relative")]]
        {
            assert_eq!(places(variables), (all(database.clone()), None), "{variables:?}");
        }
        assert_eq!(places(&[("HOME", "/h")]), (all("/h/.config/tenure/url".into()), None));
        let usual = Some("/h/.config/tenure/url".into());
        assert_eq!(
            places(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]),
            (all("/x/tenure/url".into()), usual)
        );
        let same = [("HOME", "/h"), ("XDG_CONFIG_HOME", "/h/.config")];
        assert_eq!(places(&same), (all("/h/.config/tenure/url".into()), None));
        assert_eq!(places(&[("HOME", "/dev/null")]), (vec![PathBuf::from(SYSTEM)], None));
    }

    #[test]
    fn nobody_waits_forever_for_the_writer_of_a_pipe() {
        let pipe = || {
            let (reader, writer) = io::pipe().unwrap();
            (File::from(OwnedFd::from(reader)), writer)
        };
        let (reader, writer) = pipe();
        let path = Path::new("pipe");
        let why = read_pipe(reader, path, Duration::from_millis(20)).unwrap_err();
        assert!(why.contains("its writer did not end within"), "{why}");
        drop(writer);
        let (reader, mut writer) = pipe();
        writer.write_all(b"file:").unwrap();
        drop(writer);
        assert_eq!(read_pipe(reader, path, LONGEST_WAIT).unwrap(), b"file:");
    }
}
