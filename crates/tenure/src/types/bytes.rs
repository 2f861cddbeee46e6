//! Numbers and texts as bytes, as they stand in the files and messages of the file domain: little-endian, texts with their length
//! before them. Reading takes nothing for granted: what is cut off or no text is `None`, never a panic.

/// Appends to a buffer.
pub(crate) trait Put {
    fn put_u8(&mut self, number: u8);
    fn put_u32(&mut self, number: u32);
    fn put_u64(&mut self, number: u64);
    fn put_text(&mut self, text: &str);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, number: u8) {
        self.push(number);
    }

    fn put_u32(&mut self, number: u32) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_u64(&mut self, number: u64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn put_text(&mut self, text: &str) {
        self.put_u32(u32::try_from(text.len()).expect("a text that was checked to be short"));
        self.extend_from_slice(text.as_bytes());
    }
}

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.text_bytes()?).ok()
    }

    /// The same, for a caller that has checked that it is UTF-8.
    pub(crate) fn text_bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read() {
        let mut buffer = Vec::new();
        buffer.put_u8(7);
        buffer.put_u32(70_000);
        buffer.put_u64(u64::MAX);
        buffer.put_text("ünï");
        let mut bytes = Bytes(&buffer);
        assert_eq!((bytes.u8(), bytes.u32(), bytes.u64()), (Some(7), Some(70_000), Some(u64::MAX)));
        assert_eq!(bytes.text(), Some("ünï"));
        assert!(bytes.is_empty());
    }

    #[test]
    fn what_is_cut_off_or_no_text_is_none() {
        assert_eq!(Bytes(&[1, 2, 3]).u32(), None);
        assert_eq!(Bytes(&[9, 0, 0, 0, b'a']).text(), None, "nine bytes are announced");
        assert_eq!(Bytes(&[255, 255, 255, 255]).text(), None);
        assert_eq!(Bytes(&[1, 0, 0, 0, 0xff]).text(), None, "not UTF-8");
    }
}
