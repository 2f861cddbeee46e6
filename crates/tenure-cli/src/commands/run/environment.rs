//! The environment of the command: that of `tenure`, plus the lease, minus the URL.
//!
//! A URL may contain a password, and a command needs it only if it runs `tenure` itself. The rule is the same for all URLs. A variable says that a
//! URL was withheld, so that a `tenure` in the command refuses to guess.

use std::ffi::OsString;
use std::time::Duration;

use tenure::Lease;

use super::{Run, enclosing};
use crate::address::{self, Located, Source};

/// How long the name was waited for.
const WAITED: &str = "TENURE_WAITED_MS";
/// Only this machine is excluded.
const DEGRADED: &str = "TENURE_DEGRADED";

/// All variables that the command gets.
pub(crate) fn of_command(
    run: &Run,
    lease: &Lease,
    waited: Duration,
) -> impl Iterator<Item = (OsString, OsString)> {
    let mut own: Vec<(&str, Option<OsString>)> = vec![
        (enclosing::NAME, Some(run.name.clone().into())),
        (enclosing::FENCE, Some(lease.fence().to_string().into())),
        (WAITED, Some(waited.as_millis().to_string().into())),
        (DEGRADED, lease.is_degraded().then(|| "1".into())),
    ];
    own.extend(of_url(run));
    let names: Vec<&str> = own.iter().map(|(name, _)| *name).collect();
    let inherited = std::env::vars_os().filter(move |(name, _)| names.iter().all(|own| name != own));
    inherited.chain(own.into_iter().filter_map(|(name, value)| Some((name.into(), value?))))
}

/// What the command learns of the URL.
fn of_url(run: &Run) -> Vec<(&'static str, Option<OsString>)> {
    // It was located before.
    let Ok(Located { text, source, .. }) = address::locate(&run.domain) else { return Vec::new() };
    let mut url = None;
    let (mut file, mut found, mut withheld) = (None, None, None);
    match (source, run.pass_url) {
        // The default is the same for the command.
        (Source::Default, _) => {}
        // The name of a file is not a secret.
        (Source::VariableFile(path), _) => file = Some(path.clone().into()),
        (Source::Found(path), false) => found = Some(path.clone().into()),
        (_, true) => url = Some(text.into()),
        (Source::Option | Source::OptionFile(_) | Source::Variable, false) => withheld = Some("1".into()),
    }
    vec![
        (address::VARIABLE, url),
        (address::FILE_VARIABLE, file),
        (address::FOUND, found),
        (address::WITHHELD, withheld),
    ]
}
