//! A slot moves from one master to another.

use super::super::server::RedisServer;
use super::{Cluster, id};

impl Cluster {
    /// All of it.
    ///
    /// # Panics
    /// When a node refuses; so do the steps of it.
    pub fn move_slot(&self, slot: u16, to: &RedisServer) {
        self.open_slot(slot, to);
        self.move_keys(slot, to);
        self.close_slot(slot, to);
    }

    /// The first step: from now on keys that are not at the old master are looked for at the new one.
    pub fn open_slot(&self, slot: u16, to: &RedisServer) {
        let from = self.master_of(slot);
        set(to, slot, &["IMPORTING", &id(from)]);
        set(from, slot, &["MIGRATING", &id(to)]);
    }

    /// The second step: the keys that are there now. How many.
    pub fn move_keys(&self, slot: u16, to: &RedisServer) -> usize {
        let from = self.master_of(slot);
        let keys = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]);
        let keys: Vec<_> = keys.items().iter().map(super::Reply::text).collect();
        for key in &keys {
            self.move_key(key, from, to);
        }
        keys.len()
    }

    /// One key.
    pub fn move_key(&self, key: &str, from: &RedisServer, to: &RedisServer) {
        let port = self.port(to).to_string();
        let moved = from.command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        // It may have expired in between.
        assert!(["OK", "NOKEY"].contains(&moved.text().as_str()), "{moved:?}");
    }

    /// The last step: the slot is the new master's, and all masters know.
    pub fn close_slot(&self, slot: u16, to: &RedisServer) {
        let (from, owner) = (self.master_of(slot), id(to));
        set(to, slot, &["NODE", &owner]);
        set(from, slot, &["NODE", &owner]);
        self.wait_for_another_than(slot, self.port(from));
    }

    /// The slot stays where it is; what was moved of it is to be moved back first.
    pub fn keep_slot(&self, slot: u16, to: &RedisServer) {
        let from = self.master_of(slot);
        set(to, slot, &["STABLE"]);
        set(from, slot, &["STABLE"]);
    }
}

fn set(node: &RedisServer, slot: u16, words: &[&str]) {
    let slot = slot.to_string();
    let answer = node.command(&[&["CLUSTER", "SETSLOT", &slot], words].concat());
    assert!(!answer.is_error(""), "{words:?}: {answer:?}");
}
