//! The bytes of a stripe file: two slots, written in turn, of which the one with the higher number counts.
//!
//! ```text
//!     0  short data of slot 0, up to its header
//! 4,056  header of slot 0
//! 4,088  the mark: anything but zeros says that the file is dead, and has been replaced or will be
//! 4,104  header of slot 1
//! 4,136  short data of slot 1, from its header on
//! 8,192  long data of slot 0                                 (1 MiB at most)
//! 8,192 + 1 MiB  long data of slot 1
//! ```
//!
//! A slot with short data is one write within one page of memory, which no kill can cut in two; long data are written before the header that
//! announces them. So whatever is damaged was damaged by something else, and is never read as a grant: only after a power cut, which
//! another boot id tells, the slot that is whole counts. Headers and mark lie together, so that whoever knows what a slot holds needs
//! to read no more.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::types::bytes::{Bytes, Put};

const MAGIC: &[u8; 8] = b"tenure1\n";
/// What every version's header begins with.
const ANY_VERSION: &[u8] = b"tenure";
const HEADER: usize = 32;
/// What one read gets: both slots with short data, each in a page of memory of its own.
const BOTH: usize = 8_192;
/// The longest data that lie beside their header.
const SHORT: usize = 4_056;
const MARK: Range<usize> = SHORT + HEADER..BOTH - SHORT - HEADER;
/// Both headers, and the mark between them.
const HEAD: Range<usize> = SHORT..BOTH - SHORT;
/// How much of long data a client reads that looks for one holder only.
const BEGINNING: usize = 2_048;
/// The longest data of a slot.
pub(super) const LONGEST: usize = 1 << 20;

/// What a slot says of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The number of the write that made it.
    pub(super) seq: u64,
    len: usize,
    crc: u32,
}

/// Both headers, and the mark.
#[derive(Debug)]
pub(super) struct Head {
    /// The slot that counts last.
    headers: [Option<Header>; 2],
    pub(super) is_dead: bool,
}

/// What was read of a stripe file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) header: Header,
    pub(super) data: Vec<u8>,
    /// The other slot, or a later one, is damaged.
    pub(super) is_damaged: bool,
    /// The file was replaced, or will be.
    pub(super) is_dead: bool,
}

impl Image {
    /// What is to be copied to a new file, and can't be written here.
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
        let is_whole = magic == MAGIC && rest.u32()? == crc32fast::hash(&bytes[..HEADER - 8]);
        let len = usize::try_from(len).ok()?;
        (is_whole && len <= LONGEST).then_some(Header { seq, len, crc })
    }

    fn slot(self) -> usize {
        slot_of(self.seq)
    }

    /// Its data, if they are whole.
    fn data(self, file: &File, both: &[u8; BOTH]) -> io::Result<Option<Vec<u8>>> {
        let data = if self.len <= SHORT {
            let start = if self.slot() == 0 { SHORT - self.len } else { BOTH - SHORT };
            both[start..start + self.len].to_vec()
        } else {
            let mut data = vec![0; self.len];
            if !read_all(file, &mut data, long_data_at(self.slot()))? {
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
        let slots = [&bytes[..HEADER], &bytes[bytes.len() - HEADER..]];
        let mut headers = [0, 1].map(|slot| Header::take(slots[slot]).filter(|header| header.slot() == slot));
        headers.sort_by_key(|header| header.map(|header| header.seq));
        let mark = &bytes[HEADER..bytes.len() - HEADER];
        Head { headers, is_dead: mark.iter().any(|&byte| byte != 0) }
    }

    /// Whether it is of a stripe of this version: one slot is whole at any time.
    pub(super) fn is_ours(&self) -> bool {
        self.headers.iter().any(Option::is_some)
    }

    /// The slot that counts, if both are whole.
    pub(super) fn newest(&self) -> Option<Header> {
        self.headers[0].and(self.headers[1])
    }
}

fn slot_of(seq: u64) -> usize {
    usize::from(seq % 2 == 1)
}

fn long_data_at(slot: usize) -> u64 {
    (BOTH + slot * LONGEST) as u64
}

/// Fills the buffer; false when the file is too short.
fn read_all(file: &File, buffer: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, at) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        answer => answer.map(|()| true),
    }
}

/// Reads both headers and the mark, and no data; `None` when the file is too short.
pub(super) fn read_head(file: &File) -> io::Result<Option<Head>> {
    let mut bytes = [0; HEAD.end - HEAD.start];
    let is_read = read_all(file, &mut bytes, HEAD.start as u64)?;
    Ok(is_read.then(|| Head::of(&bytes)))
}

/// Whether a slot was written by another version, so that it is not damaged, and may hold what this version can't read.
pub(super) fn is_of_another_version(file: &File) -> io::Result<bool> {
    let mut bytes = [0; HEAD.end - HEAD.start];
    let is_read = read_all(file, &mut bytes, HEAD.start as u64)?;
    let is_other = |header: &[u8]| has_version(header) && !header.starts_with(MAGIC);
    Ok(is_read && (is_other(&bytes) || is_other(&bytes[bytes.len() - HEADER..])))
}

/// Whether a header begins as that of any version does: the word, a number, a newline.
fn has_version(header: &[u8]) -> bool {
    let Some(rest) = header.strip_prefix(ANY_VERSION) else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest.get(digits) == Some(&b'\n')
}

/// Whether there is nothing in the file but zeros, if anything: a stripe has headers when it gets its name.
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

/// The beginning of the data that count now, without the lock; `None` when they are short, or the file changes meanwhile, or is dead. There is no
/// checksum of a part, and none is needed: long data are written before their header. The next write goes to the other slot, and only the
/// one after that to this one, so data whose header counts before and after the reading were whole.
pub(super) fn read_beginning(file: &File) -> io::Result<Option<Vec<u8>>> {
    let counting = || -> io::Result<Option<Header>> {
        let head = read_head(file)?.filter(|head| !head.is_dead);
        Ok(head.and_then(|head| head.newest()).filter(|header| header.len > SHORT))
    };
    let Some(header) = counting()? else { return Ok(None) };
    let mut data = vec![0; BEGINNING];
    let is_read = read_all(file, &mut data, long_data_at(header.slot()))?;
    Ok((is_read && counting()? == Some(header)).then_some(data))
}

/// What counts now; `None` when nothing in the file is whole. Without the lock, a write may be under way: then the slot before it is read.
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

/// Writes what counts from now on, into the slot that does not count now.
pub(super) fn write(file: &File, header: Header, data: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(HEADER + SHORT.min(data.len()));
    if data.len() > SHORT {
        file.write_all_at(data, long_data_at(header.slot()))?;
        header.put(&mut bytes);
        let at = if header.slot() == 0 { SHORT } else { MARK.end };
        return file.write_all_at(&bytes, at as u64);
    }
    if header.slot() == 0 {
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
            "tenure-slots-{}-{:?}",
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
    fn damage_is_seen() {
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
