//! The bytes of a stripe file: two slots, written in turn, of which the one with the higher number counts.
//!
//! ```text
//! 0      slot 0: header, and its data if they are short      (2 KiB)
//! 2 KiB  slot 1: the same
//! 4 KiB  long data of slot 0                                 (1 MiB at most)
//! 1 MiB + 4 KiB  long data of slot 1
//! 2 MiB + 4 KiB  the end; a file that is longer is dead
//! ```
//!
//! Both headers and all short data lie in one page: they are read by one call, and no kill can cut a write to them in two. Long data are
//! written before the header that announces them. So whatever is damaged was damaged by something else, and is never read as a grant:
//! only after a power cut, which another boot id tells, the slot that is whole counts.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::bytes::{Bytes, Put};

const MAGIC: &[u8; 8] = b"tenure1\n";
const HEADER: usize = 32;
const SLOT: usize = 2_048;
/// The headers and the short data of both slots.
const PAGE: usize = 2 * SLOT;
const SHORT: usize = SLOT - HEADER;
/// The longest data of a slot.
pub(super) const LONGEST: usize = 1 << 20;
/// A file that is longer than this is dead: it was replaced, and what is written to it is lost.
pub(super) const DEAD_BEYOND: u64 = (PAGE + 2 * LONGEST) as u64;

/// What was read of a stripe file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Image {
    /// The number of the write that made it.
    pub(super) seq: u64,
    pub(super) data: Vec<u8>,
    /// The other slot, or a later one, is damaged.
    pub(super) is_damaged: bool,
}

#[derive(Clone, Copy, Debug)]
struct Header {
    seq: u64,
    len: usize,
    crc: u32,
}

impl Header {
    fn of(seq: u64, data: &[u8]) -> Self {
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

    /// Its data, if they are whole.
    fn data(self, file: &File, slot: usize, page: &[u8; PAGE]) -> io::Result<Option<Vec<u8>>> {
        let data = if self.len <= SHORT {
            let start = slot * SLOT + HEADER;
            page[start..start + self.len].to_vec()
        } else {
            let mut data = vec![0; self.len];
            match file.read_exact_at(&mut data, long_data_at(slot)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                answer => answer?,
            }
            data
        };
        Ok((crc32fast::hash(&data) == self.crc).then_some(data))
    }
}

fn slot_of(seq: u64) -> usize {
    usize::from(seq % 2 == 1)
}

fn long_data_at(slot: usize) -> u64 {
    (PAGE + slot * LONGEST) as u64
}

fn read_page(file: &File) -> io::Result<Option<[u8; PAGE]>> {
    let mut page = [0; PAGE];
    match file.read_exact_at(&mut page, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        answer => answer.map(|()| Some(page)),
    }
}

fn headers(page: &[u8; PAGE]) -> [Option<Header>; 2] {
    [0, 1].map(|slot| {
        let start = slot * SLOT;
        Header::take(&page[start..start + HEADER]).filter(|header| slot_of(header.seq) == slot)
    })
}

/// What counts now; `None` when nothing in the file is whole. Without the lock, a write may be under way: then the slot before it is read.
pub(super) fn read(file: &File) -> io::Result<Option<Image>> {
    let Some(page) = read_page(file)? else { return Ok(None) };
    let mut headers = headers(&page);
    let mut is_damaged = headers.iter().any(Option::is_none);
    headers.sort_by_key(|header| std::cmp::Reverse(header.map(|header| header.seq)));
    for header in headers.into_iter().flatten() {
        if let Some(data) = header.data(file, slot_of(header.seq), &page)? {
            return Ok(Some(Image { seq: header.seq, data, is_damaged }));
        }
        is_damaged = true;
    }
    Ok(None)
}

/// The number of the last write; `None` when the headers can't be read.
pub(super) fn last_seq(file: &File) -> io::Result<Option<u64>> {
    let page = read_page(file)?;
    Ok(page.and_then(|page| headers(&page).into_iter().flatten().map(|header| header.seq).max()))
}

/// Writes what counts from now on, with the next number, into the slot that does not count now.
pub(super) fn write(file: &File, seq: u64, data: &[u8]) -> io::Result<()> {
    let slot = slot_of(seq);
    let mut bytes = Vec::with_capacity(HEADER + SHORT.min(data.len()));
    Header::of(seq, data).put(&mut bytes);
    if data.len() <= SHORT {
        bytes.extend_from_slice(data);
    } else {
        file.write_all_at(data, long_data_at(slot))?;
    }
    file.write_all_at(&bytes, (slot * SLOT) as u64)
}

/// Writes a whole new file, whose last write has this number.
pub(super) fn write_new(file: &File, seq: u64, data: &[u8]) -> io::Result<()> {
    file.write_all_at(&[0; PAGE], 0)?;
    write(file, seq - 1, &[])?;
    write(file, seq, data)
}
