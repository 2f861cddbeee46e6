//! The holders that this client has reaped. A layered store needs to know them: its outer store does not see the death of a process.
//!
//! Only holders count whose lease ended with their process. A waiter had no lease, and a detached lease goes on without its process.

use crate::sync::Mutex;
use crate::types::name::{Name, NameMap};
use crate::types::owner::Token;

/// How many names are remembered. A layered store asks immediately after an operation, so a few would do.
const MOST_NAMES: usize = 1_024;

/// The last holder that was reaped, by name.
#[derive(Debug, Default)]
pub(super) struct ReapedHolders(Mutex<NameMap<Token>>);

impl ReapedHolders {
    pub(super) fn remember(&self, name: &Name, token: &Token) {
        let mut tokens = self.0.lock();
        if tokens.len() >= MOST_NAMES {
            tokens.clear();
        }
        tokens.insert(name.clone(), token.clone());
    }

    pub(super) fn last_of(&self, name: &Name) -> Option<Token> {
        self.0.lock().get(name).cloned()
    }
}
