//! A refusal that arrives after its connection was replaced.

use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Cmd, Value};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use crate::backend::redis::client::{ServerClient, SessionContext};
use crate::backend::redis::connect::Connector;
use crate::backend::redis::keys::Keys;
use crate::backend::redis::replicas::VerifyGrants;
use crate::backend::{Answer, Presence, Sink};
use crate::time::clock::Clock;
use crate::types::owner::Session;
use crate::url::{DomainUrl, Target};

async fn client_of(server: &RedisServer) -> ServerClient {
    let url: DomainUrl = server.url().parse().expect("a URL");
    let Target::Redis(url) = url.target() else { unreachable!("a URL of Redis") };
    let connector = Arc::new(Connector::new(url, None).expect("a host"));
    let sink: Weak<dyn Sink> = Weak::<VerifyGrants>::new();
    let context = SessionContext::new(Session::random(), Keys::new("tenure:"), Clock::System, sink, false);
    ServerClient::open(connector, context, None, Presence::Required)
        .await
        .map_err(|error| error.to_string())
        .expect("a server")
}

// R0.5: a late answer of an old master does not affect the new one.
#[tokio::test]
async fn a_late_refusal_ends_its_own_connection_alone() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let client = client_of(&server).await;
    let mut old = client.link.active().await.expect("a server");
    assert_eq!(server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]).text(), "OK");
    let mut set = Cmd::new();
    set.arg("SET").arg("a").arg("b");
    let refusal = old.connection.send(&set).await.expect("an answer");
    assert!(matches!(&refusal, Value::ServerError(error) if error.code() == "READONLY"), "{refusal:?}");
    assert_eq!(server.command(&["REPLICAOF", "NO", "ONE"]).text(), "OK");

    let answered = |connection, value: &Value| -> Result<Answer, String> {
        client
            .answered(connection, value.clone())
            .map_err(|failure| client.refused(failure, "tenure:a").to_string())
    };
    answered(&old, &refusal).expect_err("a refusal");
    until("it is replaced", || client.link.number() == 2 && client.link.try_active().is_some()).await;
    let new = client.link.active().await.expect("a server");
    answered(&old, &refusal).expect_err("a refusal");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(client.link.number(), 2, "the new one stays");
    answered(&new, &refusal).expect_err("a refusal");
    until("it is replaced", || client.link.number() == 3).await;
}
