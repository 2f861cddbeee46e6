//! In which of the slots of a cluster a key is.

/// How many there are.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a lock's key, and of its side keys and channels, which carry it as their tag. It has no tag of its own.
pub(super) fn slot(lock: &str) -> u16 {
    let crc = lock.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
}

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
