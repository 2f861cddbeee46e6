//! The directory of a file domain: which one it is, whether it is fit, and access to its files.
//!
//! All files are opened relative to one descriptor of the directory, so a later change of the path leads nowhere else. No part of a lock's
//! name is ever part of a file's name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, linkat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::{platform, sharing};
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::quoted;
use crate::types::owner;

/// The parent of the default directories, one for each user.
const DEFAULT_PARENT: &str = "/run/lock";

#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether other users may write to its parent, as for the default directory. Then Tenure follows no link: any user may have made it.
    is_parent_open: bool,
    /// The name of its file system, unless that is known to be local.
    foreign_fs: Option<String>,
}

impl Directory {
    /// Opens the directory of a domain. Makes a missing directory, but not its parent.
    pub(super) fn open(path: Option<&Path>, network_fs_allowed: bool) -> Result<Self, Error> {
        let mut directory = match path {
            Some(path) => Directory::open_named(path)?,
            None => Directory::open_default(DEFAULT_PARENT)?,
        };
        directory.check(network_fs_allowed)?;
        Ok(directory)
    }

    /// Opens the directory that has the path now, after this one was removed. Only opening a domain makes a directory.
    pub(super) fn reopen(&self, network_fs_allowed: bool) -> Result<Self, Error> {
        let (path, is_parent_open) = (self.path.clone(), self.is_parent_open);
        let fd = match is_parent_open {
            true => open_no_link(&path)?,
            false => open_dir(&path, OFlags::empty()).map_err(|error| not_opened(&path, error))?,
        };
        let mut directory = Directory { fd, path, is_parent_open, foreign_fs: None };
        directory.check(network_fs_allowed)?;
        Ok(directory)
    }

    /// The default directory depends on the user id only, not on the environment, and has no fallback. Otherwise two processes of a user, in a
    /// service and in a shell, could lock in different directories.
    pub(super) fn open_default(parent: &str) -> Result<Self, Error> {
        let path = Path::new(parent).join(default_name());
        refuse_other_ids(Path::new(parent), &path)?;
        make(&path).map_err(|error| {
            let (user, path) = (owner::user(), path.display());
            Error::new(kind_and_fix(error).0, format!("default directory {path} could not be made"))
                .because(reason(error))
                .fix(format!(
                    "use one that all processes of this user share: `file:///path`, or as root: install -d -o {user} -m 700 {path}"
                ))
        })?;
        let fd = open_no_link(&path)?;
        Ok(Directory { fd, path, is_parent_open: true, foreign_fs: None })
    }

    /// Opens the directory that a URL names. Makes it if it is missing.
    fn open_named(path: &Path) -> Result<Self, Error> {
        let fd = match open_dir(path, OFlags::empty()) {
            Err(Errno::NOENT) => match make(path) {
                Err(error) => return Err(not_made(path, error)),
                Ok(()) => open_dir(path, OFlags::empty()),
            },
            answer => answer,
        };
        let fd = fd.map_err(|error| not_opened(path, error))?;
        Ok(Directory { fd, path: path.to_owned(), is_parent_open: false, foreign_fs: None })
    }

    fn check(&mut self, network_fs_allowed: bool) -> Result<(), Error> {
        let stat = self.io("looked at", fstat(&self.fd))?;
        sharing::check(&self.path, &stat, self.is_default())?;
        let path = self.path.display();
        // systemd-tmpfiles does not clean a directory while a process has a lock on it.
        let _ = rustix::fs::flock(&self.fd, rustix::fs::FlockOperation::NonBlockingLockShared);
        let (file_system, is_local) = self.io("looked at", platform::file_system(&self.fd))?;
        if is_local {
            return Ok(());
        }
        if !network_fs_allowed {
            let what = format!("file system of {path} is {file_system}, where locks may not hold");
            return Err(Error::unsupported(what)
                .fix("use a local directory, or `?network_fs=allow` if one machine alone uses it"));
        }
        self.foreign_fs = Some(file_system);
        Ok(())
    }

    /// The name of its file system, unless that is known to be local.
    pub(super) fn foreign_fs(&self) -> Option<&str> {
        self.foreign_fs.as_deref()
    }

    /// Whether it is the directory of a URL that names none.
    pub(super) fn is_default(&self) -> bool {
        self.path == Path::new(DEFAULT_PARENT).join(default_name())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The group that it is shared with now: it may become shared while it is in use.
    pub(super) fn group(&self) -> Option<u32> {
        fstat(&self.fd).ok().and_then(|stat| sharing::group_of(&stat)).filter(|_| !self.is_default())
    }

    /// An error if only the group's permission to write keeps it from being shared.
    pub(super) fn almost_shared(&self) -> Option<Error> {
        let stat = fstat(&self.fd).ok().filter(|_| !self.is_default())?;
        sharing::almost_shared(&self.path, &stat)
    }

    /// The stripes and sessions that the group can't use.
    pub(super) fn unshared(&self) -> Result<Vec<String>, Error> {
        // Both have their mode when they get their names. Other files may not have it yet.
        let mut names = self.list()?;
        names.retain(|name| sharing::is_stripe_or_session(name) && self.is_unshared(name));
        names.sort();
        Ok(names)
    }

    /// Whether the directory is shared with a group that can't use this file.
    pub(super) fn is_unshared(&self, name: &str) -> bool {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        let group = self.group();
        stat.is_ok_and(|stat| group.is_some_and(|group| !sharing::is_usable_by(group, &stat)))
    }

    /// Whether it was removed or moved away.
    pub(super) fn is_removed(&self) -> bool {
        match (fstat(&self.fd), rustix::fs::stat(&self.path)) {
            (Ok(open), Ok(named)) => (open.st_dev, open.st_ino) != (named.st_dev, named.st_ino),
            (_, Err(Errno::NOENT | Errno::NOTDIR)) => true,
            // It may still be there.
            _ => false,
        }
    }

    /// Whether this file has the name.
    pub(super) fn is_named(&self, file: &File, name: &str) -> bool {
        let named = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        fstat(file).is_ok_and(|open| named.is_ok_and(|named| named.st_ino == open.st_ino))
    }

    /// All names in it.
    pub(super) fn list(&self) -> Result<Vec<String>, Error> {
        let list = || -> Result<Vec<String>, Errno> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.fd)? {
                names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
            }
            Ok(names)
        };
        self.io("listed", list())
    }

    /// Opens a file; `None` if it does not exist. Returns an error that names it if it is not a regular file, or if it is another user's.
    pub(super) fn open_file(&self, name: &str) -> Result<Option<File>, Error> {
        match self.open_entry(name, OFlags::RDWR, FileType::RegularFile) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::ILSEQ) => Err(Error::new(
                ErrorKind::Protocol,
                format!("{} is not a file of tenure", self.path.join(name).display()),
            )
            .fix("remove it, or use another directory")),
            Err(error) => Err(self.file_failed(name, "opened", error)),
        }
    }

    /// Opens a pipe for writing (fails with ENXIO if no process reads it), or for reading and writing.
    pub(super) fn open_pipe(&self, name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
        self.open_entry(name, access | OFlags::NONBLOCK, FileType::Fifo)
    }

    fn open_entry(&self, name: &str, access: OFlags, kind: FileType) -> Result<OwnedFd, Errno> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        // Nobody needs the time of the last read. Only the owner may leave it out.
        let opened = match openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => openat(&self.fd, name, flags, Mode::empty()),
            answer => answer,
        };
        let fd = match opened {
            // A link or a directory.
            Err(Errno::LOOP | Errno::ISDIR) => return Err(Errno::ILSEQ),
            answer => answer?,
        };
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != kind {
            return Err(Errno::ILSEQ);
        }
        match self.group() {
            Some(group) if sharing::is_usable_by(group, &stat) => Ok(fd),
            Some(_) => Err(Errno::ACCESS),
            None if stat.st_uid == rustix::process::geteuid().as_raw() => Ok(fd),
            None => Err(Errno::PERM),
        }
    }

    /// Makes a file; an error if it exists.
    pub(super) fn create(&self, name: &str) -> Result<File, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = openat(&self.fd, name, flags, sharing::PRIVATE).and_then(|fd| {
            // Its users need the permissions that the umask takes away.
            rustix::fs::fchmod(&fd, self.file_mode()).map(|()| fd)
        });
        Ok(File::from(fd.map_err(|error| self.file_failed(name, "made", error))?))
    }

    /// Makes a pipe; false if another process removes it immediately.
    pub(super) fn create_pipe(&self, name: &str) -> Result<bool, Error> {
        let made = rustix::fs::mkfifoat(&self.fd, name, sharing::PRIVATE)
            .and_then(|()| self.set_mode_of_pipe(name, self.file_mode()));
        match made {
            Err(Errno::NOENT) if !self.is_removed() => Ok(false),
            answer => answer.map(|()| true).map_err(|error| self.file_failed(name, "made", error)),
        }
    }

    fn file_mode(&self) -> Mode {
        if self.group().is_some() { sharing::SHARED } else { sharing::PRIVATE }
    }

    /// Sets the mode of a pipe of this user, by descriptor: in a shared directory, another user could replace the pipe by a link.
    pub(super) fn set_mode_of_pipe(&self, name: &str, mode: Mode) -> Result<(), Errno> {
        let fd = openat(&self.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&fd)?;
        let is_ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo || !is_ours {
            return Err(Errno::NOENT);
        }
        // By way of /proc: the umask may have left no permission to open the pipe.
        rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), mode)
    }

    /// Gives a file a second name; false if the name exists.
    pub(super) fn link(&self, from: &str, to: &str) -> Result<bool, Error> {
        match linkat(&self.fd, from, &self.fd, to, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(self.file_failed(to, "made", error)),
        }
    }

    /// Gives a file another name; false if the file is gone.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<bool, Error> {
        match renameat(&self.fd, from, &self.fd, to) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.file_failed(to, "made", error)),
        }
    }

    /// Removes a file, if it exists and can be removed.
    pub(super) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Whether a file with this name exists. True if that can't be known: a directory that can't be searched for a while has lost nothing.
    pub(super) fn has(&self, name: &str) -> bool {
        !matches!(rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    }

    /// The result of a system call; its error says that the directory could not be read, written, and so on.
    pub(super) fn io<T>(&self, done: &str, result: Result<T, impl Into<io::Error>>) -> Result<T, Error> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        result.map_err(|error| failed(&self.path, done, errno(error.into())))
    }

    fn file_failed(&self, name: &str, done: &str, error: Errno) -> Error {
        if error == Errno::ACCESS
            && let Some(group) = self.group()
        {
            if self.is_unshared(name) {
                return sharing::unshared(&self.path, name, group);
            }
            if let Some(error) = sharing::not_a_member(&self.path, group) {
                return error;
            }
        }
        if error == Errno::PERM {
            return Error::new(
                ErrorKind::Denied,
                format!("{} belongs to another user, who may be using it", self.path.join(name).display()),
            )
            .fix(format!(
                "restore the owner and the mode of {}, or use another directory",
                self.path.display()
            ));
        }
        failed(&self.path.join(name), done, error)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn default_name() -> String {
    format!("tenure-{}", rustix::process::geteuid().as_raw())
}

/// Makes a directory, unless the path exists.
fn make(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        // Its owner needs the permissions that the umask takes away.
        Ok(()) => rustix::fs::chmod(path, Mode::RWXU),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_dir(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Opens the default directory, which must not be a link.
fn open_no_link(path: &Path) -> Result<OwnedFd, Error> {
    open_dir(path, OFlags::NOFOLLOW).map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP | Errno::ACCESS => {
            Error::new(ErrorKind::Denied, format!("{} is not a directory of this user", path.display()))
                .because("another user made it")
                .fix("remove it, or use another one: `file:///path`")
        }
        error => failed(path, "opened", error),
    })
}

/// Refuses the default directory if the processes of a user may see different user ids, and so use different directories.
fn refuse_other_ids(parent: &Path, path: &Path) -> Result<(), Error> {
    // Without the parent, making the directory fails anyway.
    let Ok(stat) = rustix::fs::stat(parent) else { return Ok(()) };
    let user = rustix::process::geteuid().as_raw();
    if platform::UserMap::of_this_process()?.agrees_on(user, stat.st_uid) {
        return Ok(());
    }
    let what = format!("default directory {} can't be used in this user namespace", path.display());
    Err(Error::unsupported(what)
        .because(format!("the user id is {user} here, and may be another one outside"))
        .fix("use a directory that all processes of this user share: `file:///path`"))
}

/// The error for a directory that a URL names, and that does not exist and could not be made.
fn not_made(path: &Path, error: Errno) -> Error {
    let (word, parent) = (quoted(&path.to_string_lossy()), path.parent().unwrap_or(path));
    let (shown, within) = (path.display(), quoted(&parent.to_string_lossy()));
    match error {
        // As in /proc.
        Errno::NOENT if rustix::fs::stat(parent).is_ok() => {
            Error::unsupported(format!("directory {shown} could not be made"))
                .because(format!("the file system of {within} takes no directories"))
                .fix("name another one: `file:///path`")
        }
        // Not transient: most likely the URL has a typing error.
        Errno::NOENT => Error::unsupported(format!("directory {shown} could not be made"))
            .because(format!("{within} does not exist"))
            .fix(format!("check the URL, or make that first: mkdir -p {within}")),
        Errno::ACCESS => {
            let user = owner::user();
            let what =
                format!("directory {shown} does not exist, and user {user} may not make it in {within}");
            Error::new(ErrorKind::Denied, what).fix(format!(
                "as root: install -d -m 700 -o {user} {word}, or for several users: install -d -m 2770 -g GROUP {word}"
            ))
        }
        error => failed(path, "made", error),
    }
}

/// The error for a directory that a URL names, and that could not be opened.
fn not_opened(path: &Path, error: Errno) -> Error {
    let directory = if error == Errno::ACCESS { rustix::fs::stat(path).ok() } else { None };
    let refusal = directory.and_then(|directory| match sharing::group_of(&directory) {
        Some(group) => sharing::not_a_member(path, group),
        None => sharing::almost_shared(path, &directory),
    });
    refusal.unwrap_or_else(|| failed(path, "opened", error))
}

fn failed(path: &Path, done: &str, error: Errno) -> Error {
    let (kind, fix) = kind_and_fix(error);
    Error::new(kind, format!("{} could not be {done}", path.display())).because(reason(error)).fix(fix)
}

fn kind_and_fix(error: Errno) -> (ErrorKind, &'static str) {
    match error {
        Errno::ACCESS | Errno::PERM => (ErrorKind::Denied, "check its owner and mode"),
        Errno::NOTDIR | Errno::LOOP => (ErrorKind::Invalid, "name a directory: `file:///path`"),
        Errno::NOENT => (ErrorKind::Unavailable, "make the directory again"),
        Errno::NOSPC | Errno::DQUOT => (ErrorKind::Unavailable, "free some space"),
        Errno::ROFS => (ErrorKind::Unavailable, "make it writable, or use another directory"),
        Errno::MFILE | Errno::NFILE => (ErrorKind::Unavailable, "raise the limit of open files"),
        _ => (ErrorKind::Unavailable, "check the file system"),
    }
}

fn reason(error: Errno) -> String {
    let reason = io::Error::from(error).to_string();
    reason.split(" (os error").next().unwrap_or_default().to_lowercase()
}
