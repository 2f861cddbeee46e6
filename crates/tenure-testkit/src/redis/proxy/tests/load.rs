//! Many connections, many faults, many pushes: whatever reply a client gets is the one to its own next command.

use super::*;
use crate::dice::Dice;
use crate::redis::{Fault, Reply};

const CLIENTS: u64 = 8;
const ROUNDS: u64 = 40;
const DELAY: Duration = Duration::from_millis(2);

/// What becomes of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All of it is answered.
    Complete,
    /// The connection is reset on the way.
    Reset,
    /// The replies cease.
    Silent,
}

const FAULTS: [(Fault, Outcome); 8] = [
    (Fault::SwallowThenReset, Outcome::Reset),
    (Fault::Silence, Outcome::Silent),
    (Fault::Drop, Outcome::Silent),
    (Fault::DelayCommand(DELAY), Outcome::Complete),
    (Fault::DelayReply(DELAY), Outcome::Complete),
    (Fault::Duplicate, Outcome::Complete),
    (Fault::ResetAfter, Outcome::Reset),
    (Fault::ResetBefore, Outcome::Reset),
];

#[test]
fn no_fault_ever_shifts_a_reply() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    for (n, (fault, _)) in FAULTS.into_iter().enumerate() {
        let word = format!("fault {n}").into_bytes();
        proxy.inject(fault, u64::MAX, move |words| words.contains(&word));
    }
    let replies: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=CLIENTS)
            .map(|seed| {
                scope.spawn({
                    let proxy = &proxy;
                    move || rounds(Dice(seed), proxy)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    println!("{replies} replies, {} commands, {} faults", proxy.commands(), proxy.faults());
    assert!(replies > CLIENTS * ROUNDS && proxy.faults() > CLIENTS * ROUNDS / 2);
    until(|| proxy.connections() == 0);
}

/// Each round is a connection with one pipeline, read for as long as replies come.
fn rounds(mut dice: Dice, proxy: &Proxy) -> u64 {
    (0..ROUNDS).map(|_| round(&mut dice, proxy)).sum()
}

fn round(dice: &mut Dice, proxy: &Proxy) -> u64 {
    let mut client = Client::connect(proxy.port()).unwrap();
    let mut worst = Outcome::Complete;
    let is_resp3 = dice.roll(2) == 0;
    let mut pipeline = Vec::new();
    let mut expected = Vec::new();
    if is_resp3 {
        pipeline.extend_from_slice(b"HELLO 3\r\nCLIENT TRACKING ON BCAST\r\n");
    }
    for n in 0..20 {
        let fault = if dice.roll(20) == 0 { usize::try_from(dice.roll(8)).unwrap() } else { FAULTS.len() };
        if worst == Outcome::Complete {
            worst = FAULTS.get(fault).map_or(Outcome::Complete, |(_, outcome)| *outcome);
        }
        let word = format!("{n}-{}", dice.roll(1_000_000));
        match dice.roll(4) {
            // What is pushed to everybody, this client too.
            0 if is_resp3 => {
                pipeline.extend_from_slice(format!("SET tracked {word}\r\nSUBSCRIBE a{n} b\r\n").as_bytes())
            }
            1 if is_resp3 => pipeline.extend_from_slice(b"PUBLISH b hello\r\nUNSUBSCRIBE\r\n"),
            _ => {}
        }
        // The fault is a key that the script is given and does not use.
        let script = [
            b"EVAL",
            "return ARGV[1]".as_bytes(),
            b"1",
            format!("fault {fault}").as_bytes(),
            word.as_bytes(),
        ]
        .map(<[u8]>::to_vec);
        pipeline.extend(crate::redis::resp::encode(&script));
        expected.push(word);
    }
    if worst == Outcome::Silent {
        client.set_patience(MOMENT).unwrap();
    }
    drop(client.send_bytes(&pipeline));
    let mut expected = expected.into_iter();
    let mut count = 0;
    let mut outcome = Outcome::Complete;
    while expected.len() > 0 && outcome == Outcome::Complete {
        match client.receive() {
            Ok(Reply::Bulk(word)) => {
                assert_eq!(String::from_utf8(word).unwrap(), expected.next().unwrap());
                count += 1;
            }
            Ok(Reply::Error(error)) => panic!("{error}"),
            // Pushes, and the plain replies of the commands between.
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => outcome = Outcome::Silent,
            Err(_) => outcome = Outcome::Reset,
        }
    }
    // Where the replies cease, a later command may still be what resets.
    assert!(
        outcome == worst || (worst == Outcome::Silent && outcome == Outcome::Reset),
        "{outcome:?}, not {worst:?}"
    );
    count
}
