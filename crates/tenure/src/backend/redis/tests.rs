//! The scripts compared with the record, and with docs/protocol.md.

mod agreement;
mod compare;
mod drafts;
mod late;
mod layout;
mod mirror;
mod parts;
mod scene;
mod store;
mod words;
