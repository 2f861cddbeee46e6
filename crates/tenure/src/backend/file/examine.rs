//! Whether this directory is fit to hold locks. What would make it useless was refused when it was opened; here it is said what was found, what is
//! getting short, and that a lease can be played through.
//!
//! That a session is seen to live is what the store rests on, and a process can't ask that of its own record locks: it is never in its own way. So
//! the kernel's own list of locks is read, which is what others would be told.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{fstat, fstatvfs};

use super::place::{Place, STRIPES};
use super::{FileDomain, generation, platform, sharing};
use crate::backend::Sink;
use crate::backend::rehearsal::{self, Ear, rehearse};
use crate::types::error::Error;
use crate::types::finding::{Finding, Verdict};
use crate::types::owner::SessionId;

/// Below these it is getting short: some stripes of a full store.
const LITTLE_SPACE: u64 = 8 << 20;
const FEW_FILES: u64 = 256;
/// What the names of all files of a store begin with.
const OURS: [&str; 6] = ["stripe-", "session-", "pipe-", "lifeline-", "unborn-", "draft-"];

/// Looks at everything.
pub(super) async fn examine(place: &Place) -> Result<Vec<Finding>, Error> {
    let mut findings = vec![
        store(place),
        owner(place)?,
        files(place)?,
        file_system(place)?,
        space(place)?,
        clock(place),
        session(place),
        leftovers(place),
    ];
    findings.extend(lease(place).await);
    Ok(findings)
}

fn store(place: &Place) -> Finding {
    let path = place.dir.path();
    let why = if place.dir.is_default() { "the default of this user" } else { "as the URL says" };
    let reason = format!("directory {}, {why}", path.display());
    // They are cleaned by age.
    let Some(temporary) = platform::TEMPORARY.iter().find(|temporary| path.starts_with(temporary)) else {
        return Finding::fit("store", reason);
    };
    let reason = match place.private_tmp() {
        Some(warning) => format!("{reason}: {warning}"),
        None => {
            format!("{reason}: what cleans {temporary} may remove files in use, and then two may hold a name")
        }
    };
    Finding::doubtful("store", reason).remedy("use a directory elsewhere in the URL: file:///var/lib/NAME")
}

/// A directory that is neither private nor shared with a group as it should be is refused when it is opened.
fn owner(place: &Place) -> Result<Finding, Error> {
    const CHECK: &str = "owner";
    let stat = fstat(&place.dir).map_err(|error| place.dir.trouble("looked at", error))?;
    if let Err(error) = sharing::check(place.dir.path(), &stat, place.dir.is_default()) {
        return Ok(Finding { check: CHECK, ..Finding::of_error(Verdict::Unfit, &error) });
    }
    if let Some(error) = place.dir.almost_shared() {
        return Ok(Finding { check: CHECK, ..Finding::of_error(Verdict::Doubtful, &error) });
    }
    let (mode, owner) = (stat.st_mode & 0o7777, stat.st_uid);
    let reason = match place.dir.group() {
        None => format!("user {owner}, mode {mode:o}: nobody else can write to it"),
        Some(group) => format!(
            "root, mode {mode:o}, shared with group {}: every member can take, break and remove every lock",
            sharing::group_name(group)
        ),
    };
    Ok(Finding::fit(CHECK, reason))
}

/// Whether all files can be used: names on a stripe that can't are refused.
fn files(place: &Place) -> Result<Finding, Error> {
    const CHECK: &str = "files";
    let group = place.dir.group();
    if let Some(finding) = group.map(|group| unshared(place, group)).transpose()?.flatten() {
        return Ok(Finding { check: CHECK, ..finding });
    }
    let refused = refused(place)?;
    let Some(first) = refused.first() else {
        if !place.dir.is_default()
            && let Some(finding) = strange(place)?
        {
            return Ok(finding);
        }
        let usable =
            |group| format!("every member of group {} can use all of them", sharing::group_name(group));
        return Ok(Finding::fit(CHECK, group.map_or_else(|| "all can be used".to_owned(), usable)));
    };
    let mut finding = Finding { check: CHECK, ..Finding::of_error(Verdict::Unfit, first) };
    if refused.len() > 1 {
        let more = match refused.len() - 1 {
            1 => "1 more file is".to_owned(),
            more => format!("{more} more files are"),
        };
        finding.reason = format!("{}, and {more} refused", finding.reason);
    }
    Ok(finding)
}

/// What is not Tenure's in the directory. It is in nobody's way, but a person who tidies up there may take stripes for litter.
fn strange(place: &Place) -> Result<Option<Finding>, Error> {
    let is_strange = |name: &String| {
        !OURS.iter().any(|ours| name.starts_with(ours)) && ![".", "..", "lost+found"].contains(&name.as_str())
    };
    let mut names: Vec<_> = place.dir.list()?.into_iter().filter(is_strange).collect();
    names.sort();
    let Some(first) = names.first() else { return Ok(None) };
    let what = match names.len() {
        1 => format!("`{first}`"),
        many => format!("{many} other files, such as `{first}`"),
    };
    let reason = format!(
        "beside {what}: up to {STRIPES} files `stripe-…` stay among them; if somebody removes one that is in use, two may hold a name"
    );
    let own = place.dir.path().join("locks");
    let remedy = format!("use a directory for locks alone in the URL: file://{}", own.display());
    Ok(Some(Finding::doubtful("files", reason).remedy(remedy)))
}

/// Files that the group of a shared directory can't use.
fn unshared(place: &Place, group: u32) -> Result<Option<Finding>, Error> {
    let (name, unshared) = (sharing::group_name(group), place.dir.unshared()?);
    let Some(first) = unshared.first() else { return Ok(None) };
    let reason = match unshared.len() {
        1 => format!("{first} can't be used by group {name}"),
        many => format!("{many} files can't be used by group {name}, such as {first}"),
    };
    let reason = format!("{reason}, because the directory was shared later: names in it are refused");
    let remedy = format!("as root: {}", sharing::give_to_group(place.dir.path(), group));
    Ok(Some(Finding::unfit("files", reason).remedy(remedy)))
}

/// Why stripes and sessions are refused, one for each file.
fn refused(place: &Place) -> Result<Vec<Error>, Error> {
    let names = place.dir.list()?;
    let mut stripes: Vec<usize> = names.iter().filter_map(|name| generation::index_of(name)).collect();
    stripes.sort_unstable();
    stripes.dedup();
    let stripe = |index: usize| {
        let highest = generation::highest(place, index).transpose()?;
        // Without the lock, so a write may be under way.
        highest.and_then(|highest| highest.load_settled(place, index)).err()
    };
    // A process must not open its own: that would end them.
    let is_of_another = |name: &&String| {
        let id = name.strip_prefix("session-").and_then(SessionId::parse);
        id.is_some_and(|id| !id.is_of_process(place.process))
    };
    let session = |name: &String| place.dir.open_file(name).err();
    let stripes = stripes.into_iter().filter(|&index| index < STRIPES).filter_map(stripe);
    Ok(stripes.chain(names.iter().filter(is_of_another).filter_map(session)).collect())
}

fn file_system(place: &Place) -> Result<Finding, Error> {
    let looked = platform::file_system(&place.dir);
    let (name, is_local) = looked.map_err(|error| place.dir.io_trouble("looked at", &error))?;
    Ok(match is_local {
        true => Finding::fit("file system", format!("{name}, which is of this machine alone")),
        false => Finding::doubtful(
            "file system",
            format!("{name}, where locks may not hold: for one machine alone"),
        )
        .remedy("use a local directory, such as the default: --url file:"),
    })
}

fn space(place: &Place) -> Result<Finding, Error> {
    const CHECK: &str = "space";
    let stat = fstatvfs(&place.dir).map_err(|error| place.dir.trouble("looked at", error))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Some file systems do not count files.
    let files = (stat.f_files > 0).then_some(stat.f_favail);
    let left = match files {
        Some(files) => format!("{} MiB and {files} files are left", free >> 20),
        None => format!("{} MiB are left", free >> 20),
    };
    let remedy = format!("free some: df -h {0}; df -i {0}", place.dir.path().display());
    Ok(match (free, files.unwrap_or(u64::MAX)) {
        (0, _) | (_, 0) => {
            Finding::unfit(CHECK, format!("{left}: no new lock can be written")).remedy(remedy)
        }
        (free, files) if free < LITTLE_SPACE || files < FEW_FILES => {
            Finding::doubtful(CHECK, left).remedy(remedy)
        }
        _ => Finding::fit(CHECK, left),
    })
}

fn clock(place: &Place) -> Finding {
    match (place.clock.is_shifted(), place.is_boot_replaced) {
        (false, false) => {
            Finding::fit("clock", "the machine's own: every process of it measures leases alike")
        }
        (true, _) => Finding::doubtful(
            "clock",
            "of a time namespace: processes outside of it are refused while the directory is in use",
        )
        .remedy("run all users of the directory in the same time namespace, or none"),
        (false, true) => Finding::doubtful(
            "clock",
            "a container's own boot id: processes with another one are refused while the directory is in use",
        )
        .remedy("run all users of the directory in the same container, or none; or as root in the container: umount /proc/sys/kernel/random/boot_id"),
    }
}

fn session(place: &Place) -> Finding {
    const CHECK: &str = "session";
    match place.session.is_seen_locked() {
        Some(true) => Finding::fit(CHECK, "the kernel shows others that this process lives"),
        Some(false) => {
            let reason = "the kernel does not show the lock by which others see that this process lives; it may be taken for dead";
            Finding::doubtful(CHECK, reason).remedy("use a directory on a local file system")
        }
        None => Finding::doubtful(
            CHECK,
            "/proc/locks can't be read: whether others see that this process lives is not known",
        )
        .remedy("as root: mount -t proc proc /proc"),
    }
}

/// They are swept away by whoever opens the directory.
fn leftovers(place: &Place) -> Finding {
    Finding::fit(
        "leftovers",
        match place.swept {
            0 => "none".to_owned(),
            1 => "of 1 process that was killed: swept away".to_owned(),
            dead => format!("of {dead} processes that were killed: swept away"),
        },
    )
}

async fn lease(place: &Place) -> Vec<Finding> {
    let (deaf, ear) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    let (path, allowed): (&Path, bool) = (place.dir.path(), place.network_fs_allowed);
    let open = |ear: &Arc<Ear>| {
        let sink: std::sync::Weak<dyn Sink> = Arc::<Ear>::downgrade(ear);
        FileDomain::open(Some(path.to_owned()), allowed, sink)
    };
    let rehearsed = match (open(&deaf), open(&ear)) {
        (Ok(holder), Ok(waiter)) => rehearse(&rehearsal::name(), &holder, &waiter, &ear).await,
        (Err(error), _) | (_, Err(error)) => {
            rehearsal::Rehearsed { lease: Err(error), hand_over: None, loss: None }
        }
    };
    rehearsed.findings()
}
