//! What became of a lease that was given back.

use crate::types::owner::Owner;

/// What became of a lease that was given back.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use tenure::Release;
///
/// let domain = tenure::Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").acquire().await?;
/// assert_eq!(guard.release().await?, Release::Done);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// It was ours, and is not any more.
    Done,
    /// It had ended before: nobody held the name.
    Expired,
    /// It had ended before, and someone else holds the name. Nothing was changed.
    Taken {
        /// Who holds it.
        by: Owner,
    },
}
