//! Chance that can be repeated.

/// Numbers that look random, from a seed that is not zero.
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// From 0 to one less than `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// The index of one of so many.
    pub fn index(&mut self, many: usize) -> usize {
        usize::try_from(self.roll(many as u64)).expect("less than a usize")
    }
}
