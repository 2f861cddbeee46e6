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
/// assert_eq!(guard.release().await?, Release::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The lease was ours, and is given back.
    Released,
    /// The lease had ended before, and nobody holds the name.
    Gone,
    /// The lease had ended before, and someone else holds the name. Nothing was changed.
    Taken {
        /// Who holds it.
        by: Owner,
    },
}
