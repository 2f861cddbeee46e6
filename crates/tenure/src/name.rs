//! A valid lock name: not empty, at most 1,000 bytes, any characters.
//!
//! Backends encode it for their own store (percent-encoding in a Redis key, a hash in a file): no character is refused here and
//! no hash stands for a name (R0.7).

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// The longest name, in bytes of UTF-8.
pub(crate) const MAX_LEN: usize = 1_000;

/// What is locked. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(Arc<str>);

impl Name {
    pub(crate) fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::invalid("lock name is empty; give it at least one character"));
        }
        if name.len() > MAX_LEN {
            return Err(Error::invalid(format!(
                "lock name has {} bytes; the longest allowed has {MAX_LEN}: `{}…`",
                name.len(),
                name.chars().take(40).collect::<String>(),
            )));
        }
        Ok(Name(name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

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
