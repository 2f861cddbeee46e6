//! Where a URL comes from: options, variables, files; what is wrong with them; and that everyone is shown which one it was.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use tenure_testkit::redis::RedisServer;

use crate::support::{Finished, Place, eventually};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const PASSWORD: &str = "open-sesame";

/// `tenure` without any URL. Its user has no files.
fn bare(place: &Place, args: &[&str]) -> Command {
    let mut command = place.tenure(args);
    command.env_remove("TENURE_URL").env_remove("XDG_CONFIG_HOME").env("HOME", place.path("home"));
    command
}

fn end(place: &Place, command: Command) -> Finished {
    place.spawn(command).finish()
}

/// A command line on a machine whose `/etc` has this `tenure/url`, and a `root` whose home is `home`.
fn on_machine(place: &Place, system: Option<&str>, command: &[&str]) -> Command {
    let etc = place.path("etc");
    let _ = fs::remove_dir_all(&etc);
    fs::create_dir_all(etc.join("tenure")).unwrap();
    let home = place.path("home");
    fs::write(etc.join("passwd"), format!("root:x:0:0::{}:/bin/sh\n", home.display())).unwrap();
    fs::write(etc.join("nsswitch.conf"), "passwd: files\n").unwrap();
    if let Some(url) = system {
        fs::write(etc.join("tenure/url"), url).unwrap();
    }
    let mut unshare = place.command("unshare");
    unshare.args(["--mount", "--propagation", "private", "--", "sh", "-ec"]);
    unshare.args(["mount --bind etc /etc; exec \"$@\"", "sh"]).args(command);
    unshare.env_remove("TENURE_URL").env_remove("XDG_CONFIG_HOME").env("HOME", home);
    unshare
}

/// Writes a file of the place, with its directories; its path.
fn write(place: &Place, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The URL of a directory of the place.
fn directory(place: &Place, name: &str) -> String {
    format!("file://{}", place.path(name).display())
}

#[track_caller]
fn assert_refused(done: &Finished, parts: &[&str]) {
    assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{done:?}");
    for part in parts {
        assert!(done.stderr.contains(part), "`{part}` is missing: {done:?}");
    }
}

/// Else a variable that is lost means this machine alone, and two machines do the same work.
// R0.6
#[test]
fn an_empty_value_is_refused() {
    let place = Place::new();
    for variable in ["TENURE_URL", "TENURE_URL_FILE"] {
        for value in ["", " "] {
            let mut command = bare(&place, &["run", "-q", "name", "touch", "ran"]);
            command.env(variable, value);
            let done = end(&place, command);
            assert_refused(&done, &[&format!("tenure: {variable} is empty"), "unset it"]);
        }
    }
    for option in ["--url", "--url-file"] {
        let done = end(&place, bare(&place, &["run", "-q", option, "", "name", "touch", "ran"]));
        assert_refused(&done, &[&format!("tenure: {option} is empty"), "leave it out"]);
    }
    let mut command = bare(&place, &["run", "-q", "name", "touch", "ran"]);
    command.env("TENURE_SHARED_ONLY", "");
    assert_refused(&end(&place, command), &["TENURE_SHARED_ONLY", "write 1"]);
    assert!(!place.path("ran").exists());
}

// R0.6
#[test]
fn the_option_goes_before_the_variable_and_that_before_the_files() {
    let place = Place::new();
    let url = |name: &str| directory(&place, name);
    let [file, other] =
        ["by-option", "by-variable"].map(|name| write(&place, &format!("{name}.url"), url(name)));
    // All that is there, and what is used of it. What goes first is taken away one by one.
    let (option, variable) = (url("option"), ("TENURE_URL", url("variable")));
    let levels = [
        (vec!["--url", &option], &variable, "option (from --url)"),
        (vec!["--url-file", &file], &variable, "by-option (from --url-file "),
        (vec![], &variable, "variable (from TENURE_URL)"),
        (vec![], &("TENURE_URL_FILE", other), "by-variable (from TENURE_URL_FILE="),
    ];
    write(&place, "home/.config/tenure/url", url("user"));
    let system = url("system");
    for (options, (name, value), used) in levels {
        let args = [&[TENURE, "run", "-v"], &options[..], &["name", "true"]].concat();
        let mut command = on_machine(&place, Some(&system), &args);
        command.env(name, value);
        let done = end(&place, command);
        assert!(done.code == 0 && done.stderr.contains(&url(used)), "{used}: {done:?}");
    }
    let run = |system: Option<&str>, xdg: Option<&str>| {
        let mut command = on_machine(&place, system, &[TENURE, "run", "-v", "name", "true"]);
        command.envs(xdg.map(|dir| ("XDG_CONFIG_HOME", dir)));
        end(&place, command)
    };
    write(&place, "xdg/tenure/url", url("xdg"));
    let user = place.path("home/.config/tenure/url");
    for (xdg, used, from) in [
        (Some(place.path("xdg")), "xdg", place.path("xdg/tenure/url")),
        // The standard says to ignore these.
        (Some("relative".into()), "user", user.clone()),
        (Some("".into()), "user", user.clone()),
        (None, "user", user.clone()),
    ] {
        let done = run(Some(&system), xdg.as_ref().map(|dir| dir.to_str().unwrap()));
        let expected = format!("{} (from {})", url(used), from.display());
        assert!(done.code == 0 && done.stderr.contains(&expected), "{xdg:?}: {done:?}");
    }
    fs::remove_dir_all(place.path("home")).unwrap();
    let done = run(Some(&system), None);
    assert!(done.stderr.contains(&format!("{system} (from /etc/tenure/url)")), "{done:?}");
    let done = run(None, None);
    assert!(done.code == 0 && done.stderr.contains("file: (by default: /run/lock/tenure-0)"), "{done:?}");
}

/// cron, sudo and `env -i` drop variables, but no files.
#[test]
fn a_file_is_found_without_any_variable() {
    let place = Place::new();
    let run = ["env", "-i", TENURE, "run", "-v", "name", "true"];
    let (user, system) = (directory(&place, "user"), directory(&place, "system"));
    let done = end(&place, on_machine(&place, Some(&system), &run));
    assert!(done.code == 0 && done.stderr.contains(&format!("{system} (from /etc/tenure/url)")), "{done:?}");
    let file = write(&place, "home/.config/tenure/url", &user);
    let done = end(&place, on_machine(&place, Some(&system), &run));
    assert!(done.code == 0 && done.stderr.contains(&format!("{user} (from {file})")), "{done:?}");
}

#[test]
fn two_urls_at_once_are_refused() {
    let place = Place::new();
    let file = write(&place, "file", place.url());
    let url = place.url();
    let done = end(&place, bare(&place, &["run", "--url", &url, "--url-file", &file, "name", "true"]));
    assert_refused(&done, &["cannot be used with"]);
    let mut command = bare(&place, &["run", "name", "true"]);
    command.env("TENURE_URL", &url).env("TENURE_URL_FILE", &file);
    assert_refused(&end(&place, command), &["TENURE_URL and TENURE_URL_FILE are both set", "unset one"]);
    // An option needs neither.
    let mut command = bare(&place, &["run", "--url", &url, "name", "true"]);
    command.env("TENURE_URL", "").env("TENURE_URL_FILE", "");
    assert_eq!(end(&place, command).code, 0);
}

// R0.6
#[test]
fn a_file_has_one_url_and_comments() {
    let place = Place::new();
    let url = place.url();
    let run = |text: &[u8]| {
        let file = write(&place, "file", text);
        end(&place, bare(&place, &["run", "--url-file", &file, "name", "true"]))
    };
    for text in [
        url.clone(),
        format!("{url}\n"),
        format!("{url}\r\n"),
        format!("\n  \t{url}  \n\n"),
        format!("# all jobs\n\n  # of this host\n{url}\n# end"),
        format!("\u{feff}{url}\r\n"),
    ] {
        let done = run(text.as_bytes());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{text:?}");
    }
    let prefix = format!("tenure: --url-file {}: ", place.path("file").display());
    let long = "#".repeat(70_000);
    for (text, parts) in [
        (&b""[..], &["has no URL", "redis://"][..]),
        (b"\n \n", &["has no URL"]),
        (b"# redis://h\n", &["has no URL"]),
        (b"file:///a\n\nfile:///b\nfile:///c\n", &["more than one URL", "lines 1 and 3"]),
        (b"redis://:secret@h # comment\n", &["line 1 goes on after the URL", "a line of its own"]),
        (b"# for jobs\r\nTENURE_URL=redis://:secret@h\r\n", &["line 2 has a name before the URL", "alone"]),
        (b"export TENURE_URL=redis://:secret@h\nB=2\n", &["line 1 has a name before the URL"]),
        (b"\"redis://:secret@h\"\n", &["line 1 has quotes around the URL", "leave them out"]),
        (b"redis://:secret@h redis://:secret@g\n", &["line 1 has more than one URL"]),
        (b"redis://:secret@h and more\n", &["whitespace"]),
        (b"\xff\xfef\0i\0l\0e\0:\0", &["UTF-16", "UTF-8"]),
        (b"file:///\xff\n", &["not UTF-8", "%XX"]),
        (b"memory:\n", &["private to one process"]),
        (long.as_bytes(), &["too long"]),
    ] {
        let done = run(text);
        let text = String::from_utf8_lossy(text);
        assert_refused(&done, parts);
        assert!(done.stderr.starts_with(&prefix) && !done.stderr.contains("secret"), "{text}: {done:?}");
    }
    // A variable has the same mistakes: docker keeps the quotes in an --env-file.
    let mut command = bare(&place, &["run", "name", "true"]);
    command.env("TENURE_URL", format!("'{url}'"));
    assert_refused(&end(&place, command), &["TENURE_URL: has quotes around the URL"]);
    // What a shell or a password manager writes, once.
    let mut command = place.command("bash");
    let script =
        r#""$1" run --url-file <(echo "$2") name -- true && "$1" status --url-file <(echo "$2") name"#;
    command.args(["-c", script, "bash", TENURE, &url]).env_remove("TENURE_URL");
    let done = end(&place, command);
    assert!(done.code == 0 && done.stdout.contains(&url), "{done:?}");
}

/// A file that is there counts, also when nobody can read it: what is in it is not to be guessed.
#[test]
fn a_file_that_can_t_be_read_is_an_error() {
    let place = Place::new();
    let named = |file: &str| end(&place, bare(&place, &["run", "--url-file", file, "name", "touch", "ran"]));
    let missing = place.path("missing");
    assert_refused(
        &named(missing.to_str().unwrap()),
        &["missing: can't be read: No such file", "check its name"],
    );
    assert_refused(&named("/"), &["can't be read: it is a directory"]);
    assert_refused(&named("/etc/passwd/url"), &["can't be read: Not a directory"]);
    let mut command = bare(&place, &["run", "name", "touch", "ran"]);
    command.env("TENURE_URL_FILE", &missing);
    assert_refused(&end(&place, command), &["TENURE_URL_FILE=", "No such file"]);

    let found = || end(&place, bare(&place, &["run", "name", "touch", "ran"]));
    fs::create_dir_all(place.path("home/.config/tenure/url")).unwrap();
    assert_refused(&found(), &["home/.config/tenure/url: can't be read: it is a directory"]);
    fs::remove_dir(place.path("home/.config/tenure/url")).unwrap();
    symlink("/no/such/file", place.path("home/.config/tenure/url")).unwrap();
    assert_refused(&found(), &["home/.config/tenure/url: can't be read: No such file"]);
    fs::remove_file(place.path("home/.config/tenure/url")).unwrap();
    fs::write(place.path("home/.config/tenure/url"), "").unwrap();
    assert_refused(&found(), &["home/.config/tenure/url: has no URL"]);

    // Someone else's. The program is where any user can run it.
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let tenure = place.copy_program("tenure");
    let user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", tenure.to_str().unwrap()];
    let hidden = place.path("home/.config/tenure/url");
    let refused = |mode| {
        fs::set_permissions(&hidden, fs::Permissions::from_mode(mode)).unwrap();
        let mut command = place.command(user[0]);
        command.args(&user[1..]).args(["run", "name", "touch", "ran"]);
        command.env_remove("TENURE_URL").env_remove("XDG_CONFIG_HOME").env("HOME", place.path("home"));
        let done = end(&place, command);
        assert!(!done.stderr.contains("--url"), "a password does not belong there: {done:?}");
        done
    };
    let denied = "home/.config/tenure/url: can't be read: Permission denied";
    let shared = format!("chgrp GROUP {0} && chmod 640 {0}", hidden.display());
    assert_refused(&refused(0o000), &[denied, "let a group of this user read it", &shared]);
    assert_refused(&refused(0o640), &[denied, "as root: usermod -aG root 54321, and log in again"]);
    assert!(!place.path("ran").exists());
}

#[test]
fn shared_only_refuses_domains_of_one_machine() {
    let place = Place::on_redis();
    let (local, shared) = (directory(&place, "locks"), place.url());
    let layered = format!("{shared}?inner={local}");
    write(&place, "home/.config/tenure/url", &local);
    let run = |url: Option<&str>, option: bool, variable: Option<&str>| {
        let option: &[&str] = if option { &["--shared-only"] } else { &[] };
        let mut command = bare(&place, &[&["run", "-q"], option, &["name", "true"]].concat());
        command.envs(url.map(|url| ("TENURE_URL", url)));
        command.envs(variable.map(|value| ("TENURE_SHARED_ONLY", value)));
        end(&place, command)
    };
    for (option, variable, name) in
        [(true, None, "--shared-only: "), (false, Some("1"), "TENURE_SHARED_ONLY: ")]
    {
        for url in [Some(&*local), None] {
            let done = run(url, option, variable);
            assert_refused(&done, &[name, "this machine only", "--url", "/etc/tenure/url", &local]);
        }
        for url in [&shared, &layered] {
            let done = run(Some(url), option, variable);
            assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{url}");
        }
        assert_eq!(run(Some(&local), false, Some("0")).code, 0);
    }
    assert_eq!(run(Some(&local), true, Some("0")).code, 64, "the option is enough");
    assert_refused(&run(Some(&shared), false, Some("yes")), &["TENURE_SHARED_ONLY is `yes`", "write 1"]);
    fs::remove_dir_all(place.path("home")).unwrap();
    assert_refused(&run(None, true, None), &["file: (by default: /run/lock/tenure-0)", "this machine only"]);
    for command in [
        &["status", "--shared-only", "name"][..],
        &["acquire", "--shared-only", "name"],
        &["doctor", "--shared-only"],
    ] {
        assert_refused(&end(&place, bare(&place, command)), &["--shared-only: "]);
    }
}

fn with_password() -> Place {
    Place::on(RedisServer::builder().config("requirepass", PASSWORD).start())
}

fn password_url(place: &Place) -> String {
    format!("redis://:{PASSWORD}@127.0.0.1:{}", place.server().port())
}

/// ps(1) shows it to everyone.
// R0.6
#[test]
fn a_password_on_the_command_line_is_warned_of() {
    let place = with_password();
    let url = password_url(&place);
    let warning = "tenure: every user of this machine can see the password in --url (ps); use TENURE_URL or --url-file\n";
    for args in [
        &["run", "--url", &url, "name", "true"][..],
        &["ls", "--url", &url],
        &["status", "--url", &url, "name"],
    ] {
        let done = end(&place, bare(&place, args));
        assert_eq!((done.code, done.stderr.as_str()), (0, warning), "once");
    }
    for quiet in [&["run", "-q", "--url", &url, "name", "true"][..], &["status", "-q", "--url", &url, "name"]]
    {
        let done = end(&place, bare(&place, quiet));
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    }
    let mut command = bare(&place, &["run", "name", "true"]);
    command.env("TENURE_URL", &url);
    let done = end(&place, command);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

/// As ssh does it for keys.
// R0.6
#[test]
fn a_password_in_a_file_that_others_can_read_is_warned_of() {
    let place = with_password();
    let run = |url: &str, mode: u32, quiet: &[&str]| {
        let file = write(&place, "file", url);
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let done =
            end(&place, bare(&place, &[&["run"], quiet, &["--url-file", &file, "name", "true"]].concat()));
        assert!(!done.stderr.contains(PASSWORD), "{done:?}");
        (done.code, done.stderr.replace(&file, "FILE"))
    };
    let url = password_url(&place);
    for mode in [0o400, 0o600, 0o640, 0o440] {
        assert_eq!(run(&url, mode, &[]), (0, String::new()), "{mode:o}");
    }
    let readable =
        "tenure: every user of this machine can read the password in FILE (mode 644): chmod o= FILE\n";
    assert_eq!(run(&url, 0o644, &[]), (0, readable.to_owned()));
    assert_eq!(run(&url, 0o644, &["-q"]), (0, String::new()));
    let local = directory(&place, "locks");
    assert_eq!(run(&local, 0o644, &[]), (0, String::new()), "there is none in it");
    // Who changes it takes the lock away from everyone else.
    let writable = "tenure: every user of this machine can change FILE (mode 666): chmod o-w FILE\n";
    assert_eq!(run(&local, 0o666, &[]), (0, writable.to_owned()));
    assert_eq!(run(&url, 0o666, &[]), (0, format!("{writable}{}", readable.replace("644", "666"))));
}

/// No `tenure` in a command uses another domain than the one around it, unless its caller says so.
// R0.6
#[test]
fn a_tenure_in_the_command_uses_the_same_domain_or_none() {
    let place = Place::new();
    let url = place.url();
    let file = write(&place, "file", &url);
    let inner = [TENURE, "run", "-v", "b", "env"];
    // Here the inner one would find something else.
    write(&place, "home/.config/tenure/url", directory(&place, "elsewhere"));
    let outer = |args: &[&str], variable: Option<(&str, &str)>| {
        let mut command = bare(&place, &[&["run"], args, &["a"], &inner].concat());
        command.envs(variable);
        end(&place, command)
    };
    for done in [
        outer(&["--url", &url], None),
        outer(&["--url-file", &file], None),
        outer(&[], Some(("TENURE_URL", &url))),
        // It is the outer one's no more than a URL is.
        outer(&["--url", &url], Some(("TENURE_URL_FILE", &file))),
    ] {
        assert_refused(&done, &["domain is not known", "--url-file", "--pass-url"]);
    }
    let is_given = |done: &Finished, name: &str, value: &str| {
        done.stdout.lines().any(|line| line == format!("{name}={value}"))
    };
    for done in [
        outer(&["--pass-url", "--url-file", &file], None),
        outer(&["--pass-url", "--url", &url], Some(("TENURE_URL_FILE", "/no/such/file"))),
    ] {
        assert!(done.code == 0 && done.stderr.contains(&format!("{url} (from TENURE_URL)")), "{done:?}");
    }
    // The name of a file is no secret.
    for options in [&[][..], &["--pass-url"]] {
        let done = outer(options, Some(("TENURE_URL_FILE", &file)));
        assert!(done.code == 0 && is_given(&done, "TENURE_URL_FILE", &file), "{done:?}");
        assert!(done.stderr.contains(&format!("{url} (from TENURE_URL_FILE={file})")), "{done:?}");
    }
    // Below a file that is found, the same one is.
    let done = outer(&[], None);
    assert!(done.code == 0 && done.stderr.contains(&directory(&place, "elsewhere")), "{done:?}");
    let found = place.path("home/.config/tenure/url");
    assert!(is_given(&done, "TENURE_URL_FOUND", found.to_str().unwrap()), "{done:?}");
    assert_eq!(done.stdout.matches("TENURE_URL").count(), 1, "{done:?}");
    let done = outer(&["--pass-url"], None);
    assert!(done.code == 0 && done.stderr.contains("(from TENURE_URL)"), "{done:?}");
}

/// Which domain, and who said so: with a password, without it.
// R0.6
#[test]
fn the_domain_and_its_origin_are_shown() {
    let place = with_password();
    let file = write(&place, "file", password_url(&place));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let shown = format!("redis://:***@127.0.0.1:{} (from --url-file {file})", place.server().port());
    let by = |args: &[&str]| bare(&place, &[&args[..1], &["--url-file", &file], &args[1..]].concat());
    let done = end(&place, by(&["run", "-v", "name", "true"]));
    assert!(done.stderr.starts_with(&format!("tenure: domain {shown}\n")), "{done:?}");
    for verbose in [&["acquire", "-v", "ticket"][..], &["hold", "-v", "name"]] {
        let done = end(&place, by(verbose));
        assert!(done.code == 0 && done.stderr.contains(&format!("tenure: domain {shown}\n")), "{done:?}");
    }
    let done = end(&place, by(&["status", "name"]));
    assert!(done.stdout.contains(&format!("\ndomain: {shown}\n")), "{done:?}");
    let done = end(&place, by(&["doctor"]));
    assert!(done.stdout.lines().next().unwrap().ends_with(&shown), "{done:?}");
    let holder = place.spawn(by(&["run", "name", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]));
    place.pid("pid");
    let done = end(&place, by(&["run", "-n", "name", "true"]));
    assert_eq!(done.code, 75);
    assert!(done.stderr.contains(&format!("tenure: domain {shown}\n")), "{done:?}");
    let again = format!("to see more: tenure status name --url-file {file}\n");
    assert!(done.stderr.contains(&again), "{done:?}");
    holder.signal(rustix::process::Signal::TERM);
    holder.finish();
    let mut away = bare(&place, &["doctor"]);
    away.env("TENURE_URL", "redis://127.0.0.1:1");
    let done = end(&place, away);
    let first = done.stdout.lines().next().unwrap();
    assert!(done.code == 69 && first.ends_with("redis://127.0.0.1:1 (from TENURE_URL)"), "{done:?}");
}

/// A hint of what other domain a ticket may be of.
#[test]
fn a_useless_ticket_names_the_domain_that_was_asked() {
    let place = Place::new();
    let ticket = place.end(&["acquire", "name"]).stdout;
    let other = directory(&place, "other");
    fs::create_dir(place.path("other")).unwrap();
    let done = place.end(&["release", "--url", &other, ticket.trim_end()]);
    assert_eq!(done.code, 79);
    assert!(done.stderr.contains(&format!("in another domain than {other} (from --url)")), "{done:?}");
}

/// The recipes of docs/urls.md, each as a line that is typed or read by someone else's program.
#[test]
fn the_recipes_work() {
    let place = Place::on_redis();
    let text = include_str!("../../../../docs/urls.md");
    let (_, recipes) = text.split_once("## Recipes\n").expect("they are there");
    let recipes = recipes.split("\n## ").next().unwrap();
    let command_after = |mark: &str| {
        let (_, line) =
            recipes.lines().find_map(|line| line.split_once(mark)).unwrap_or_else(|| panic!("{mark}"));
        line.to_owned()
    };
    let credentials = write(&place, "credentials/tenure-url", place.url());
    let credentials = credentials.strip_suffix("/tenure-url").unwrap();
    let job = write(&place, "backup", "#!/bin/sh\ntouch ran\n");
    fs::set_permissions(&job, fs::Permissions::from_mode(0o755)).unwrap();
    let mark = "/usr/local/bin/tenure ";
    let yaml =
        recipes.lines().find_map(|line| line.trim().strip_prefix("command: [tenure, ")).expect("a container");
    let lines = [
        ("cron", command_after("0 3 * * * /usr/local/bin/tenure ")),
        (
            "systemd",
            command_after(&format!("ExecStart={mark}")).replace("${CREDENTIALS_DIRECTORY}", credentials),
        ),
        ("kubernetes", yaml.trim_end_matches(']').replace(',', "")),
    ];
    for (what, line) in lines {
        let line = line.replace("/usr/local/bin/backup", &job);
        assert!(line.contains("--shared-only") && line.contains(&job), "{what}: {line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let args = [&["env", "-i", TENURE], &words[..]].concat();
        let done = end(&place, on_machine(&place, Some(&place.url()), &args));
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{what}: {line}");
        fs::remove_file(place.path("ran")).unwrap_or_else(|_| panic!("{what}: {line}"));
        // Without its file it does not fall back on this machine.
        let _ = fs::rename(credentials, place.path("away"));
        let done = end(&place, on_machine(&place, None, &args));
        assert_refused(&done, &[]);
        assert!(!place.path("ran").exists(), "{what}");
        let _ = fs::rename(place.path("away"), credentials);
    }
}

/// It is two processes, and the file is read by one.
#[test]
fn bench_reads_a_file() {
    let place = Place::new();
    let file = write(&place, "file", place.url());
    for (options, variable) in [(&["--url-file", &file][..], None), (&[], Some(&file))] {
        // A machine that is busy may not answer in time.
        eventually("it measures", || {
            let mut command = bare(&place, &[&["bench", "--seconds", ".2"], options].concat());
            command.envs(variable.map(|file| ("TENURE_URL_FILE", file)));
            let done = end(&place, command);
            assert_ne!(done.code, 64, "{done:?}");
            done.code == 0 && done.stdout.contains("hand-over")
        });
    }
}

/// A name of a file may be any bytes.
#[test]
fn the_name_of_a_file_may_have_any_characters() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    let odd = place.path("").join(OsStr::from_bytes(b"od\xff d\n'"));
    fs::write(&odd, place.url()).unwrap();
    let mut command = bare(&place, &["run", "-v", "--url-file"]);
    command.arg(&odd).args(["name", "true"]);
    let done = end(&place, command);
    assert!(done.code == 0 && done.stderr.lines().all(|line| line.starts_with("tenure: ")), "{done:?}");
    eventually("all ended", || place.processes().is_empty());
}

/// `tenure` above, and what loses its variables in between: none of them makes the inner one lock elsewhere.
// R0.6
#[test]
fn a_tenure_that_lost_its_variables_uses_the_same_domain_or_none() {
    let place = Place::new();
    let url = place.url();
    let elsewhere = write(&place, "other/.config/tenure/url", directory(&place, "elsewhere"));
    let other_home = format!("HOME={}", place.path("other").display());
    let other_home = other_home.as_str();
    let inner = [TENURE, "run", "-v", "b", "touch", "ran"];
    let run = |system: Option<&str>, outer: &[&str], between: &[&str], variable: Option<(&str, &str)>| {
        let _ = fs::remove_file(place.path("ran"));
        let args = [&[TENURE, "run"], outer, &["a"], between, &inner].concat();
        let mut command = on_machine(&place, system, &args);
        command.envs(variable);
        let done = end(&place, command);
        assert_eq!(place.path("ran").exists(), done.code == 0, "{done:?}");
        done
    };
    let emptied: [&[&str]; 3] =
        [&["env", "-i"], &["sh", "-c", "env -i \"$@\"; exit $?", "sh"], &["env", "-i", other_home]];
    for between in emptied {
        for done in [
            run(None, &["--url", &url], between, None),
            run(None, &[], between, Some(("TENURE_URL", &url))),
            run(None, &["--pass-url"], between, Some(("TENURE_URL", &url))),
        ] {
            assert_refused(&done, &["domain is not known", "`tenure run` (pid ", "--url-file"]);
        }
    }
    // What files say is the same without any variable, unless HOME says otherwise.
    let found = |done: Finished, from: &str| {
        assert!(done.code == 0 && done.stderr.contains(&format!("{url} (from {from})")), "{done:?}");
    };
    for between in &emptied[..2] {
        found(run(Some(&url), &[], between, None), "/etc/tenure/url");
    }
    let done = run(Some(&url), &[], emptied[2], None);
    assert_refused(
        &done,
        &["which uses the URL in /etc/tenure/url", &elsewhere, "--url-file /etc/tenure/url"],
    );
    // With its variables, it uses the file that was found above.
    for between in [&[][..], &["env", other_home], &["env", "-u", "HOME"]] {
        found(run(Some(&url), &[], between, None), "/etc/tenure/url");
    }
    // A command may still name another domain.
    let another = directory(&place, "another");
    let done = run(Some(&url), &[], &["env", &format!("TENURE_URL={another}")], None);
    assert!(done.code == 0 && done.stderr.contains(&format!("{another} (from TENURE_URL)")), "{done:?}");
    let file = write(&place, "file", &url);
    let done = run(None, &[], emptied[0], Some(("TENURE_URL_FILE", &file)));
    assert_refused(&done, &[&format!("which uses the URL in {file}")]);
    // Above is the default, and here another file.
    for between in [&["env", other_home][..], emptied[2]] {
        let done = run(None, &[], between, None);
        assert_refused(
            &done,
            &["which uses file: (by default: /run/lock/tenure-0)", &elsewhere, "--url file:"],
        );
    }
    // Two levels of it.
    let middle = ["env", "-i", TENURE, "run", "c", "env", "-i", other_home];
    assert_refused(&run(Some(&url), &[], &middle, None), &["which uses the URL in /etc/tenure/url"]);
    found(run(Some(&url), &[], &middle[..7], None), "/etc/tenure/url");
}

/// The orphans of a command stay below its `tenure run`.
// R0.6
#[test]
fn an_orphan_that_lost_its_variables_does_not_lock_elsewhere() {
    let place = Place::new();
    let orphan =
        r#"until test -e go; do sleep .01; done; env -i "$0" run b touch ran 2> log; echo $? > code"#;
    let script = r#"setsid -f sh -c "$1" "$0"; touch go; until test -s code; do sleep .01; done"#;
    let done = place.end(&["run", "a", "--", "sh", "-c", script, TENURE, orphan]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(place.read("code"), "64\n", "{}", place.read("log"));
    assert!(place.read("log").contains("domain is not known") && !place.path("ran").exists());
}

/// Another user has another default directory, and does not see whose URL it is.
// R0.6
#[test]
fn a_tenure_of_another_user_in_the_command_does_not_lock_elsewhere() {
    let place = Place::new();
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let tenure = place.copy_program("tenure");
    let tenure = tenure.to_str().unwrap();
    let user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "env", "-i", tenure];
    let run = |system: Option<&str>, variable: Option<(&str, &str)>, args: &[&str]| {
        let mut command = on_machine(
            &place,
            system,
            &[&[tenure, "run", "a"], &user[..], &["status"], args, &["b"]].concat(),
        );
        command.envs(variable);
        end(&place, command)
    };
    let nothing = run(None, None, &[]);
    assert_refused(&nothing, &["domain is not known", "user root (0)", "--url"]);
    // Nothing is locked there.
    let (url, shared) = (place.url(), directory(&place, "nothing"));
    let outer = Some(("TENURE_URL", url.as_str()));
    let given = run(Some(&shared), outer, &[]);
    assert!(given.code == 0 && given.stderr.contains("whose URL is not shown to this user"), "{given:?}");
    assert!(given.stderr.contains("(from /etc/tenure/url)"), "{given:?}");
    let named = run(Some(&shared), outer, &["--url-file", "/etc/tenure/url"]);
    assert!(named.code == 0 && !named.stderr.contains("this runs under"), "{named:?}");
}

/// Only a file that is plainly absent is passed over.
// R0.6
#[test]
fn a_file_that_may_be_there_is_not_passed_over() {
    let place = Place::new();
    let found = || end(&place, bare(&place, &["run", "name", "touch", "ran"]));
    fs::create_dir(place.path("home")).unwrap();
    for config in ["home/.config", "home/.config/tenure"] {
        let path = place.path(config);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        assert_refused(&found(), &["home/.config/tenure/url: can't be read: Not a directory"]);
        fs::remove_file(&path).unwrap();
        symlink("/no/such/directory", &path).unwrap();
        let shown = format!("can't be read: {} is a link to nothing", path.display());
        assert_refused(&found(), &["home/.config/tenure/url: ", &shown]);
        fs::remove_file(&path).unwrap();
        symlink("itself", path.with_file_name("itself")).unwrap();
        symlink("itself", &path).unwrap();
        assert_refused(&found(), &["home/.config/tenure/url: can't be read: "]);
        fs::remove_file(&path).unwrap();
    }
    assert!(!place.path("ran").exists());
    // Users without a home.
    let mut command = bare(&place, &["run", "-v", "name", "true"]);
    command.env("HOME", "/dev/null");
    let done = end(&place, command);
    assert!(done.code == 0 && done.stderr.contains("file: (by default: /run/lock/tenure-0)"), "{done:?}");
}

/// What is there in place of a file is refused at once, before anyone waits for it.
// R0.6
#[test]
fn only_an_option_may_name_a_pipe() {
    let place = Place::new();
    let fifo = write(&place, "home/.config/tenure/url", "");
    fs::remove_file(&fifo).unwrap();
    assert!(place.command("mkfifo").arg(&fifo).status().unwrap().success());
    let refused = "can't be read: it is a pipe; write the URL into a plain file";
    let done = end(&place, bare(&place, &["run", "name", "true"]));
    assert_refused(&done, &["home/.config/tenure/url: ", refused]);
    let mut command = bare(&place, &["run", "name", "true"]);
    command.env("TENURE_URL_FILE", &fifo);
    assert_refused(&end(&place, command), &["TENURE_URL_FILE=", refused]);
    for device in ["/dev/null", "/dev/zero"] {
        let done = end(&place, bare(&place, &["run", "--url-file", device, "name", "true"]));
        assert_refused(&done, &["can't be read: it is a device"]);
    }
    // Whoever names it writes to it, perhaps later.
    let running = place.spawn(bare(&place, &["run", "-v", "--url-file", &fifo, "name", "true"]));
    fs::write(&fifo, place.url()).unwrap();
    let done = running.finish();
    assert!(done.code == 0 && done.stderr.contains(&place.url()), "{done:?}");
    let mut command = place.command("sh");
    command.args(["-c", r#"echo "$2" | "$1" status --url-file /dev/stdin name"#, "sh", TENURE, &place.url()]);
    let done = end(&place, command);
    assert!(done.code == 0 && done.stdout.contains(&place.url()), "{done:?}");
}

/// Whoever can change a file that is found by itself says where this user locks.
// R0.6
#[test]
fn a_file_that_a_stranger_can_change_is_not_found() {
    use std::os::unix::fs::chown;
    let place = Place::new();
    let file = write(&place, "home/.config/tenure/url", place.url());
    let found = || end(&place, bare(&place, &["run", "name", "true"]));
    let named = || end(&place, bare(&place, &["run", "--url-file", &file, "name", "true"]));
    assert_eq!(found().code, 0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o602)).unwrap();
    assert_refused(
        &found(),
        &["every user of this machine can change", "(mode 602); ", &format!("chmod o-w {file}")],
    );
    let done = named();
    assert!(done.code == 0 && done.stderr.contains("every user of this machine can change"), "{done:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // As with a sudo that keeps HOME.
    chown(&file, Some(1), None).unwrap();
    let done = found();
    assert_refused(
        &done,
        &["belongs to user daemon (1)", "user root (0)", "sudo -H", &format!("--url-file {file}")],
    );
    let mut command = bare(&place, &["run", "name", "true"]);
    command.env("XDG_CONFIG_HOME", place.path("home/.config"));
    assert_refused(&end(&place, command), &["belongs to user daemon (1)", "unset XDG_CONFIG_HOME"]);
    let done = named();
    assert!(done.code == 0 && done.stderr.contains("belongs to user daemon (1)"), "{done:?}");
    let quiet = end(&place, bare(&place, &["run", "-q", "--url-file", &file, "name", "true"]));
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    chown(&file, Some(54_321), None).unwrap();
    assert_refused(&found(), &["belongs to user 54321,"]);
    // So is a link of a stranger.
    fs::remove_file(&file).unwrap();
    symlink(write(&place, "plain", place.url()), &file).unwrap();
    assert_eq!(found().code, 0);
    std::os::unix::fs::lchown(&file, Some(1), None).unwrap();
    assert_refused(&found(), &["belongs to user daemon (1)"]);
    // The machine's file likewise.
    let url = place.url();
    let mut command = on_machine(
        &place,
        Some(&url),
        &["sh", "-c", "chown 1 /etc/tenure/url; exec \"$0\" run name true", TENURE],
    );
    command.env("HOME", "/nonexistent");
    assert_refused(
        &end(&place, command),
        &["/etc/tenure/url belongs to user 1,", "chown -h root /etc/tenure/url"],
    );
}

/// Whoever can change a directory or a link above a file can put another file in its place.
// R0.6
#[test]
fn a_file_below_a_directory_that_a_stranger_can_change_is_not_found() {
    use std::os::unix::fs::{chown, lchown};
    let place = Place::new();
    let file = write(&place, "home/.config/tenure/url", place.url());
    let found = || end(&place, bare(&place, &["run", "name", "true"]));
    let named = || end(&place, bare(&place, &["run", "--url-file", &file, "name", "true"]));
    // A home that sudo kept, with a file that root once wrote there.
    for directory in ["home", "home/.config", "home/.config/tenure"] {
        let path = place.path(directory);
        chown(&path, Some(1), None).unwrap();
        let owner = format!("{} belongs to user daemon (1), who can change", path.display());
        assert_refused(&found(), &[&owner, "sudo -H", &format!("--url-file {file}")]);
        assert_eq!((named().code, named().stderr.as_str()), (0, ""));
        chown(&path, Some(0), None).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o757)).unwrap();
        let open = format!("every user of this machine can change {} (mode 757)", path.display());
        assert_refused(&found(), &[&open, &format!("chmod o-w {}", path.display())]);
        // As in /tmp, each user can change only what is theirs.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!((found().code, found().stderr.as_str()), (0, ""));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // A link in place of a directory, and what it leads through.
    let link = place.path("home/.config/tenure");
    fs::create_dir(place.path("deep")).unwrap();
    fs::rename(&link, place.path("deep/real")).unwrap();
    symlink("../../deep/real", &link).unwrap();
    assert_eq!((found().code, found().stderr.as_str()), (0, ""));
    lchown(&link, Some(1), None).unwrap();
    assert_refused(&found(), &["home/.config/tenure belongs to user daemon (1)"]);
    lchown(&link, Some(0), None).unwrap();
    chown(place.path("deep"), Some(1), None).unwrap();
    assert_refused(&found(), &[&format!("{} belongs to user daemon (1)", place.path("deep").display())]);
}

/// With a kept `HOME`, it can't be known whether a file is there; to open that directory for this user would be bad advice.
// R0.6
#[test]
fn a_home_that_can_t_be_searched_is_named() {
    let place = Place::new();
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    place.copy_program("tenure");
    fs::create_dir_all(place.path("home/.config")).unwrap();
    let close = |name: &str, mode| {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
        place.path(name).display().to_string()
    };
    let by_stranger = |variable: Option<&str>| {
        let mut command = place.command("setpriv");
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups"]);
        command.arg(place.path("tenure")).args(["run", "name", "true"]);
        command.env_remove("TENURE_URL").env_remove("XDG_CONFIG_HOME").env("HOME", place.path("home"));
        command.envs(variable.map(|name| (name, place.path("home/.config"))));
        end(&place, command)
    };
    let home = close("home", 0o700);
    let why = format!("tenure: HOME is {home}, which this user can't search; set HOME to ");
    let done = by_stranger(None);
    assert!(done.stderr.starts_with(&why) && !done.stderr.contains("read it"), "{done:?}");
    assert_refused(&done, &["--url"]);
    let why =
        format!("XDG_CONFIG_HOME is {home}/.config, which this user can't search; unset XDG_CONFIG_HOME");
    assert_refused(&by_stranger(Some("XDG_CONFIG_HOME")), &[&why]);
    close("home", 0o755);
    let config = close("home/.config", 0o700);
    let why = format!("{config}/tenure/url: can't be read: this user can't search {config}; ");
    assert_refused(&by_stranger(None), &[&why, "--url"]);
}

// R0.6
#[test]
fn files_that_come_first_and_do_not_exist_are_shown() {
    let place = Place::new();
    let user = place.path("home/.config/tenure/url");
    let run = |system: Option<&str>, args: &[&str]| end(&place, on_machine(&place, system, args));
    let absent = format!("{} and /etc/tenure/url are not there", user.display());
    let done = run(None, &[TENURE, "run", "-v", "name", "true"]);
    assert!(done.code == 0 && done.stderr.contains(&format!("tenure: {absent}\n")), "{done:?}");
    let done = run(None, &[TENURE, "doctor"]);
    assert!(
        done.stdout
            .lines()
            .next()
            .unwrap()
            .ends_with(&format!("file: (by default: /run/lock/tenure-0); {absent}")),
        "{done:?}"
    );
    let url = place.url();
    let done = run(Some(&url), &[TENURE, "run", "-v", "name", "true"]);
    assert!(done.stderr.contains(&format!("tenure: {} is not there\n", user.display())), "{done:?}");

    // The same user's jobs may have another file.
    let [usual, other] = ["home/.config", "xdg"].map(|dir| format!("{dir}/tenure/url"));
    let warning = format!("tenure: {} is not used, because XDG_CONFIG_HOME is set", user.display());
    let with_xdg = |quiet: &[&str]| {
        let mut command = bare(&place, &[&["run"], quiet, &["name", "true"]].concat());
        command.env("XDG_CONFIG_HOME", place.path("xdg"));
        let done = end(&place, command);
        assert_eq!(done.code, 0, "{done:?}");
        done.stderr
    };
    assert_eq!(with_xdg(&[]), "");
    write(&place, &usual, directory(&place, "usual"));
    assert!(with_xdg(&[]).starts_with(&warning), "{}", with_xdg(&[]));
    assert_eq!(with_xdg(&["-q"]), "");
    write(&place, &other, directory(&place, "other"));
    assert!(with_xdg(&[]).starts_with(&warning));
    write(&place, &other, directory(&place, "usual"));
    assert_eq!(with_xdg(&[]), "", "both say the same");
    // A HOME that is no path counts as none.
    write(&place, &usual, &url);
    let mut command = on_machine(&place, None, &[TENURE, "run", "-v", "name", "true"]);
    command.env("HOME", "relative");
    let done = end(&place, command);
    assert!(done.code == 0 && done.stderr.contains(&format!("(from {})", user.display())), "{done:?}");
}

/// What only looks makes nothing: a directory that is mistyped would stay.
#[test]
fn reading_creates_no_directory() {
    let place = Place::new();
    let url = directory(&place, "typo");
    let at = |args: &[&str]| {
        let done = place.end(&[&args[..1], &["--url", &url], &args[1..]].concat());
        assert!(!place.path("typo").exists(), "{args:?}");
        done
    };
    let absence =
        format!("directory {} is not there, so nothing is held in it", place.path("typo").display());
    let note = format!("tenure: {absence}; check the URL; the first `tenure run` makes the directory\n");
    let done = at(&["status", "name"]);
    assert!(done.code == 0 && done.stdout.contains("free") && done.stderr == note, "{done:?}");
    let done = at(&["status", "--json", "name"]);
    assert!(done.stdout.contains(r#""state":"free""#) && done.stdout.contains(&url), "{done:?}");
    assert_eq!(at(&["status", "-q", "name"]).code, 0);
    let done = at(&["ls"]);
    assert_eq!((done.code, done.stdout.as_str(), &done.stderr), (0, "", &note));
    let ticket = place.end(&["acquire", "name"]).stdout;
    for args in [
        &["watch"][..],
        &["break", "--yes", "--fence", "1", "name"],
        &["release", ticket.trim()],
        &["renew", ticket.trim()],
    ] {
        let done = at(args);
        assert_eq!((done.code, done.stdout.as_str(), &done.stderr), (69, "", &note), "{args:?}");
    }
    let done = at(&["doctor"]);
    assert_eq!(done.code, 69, "{done:?}");
    assert!(done.stdout.contains(&absence), "{done:?}");
    let (_, command) = done.stdout.split_once("or make it: ").expect("a remedy");
    let command = command.lines().next().unwrap();
    assert!(place.command("sh").args(["-c", command]).status().unwrap().success(), "{command}");
    assert_eq!(place.end(&["doctor", "--url", &url]).code, 0);
    fs::remove_dir_all(place.path("typo")).unwrap();

    let deep = directory(&place, "typo/deep");
    for args in [
        &["run", "--url", &deep, "name", "true"][..],
        &["acquire", "--url", &deep, "name"],
        // To wait for it would be in vain.
        &["run", "-w", "1h", "-E", "0", "--url", &deep, "name", "true"],
        &["hold", "--max-outage", "1h", "--url", &deep, "name"],
    ] {
        let done = place.end(args);
        let parent = place.path("typo");
        let missing = format!(
            "{0} does not exist; check the URL, or make that first: mkdir -p {0}\n",
            parent.display()
        );
        assert!(done.code == 69 && done.stderr.ends_with(&missing), "{done:?}");
        assert!(done.stderr.starts_with("tenure: --url: directory "), "{done:?}");
    }
    assert_eq!(place.end(&["run", "--url", &url, "name", "true"]).code, 0, "who locks makes it");
}

/// The same with the inner directory of a layered domain.
#[test]
fn reading_creates_no_inner_directory() {
    let place = Place::on_redis();
    let url = format!("{}?inner={}", place.url(), directory(&place, "typo"));
    let holder = place.start_script(&[], "echo $$ > pid; exec sleep 600");
    place.pid("pid");
    let done = place.end(&["status", "--url", &url, "name"]);
    assert!(done.code == 0 && done.stdout.contains("held") && done.stderr.is_empty(), "{done:?}");
    assert!(place.end(&["ls", "--url", &url]).stdout.contains("name"));
    let done = place.end(&["doctor", "--url", &url]);
    assert!(done.code == 69 && done.stdout.contains("✘ inner store"), "{done:?}");
    assert!(done.stdout.contains("typo is not there") && done.stdout.contains("✔ outer lease"), "{done:?}");
    // A ticket is good on the machine that has its inner lease.
    let ticket = place.end(&["acquire", "--ttl", "10m", "other"]).stdout;
    for command in ["release", "renew"] {
        let done = place.end(&[command, "--url", &url, ticket.trim()]);
        assert!(done.code == 69 && done.stderr.contains("typo is not there"), "{done:?}");
    }
    let fence = place.inspect("name").holder.unwrap().fence.to_string();
    let done = place.end(&["break", "--url", &url, "--yes", "--fence", &fence, "name"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!place.path("typo").exists());
    assert_eq!(holder.finish().code, 79);
}

// R0.6
#[test]
fn json_says_which_domain() {
    let place = with_password();
    let _holder = {
        let mut command = place.tenure(&["run", "name", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
        command.env("TENURE_URL", password_url(&place));
        place.spawn(command)
    };
    place.pid("pid");
    let domain = format!(r#""domain":"redis://:***@127.0.0.1:{}""#, place.server().port());
    for args in [
        &["status", "--json", "name"][..],
        &["ls", "--json"],
        &["break", "--json", "--yes", "--fence", "1", "name"],
    ] {
        let mut command = place.tenure(args);
        command.env("TENURE_URL", password_url(&place));
        let done = end(&place, command);
        assert!(done.stdout.contains(&domain) && !done.stdout.contains(PASSWORD), "{done:?}");
    }
}

/// A message about a URL begins with where it came from, and exits with 64 if the URL is wrong about the store.
#[test]
fn a_url_that_is_wrong_about_its_store_is_named() {
    let place = Place::on_redis();
    let port = place.server().port();
    for (url, why) in [
        (format!("redis+cluster://127.0.0.1:{port}"), "is not part of a cluster"),
        (format!("redis+sentinel://127.0.0.1:{port}/main"), "is not a sentinel"),
        (format!("redis://127.0.0.1:{port}/99"), "database `99`"),
    ] {
        for args in [&["run", "-w", "1h"][..], &["status"]] {
            let done = place.end(&[args, &["--url", &url, "name"], &["true"][..args.len() / 2]].concat());
            assert!(done.code == 64 && done.stderr.starts_with("tenure: --url: "), "{url}: {done:?}");
            assert!(done.stderr.contains(why), "{done:?}");
        }
    }
    let done = place.end(&["run", "--url", &place.url(), "", "true"]);
    assert!(done.code == 64 && done.stderr.starts_with("tenure: lock name is empty"), "{done:?}");
}

/// `file:` is another directory for each user: the one that is shown is the one that is used.
#[test]
fn the_default_directory_is_named() {
    let place = Place::new();
    let name = format!("named-{}", std::process::id());
    for (args, from) in [(&[][..], "by default"), (&["--url", "file:"], "from --url")] {
        let script = format!("exec {TENURE} status --url file:///run/lock/tenure-0 {name}");
        let run = [&["run", "-v"], args, &[&name, "--", "sh", "-c", &script]].concat();
        let done = end(&place, bare(&place, &run));
        let shown = format!("tenure: domain file: ({from}: /run/lock/tenure-0)\n");
        assert!(done.stderr.contains(&shown) && done.stdout.contains("held"), "{done:?}");
    }
}
