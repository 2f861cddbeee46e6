//! The cluster slot of a key.

/// The number of slots.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a lock's key, which has no tag; also of its side keys and channels, which have it as their tag.
pub(super) fn slot(lock: &str) -> u16 {
    let step = |crc: u16, byte: u8| (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ byte)];
    lock.bytes().fold(0, step) % SLOTS
}

/// CRC-16/XMODEM, for each byte.
static CRC: [u16; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn these_are_the_slots_of_the_specification() {
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot(""), 0);
    }
}
