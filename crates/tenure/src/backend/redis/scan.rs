//! The names in use, found by scanning the keys. Redis scans in steps, so that the scan does not block other clients.

use redis::{Cmd, Value};

use super::connection::Connection;
use super::fault;
use super::keys::Keys;
use crate::types::error::Error;
use crate::types::name::{Name, NameMap};

/// How many keys the server examines in one step.
const STEP: usize = 1_000;

/// The names that are held or waited for, and start with `prefix`.
pub(super) async fn names(
    mut connection: Connection,
    address: &str,
    keys: &Keys,
    prefix: &str,
) -> Result<Vec<Name>, Error> {
    let [locks, queues] = keys.patterns(prefix);
    let mut names = NameMap::default();
    // The scan may return a key twice.
    for key in scan(&mut connection, address, &locks, "string").await? {
        names.extend(keys.name(&key).map(|name| (name, ())));
    }
    for key in scan(&mut connection, address, &queues, "zset").await? {
        names.extend(keys.name_of_queue(&key).map(|name| (name, ())));
    }
    Ok(names.into_keys().collect())
}

async fn scan(
    connection: &mut Connection,
    address: &str,
    pattern: &str,
    kind: &str,
) -> Result<Vec<String>, Error> {
    let (mut found, mut cursor) = (Vec::new(), b"0".to_vec());
    loop {
        let mut step = Cmd::new();
        step.arg("SCAN").arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP).arg("TYPE").arg(kind);
        let answer = match connection.send(&step).await {
            Ok(Value::ServerError(refusal)) => return Err(fault::refused(&refusal, address)),
            Ok(answer) => answer,
            Err(error) => return Err(fault::of_command(&error, address)),
        };
        let Value::Array(parts) = &answer else { return Err(fault::unexpected(&answer)) };
        let [Value::BulkString(next), Value::Array(keys)] = &parts[..] else {
            return Err(fault::unexpected(&answer));
        };
        // Tenure's keys are UTF-8.
        found.extend(keys.iter().filter_map(|key| match key {
            Value::BulkString(key) => String::from_utf8(key.clone()).ok(),
            _ => None,
        }));
        if next == b"0" {
            return Ok(found);
        }
        cursor = next.clone();
    }
}
