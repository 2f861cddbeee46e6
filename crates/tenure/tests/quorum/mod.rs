//! A majority of real servers: what becomes of locks when some of them are away, silent, cut off or back without their data.

mod away;
mod opening;
mod processes;
mod scene;
mod waiting;
