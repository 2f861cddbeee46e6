//! The scripts against what they are to be: the record, and the page that says what is written where.

mod agreement;
mod drafts;
mod mirror;
mod parts;
mod store;
