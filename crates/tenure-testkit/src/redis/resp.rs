//! The protocol of Redis, RESP2 and RESP3, as much of it as servers send.
//!
//! Of its own, and not that of a client crate: tests that look at a server through the crate under test would share its mistakes, and
//! the proxy needs to know where in the bytes each value ends.

use std::io;

/// A value as a server sends it. Commands are arrays of bulk strings.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The null of either protocol.
    Nil,
    /// `+`, and the big numbers of RESP3.
    Simple(String),
    /// `-` and `!`: what went wrong, with its code as the first word.
    Error(String),
    /// `:`
    Int(i64),
    /// `,`
    Double(f64),
    /// `#`
    Bool(bool),
    /// `$`, and `=` without its format.
    Bulk(Vec<u8>),
    /// `*` and `~`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `>`: not the reply to anything.
    Push(Vec<Reply>),
}

impl Reply {
    /// The text of a string, simple or not.
    ///
    /// # Panics
    /// When it is something else, an error for example.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Reply::Simple(text) => text.clone(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("expected a string, got {other:?}"),
        }
    }

    /// The number, also one that is written as a string.
    ///
    /// # Panics
    /// When it is no number.
    #[must_use]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(number) => *number,
            Reply::Bulk(_) | Reply::Simple(_) => {
                self.text().parse().unwrap_or_else(|_| panic!("expected a number, got {self:?}"))
            }
            other => panic!("expected a number, got {other:?}"),
        }
    }

    /// The elements.
    ///
    /// # Panics
    /// When it is no array.
    #[must_use]
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Push(items) => items,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// Is it null?
    #[must_use]
    pub fn is_nil(&self) -> bool {
        *self == Reply::Nil
    }

    /// Is it an error whose text begins with `code`?
    #[must_use]
    pub fn is_error(&self, code: &str) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with(code))
    }
}

/// The bytes of a command.
pub(super) fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The first value in `bytes` and how many bytes it takes; nothing while it is incomplete.
///
/// # Errors
/// When this is not RESP.
pub(super) fn decode(bytes: &[u8]) -> io::Result<Option<(Reply, usize)>> {
    let mut cursor = Cursor { bytes, at: 0 };
    Ok(cursor.value()?.map(|reply| (reply, cursor.at)))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn value(&mut self) -> io::Result<Option<Reply>> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| not_resp("an empty line"))?;
        Ok(Some(match kind {
            "_" => Reply::Nil,
            "+" | "(" => Reply::Simple(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Int(number(rest)?),
            "," => Reply::Double(number(rest)?),
            "#" => Reply::Bool(rest == "t"),
            "$" | "!" | "=" => return self.bulk(kind, number(rest)?),
            "*" if rest == "-1" => Reply::Nil,
            "*" | "~" | ">" => {
                let Some(items) = self.values(number(rest)?)? else { return Ok(None) };
                if kind == ">" { Reply::Push(items) } else { Reply::Array(items) }
            }
            "%" => {
                let Some(items) = self.values(number::<usize>(rest)? * 2)? else { return Ok(None) };
                Reply::Map(items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }
            // Attributes come before the value that they are about, and belong to it.
            "|" => {
                let Some(_) = self.values(number::<usize>(rest)? * 2)? else { return Ok(None) };
                return self.value();
            }
            _ => return Err(not_resp(line)),
        }))
    }

    fn values(&mut self, count: usize) -> io::Result<Option<Vec<Reply>>> {
        let mut items = Vec::new();
        for _ in 0..count {
            let Some(item) = self.value()? else { return Ok(None) };
            items.push(item);
        }
        Ok(Some(items))
    }

    fn bulk(&mut self, kind: &str, length: i64) -> io::Result<Option<Reply>> {
        let Ok(length) = usize::try_from(length) else { return Ok(Some(Reply::Nil)) };
        let Some(content) = self.bytes.get(self.at..self.at + length + 2) else { return Ok(None) };
        self.at += length + 2;
        let content = &content[..length];
        Ok(Some(match kind {
            "!" => Reply::Error(String::from_utf8_lossy(content).into_owned()),
            "=" => Reply::Bulk(content.get(4..).unwrap_or_default().to_vec()),
            _ => Reply::Bulk(content.to_vec()),
        }))
    }

    fn line(&mut self) -> io::Result<Option<&'a str>> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        self.at += end + 2;
        std::str::from_utf8(&rest[..end]).map(Some).map_err(|_| not_resp("a line that is no text"))
    }
}

fn number<N: std::str::FromStr>(text: &str) -> io::Result<N> {
    text.parse().map_err(|_| not_resp(text))
}

fn not_resp(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is not RESP: {what:?}"))
}
