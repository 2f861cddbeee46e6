//! A valid lock name: not empty, at most 1,000 bytes, any characters.
//!
//! Backends encode it for their own store: no character is refused here, and no hash stands for a name (R0.7). A name is looked up
//! several times for every turn, so it carries its own hash into the maps of this process, and is compared by address first.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::types::error::Error;

/// The longest name, in bytes of UTF-8.
pub(crate) const MAX_LEN: usize = 1_000;

/// What is locked. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Name {
    text: Arc<str>,
    /// Made with the keys of this process, which nobody can guess.
    hash: u64,
}

/// A map from names.
pub(crate) type NameMap<T> = HashMap<Name, T, BuildHasherDefault<KnownHash>>;

impl Name {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::invalid("lock name is empty").fix("give it at least one character"));
        }
        if name.len() > MAX_LEN {
            return Err(Error::invalid(format!(
                "lock name `{}…` has {} bytes",
                name.chars().take(40).collect::<String>(),
                name.len()
            ))
            .fix(format!("shorten it to at most {MAX_LEN}")));
        }
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Ok(Name { text: name.into(), hash: KEYS.hash_one(name) })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || (self.hash == other.hash && self.text == other.text)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Passes on the hash that a name has.
#[derive(Default)]
pub(crate) struct KnownHash(u64);

impl Hasher for KnownHash {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a name writes its hash and nothing else");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::ErrorKind;

    #[test]
    fn any_characters_up_to_a_thousand_bytes() {
        let longest = "x".repeat(MAX_LEN);
        for name in ["a", " ", "orders/42", "../../etc/passwd", "ü/{}%\n\0", &longest] {
            assert_eq!(Name::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn empty_and_too_long_are_named_as_such() {
        let too_long = Name::new(&"é".repeat(501)).unwrap_err();
        assert_eq!(too_long.kind(), ErrorKind::Invalid);
        assert!(too_long.to_string().contains("1002 bytes"), "{too_long}");
        assert!(Name::new("").unwrap_err().to_string().contains("empty"));
    }
}
