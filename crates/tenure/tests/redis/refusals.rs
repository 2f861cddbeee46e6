//! A server that refuses: what it means, and that nothing is lost by it.

mod endurance;
mod for_a_while;
mod script_cache;
mod users;
mod writes;
mod wrong_type;
