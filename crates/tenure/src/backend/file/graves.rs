//! Which holders this client has buried: for a store that is made of this one and another, where the other one does not see deaths.
//!
//! Only those who held the name when they were buried, by a lease that ends with its process. Who waited had nothing, and a lease that was
//! detached lives on.

use crate::sync::Mutex;
use crate::types::name::{Name, NameMap};
use crate::types::owner::Token;

/// How many are remembered. Whoever needs to know asks at once.
const MANY: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Graves(Mutex<NameMap<Token>>);

impl Graves {
    /// The one who held the name.
    pub(super) fn dig(&self, name: &Name, token: &Token) {
        let mut graves = self.0.lock();
        if graves.len() >= MANY {
            graves.clear();
        }
        graves.insert(name.clone(), token.clone());
    }

    /// The last one who held this name.
    pub(super) fn of(&self, name: &Name) -> Option<Token> {
        self.0.lock().get(name).cloned()
    }
}
