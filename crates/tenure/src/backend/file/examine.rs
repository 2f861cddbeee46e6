//! Whether this directory is fit to hold locks. Opening it already refused an unusable directory; this reports what it is like, what runs
//! short, and whether a lease works from its beginning to its end.
//!
//! The store depends on other processes seeing that a session lives. A process can't test its own record locks, because they never block
//! it. So this reads the kernel's list of locks, which shows what other processes would see.

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{fstat, fstatvfs};

use super::open_directory::{OpenDirectory, STRIPES};
use super::{FileDomain, generation, platform, sharing};
use crate::backend::Sink;
use crate::backend::self_test::{self as rehearsal, SelfTest, TestListener as Ear, run as rehearse};
use crate::types::error::Error;
use crate::types::finding::{Finding, Verdict};
use crate::types::owner::SessionId;

/// Below these the directory runs short: room for some stripes of a full store.
const LITTLE_SPACE: u64 = 8 << 20;
const FEW_FILES: u64 = 256;
/// The prefixes of all file names of a store.
const OURS: [&str; 6] = ["stripe-", "session-", "pipe-", "lifeline-", "unborn-", "draft-"];

/// Runs all checks.
pub(super) async fn examine(store: &OpenDirectory) -> Result<Vec<Finding>, Error> {
    let mut findings = vec![
        location(store),
        owner(store)?,
        files(store)?,
        file_system(store)?,
        space(store)?,
        clock(store),
        session(store),
        leftovers(store),
    ];
    findings.extend(lease(store).await);
    Ok(findings)
}

fn location(store: &OpenDirectory) -> Finding {
    let path = store.dir.path();
    let why = if store.dir.is_default() { "the default of this user" } else { "as the URL says" };
    let reason = format!("directory {}, {why}", path.display());
    // Systems clean these directories by age.
    let Some(temporary) = platform::TEMPORARY.iter().find(|temporary| path.starts_with(temporary)) else {
        return Finding::fit("store", reason);
    };
    let reason = match store.private_tmp() {
        Some(warning) => format!("{reason}: {warning}"),
        None => {
            format!(
                "{reason}: cleaning {temporary} by age may remove files in use, and then two may hold a name"
            )
        }
    };
    Finding::doubtful("store", reason).remedy("use a directory elsewhere in the URL: file:///var/lib/NAME")
}

/// Opening already refuses a directory that is neither private nor correctly shared; its mode may have changed since.
fn owner(store: &OpenDirectory) -> Result<Finding, Error> {
    const CHECK: &str = "owner";
    let stat = store.dir.io("looked at", fstat(&store.dir))?;
    if let Err(error) = sharing::check(store.dir.path(), &stat, store.dir.is_default()) {
        return Ok(Finding { check: CHECK, ..Finding::of_error(Verdict::Unfit, &error) });
    }
    if let Some(error) = store.dir.almost_shared() {
        return Ok(Finding { check: CHECK, ..Finding::of_error(Verdict::Doubtful, &error) });
    }
    let (mode, owner) = (stat.st_mode & 0o7777, sharing::user_name(stat.st_uid));
    let reason = match store.dir.group() {
        None => format!("user {owner}, mode {mode:o}: nobody else can write to it"),
        Some(group) => format!(
            "root, mode {mode:o}, shared with group {}: every member can take, break and remove every lock",
            sharing::group_name(group)
        ),
    };
    Ok(Finding::fit(CHECK, reason))
}

/// Whether all files can be used: operations on the names of an unusable stripe fail.
fn files(store: &OpenDirectory) -> Result<Finding, Error> {
    const CHECK: &str = "files";
    let group = store.dir.group();
    if let Some(finding) = group.map(|group| unshared(store, group)).transpose()?.flatten() {
        return Ok(Finding { check: CHECK, ..finding });
    }
    let refused = refused(store)?;
    let Some(first) = refused.first() else {
        if !store.dir.is_default()
            && let Some(finding) = foreign_files(store)?
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

/// Files that are not Tenure's. They do no harm, but a person who cleans up there may remove stripes.
fn foreign_files(store: &OpenDirectory) -> Result<Option<Finding>, Error> {
    let is_foreign = |name: &String| {
        !OURS.iter().any(|ours| name.starts_with(ours)) && ![".", "..", "lost+found"].contains(&name.as_str())
    };
    let mut names: Vec<_> = store.dir.list()?.into_iter().filter(is_foreign).collect();
    names.sort();
    let Some(first) = names.first() else { return Ok(None) };
    let what = match names.len() {
        1 => format!("`{first}`"),
        many => format!("{many} other files, such as `{first}`"),
    };
    let reason = format!(
        "beside {what}: up to {STRIPES} files `stripe-…` stay among them, and two may hold a name if a person removes one that is in use"
    );
    let own = store.dir.path().join("locks");
    let remedy = format!("use a directory for locks alone in the URL: file://{}", own.display());
    Ok(Some(Finding::doubtful("files", reason).remedy(remedy)))
}

/// Files that the group of a shared directory can't use.
fn unshared(store: &OpenDirectory, group: u32) -> Result<Option<Finding>, Error> {
    let (name, unshared) = (sharing::group_name(group), store.dir.unshared()?);
    let Some(first) = unshared.first() else { return Ok(None) };
    let reason = match unshared.len() {
        1 => format!("{first} can't be used by group {name}"),
        many => format!("{many} files can't be used by group {name}, such as {first}"),
    };
    let reason = format!("{reason}, because the directory was shared later: names in it are refused");
    let remedy = format!("as root: {}", sharing::give_to_group(store.dir.path(), group));
    Ok(Some(Finding::unfit("files", reason).remedy(remedy)))
}

/// The errors of the stripes and sessions that can't be used, one for each file.
fn refused(store: &OpenDirectory) -> Result<Vec<Error>, Error> {
    let names = store.dir.list()?;
    let stripe = |index: usize| {
        let highest = generation::highest(store, index).transpose()?;
        // Without the lock, so a write may be in progress.
        highest.and_then(|highest| highest.load_settled(store, index)).err()
    };
    // A process must not open its own sessions: closing them again would end them.
    let is_of_another = |name: &&String| {
        let id = name.strip_prefix("session-").and_then(SessionId::parse);
        id.is_some_and(|id| !id.is_of_process(store.process))
    };
    let session = |name: &String| store.dir.open_file(name).err();
    let stripes = generation::stripes_in(&names).into_iter().filter_map(stripe);
    Ok(stripes.chain(names.iter().filter(is_of_another).filter_map(session)).collect())
}

fn file_system(store: &OpenDirectory) -> Result<Finding, Error> {
    let (name, is_local) = store.dir.io("looked at", platform::file_system(&store.dir))?;
    Ok(match is_local {
        true => Finding::fit("file system", format!("{name}, which is of this machine alone")),
        false => Finding::doubtful(
            "file system",
            format!("{name}, where locks may not hold: for one machine alone"),
        )
        .remedy("use a local directory, such as the default: --url file:"),
    })
}

fn space(store: &OpenDirectory) -> Result<Finding, Error> {
    const CHECK: &str = "space";
    let stat = store.dir.io("looked at", fstatvfs(&store.dir))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Some file systems don't count files.
    let files = (stat.f_files > 0).then_some(stat.f_favail);
    let left = match files {
        Some(files) => format!("{} MiB and {files} files are left", free >> 20),
        None => format!("{} MiB are left", free >> 20),
    };
    let remedy = format!("free some: df -h {0}; df -i {0}", store.dir.path().display());
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

fn clock(store: &OpenDirectory) -> Finding {
    match (store.clock.is_shifted(), store.is_boot_replaced) {
        (false, false) => {
            Finding::fit("clock", "the machine's own: all its processes measure leases alike")
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

fn session(store: &OpenDirectory) -> Finding {
    const CHECK: &str = "session";
    match store.session.is_seen_locked() {
        Some(true) => Finding::fit(CHECK, "the kernel shows to others that this process lives"),
        Some(false) => {
            let reason =
                "the kernel does not show the lock of this session: others may take this process for dead";
            Finding::doubtful(CHECK, reason).remedy("use a directory on a local file system")
        }
        None => Finding::doubtful(
            CHECK,
            "/proc/locks can't be read, so it is unknown whether others see that this process lives",
        )
        .remedy("as root: mount -t proc proc /proc"),
    }
}

/// Opening the directory removed them.
fn leftovers(store: &OpenDirectory) -> Finding {
    Finding::fit(
        "leftovers",
        match store.swept {
            0 => "none".to_owned(),
            1 => "of 1 killed process: removed".to_owned(),
            dead => format!("of {dead} killed processes: removed"),
        },
    )
}

async fn lease(store: &OpenDirectory) -> Vec<Finding> {
    let (deaf, ear) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    let (path, allowed): (&Path, bool) = (store.dir.path(), store.network_fs_allowed);
    let open = |ear: &Arc<Ear>| {
        let sink: std::sync::Weak<dyn Sink> = Arc::<Ear>::downgrade(ear);
        FileDomain::open(Some(path.to_owned()), allowed, sink)
    };
    let rehearsed = match (open(&deaf), open(&ear)) {
        (Ok(holder), Ok(waiter)) => rehearse(&rehearsal::name(), &holder, &waiter, &ear).await,
        (Err(error), _) | (_, Err(error)) => SelfTest::failed(error),
    };
    rehearsed.findings()
}
