//! Who holds or waits, and the token that proves it.
//!
//! A token is 128 random bits, never used again (R2.1), followed by the session that it belongs to, who its owner is, and the longest
//! that a lease under it is ever asked to last. All of it is one string, so that holding a name costs one key in the store, any tool can
//! read who holds it, and a plain string compare decides ownership. A token of any other form is a foreign lock: it excludes us, and its owner is unknown.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::types::duration::millis;
use crate::types::error::Error;
use crate::types::process::Home;

/// The longest label, in bytes of UTF-8.
const MAX_LABEL_LEN: usize = 200;
const RANDOM_HEX: usize = 32;
const SESSION_HEX: usize = 16;
/// What can't stand inside one field of a token: the separator, the escape, and what a terminal might interpret.
const FIELD: &AsciiSet = &CONTROLS.add(b':').add(b'%').add(b' ');

/// Who holds or waits for a name: host, user, process and label.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").label("nightly").acquire().await?;
///
/// let holder = domain.inspect("orders/42").await?.holder.unwrap();
/// assert_eq!(holder.owner.pid(), Some(std::process::id()));
/// assert_eq!(holder.owner.label(), "nightly");
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<Fields>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Fields {
    host: String,
    user: String,
    pid: Option<u32>,
    label: String,
}

impl Owner {
    /// The host name; empty when the lock was taken by a tool that does not say.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// The user's name, or its number where it has none; empty when unknown.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.0.user
    }

    /// The process; `None` when unknown.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.0.pid
    }

    /// The label that was given with [`Lock::label`](crate::Lock::label); empty when there is none.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// Whether the lock was taken by another library, which does not say who it is.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.0.pid.is_none()
    }

    fn foreign() -> Self {
        Owner(Arc::new(Fields { host: String::new(), user: String::new(), pid: None, label: String::new() }))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.to_string()).finish()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pid) = self.pid() else {
            return f.write_str("a lock of another library");
        };
        write!(f, "{}@{} pid {pid}", self.user(), self.host())?;
        if !self.label().is_empty() {
            write!(f, " ({})", self.label())?;
        }
        Ok(())
    }
}

/// One client of a store: where its grants are sent. 64 random bits in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(Arc<str>);

impl SessionId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it was made by [`Session::of_process`] for this process.
    pub(crate) fn is_of_process(&self, process: u32) -> bool {
        u32::from_str_radix(&self.0[..SESSION_HEX / 2], 16).ok() == Some(process)
    }

    /// An id as it stands in the name of a file; `None` when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        (text.len() == SESSION_HEX && is_hex).then(|| SessionId(text.into()))
    }
}

/// What all tokens of one client have in common.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    id: SessionId,
    /// Its id and who it is, as they stand in a token.
    fields: Arc<str>,
    /// The process that it was begun in; a forked child has a copy.
    pub(crate) home: Home,
}

impl Session {
    pub(crate) fn random() -> Self {
        Session::with_id(hex(random::<{ SESSION_HEX / 2 }>()))
    }

    /// A session of this process: all ids that a process makes begin alike, and end at random.
    pub(crate) fn of_process(process: u32) -> Self {
        Session::with_id(format!("{process:08x}{}", hex(random::<{ SESSION_HEX / 4 }>())))
    }

    fn with_id(id: String) -> Self {
        let fields = format!("{id}:{}", here()).into();
        Session { fields, id: SessionId(id.into()), home: Home::here() }
    }

    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Refuses a forked child: it has a copy of everything, and none of its parent's rights.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.home.check()
    }
}

/// What proves ownership of one lease: compared as a whole, never used again. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Token {
    /// The tokens that were read together lie in one text: a queue is read as often as it changes.
    text: Arc<str>,
    range: (u32, u32),
}

impl Token {
    /// A fresh token for a lease of this process. No request with it asks for longer than `ttl`: a store may end a lease that has more
    /// left than that. Its randomness is drawn now and not ahead of time: two copies of this process's memory, as of a machine that is
    /// restored twice from one snapshot, would use what was drawn before twice.
    pub(crate) fn fresh(session: &Session, label: &str, ttl: Duration) -> Self {
        let mut text = hex(random::<{ RANDOM_HEX / 2 }>());
        let ttl = millis(ttl).to_string();
        text.reserve(session.fields.len() + label.len() + ttl.len() + 3);
        text.extend([":", &*session.fields, ":"]);
        text.extend(utf8_percent_encode(label, FIELD));
        text.extend([":", &*ttl]);
        Token::from_store(&text)
    }

    /// A token as the store shows it: ours, or one of another library.
    pub(crate) fn from_store(text: &str) -> Self {
        Token::part_of(&text.into(), 0..text.len()).expect("a text that is not too long")
    }

    /// A token that is a part of a text; `None` where the text has no such part.
    pub(crate) fn part_of(text: &Arc<str>, range: Range<usize>) -> Option<Self> {
        let (start, end) = (u32::try_from(range.start).ok()?, u32::try_from(range.end).ok()?);
        text.get(range).map(|_| Token { text: Arc::clone(text), range: (start, end) })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text[self.range.0 as usize..self.range.1 as usize]
    }

    /// The session that it belongs to; `None` for a foreign lock.
    pub(crate) fn session(&self) -> Option<SessionId> {
        Some(SessionId(self.fields()?[1].into()))
    }

    pub(crate) fn owner(&self) -> Owner {
        let decode = |field: &str| percent_decode_str(field).decode_utf8_lossy().into_owned();
        match self.fields() {
            Some([_, _, host, user, pid, label, _]) => Owner(Arc::new(Fields {
                host: decode(host),
                user: decode(user),
                pid: pid.parse().ok(),
                label: decode(label),
            })),
            None => Owner::foreign(),
        }
    }

    /// The longest that a lease under it is asked to last; `None` for a foreign lock, and for a token of a version that did not say it.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        let ttl = self.fields()?[6];
        if ttl.starts_with('0') { None } else { ttl.parse().ok().map(Duration::from_millis) }
    }

    fn fields(&self) -> Option<[&str; 7]> {
        let mut fields = self.as_str().split(':');
        let ours = [(); 7].map(|()| fields.next().unwrap_or_default());
        let is_hex = |field: &str, len| field.len() == len && field.bytes().all(|b| b.is_ascii_hexdigit());
        let [random, session, _, _, pid, _, ttl] = ours;
        let is_ours = is_hex(random, RANDOM_HEX)
            && is_hex(session, SESSION_HEX)
            && pid.parse::<u32>().is_ok()
            && ttl.bytes().all(|b| b.is_ascii_digit())
            && fields.next().is_none();
        is_ours.then_some(ours)
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Token {}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Token {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for Token {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Token {
    /// Enough to tell tokens apart in a log, not enough to use one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", self.as_str().chars().take(8).collect::<String>())
    }
}

pub(crate) fn check_label(label: &str) -> Result<(), Error> {
    if label.len() > MAX_LABEL_LEN {
        let len = label.len();
        return Err(Error::invalid(format!("label has {len} bytes"))
            .fix(format!("shorten it to at most {MAX_LABEL_LEN}")));
    }
    Ok(())
}

/// Host, user and process id, encoded as in a token.
fn here() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (host, user) = (utf8_percent_encode(&host, FIELD), user());
    format!("{host}:{}:{}", utf8_percent_encode(&user, FIELD), std::process::id())
}

/// The name of the effective user by its number: the environment can't be trusted, and differs under cron.
pub(crate) fn user() -> String {
    name_in("/etc/passwd", rustix::process::geteuid().as_raw())
}

/// The name of a number in a file whose lines are `name:password:number:…`; the number itself if it has no name there.
pub(crate) fn name_in(file: &str, number: u32) -> String {
    let number = number.to_string();
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    let name = lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    name.unwrap_or(number)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a source of randomness");
    bytes
}

pub(crate) fn hex<const N: usize>(bytes: [u8; N]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| DIGITS[usize::from(half)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_millis(1_500);

    // Rounded up, as stores round what they are asked for: a lease never has more left by that alone.
    #[test]
    fn a_token_says_whole_milliseconds() {
        let token = Token::fresh(&Session::random(), "5", Duration::from_micros(100_001));
        assert_eq!(token.ttl(), Some(Duration::from_millis(101)));
    }

    #[test]
    fn an_older_token_is_ours_and_says_no_ttl() {
        let older = "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:";
        for label in ["", "5", "nightly", "a:", "a:0", "a:00", "a:99999999999999999999"] {
            let token = Token::from_store(&format!("{older}{label}"));
            assert!(!token.owner().is_foreign(), "{label}");
            assert_eq!(token.ttl(), None, "{label}");
        }
        for label in ["a:b", "a:-1", "a:+1", "a:1:2", "a:1 "] {
            assert!(Token::from_store(&format!("{older}{label}")).owner().is_foreign(), "{label}");
        }
    }

    // R2.1
    #[test]
    fn a_token_has_128_fresh_random_bits() {
        let session = Session::random();
        let (a, b) = (Token::fresh(&session, "", TTL), Token::fresh(&session, "", TTL));
        assert_ne!(a.as_str()[..RANDOM_HEX], b.as_str()[..RANDOM_HEX]);
        assert_eq!(RANDOM_HEX * 4, 128);
    }

    #[test]
    fn the_owner_survives_the_way_through_the_store() {
        let session = Session::random();
        for label in ["", "nightly", "a:b c%d", "ünïcode\n\u{1b}[31m"] {
            let token = Token::from_store(Token::fresh(&session, label, TTL).as_str());
            assert_eq!(token.owner().label(), label);
            assert_eq!(token.owner().pid(), Some(std::process::id()));
            assert_eq!(token.session().as_ref(), Some(session.id()));
            assert_eq!(token.ttl(), Some(TTL));
            assert!(!token.owner().is_foreign());
            assert!(!token.as_str().contains('\u{1b}'), "control characters reach no terminal");
        }
    }

    // B6
    #[test]
    fn a_foreign_token_has_an_unknown_owner() {
        for text in
            ["", "my-token", "0f0f", "::::::", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", &"0".repeat(32)]
        {
            let token = Token::from_store(text);
            assert!(token.owner().is_foreign(), "{text}");
            assert_eq!(token.session(), None);
        }
    }

    #[test]
    fn debug_shows_too_little_to_use() {
        let token = Token::fresh(&Session::random(), "", TTL);
        assert!(format!("{token:?}").chars().count() < 12);
    }
}
