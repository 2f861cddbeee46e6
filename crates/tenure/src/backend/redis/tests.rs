//! The scripts against what they are to be: the record, and the page that says what is written where.

mod agreement;
mod drafts;
mod layout;
mod mirror;
mod parts;
mod scene;
mod store;
mod words;
