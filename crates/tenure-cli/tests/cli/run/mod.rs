//! `tenure run`, by real processes.
//!
//! Whether a command still runs is asked of the kernel, independently of `tenure`: commands hold a flock(1) on a file, which lasts until the
//! last process that inherited it is gone. A command that finds it taken has met another.

mod both;
mod codes;
mod environment;
mod layered;
mod limits;
mod many;
mod names;
mod nested;
mod on_lost;
mod proc;
mod redis;
mod screen;
mod secrets;
mod signals;
mod sleeping;
mod status_fd;
mod stopping;
mod surroundings;
mod terminal;
mod wait_all;
mod waiting;
