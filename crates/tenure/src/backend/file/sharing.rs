//! Who may use a directory: its owner, or a group that root shares it with.
//!
//! The directory itself says which: it is shared if it is setgid and its group can write to it. Then every new file in it belongs to that
//! group, and Tenure gives the group access to it, whatever the umask is. In every other directory, all files are private.
//!
//! - A shared directory belongs to root. Otherwise any user could make one for a group of a victim, in a place that every user can write to.
//! - It is not sticky: the members of the group replace and remove each other's files.
//! - A file in it that does not belong to the group is refused, even for its owner: a member could have linked any file of the machine there.

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

/// Refuses a directory that is neither private nor correctly shared. The default directory is never shared: other users may be able to make it.
pub(super) fn check(path: &Path, directory: &Stat, is_default: bool) -> Result<(), Error> {
    if platform::UserMap::of_this_process()?.hides(directory.st_uid) {
        let path = path.display();
        return Err(denied(format!(
            "directory {path} belongs to a user that this user namespace does not show"
        ))
        .fix(
            "run tenure outside of the namespace, or use a directory that a user in it made: `file:///path`",
        ));
    }
    let refusal = match group_of(directory).filter(|_| !is_default) {
        Some(_) => not_shared(path, directory),
        None => not_private(path, directory, is_default),
    };
    refusal.map_or(Ok(()), Err)
}

/// Why a directory that seems to be meant for its group is not shared with it, and the command that shares it; `None` if it is shared.
fn not_shared(path: &Path, directory: &Stat) -> Option<Error> {
    let (mode, word) = (directory.st_mode, word(path));
    let why = if directory.st_uid != 0 {
        format!("it belongs to user {}, not to root", user_name(directory.st_uid))
    } else if mode & OTHERS_WRITE != 0 {
        "every user can write to it".to_owned()
    } else if mode & STICKY != 0 {
        "it is sticky, so its users can't remove each other's files".to_owned()
    } else if mode & GROUP_WRITES == 0 {
        "its group can't write to it".to_owned()
    } else if mode & SETGID == 0 {
        "it is not setgid, but can be written by others".to_owned()
    } else if mode & GROUP_USES != GROUP_USES {
        "its group can't read it".to_owned()
    } else {
        return None;
    };
    let keep = format!("to keep it for user {} alone", user_name(directory.st_uid));
    let otherwise = match (mode & SETGID != 0, mode & (GROUP_WRITES | OTHERS_WRITE) != 0) {
        (true, false) => format!(", or `chmod g-s {word}` {keep}"),
        (true, true) => ", or use another one".to_owned(),
        (false, true) => format!(", or `chmod 700 {word}` {keep}"),
        (false, false) => String::new(),
    };
    let (path_shown, group) = (path.display(), group_name(directory.st_gid));
    let share = share_command(path, directory);
    Some(
        denied(format!("directory {path_shown} is not shared with group {group}"))
            .because(why)
            .fix(format!("as root: `{share}` to share it{otherwise}")),
    )
}

fn not_private(path: &Path, directory: &Stat, is_default: bool) -> Option<Error> {
    let (word, shown, mode, owner) = (word(path), path.display(), directory.st_mode, directory.st_uid);
    let me = rustix::process::geteuid().as_raw();
    let is_written_by_others = mode & (GROUP_WRITES | OTHERS_WRITE) != 0;
    if owner == me && !is_written_by_others {
        return None;
    }
    if !is_default && is_meant_for_group(directory) {
        return not_shared(path, directory);
    }
    // Not this directory: it may be /usr.
    let share = match is_default {
        true => "",
        false => ", or use one that root shares with a group: install -d -m 2770 -g GROUP /path",
    };
    if owner != me {
        let (owner, me) = (user_name(owner), user_name(me));
        return Some(
            denied(format!("directory {shown} belongs to user {owner}, not to {me}"))
                .fix(format!("use a directory of your own: `file:///path`{share}")),
        );
    }
    // A sticky directory, such as /tmp, is meant for all users.
    let fix = match mode & STICKY {
        0 => format!("`chmod 700 {word}`{share}"),
        _ if platform::TEMPORARY.iter().any(|temporary| path.starts_with(temporary)) => {
            "use one elsewhere, where nothing is cleaned by age: `file:///var/lib/NAME`".to_owned()
        }
        _ => format!("use one inside it: `file://{shown}/locks`"),
    };
    Some(denied(format!("directory {shown} can be written by others")).fix(fix))
}

/// Whether an administrator seems to have made a directory for its group.
fn is_meant_for_group(directory: &Stat) -> bool {
    let (mode, owner, group) = (directory.st_mode, directory.st_uid, directory.st_gid);
    let me = rustix::process::geteuid().as_raw();
    if mode & (GROUP_WRITES | OTHERS_WRITE) == 0 {
        return lacks_write(directory);
    }
    if owner == 0 && mode & (STICKY | GROUP_WRITES | OTHERS_WRITE) == GROUP_WRITES {
        return true;
    }
    // A directory that a user makes has the user's primary group by default, so that group says nothing.
    let is_chosen = group != 0 && group != primary_group(owner);
    is_chosen && (owner == 0 || owner == me || me == 0 || is_member(group))
}

/// Whether only its group's permission to write keeps a directory of root from being shared. It is setgid; or it is closed to others, and this
/// user is in its group. (A directory that others can read may be anything.)
fn lacks_write(directory: &Stat) -> bool {
    let (mode, group) = (directory.st_mode, directory.st_gid);
    let is_for_group = group != 0 && mode & OTHERS_USE == 0 && !rustix::process::geteuid().is_root();
    let is_meant = mode & SETGID != 0 || is_for_group && is_member(group);
    directory.st_uid == 0 && mode & (STICKY | GROUP_WRITES | OTHERS_WRITE) == 0 && is_meant
}

/// An error for a directory of root that lacks only its group's permission to write. Root can use it as a private directory.
pub(super) fn almost_shared(path: &Path, directory: &Stat) -> Option<Error> {
    if lacks_write(directory) { not_shared(path, directory) } else { None }
}

/// The command that shares a directory and the files in it: not with the group of root, which nobody should have to join for a lock.
fn share_command(path: &Path, directory: &Stat) -> String {
    let word = word(path);
    let chown = if directory.st_uid == 0 { String::new() } else { format!("chown root {word} && ") };
    let (chgrp, group) = match directory.st_gid {
        0 => (format!("chgrp GROUP {word} && "), "GROUP".to_owned()),
        group => (String::new(), group_name(group)),
    };
    let files = if may_have_files(path) { format!(" && {}", give_to(&word, &group)) } else { String::new() };
    format!("{chown}{chgrp}chmod 2770 {word}{files}")
}

/// Whether a directory has, or may have, stripes and sessions. Their owner made them private.
fn may_have_files(path: &Path) -> bool {
    std::fs::read_dir(path).map_or(true, |entries| {
        entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(is_stripe_or_session))
    })
}

pub(super) fn is_stripe_or_session(name: &str) -> bool {
    name.starts_with("stripe-") || name.starts_with("session-")
}

/// An error for a user whom the kernel refused, and who is not in the group of the directory; `None` for a member.
pub(super) fn not_a_member(path: &Path, group: u32) -> Option<Error> {
    if is_member(group) {
        return None;
    }
    let (user, name) = (owner::user(), group_name(group));
    let (chgrp, join) = match group {
        0 => (format!("chgrp -R GROUP {} && ", word(path)), "GROUP"),
        _ => (String::new(), name.as_str()),
    };
    let what = format!("user {user} is not in group {name}, which shares directory {}", path.display());
    Some(
        denied(what).fix(format!(
            "as root: {chgrp}usermod -aG {join} {user}, then log in again, or restart the service"
        )),
    )
}

/// An error for a file in a shared directory that the group can't use.
pub(super) fn unshared(path: &Path, file: &str, group: u32) -> Error {
    denied(format!("{} can't be used by group {}", path.join(file).display(), group_name(group)))
        .because("it was made before the directory was shared")
        .fix(format!("as root: `{}`", give_to_group(path, group)))
}

/// The command that gives all files of a directory to the group.
pub(super) fn give_to_group(path: &Path, group: u32) -> String {
    give_to(&word(path), &group_name(group))
}

fn give_to(word: &str, group: &str) -> String {
    format!("chgrp -R {group} {word} && chmod -R g+rwX {word}")
}

fn denied(what: String) -> Error {
    Error::new(ErrorKind::Denied, what)
}

/// A path as a shell takes it.
fn word(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

fn is_member(group: u32) -> bool {
    let is_it = |gid: rustix::process::Gid| gid.as_raw() == group;
    is_it(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|all| all.into_iter().any(is_it))
}

/// The group that a user's files get by default. A user without an entry in /etc/passwd usually has a group with the same number.
fn primary_group(user: u32) -> u32 {
    let lines = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let group = lines.lines().find_map(|line| {
        let mut numbers = line.split(':').skip(2).map(str::parse::<u32>);
        (numbers.next()? == Ok(user)).then(|| numbers.next()?.ok())?
    });
    group.unwrap_or(user)
}

/// The name of a group, as commands take it.
pub(super) fn group_name(group: u32) -> String {
    owner::name_in("/etc/group", group)
}

/// The name of a user, as commands take it.
pub(super) fn user_name(user: u32) -> String {
    owner::name_in("/etc/passwd", user)
}
