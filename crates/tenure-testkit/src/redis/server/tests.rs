use super::*;
use std::process::{Command, Stdio};

#[test]
fn answers_and_takes_settings() {
    let server =
        RedisServer::builder().config("maxmemory-policy", "allkeys-lru").config("databases", "3").start();
    assert_eq!(server.command(&["SET", "a", "1"]), Reply::Simple("OK".into()));
    assert_eq!(server.command(&["GET", "a"]).int(), 1);
    assert!(server.command(&["GET", "b"]).is_nil());
    assert!(server.command(&["SELECT", "3"]).is_error("ERR"));
    assert_eq!(server.command(&["CONFIG", "GET", "maxmemory-policy"]).items()[1].text(), "allkeys-lru");
    assert_eq!(server.command(&["DEBUG", "SLEEP", "0"]).text(), "OK");
    let over_tcp = Client::connect(server.port()).unwrap().command(&["GET", "a"]).unwrap();
    assert_eq!(over_tcp.text(), "1");
}

#[test]
fn a_password_is_used_by_its_own_commands() {
    let server = RedisServer::builder().config("requirepass", "secret").start();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    let stranger = Client::connect(server.port()).unwrap().command(&["PING"]).unwrap();
    assert!(stranger.is_error("NOAUTH"));
}

#[test]
fn is_gone_with_its_directory_when_dropped() {
    let server = RedisServer::start();
    let (pid, socket) = (server.pid(), server.socket_path());
    assert!(is_alive(pid) && socket.exists());
    drop(server);
    assert!(!is_alive(pid) && !socket.parent().unwrap().exists());
}

#[test]
fn restart_keeps_the_port_and_what_was_saved() {
    let forgetful = RedisServer::start();
    let careful = RedisServer::builder().aof_always().start();
    for (server, kept) in [(&forgetful, false), (&careful, true)] {
        let (port, pid) = (server.port(), server.pid());
        server.command(&["SET", "a", "1"]);
        server.restart();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        let reply = Client::connect(port).unwrap().command(&["GET", "a"]).unwrap();
        assert_eq!(!reply.is_nil(), kept);
    }
}

#[test]
fn a_killed_server_refuses_until_it_is_restarted() {
    let server = RedisServer::start();
    server.kill();
    assert!(Client::connect(server.port()).is_err());
    assert!(server.client().is_err());
    server.restart();
    assert_eq!(Client::connect(server.port()).unwrap().command(&["PING"]).unwrap().text(), "PONG");
}

#[test]
fn a_stopped_server_is_silent_until_it_goes_on() {
    let server = RedisServer::start();
    let mut client = Client::connect(server.port()).unwrap();
    client.set_patience(Duration::from_millis(50)).unwrap();
    server.stop();
    assert_eq!(client.command(&["SET", "a", "1"]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    server.cont();
    client.set_patience(PATIENCE).unwrap();
    assert_eq!(client.receive().unwrap().text(), "OK");
}

#[test]
fn a_setting_that_redis_refuses_is_said() {
    let refused = std::panic::catch_unwind(|| RedisServer::builder().config("no-such-setting", "1").start());
    let said = refused.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("no-such-setting"), "{said}");
}

/// Tells the child of `dies_with_its_process` what it is.
const ROLE: &str = "TENURE_TEST_STARTS_A_SERVER";

/// The child of the next test: starts a server from a thread that ends at once, says where it is, and waits to be killed.
#[test]
fn starts_a_server_and_waits() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let server =
        thread::Builder::new().name("starter".into()).spawn(RedisServer::start).unwrap().join().unwrap();
    // Joined is not ended: the kernel sends what the end of a thread causes a little later.
    while threads().any(|name| name == "starter\n") {
        thread::yield_now();
    }
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    println!("\nserver {} {}", server.pid(), server.socket_path().parent().unwrap().display());
    loop {
        thread::park();
    }
}

#[test]
fn dies_with_its_process() {
    use std::io::{BufRead as _, BufReader};
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["redis::server::tests::starts_a_server_and_waits", "--exact", "--nocapture"])
        .env(ROLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("server ")).expect("it says which");
    let mut words = line.split(' ').skip(1);
    let pid = words.next().unwrap().parse().unwrap();
    assert!(is_alive(pid));

    process.kill().unwrap();
    process.wait().unwrap();
    let give_up = Instant::now() + PATIENCE;
    while is_alive(pid) {
        assert!(Instant::now() < give_up, "redis-server {pid} outlived its process");
        thread::sleep(Duration::from_millis(1));
    }
    std::fs::remove_dir_all(words.next().unwrap()).unwrap();
}

fn threads() -> impl Iterator<Item = String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map_while(Result::ok);
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
}

/// Neither gone nor dead and not yet waited for.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains("redis-server") && !stat.contains(") Z ")
}
