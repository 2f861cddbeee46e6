//! A file with a URL in it: one line, and comments. Unlike variables, a file is there under cron, sudo and `env -i`.
//!
//! A file that is there counts, also when it can't be read: to go on without it would be to guess where names live.

use std::env;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// For all users of this machine.
pub(crate) const SYSTEM: &str = "/etc/tenure/url";
/// Below the directory that a user keeps settings in.
const OF_USER: &str = "tenure/url";
/// No URL is longer, with all its comments.
const LONGEST: u64 = 64 * 1_024;

/// What was read.
#[derive(Debug)]
pub(super) struct Contents {
    /// The URL, as it is written there.
    pub(super) url: String,
    /// What everyone on this machine may do with the file, as the last digit of its mode; nothing for a pipe.
    pub(super) others: u32,
    pub(super) mode: u32,
}

/// The files that are looked for, the first that is there counts.
pub(super) fn places() -> impl Iterator<Item = PathBuf> {
    let absolute = |dir: &PathBuf| dir.is_absolute();
    let named = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(absolute);
    // That of the user database without `HOME`, as under `env -i`.
    let settings = named.or_else(|| Some(env::home_dir().filter(absolute)?.join(".config")));
    settings.map(|dir| dir.join(OF_USER)).into_iter().chain([PathBuf::from(SYSTEM)])
}

/// Whether nothing is there. A link to nothing is something: what it leads to may be not mounted yet.
pub(super) fn is_missing(path: &Path) -> bool {
    let is_absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    path.symlink_metadata().is_err_and(|error| is_absent(error.kind()))
}

/// Reads the URL in a file.
///
/// # Errors
/// Says what is wrong with it.
pub(super) fn read(path: &Path) -> Result<Contents, String> {
    let unreadable = |error: io::Error| {
        let fix = match error.kind() {
            ErrorKind::PermissionDenied => "let this user read it, or use --url",
            _ => "check its name, or use --url",
        };
        format!("can't be read: {error}; {fix}")
    };
    let file = File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST {
        return Err("too long for a file with a URL; name one with a single URL in it".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| super::NOT_UTF8.to_owned())?;
    let mode = if about.is_file() { about.permissions().mode() & 0o777 } else { 0 };
    Ok(Contents { url: only_line(&text)?.to_owned(), others: mode & 0o7, mode })
}

/// The one line that is neither empty nor a comment.
fn only_line(text: &str) -> Result<&str, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (None, _) => {
            Err("has no URL; write one into it, such as redis://host:6379, or remove the file".to_owned())
        }
        (Some((_, line)), None) => Ok(line),
        (Some((first, _)), Some((second, _))) => {
            let (first, second) = (first + 1, second + 1);
            Err(format!(
                "has more than one URL, in lines {first} and {second}; keep one, and write # before the others"
            ))
        }
    }
}
