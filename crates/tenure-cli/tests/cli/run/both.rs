//! What `tenure run` promises on whatever store: each case runs on a directory and on a Redis server of its own.

mod codes;
mod killing;
mod losing;
mod signals;

/// Makes a test of each function over a place, once for each store.
macro_rules! on_both_stores {
    ($($case:ident),+ $(,)?) => {
        mod file {
            $(#[test]
            fn $case() {
                super::$case(&crate::support::Place::new());
            })+
        }

        mod redis {
            $(#[test]
            fn $case() {
                super::$case(&crate::support::Place::on_redis());
            })+
        }
    };
}
pub(super) use on_both_stores;
