//! Another server becomes the master while processes take turns on names: judged by what each of them believed and wrote down.
//!
//! A few cells in `make test`, all of them and for longer in `make chaos`.

mod cell;
mod exact;
mod sentinel;
mod worker;
