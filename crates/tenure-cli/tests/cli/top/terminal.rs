//! A terminal for a program that draws on it, with as much of an emulator as `top` makes use of.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::{Place, eventually};

/// What leaves the alternate screen and shows the cursor.
const LEAVE: &str = "\u{1b}[?1049l\u{1b}[?25h";

pub(super) struct Terminal {
    master: File,
    child: Child,
    screen: Screen,
    /// All that was written.
    pub(super) bytes: Vec<u8>,
    before: LocalModes,
}

impl Terminal {
    /// `tenure` with these arguments, alone on a terminal of 100 columns and 24 lines.
    pub(super) fn open(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tenure")]).args(args);
        Terminal::with(command)
    }

    /// A command that makes its stdin its controlling terminal.
    pub(super) fn with(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name).unwrap();
        fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK).unwrap();
        let before = tcgetattr(&master).unwrap().local_modes;
        let slaves = [(); 3].map(|()| slave.try_clone().unwrap());
        let [stdin, stdout, stderr] = slaves;
        command.env("TERM", "xterm-256color").env("LC_ALL", "C.UTF-8");
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let mut terminal = Terminal {
            master: File::from(master),
            screen: Screen::new(100, 24),
            bytes: Vec::new(),
            before,
            child: {
                tcsetwinsize(&slave, size(100, 24)).unwrap();
                command.spawn().unwrap()
            },
        };
        terminal.read();
        terminal
    }

    pub(super) fn resize(&mut self, columns: u16, lines: u16) {
        self.read();
        self.screen = Screen::new(columns.into(), lines.into());
        tcsetwinsize(&self.master, size(columns, lines)).unwrap();
    }

    pub(super) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// What is on the screen by now.
    pub(super) fn screen(&mut self) -> String {
        self.read();
        self.screen.text()
    }

    /// Waits until the screen has this text.
    #[track_caller]
    pub(super) fn shows(&mut self, text: &str) {
        let mut last = String::new();
        let start = std::time::Instant::now();
        // The screen is what one wants to see when this fails.
        while !last.contains(text) {
            last = self.screen();
            assert!(start.elapsed().as_secs() < 30, "`{text}` is not on the screen:\n{last}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits for the end; the terminal is as it was. Returns the exit code and what was written since the screen was left.
    #[track_caller]
    pub(super) fn end(mut self) -> (i32, String) {
        let mut code = None;
        eventually("it ends", || {
            self.read();
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        self.read();
        let bytes = String::from_utf8_lossy(&self.bytes).into_owned();
        let (_, after) = bytes.rsplit_once(LEAVE).unwrap_or_else(|| panic!("it was left: {bytes:?}"));
        assert!(!after.contains("\u{1b}[?1049h") && !after.contains("\u{1b}[?25l"), "{after:?}");
        assert_eq!(tcgetattr(&self.master).unwrap().local_modes, self.before, "modes are as before");
        (code.unwrap().code().unwrap_or(-1), after.replace("\u{1b}[?25h", ""))
    }

    /// Has it draw more than a terminal takes that nobody looks at.
    pub(super) fn choke(&mut self) {
        // To draw all again, some 20 bytes each.
        let mut keys = &[0x0c; 20_000][..];
        eventually("the keys are read", || {
            match self.master.write(keys) {
                Ok(count) => keys = &keys[count..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            keys.is_empty()
        });
    }

    /// Waits for the end, and reads nothing; returns the exit code. The modes are as before.
    #[track_caller]
    pub(super) fn end_unread(mut self) -> i32 {
        let mut code = None;
        eventually("it ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        assert_eq!(tcgetattr(&self.master).unwrap().local_modes, self.before, "modes are as before");
        code.unwrap().code().unwrap_or(-1)
    }

    /// Whether keys come one by one, and are not echoed.
    pub(super) fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn read(&mut self) {
        let mut buffer = [0; 65_536];
        loop {
            match self.master.read(&mut buffer) {
                Ok(count) => {
                    self.bytes.extend(&buffer[..count]);
                    self.screen.write(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Nobody has the other end open.
                Err(_) => return,
            }
        }
    }
}

fn size(columns: u16, lines: u16) -> Winsize {
    Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Text at places.
struct Screen {
    cells: Vec<Vec<char>>,
    line: usize,
    column: usize,
    /// What has come of a character or of an escape sequence.
    pending: Vec<u8>,
}

impl Screen {
    fn new(columns: usize, lines: usize) -> Self {
        Screen { cells: vec![vec![' '; columns]; lines], line: 0, column: 0, pending: Vec::new() }
    }

    fn text(&self) -> String {
        let line = |cells: &Vec<char>| cells.iter().collect::<String>().trim_end().to_owned() + "\n";
        self.cells.iter().map(line).collect()
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.pending.push(*byte);
            let Ok(text) = std::str::from_utf8(&self.pending) else {
                continue;
            };
            let is_sequence = text.starts_with('\u{1b}');
            if is_sequence && (text.len() < 3 || !byte.is_ascii_alphabetic()) {
                continue;
            }
            let text = text.to_owned();
            self.pending.clear();
            if is_sequence { self.obey(&text[2..]) } else { self.put(text.chars().next().unwrap()) }
        }
    }

    fn obey(&mut self, sequence: &str) {
        let (numbers, verb) = sequence.split_at(sequence.len() - 1);
        match verb {
            "H" => {
                let mut numbers = numbers.split(';').map(|number| number.parse::<usize>().unwrap_or(1) - 1);
                (self.line, self.column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
            }
            "J" => self.cells.iter_mut().for_each(|line| line.fill(' ')),
            "m" | "h" | "l" => {}
            _ => panic!("a sequence that is not understood here: {sequence}"),
        }
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => self.column = 0,
            '\n' => self.line += 1,
            _ => {
                // What is drawn while the size changes may be outside.
                if let Some(cell) = self.cells.get_mut(self.line).and_then(|line| line.get_mut(self.column)) {
                    *cell = c;
                }
                self.column += 1;
            }
        }
    }
}
