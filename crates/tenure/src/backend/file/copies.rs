//! The bytes of a stripe file: two copies of the content, written alternately. The copy with the higher number counts.
//!
//! ```text
//!     0  short data of copy 0, up to its header
//! 4,056  header of copy 0
//! 4,088  the mark: any byte but zero says that the file is dead, and has been replaced or will be
//! 4,104  header of copy 1
//! 4,136  short data of copy 1, after its header
//! 8,192  long data of copy 0                                 (1 MiB at most)
//! 8,192 + 1 MiB  long data of copy 1
//! ```
//!
//! A copy with short data is one write within one page of memory, which a kill can't cut in two. Long data are written before their
//! header. So Tenure itself never leaves a damaged copy, and a damaged file is never read as a grant. Only after a power cut, which
//! another boot id shows, does the intact copy count. Headers and mark are next to each other, so that a client that knows the data of a
//! copy reads no more than these.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::types::bytes::{Bytes, Put};

const MAGIC: &[u8; 8] = b"tenure1\n";
/// The first bytes of a header of any version.
const ANY_VERSION: &[u8] = b"tenure";
const HEADER: usize = 32;
/// The bytes of one read: both copies with short data, each in its own page of memory.
const BOTH: usize = 8_192;
/// The longest data that are next to their header.
const SHORT: usize = 4_056;
const MARK: Range<usize> = SHORT + HEADER..BOTH - SHORT - HEADER;
/// Both headers, and the mark between them.
const HEAD: Range<usize> = SHORT..BOTH - SHORT;
/// How many bytes of long data a client reads to look for one holder.
const BEGINNING: usize = 2_048;
/// The longest data of a copy.
pub(super) const LONGEST: usize = 1 << 20;

/// The header of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the write; it is even for copy 0 and odd for copy 1.
    pub(super) seq: u64,
    len: usize,
    crc: u32,
}

/// Both headers, and the mark.
#[derive(Debug)]
pub(super) struct Head {
    /// In the order of their numbers: the copy that counts is the last.
    headers: [Option<Header>; 2],
    pub(super) is_dead: bool,
}

/// The content of a stripe file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) header: Header,
    pub(super) data: Vec<u8>,
    /// The other copy is damaged, and may have been the later one.
    pub(super) is_damaged: bool,
    /// The file was replaced, or will be.
    pub(super) is_dead: bool,
}

impl Image {
    /// Content for a new file, read from a file that must not be written.
    pub(super) fn dead(data: Vec<u8>) -> Self {
        Image { header: Header::of(0, &data), data, is_damaged: false, is_dead: true }
    }
}

impl Header {
    pub(super) fn of(seq: u64, data: &[u8]) -> Self {
        Header { seq, len: data.len(), crc: crc32fast::hash(data) }
    }

    fn put(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.put_u64(self.seq);
        out.put_u32(u32::try_from(self.len).expect("data that were checked to fit"));
        out.put_u32(self.crc);
        let crc = crc32fast::hash(&out[start..]);
        out.put_u32(crc);
        out.put_u32(0);
    }

    fn take(bytes: &[u8]) -> Option<Self> {
        let mut rest = Bytes(bytes);
        let magic = rest.take(MAGIC.len())?;
        let (seq, len, crc) = (rest.u64()?, rest.u32()?, rest.u32()?);
        let is_intact = magic == MAGIC && rest.u32()? == crc32fast::hash(&bytes[..HEADER - 8]);
        let len = usize::try_from(len).ok()?;
        (is_intact && len <= LONGEST).then_some(Header { seq, len, crc })
    }

    fn copy(self) -> usize {
        usize::from(self.seq % 2 == 1)
    }

    /// Its data, if they are intact.
    fn data(self, file: &File, both: &[u8; BOTH]) -> io::Result<Option<Vec<u8>>> {
        let data = if self.len <= SHORT {
            let start = if self.copy() == 0 { SHORT - self.len } else { BOTH - SHORT };
            both[start..start + self.len].to_vec()
        } else {
            let mut data = vec![0; self.len];
            if !read_all(file, &mut data, long_data_at(self.copy()))? {
                return Ok(None);
            }
            data
        };
        Ok((crc32fast::hash(&data) == self.crc).then_some(data))
    }
}

impl Head {
    /// From the bytes of [`HEAD`].
    fn of(bytes: &[u8]) -> Self {
        let copies = [&bytes[..HEADER], &bytes[bytes.len() - HEADER..]];
        let mut headers =
            [0, 1].map(|copy| Header::take(copies[copy]).filter(|header| header.copy() == copy));
        headers.sort_by_key(|header| header.map(|header| header.seq));
        let mark = &bytes[HEADER..bytes.len() - HEADER];
        Head { headers, is_dead: mark.iter().any(|&byte| byte != 0) }
    }

    /// Whether it belongs to a stripe of this version: at any time, one header is intact.
    pub(super) fn is_ours(&self) -> bool {
        self.headers.iter().any(Option::is_some)
    }

    /// The header that counts, if both are intact.
    pub(super) fn newest(&self) -> Option<Header> {
        self.headers[0].and(self.headers[1])
    }
}

fn long_data_at(copy: usize) -> u64 {
    (BOTH + copy * LONGEST) as u64
}

/// Fills the buffer; false if the file is too short.
fn read_all(file: &File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Reads both headers and the mark, and no data; `None` if the file is too short.
pub(super) fn read_head(file: &File) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD.end - HEAD.start];
    let is_read = read_all(file, &mut bytes, HEAD.start as u64)?;
    Ok(is_read.then(|| Head::of(&bytes)))
}

/// Whether another version wrote a copy, which is not damaged, and which this version can't read.
pub(super) fn is_of_another_version(file: &File) -> io::Result<bool> {
    let mut bytes = [0; HEAD.end - HEAD.start];
    let is_read = read_all(file, &mut bytes, HEAD.start as u64)?;
    let is_other = |header: &[u8]| has_version(header) && !header.starts_with(MAGIC);
    Ok(is_read && (is_other(&bytes) || is_other(&bytes[bytes.len() - HEADER..])))
}

/// Whether a header begins like a header of any version: the word, a number, a newline.
fn has_version(header: &[u8]) -> bool {
    let Some(rest) = header.strip_prefix(ANY_VERSION) else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest.get(digits) == Some(&b'\n')
}

/// Whether the file is empty or has only zeros: a stripe has headers when it gets its name.
pub(super) fn is_blank(file: &File) -> io::Result<bool> {
    let len = file.metadata()?.len();
    if len > long_data_at(2) {
        return Ok(false);
    }
    let (mut at, mut bytes) = (0, [0; BOTH]);
    while at < len {
        match file.read_at(&mut bytes, at)? {
            0 => break,
            read if bytes[..read].iter().all(|&byte| byte == 0) => at += read as u64,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The beginning of the data that count now, without the lock; `None` if the data are short, the file changes meanwhile, or it is dead. A part
/// has no checksum, and needs none: long data are written before their header, and the next write goes to the other copy. So the data are
/// intact if their header counts before and after the read.
pub(super) fn read_beginning(file: &File) -> io::Result<Option<Vec<u8>>> {
    let counting = || -> io::Result<Option<Header>> {
        let head = read_head(file)?.filter(|head| !head.is_dead);
        Ok(head.and_then(|head| head.newest()).filter(|header| header.len > SHORT))
    };
    let Some(header) = counting()? else { return Ok(None) };
    let mut data = vec![0; BEGINNING];
    let is_read = read_all(file, &mut data, long_data_at(header.copy()))?;
    Ok((is_read && counting()? == Some(header)).then_some(data))
}

/// Reads the copy that counts now; `None` if no copy is intact. Without the lock, a write may be in progress: then this reads the copy before it.
pub(super) fn read(file: &File) -> io::Result<Option<Image>> {
    let mut both = [0; BOTH];
    if !read_all(file, &mut both, 0)? {
        return Ok(None);
    }
    let Head { headers, is_dead } = Head::of(&both[HEAD]);
    let mut is_damaged = headers.iter().any(Option::is_none);
    for header in headers.into_iter().rev().flatten() {
        if let Some(data) = header.data(file, &both)? {
            return Ok(Some(Image { header, data, is_damaged, is_dead }));
        }
        is_damaged = true;
    }
    Ok(None)
}

/// Writes the copy that counts from now on, over the one that does not count now.
pub(super) fn write(file: &File, header: Header, data: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + SHORT.min(data.len()));
    if data.len() > SHORT {
        file.write_all_at(data, long_data_at(header.copy()))?;
        header.put(&mut bytes);
        let at = if header.copy() == 0 { SHORT } else { MARK.end };
        return file.write_all_at(&bytes, at as u64);
    }
    if header.copy() == 0 {
        bytes.extend_from_slice(data);
        header.put(&mut bytes);
        file.write_all_at(&bytes, (SHORT - data.len()) as u64)
    } else {
        header.put(&mut bytes);
        bytes.extend_from_slice(data);
        file.write_all_at(&bytes, MARK.end as u64)
    }
}

/// Writes a whole new file, whose last write has this number.
pub(super) fn write_new(file: &File, seq: u64, data: &[u8]) -> io::Result<()> {
    file.write_all_at(&[0; BOTH], 0)?;
    write(file, Header::of(seq - 1, &[]), &[])?;
    write(file, Header::of(seq, data), data)
}

/// Marks the file as dead.
pub(super) fn mark_dead(file: &File) -> io::Result<()> {
    file.write_all_at(b"dead", MARK.start as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        let path = std::env::temp_dir().join(format!(
            "tenure-copies-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    fn bytes(file: &File, range: Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        file.read_exact_at(&mut bytes, range.start as u64).unwrap();
        bytes
    }

    /// As docs/protocol.md describes it.
    // R2.8
    #[test]
    fn the_layout_is_that_of_the_protocol() {
        let file = file();
        write_new(&file, 5, b"five").unwrap();
        write(&file, Header::of(6, b"sixth"), b"sixth").unwrap();
        assert_eq!(bytes(&file, 4_051..4_056), b"sixth", "ends where its header begins");
        assert_eq!(bytes(&file, 4_136..4_140), b"five", "begins where its header ends");
        assert_eq!(bytes(&file, 4_088..4_104), [0; 16], "no mark");
        let mut header = b"tenure1\n".to_vec();
        header.extend(6_u64.to_le_bytes());
        header.extend(5_u32.to_le_bytes());
        header.extend(crc32fast::hash(b"sixth").to_le_bytes());
        header.extend(crc32fast::hash(&header).to_le_bytes());
        header.extend([0; 4]);
        assert_eq!(bytes(&file, 4_056..4_088), header);
        let long = vec![7; 5_000];
        write(&file, Header::of(7, &long), &long).unwrap();
        assert_eq!(bytes(&file, 8_192 + (1 << 20)..8_192 + (1 << 20) + 5_000), long);
    }

    #[test]
    fn the_last_write_counts() {
        let file = file();
        write_new(&file, 1, b"first").unwrap();
        for (seq, len) in [(2, 5), (3, SHORT), (4, SHORT + 1), (5, 0), (6, LONGEST), (7, LONGEST), (8, 1)] {
            let data = vec![u8::try_from(seq).unwrap(); len];
            let header = Header::of(seq, &data);
            write(&file, header, &data).unwrap();
            assert_eq!(read(&file).unwrap(), Some(Image { header, data, is_damaged: false, is_dead: false }));
            assert_eq!(read_head(&file).unwrap().and_then(|head| head.newest()), Some(header));
        }
        mark_dead(&file).unwrap();
        assert!(read(&file).unwrap().unwrap().is_dead);
    }

    #[test]
    fn damage_is_detected() {
        let file = file();
        assert_eq!(read(&file).unwrap(), None, "an empty file");
        write_new(&file, 1, b"first").unwrap();
        write(&file, Header::of(2, b"second"), b"second").unwrap();
        for at in SHORT - 6..SHORT + HEADER - 4 {
            let was = bytes(&file, at..at + 1)[0];
            file.write_all_at(&[was ^ 1], at as u64).unwrap();
            let image = read(&file).unwrap().unwrap();
            assert!(image.is_damaged && image.header.seq == 1, "byte {at}");
            file.write_all_at(&[was], at as u64).unwrap();
        }
        assert!(!read(&file).unwrap().unwrap().is_damaged);
    }
}
