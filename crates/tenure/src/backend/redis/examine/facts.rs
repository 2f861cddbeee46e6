//! The answers of a server to all questions of an examination.
//!
//! The server may refuse each question by itself, because the user lacks the permission or a managed server lacks the command. Then only
//! that answer is missing.

use std::time::{Duration, SystemTime};

use redis::{Cmd, Pipeline, Value};

use super::super::client::SessionContext;
use super::super::connection::Connection;
use super::super::fault;
use super::super::link::ActiveConnection;
use super::super::server::{parse_version, string};
use super::rate::{Rate, Reading};
use crate::types::error::Error;

/// The settings that `INFO` does not have.
const SETTINGS: [&str; 3] = ["appendfsync", "save", "min-replicas-to-write"];

/// The server's clock compared with this machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockFact {
    pub(super) is_ahead: bool,
    pub(super) apart: Duration,
    /// The possible error: half of the round trip.
    pub(super) within: Duration,
}

/// The answers.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) info: Option<String>,
    settings: [Option<String>; 3],
    /// The version in `HELLO`.
    greeting: Option<(u32, u32)>,
    pub(super) user: Option<String>,
    /// Whether the server accepts every password for this user (`nopass`); `None` if it does not say.
    pub(super) is_without_password: Option<bool>,
    reading: Option<Reading>,
    /// How fast its clock runs, after the measurement.
    pub(super) rate: Option<Rate>,
    /// Why the server refuses to list names.
    pub(super) scan_refused: Option<String>,
}

impl Facts {
    pub(super) async fn ask(
        active: &mut ActiveConnection,
        address: &str,
        context: &SessionContext,
    ) -> Result<Self, Error> {
        let connection = &mut active.connection;
        let mut questions = Pipeline::new();
        questions.cmd("INFO").cmd("ACL").arg("WHOAMI");
        // It examines one key, however many there are.
        let [locks, _] = context.keys.patterns("");
        questions.cmd("SCAN").arg(0).arg("MATCH").arg(locks).arg("COUNT").arg(1).arg("TYPE").arg("string");
        for setting in SETTINGS {
            questions.cmd("CONFIG").arg("GET").arg(setting);
        }
        let answers = connection.send_all(&questions).await;
        let answers = answers.map_err(|error| fault::of_command(&error, address))?;
        let [info, user, scan, settings @ ..] = &answers[..] else {
            return Err(fault::unexpected(&Value::Array(answers)));
        };
        let text = |value: &Value| string(value).map(str::to_owned);
        let is_without_password = match string(user) {
            Some(user) => is_without_password(connection, user).await,
            None => None,
        };
        Ok(Facts {
            info: text(info),
            user: text(user),
            is_without_password,
            scan_refused: match scan {
                Value::ServerError(refusal) => Some(refusal.to_string()),
                _ => None,
            },
            settings: std::array::from_fn(|nth| settings.get(nth).and_then(setting)),
            reading: Reading::take(connection, &context.clock).await,
            rate: None,
            greeting: active.server.version,
        })
    }

    /// Measures how fast its clock runs, until two seconds after the first questions.
    pub(super) async fn measure_rate(&mut self, active: &mut ActiveConnection, context: &SessionContext) {
        if let Some(reading) = &self.reading {
            self.rate = reading.rate(&mut active.connection, &context.clock).await;
        }
    }

    /// Its clock at the first question.
    pub(super) fn clock(&self) -> Option<ClockFact> {
        self.reading.as_ref().map(ClockFact::of)
    }

    /// A field of `INFO`.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let lines = self.info.as_deref()?.lines();
        lines
            .filter_map(|line| line.split_once(':'))
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value.trim())
    }

    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.field(field)?.parse().ok()
    }

    /// A setting, if the user may ask for it.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        let nth = SETTINGS.iter().position(|setting| *setting == name)?;
        self.settings[nth].as_deref()
    }

    /// Product and version.
    pub(super) fn product(&self) -> String {
        match (self.field("valkey_version"), self.field("redis_version")) {
            (Some(version), _) => format!("valkey {version}"),
            (None, Some(version)) => format!("redis {version}"),
            (None, None) => match self.greeting {
                Some((major, minor)) => format!("redis {major}.{minor}"),
                None => "redis of an unknown version".to_owned(),
            },
        }
    }

    /// Major and minor version of Redis.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        self.field("redis_version").and_then(parse_version).or(self.greeting)
    }

    pub(super) fn replicas(&self) -> u64 {
        self.number("connected_slaves").unwrap_or(0)
    }

    /// How many seconds ago the server last received a message of each replica.
    pub(super) fn lags(&self) -> impl Iterator<Item = u64> {
        self.info.as_deref().unwrap_or_default().lines().filter_map(lag)
    }
}

/// The same, if this line of `INFO` describes a replica.
fn lag(line: &str) -> Option<u64> {
    let (field, value) = line.split_once(':')?;
    field.strip_prefix("slave")?.parse::<u32>().ok()?;
    value.split(',').find_map(|part| part.trim().strip_prefix("lag=")?.parse().ok())
}

/// The value of a setting: a map with one entry in RESP3, else a list of two.
pub(super) fn setting(answer: &Value) -> Option<String> {
    let value = match answer {
        Value::Map(pairs) => &pairs.first()?.1,
        Value::Array(parts) => parts.get(1)?,
        _ => return None,
    };
    string(value).map(str::to_owned)
}

impl ClockFact {
    /// The server read its clock between the question and the answer.
    fn of(reading: &Reading) -> Self {
        let within = reading.took() / 2;
        let server = SystemTime::UNIX_EPOCH + Duration::from_micros(reading.server);
        let (is_ahead, apart) = match server.duration_since(reading.wall + within) {
            Ok(apart) => (true, apart),
            Err(behind) => (false, behind.duration()),
        };
        ClockFact { is_ahead, apart, within }
    }
}
/// Whether the server accepts every password for this user. Few users may ask for that.
async fn is_without_password(connection: &mut Connection, user: &str) -> Option<bool> {
    let mut question = Cmd::new();
    question.arg("ACL").arg("GETUSER").arg(user);
    let Ok(Value::Map(fields)) = connection.send(&question).await else { return None };
    let (_, flags) = fields.iter().find(|(name, _)| string(name) == Some("flags"))?;
    match flags {
        Value::Array(flags) | Value::Set(flags) => {
            Some(flags.iter().any(|flag| string(flag) == Some("nopass")))
        }
        _ => None,
    }
}
