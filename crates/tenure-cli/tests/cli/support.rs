//! A temporary directory for a test, and the processes that were started in it.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure::{Domain, Status};
use tenure_testkit::redis::{RedisServer, Reply};

/// Longer than anything takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    eventually_or(is_so, || what.to_owned());
}

/// The same, with a message for a condition that never holds.
#[track_caller]
pub(crate) fn eventually_or(mut is_so: impl FnMut() -> bool, missing: impl FnOnce() -> String) {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() >= PATIENCE {
            panic!("not within {PATIENCE:?}: {}", missing());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether there is such a process, and it has not ended.
pub(crate) fn lives(pid: Pid) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The state of a process, as in ps(1).
pub(crate) fn state(pid: Pid) -> Option<char> {
    stat(pid.as_raw_pid())?.first()?.chars().next()
}

/// The parent of a process.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat(pid.as_raw_pid())?.get(1)?.parse().ok()?)
}

/// State, parent, group and so on of a process.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

fn all_processes() -> impl Iterator<Item = i32> {
    let folders = fs::read_dir("/proc").unwrap().flatten();
    folders.filter_map(|folder| folder.file_name().to_str()?.parse().ok())
}

/// A directory for one test. Dropping it kills every process that was started in it.
pub(crate) struct Place {
    dir: PathBuf,
    mark: String,
    server: Option<RedisServer>,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let mark = format!("tenure-cli-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let dir = std::env::temp_dir().join(&mark);
            match fs::create_dir(&dir) {
                // Of a run that was killed, whose number is now this one's.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                created => {
                    created.unwrap();
                    // Commands that only look do not make it.
                    fs::DirBuilder::new().mode(0o700).create(dir.join("locks")).unwrap();
                    return Place { dir, mark, server: None };
                }
            }
        }
    }

    /// The same, with the locks on a Redis server of its own.
    pub(crate) fn on_redis() -> Self {
        Place::on(RedisServer::start())
    }

    /// The same, on this server.
    pub(crate) fn on(server: RedisServer) -> Self {
        let mut place = Place::new();
        place.server = Some(server);
        place
    }

    pub(crate) fn is_on_redis(&self) -> bool {
        self.server.is_some()
    }

    /// Its Redis server.
    pub(crate) fn server(&self) -> &RedisServer {
        self.server.as_ref().expect("a place on Redis")
    }

    /// Where names live.
    pub(crate) fn url(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => format!("file://{}", self.locks().display()),
        }
    }

    /// Asks the store something, by the library and not by the program.
    pub(crate) fn ask<T>(&self, question: impl AsyncFnOnce(&Domain) -> Result<T, tenure::Error>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let domain = Domain::open(self.url().as_str()).await.unwrap();
            let answer = question(&domain).await.unwrap();
            domain.close().await;
            answer
        })
    }

    /// Who holds a name, and who waits for it.
    pub(crate) fn inspect(&self, name: &str) -> Status {
        self.ask(async |domain| domain.inspect(name).await)
    }

    /// Waits until so many wait for `name`.
    #[track_caller]
    pub(crate) fn await_queue(&self, waiters: usize) {
        eventually("they are in the queue", || self.inspect("name").waiters.len() == waiters);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Where the locks are.
    pub(crate) fn locks(&self) -> PathBuf {
        self.path("locks")
    }

    /// The text of a file; empty when it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The number of a process that wrote it into a file.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        let mut pid = None;
        eventually(name, || {
            pid = self.read(name).strip_suffix('\n').and_then(|text| Pid::from_raw(text.parse().ok()?));
            pid.is_some()
        });
        pid.unwrap()
    }

    /// A command in this place, with the directory for its locks, and with a mark by which it is found again. env(1) becomes it, under the
    /// same number; whoever runs these tests may ignore signals, and the command does not.
    /// A copy of the program under test. Another process writes it: if this one did, a child that another test forks meanwhile would have the
    /// file open for writing, and the kernel would refuse to execute it (ETXTBSY).
    pub(crate) fn copy_program(&self, name: &str) -> PathBuf {
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_tenure")).arg(self.path(name)).status();
        assert!(copied.expect("cp runs").success());
        self.path(name)
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", program]);
        command.env("TENURE_URL", self.url()).env_remove("TENURE_URL_FILE").env_remove("TENURE_SHARED_ONLY");
        command.env_remove("TENURE_URL_FOUND").env_remove("TENURE_URL_WITHHELD");
        command.env("TENURE_TEST", &self.mark).env("PLACE", &self.dir).current_dir(&self.dir);
        command.stdin(Stdio::null());
        command
    }

    /// `tenure` with these arguments, without a terminal, and in a group of its own. Where there is a terminal setsid(1) becomes it. Where there is
    /// none that is not needed, and would do harm: the kernel gives every session its own share of the processors, and on a busy
    /// machine a new one may get nothing for seconds.
    pub(crate) fn tenure(&self, args: &[&str]) -> Command {
        static HAS_TERMINAL: LazyLock<bool> = LazyLock::new(|| File::open("/dev/tty").is_ok());
        let tenure = env!("CARGO_BIN_EXE_tenure");
        let mut command = if *HAS_TERMINAL {
            let mut command = self.command("setsid");
            command.arg(tenure);
            command
        } else {
            let mut command = self.command(tenure);
            command.process_group(0);
            command
        };
        command.args(args);
        command
    }

    /// `tenure` with these arguments, to its end.
    pub(crate) fn end(&self, args: &[&str]) -> Finished {
        self.start(args).finish()
    }

    /// `tenure` with these arguments, started.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.spawn(self.tenure(args))
    }

    /// A command, started. What it writes goes to files, because a pipe is not at its end before the last that inherited it is.
    pub(crate) fn spawn(&self, command: Command) -> Running {
        self.spawn_with(command, None)
    }

    /// The same, with another stderr.
    pub(crate) fn spawn_with(&self, mut command: Command, other_stderr: Option<Stdio>) -> Running {
        let [stdout, stderr] = ["stdout", "stderr"].map(|stream| {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            self.path(&format!("{stream}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
        });
        let file = File::create(&stderr).unwrap();
        command.stdout(File::create(&stdout).unwrap()).stderr(other_stderr.unwrap_or_else(|| file.into()));
        Running { child: command.spawn().unwrap(), stdout, stderr }
    }

    /// `tenure run` of a shell script that says `started` when it runs, and holds `life` as long as anything of it lives.
    pub(crate) fn start_script(&self, options: &[&str], script: &str) -> Running {
        self.spawn(self.script(options, script))
    }

    /// The same, not started yet.
    pub(crate) fn script(&self, options: &[&str], script: &str) -> Command {
        let script = format!("exec 9>life; flock -n 9 || echo met >> overlaps; {script}");
        let args = [&["run"], options, &["name", "--", "sh", "-c", &script]].concat();
        self.tenure(&args)
    }

    /// Whether nothing lives that was started by a script.
    pub(crate) fn is_lifeless(&self) -> bool {
        let status = self.command("flock").args(["-n", "life", "true"]).status().unwrap();
        status.success()
    }

    /// The processes that were started here, and live.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mark = format!("TENURE_TEST={}", self.mark);
        let is_ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        all_processes().filter(is_ours).collect()
    }

    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        eventually("no process is left behind", || self.processes().is_empty());
    }

    /// What is left in the store of those that used it: files of sessions, or keys but for fences that expire. Connections to a server must not be.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        if let Some(server) = &self.server {
            return left_on(server);
        }
        let entries = fs::read_dir(self.locks()).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("stripe-")).collect()
    }
}

fn left_on(server: &RedisServer) -> Vec<String> {
    let expires = |key: &str| server.command(&["PTTL", key]).int() > 0;
    let mut left: Vec<_> = server.command(&["KEYS", "*"]).items().iter().map(Reply::text).collect();
    left.retain(|key| !(key.ends_with("}:fence") && expires(key)));
    // That a client is gone is seen by the server a moment later.
    eventually("no connection is left", || {
        let connections = server.command(&["CLIENT", "LIST"]).text();
        connections.lines().all(|line| line.contains("cmd=client|list"))
    });
    left
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A process that was started.
pub(crate) struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Running {
    /// The wrapper process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// The holder process, the child of the wrapper.
    pub(crate) fn holder(&self) -> Pid {
        let wrapper = self.pid().as_raw_pid().to_string();
        let mut children = all_processes().filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == wrapper));
        Pid::from_raw(children.next().expect("a wrapper has a holder")).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        eventually("the process ends", || self.has_ended());
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        let text = |path| fs::read_to_string(path).unwrap();
        Finished { code, stdout: text(&self.stdout), stderr: text(&self.stderr) }
    }

    /// What it wrote to stdout so far.
    pub(crate) fn shown(&self) -> Vec<u8> {
        fs::read(&self.stdout).unwrap()
    }

    /// What it wrote to stderr so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap()
    }

    /// What it has written to stdout so far.
    pub(crate) fn printed(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap()
    }

    /// What it reads from.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }
}
