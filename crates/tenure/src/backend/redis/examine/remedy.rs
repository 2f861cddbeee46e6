//! Commands for the administrator of the server, as lines for a shell.

use redis::ConnectionAddr;

use super::super::connect::Connector;
use super::super::keys::Keys;
use crate::types::finding::quoted;

/// The commands that a user needs. docs/backends/redis.md has the same list, and a test uses all features with exactly this.
const COMMANDS: &str = "+evalsha +eval +time +get +set +del +exists +pttl +pexpire +zadd +zrem +zrange +zrevrange +zrank +zscore +zcard \
                        +hset +hget +hdel +publish +subscribe +scan +info +hello +ping '+client|tracking' '+client|caching'";

/// The differences on a cluster, where channels are sharded and clients ask nodes for slots.
const ON_A_CLUSTER: [(&str, &str); 2] = [
    ("+publish +subscribe", "+spublish +ssubscribe +sunsubscribe"),
    ("+hello", "+hello +asking '+cluster|slots' '+cluster|info'"),
];

/// Lines for a shell, for this server and this user.
pub(super) struct Remedies {
    cli: String,
    is_cluster: bool,
    prefix: String,
    user: String,
}

impl Remedies {
    pub(super) fn new(connector: &Connector, keys: &Keys, user: Option<&str>) -> Self {
        let mut cli = match connector.addr() {
            Some(ConnectionAddr::Unix(path)) => {
                format!("redis-cli -s {}", quoted(&path.display().to_string()))
            }
            Some(ConnectionAddr::TcpTls { host, port, .. }) => {
                format!("redis-cli --tls -h {} -p {port}", quoted(&host))
            }
            Some(ConnectionAddr::Tcp(host, port)) => format!("redis-cli -h {} -p {port}", quoted(&host)),
            _ => "redis-cli".to_owned(),
        };
        if let Some(tls) = connector.tls() {
            let client = tls.client.as_ref();
            let files = [
                ("--cacert", tls.ca.as_ref()),
                ("--cert", client.map(|client| &client.cert)),
                ("--key", client.map(|client| &client.key)),
            ];
            for (option, path) in files {
                let path = path.map(|path| quoted(&path.display().to_string()));
                cli += &path.map_or(String::new(), |path| format!(" {option} {path}"));
            }
        }
        // It prompts for the password, which must not appear in a shown or typed line.
        if connector.has_password() {
            cli = cli.replacen("redis-cli", "redis-cli --askpass", 1);
        }
        let user = quoted(user.unwrap_or("default"));
        Remedies { cli, is_cluster: false, prefix: keys.prefix().to_owned(), user }
    }

    /// For a node of a cluster. The administrator must run it for each node.
    pub(super) fn for_cluster(connector: &Connector, keys: &Keys, user: Option<&str>) -> Self {
        Remedies { is_cluster: true, ..Remedies::new(connector, keys, user) }
    }

    /// Changes settings, one after the other.
    pub(super) fn set(&self, settings: &[(&str, &str)]) -> String {
        let lines = settings.iter().map(|(name, value)| format!("{} config set {name} {value}", self.cli));
        lines.collect::<Vec<_>>().join(" && ")
    }

    /// Gives the user a password.
    pub(super) fn set_password(&self) -> String {
        let (set, user) = match self.user.as_str() {
            "default" => (self.set(&[("requirepass", "PASSWORD")]), ""),
            user => (format!("{} acl setuser {user} '>PASSWORD'", self.cli), user),
        };
        format!("{set}, and put it into the URL, before the host: {user}:PASSWORD@")
    }

    /// Allows the user what the server refused with these words: all commands, the keys, or the channels. Never all three in one line: a
    /// user with all keys cannot be given some, and the server would refuse the whole line.
    pub(super) fn permit(&self, refusal: &str) -> String {
        let pattern = |before: &str| quoted(&format!("{before}{}*", self.prefix));
        let rules = if refusal.contains("channel") {
            pattern(if self.is_cluster { "&{" } else { "&" })
        } else if refusal.contains(" key") {
            format!("{} {}", pattern("~"), pattern("~{"))
        } else {
            let replace = |rules: String, (one, all): &(&str, &str)| rules.replace(one, all);
            let changes = if self.is_cluster { &ON_A_CLUSTER[..] } else { &[] };
            changes.iter().fold(COMMANDS.to_owned(), replace)
        };
        format!("{} acl setuser {} {rules}", self.cli, self.user)
    }

    /// Allows the user to wait for replicas, and to ask how many there are.
    pub(super) fn permit_waiting(&self) -> String {
        format!("{} acl setuser {} +wait +info", self.cli, self.user)
    }

    /// Allows the user to read settings. Locks do not need it; without it, some findings stay doubtful.
    pub(super) fn permit_settings(&self) -> String {
        format!("{} acl setuser {} '+config|get'", self.cli, self.user)
    }
}
