use rusqlite::{Connection, TransactionBehavior};
use tenure::{Domain, Fence};

/// Reads, takes its time, writes: two sellers that do this at once sell one seat twice.
async fn sell(db: &mut Connection, fence: Fence) -> rusqlite::Result<bool> {
    let left = seats_left(db)?;
    choose_a_seat().await;
    save(db, left - 1, fence)
}

/// Writes, unless a later holder of the lock was here. False: too late, and nothing was written.
fn save(db: &mut Connection, left: i64, fence: Fence) -> rusqlite::Result<bool> {
    let fence = i64::try_from(fence.get()).expect("a fence is below 2^53");
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let check = "UPDATE concerts SET fence = ?1 WHERE id = 42 AND fence <= ?1";
    if transaction.execute(check, [fence])? == 0 {
        return Ok(false); // the transaction is dropped, and rolls back
    }
    transaction.execute("UPDATE concerts SET seats_left = ?1 WHERE id = 42", [left])?;
    transaction.commit()?;
    Ok(true)
}

fn seats_left(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("SELECT seats_left FROM concerts WHERE id = 42", [], |row| row.get(0))
}

async fn choose_a_seat() {}

#[tokio::main(flavor = "current_thread")]
pub(super) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut db = Connection::open_in_memory()?;
    db.execute_batch(
        "CREATE TABLE concerts (id INTEGER PRIMARY KEY, seats_left INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
         INSERT INTO concerts (id, seats_left) VALUES (42, 100);",
    )?;
    let domain = Domain::open(super::url()).await?;
    let lock = domain.lock("concert/42");

    let is_sold = lock.run(async |lease| sell(&mut db, lease.fence()).await).await?.value?;
    assert!(is_sold && seats_left(&db)? == 99);

    // What the fence is for: a seller reads, and is paused. Its lock passes to another seller, which sells two seats.
    let paused = lock.acquire().await?;
    let read_before = seats_left(&db)?;
    let next = lock.take_over().await?;
    assert!(sell(&mut db, next.fence()).await? && sell(&mut db, next.fence()).await?);

    // The first one goes on, with what it read. It is refused, and both sales stand.
    assert!(!save(&mut db, read_before - 1, paused.fence())?);
    assert_eq!(seats_left(&db)?, 97);

    next.release().await?; // `run` does this by itself
    Ok(())
}
