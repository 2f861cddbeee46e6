//! Who may use a directory: the user that it belongs to, or a group that root shares it with.
//!
//! The directory itself says which: it is shared if it is setgid and its group can write to it. Then every file in it belongs to that group,
//! whichever user makes it, and Tenure gives the group access to it, whatever the umask is. In every other directory all files are private.
//!
//! - A shared directory belongs to root. If another user owned it, anybody could make one, in a place that everybody can write to, for a group
//!   that a victim happens to be in.
//! - It is not sticky: the members of the group replace and remove each other's files.
//! - A file in it that is not the group's is refused, also if it belongs to this user: a member could have linked any file of the machine there.

use std::path::Path;

use rustix::fs::{Mode, Stat};

use super::platform;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::quoted;
use crate::types::owner;

const SETGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const GROUP_USES: u32 = 0o070;
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_USE: u32 = 0o007;
/// What a member needs of a file.
const GROUP_READS_AND_WRITES: u32 = 0o060;

/// The mode of a file that only its user can use.
pub(super) const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The mode of a file that the group can use.
pub(super) const SHARED: Mode = PRIVATE.union(Mode::RGRP).union(Mode::WGRP);

/// The group that a directory is shared with.
pub(super) fn group_of(directory: &Stat) -> Option<u32> {
    let is_shared = directory.st_mode & SETGID != 0 && directory.st_mode & GROUP_WRITES != 0;
    is_shared.then_some(directory.st_gid)
}

/// Whether every member of the group can use a file.
pub(super) fn is_usable_by(group: u32, file: &Stat) -> bool {
    file.st_gid == group && file.st_mode & GROUP_READS_AND_WRITES == GROUP_READS_AND_WRITES
}

/// Refuses a directory that is neither this user's alone nor shared as it should be. The default one is never shared: others may be able to make it.
pub(super) fn check(path: &Path, directory: &Stat, is_default: bool) -> Result<(), Error> {
    let group = group_of(directory).filter(|_| !is_default);
    if platform::UserMap::of_this_process()?.hides(directory.st_uid) {
        let path = path.display();
        return Err(Error::new(
            ErrorKind::Denied,
            format!("directory {path} belongs to a user that this user namespace does not show"),
        )
        .fix(
            "run tenure outside of the namespace, or use \
                 a directory that a user in it made: `file:///path`",
        ));
    }
    let refusal = match group {
        Some(group) => unfit_to_share(path, directory, group),
        None => not_private(path, directory, is_default),
    };
    refusal.map_or(Ok(()), |message| Err(Error::new(ErrorKind::Denied, message)))
}

fn unfit_to_share(path: &Path, directory: &Stat, group: u32) -> Option<String> {
    let (word, share) = (word(path), share_command(path, directory.st_gid));
    let (path, mode, group) = (path.display(), directory.st_mode, group_name(group));
    let (why, fix) = if directory.st_uid != 0 {
        let owner = directory.st_uid;
        (format!("it belongs to user {owner}, not to root"), format!("as root: `chown root {word}`"))
    } else {
        let why = if mode & OTHERS_WRITE != 0 {
            "every user can write to it"
        } else if mode & STICKY != 0 {
            "it is sticky, so its users can't remove each other's files"
        } else if mode & GROUP_USES != GROUP_USES {
            "its group can't read it"
        } else {
            return None;
        };
        (why.to_owned(), format!("use another one, or as root: `{share}`"))
    };
    Some(format!("directory {path} can't be shared with group {group}: {why}; {fix}"))
}

fn not_private(path: &Path, directory: &Stat, is_default: bool) -> Option<String> {
    let (word, shown, mode, owner) = (word(path), path.display(), directory.st_mode, directory.st_uid);
    let me = rustix::process::geteuid().as_raw();
    // Not this one: it may be /usr.
    let share = match is_default {
        true => "",
        false => ", or use one that root shares with a group: install -d -m 2770 -g GROUP /path",
    };
    // As it is if an administrator forgot a digit.
    if owner == 0 && mode & (STICKY | GROUP_WRITES | OTHERS_WRITE) == GROUP_WRITES && !is_default {
        let group = group_name(directory.st_gid);
        return Some(format!(
            "directory {shown} can be written by others, and is not shared with group {group}, because it is not setgid; \
             as root: `{}` to share it, or `chmod 700 {word}`",
            share_command(path, directory.st_gid)
        ));
    }
    if owner != me
        && !is_default
        && let Some(message) = lacks_write(path, directory)
    {
        return Some(message);
    }
    if owner != me {
        return Some(format!(
            "directory {shown} belongs to user {owner}, not to {me}; use a directory of your own: `file:///path`{share}"
        ));
    }
    if mode & (GROUP_WRITES | OTHERS_WRITE) == 0 {
        return None;
    }
    // What is sticky, as /tmp is, is meant to be shared.
    let fix = match mode & STICKY {
        0 => format!("`chmod 700 {word}`{share}"),
        _ if platform::TEMPORARY.iter().any(|temporary| path.starts_with(temporary)) => {
            "use one elsewhere, where nothing is cleaned by age: `file:///var/lib/NAME`".to_owned()
        }
        _ => format!("use one inside it: `file://{shown}/locks`"),
    };
    Some(format!("directory {shown} can be written by others; {fix}"))
}

/// What to say of a directory of root that is almost as a shared one is, but that its group can't write to. For root it is a private one.
pub(super) fn almost_shared(path: &Path, directory: &Stat) -> Option<Error> {
    lacks_write(path, directory).map(|message| Error::new(ErrorKind::Denied, message))
}

/// It is setgid; or it is closed to others, and this user is in its group. (What others can read may be anything.)
fn lacks_write(path: &Path, directory: &Stat) -> Option<String> {
    let (mode, gid) = (directory.st_mode, directory.st_gid);
    let is_setgid = mode & SETGID != 0;
    let is_for_group = gid != 0 && mode & OTHERS_USE == 0 && !rustix::process::geteuid().is_root();
    let is_meant = is_setgid || is_for_group && is_member(gid);
    if directory.st_uid != 0 || mode & (STICKY | GROUP_WRITES | OTHERS_WRITE) != 0 || !is_meant {
        return None;
    }
    let (word, group, share) = (word(path), group_name(gid), share_command(path, gid));
    let unshare = if is_setgid { format!(", or `chmod g-s {word}`") } else { String::new() };
    Some(format!(
        "directory {} is not shared with group {group}, because its group can't write to it; as root: `{share}` to share it{unshare}",
        path.display()
    ))
}

/// The command that shares a directory and the files that are in it: not with the group of root, which nobody should have to join for a lock.
fn share_command(path: &Path, group: u32) -> String {
    let word = word(path);
    let (chgrp, group) = match group {
        0 => (format!("chgrp GROUP {word} && "), "GROUP".to_owned()),
        _ => (String::new(), group_name(group)),
    };
    let files = if may_have_files(path) { format!(" && {}", give_to(&word, &group)) } else { String::new() };
    format!("{chgrp}chmod 2770 {word}{files}")
}

/// Whether there are, or may be, stripes and sessions in a directory. Their owner made them private.
fn may_have_files(path: &Path) -> bool {
    std::fs::read_dir(path).map_or(true, |entries| {
        entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(is_made))
    })
}

/// Whether this is the name of a stripe or a session.
pub(super) fn is_made(name: &str) -> bool {
    name.starts_with("stripe-") || name.starts_with("session-")
}

/// What to say to a user who was refused by the kernel, and is not in the group of the directory; `None` to one who is.
pub(super) fn stranger(path: &Path, group: u32) -> Option<Error> {
    if is_member(group) {
        return None;
    }
    let (user, name) = (owner::user(), group_name(group));
    let (chgrp, join) = match group {
        0 => (format!("chgrp -R GROUP {} && ", word(path)), "GROUP"),
        _ => (String::new(), name.as_str()),
    };
    let message = format!(
        "user {user} is not in group {name}, which shares directory {}; as root: {chgrp}usermod -aG {join} {user}, then log in again, or restart the service",
        path.display()
    );
    Some(Error::new(ErrorKind::Denied, message))
}

/// What to say of a file that is not the group's.
pub(super) fn unshared(path: &Path, file: &str, group: u32) -> Error {
    let message = format!(
        "{} can't be used by group {}, because it was made in the directory before it was shared; as root: `{}`",
        path.join(file).display(),
        group_name(group),
        give_to_group(path, group)
    );
    Error::new(ErrorKind::Denied, message)
}

/// The command that makes all files of a directory the group's.
pub(super) fn give_to_group(path: &Path, group: u32) -> String {
    give_to(&word(path), &group_name(group))
}

fn give_to(word: &str, group: &str) -> String {
    format!("chgrp -R {group} {word} && chmod -R g+rwX {word}")
}

fn word(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn is_member(group: u32) -> bool {
    let is_it = |gid: rustix::process::Gid| gid.as_raw() == group;
    is_it(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|all| all.into_iter().any(is_it))
}

/// The name of a group, as commands take it.
pub(super) fn group_name(group: u32) -> String {
    owner::name_in("/etc/group", group)
}
