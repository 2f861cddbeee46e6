//! The scripts against what they are to be: the record, and the page that says what is written where.

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
