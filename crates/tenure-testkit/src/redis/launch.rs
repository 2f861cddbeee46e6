//! Processes that die with this one, however it dies.
//!
//! A destructor does not run when a test process is killed, so the kernel does it: PR_SET_PDEATHSIG, which setpriv(1) sets and which
//! outlasts exec. Two traps: the signal is sent when the *thread* that forked ends, and the threads of tests end early; so one thread
//! that never ends starts all servers. And a process whose parent died before the signal was set gets none; so the shell that follows
//! looks whether its parent is still the one that started it. `exec` all the way: the process id is that of the server.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

type Order = (Command, Sender<io::Result<Child>>);

static LAUNCHER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, incoming) = channel();
    thread::Builder::new().name("launcher".into()).spawn(|| launch(incoming)).expect("a thread");
    Mutex::new(orders)
});

fn launch(orders: Receiver<Order>) {
    for (mut command, answer) in orders {
        drop(answer.send(command.spawn()));
    }
}

/// Starts `program` in `directory`. What it prints is appended to `log`; what `environment` says is for it alone, not for the tools
/// that start it.
pub(super) fn start(
    program: &Path,
    arguments: &[&OsStr],
    environment: &[(String, String)],
    directory: &Path,
    log: &Path,
) -> Child {
    let log = OpenOptions::new().create(true).append(true).open(log).expect("a log");
    let mut command = Command::new(require("setpriv", "util-linux"));
    command
        .args(["--pdeathsig", "KILL", "sh", "-c", r#"[ "$PPID" = "$0" ] || exit 1; exec env "$@""#])
        .arg(std::process::id().to_string())
        .args(environment.iter().map(|(name, value)| format!("{name}={value}")))
        .arg(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second descriptor"))
        .stderr(log);
    let (answer, started) = channel();
    let order = (command, answer);
    LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner).send(order).expect("the launcher lives");
    started.recv().expect("the launcher answers").unwrap_or_else(|e| panic!("setpriv did not start: {e}"))
}

/// Where `program` is.
///
/// # Panics
/// When it is not on PATH: a test that can't run fails, and says what to install.
pub(super) fn require(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("`{program}` is not on PATH; install it: apt-get install {package}"))
}
