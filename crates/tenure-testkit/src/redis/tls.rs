//! Certificates for one server and its clients, issued when it starts.
//!
//! By the `openssl` program, not by a crate: they are files that Redis, itself linked with OpenSSL, reads, and what is checked against
//! them is another implementation. Each server has an authority of its own, so that the one of another server is a wrong one.

use super::launch;
use super::port::Port;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub(super) struct Tls {
    pub(super) port: Port,
    directory: PathBuf,
}

impl Tls {
    /// For a server that is known by `names`, such as `DNS:localhost` or `IP:127.0.0.1`.
    pub(super) fn issue(directory: &Path, port: Port, names: &[String]) -> Self {
        let tls = Tls { port, directory: directory.to_owned() };
        let authority =
            ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"].map(String::from);
        let server = format!("subjectAltName={}", names.join(","));
        let server =
            [server, "extendedKeyUsage=serverAuth".into(), "basicConstraints=critical,CA:FALSE".into()];
        let client = ["extendedKeyUsage=clientAuth", "basicConstraints=critical,CA:FALSE"].map(String::from);
        tls.certify("ca", &authority);
        tls.certify("server", &server);
        tls.certify("client", &client);
        tls
    }

    /// The lines of redis.conf. Clients may have a certificate and need not.
    pub(super) fn settings(&self) -> [(&'static str, String); 5] {
        [
            ("tls-port", self.port.number().to_string()),
            ("tls-ca-cert-file", "ca.crt".into()),
            ("tls-cert-file", "server.crt".into()),
            ("tls-key-file", "server.key".into()),
            ("tls-auth-clients", "optional".into()),
        ]
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// `<whose>.crt` and `<whose>.key`, by the authority, or by itself if it is the authority.
    fn certify(&self, whose: &str, extensions: &[String]) {
        let config = self.file("openssl.conf");
        // The one of the machine adds extensions of its own.
        std::fs::write(&config, "[req]\ndistinguished_name=subject\n[subject]\n").expect("a configuration");
        let mut openssl = Command::new(launch::require("openssl", "openssl"));
        openssl.current_dir(&self.directory);
        openssl.args(["req", "-x509", "-config", "openssl.conf", "-days", "2", "-nodes", "-newkey", "ec"]);
        openssl.args([
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-subj",
            &format!("/CN=tenure test {whose}"),
        ]);
        openssl.args(["-keyout", &format!("{whose}.key"), "-out", &format!("{whose}.crt")]);
        for extension in extensions {
            openssl.args(["-addext", extension]);
        }
        if whose != "ca" {
            openssl.args(["-CA", "ca.crt", "-CAkey", "ca.key"]);
        }
        let issued = openssl.output().expect("openssl runs");
        assert!(issued.status.success(), "no certificate: {}", String::from_utf8_lossy(&issued.stderr));
    }
}

#[cfg(test)]
mod tests {
    use crate::redis::{RedisServer, launch};
    use std::path::Path;
    use std::process::Command;

    #[test]
    fn is_known_by_its_own_authority_and_by_no_other() {
        let (server, other) = (RedisServer::builder().tls().start(), RedisServer::builder().tls().start());
        let ping = |ca: &Path| cli(&server, &["--cacert", ca.to_str().unwrap(), "PING"]);
        assert_eq!(ping(&server.ca_path()).unwrap(), "PONG");
        let refused = ping(&other.ca_path()).unwrap_err();
        assert!(refused.contains("certificate verify failed"), "{refused}");
        server.restart();
        assert_eq!(ping(&server.ca_path()).unwrap(), "PONG");
        assert_eq!(server.command(&["PING"]).text(), "PONG");
    }

    #[test]
    fn can_want_a_certificate_of_its_clients() {
        let server = RedisServer::builder().tls().config("tls-auth-clients", "yes").start();
        let paths = [server.ca_path(), server.client_cert_path(), server.client_key_path()];
        let [ca, cert, key] = paths.each_ref().map(|path| path.to_str().unwrap());
        assert_eq!(cli(&server, &["--cacert", ca, "--cert", cert, "--key", key, "PING"]).unwrap(), "PONG");
        assert!(cli(&server, &["--cacert", ca, "PING"]).is_err());
    }

    #[test]
    fn is_for_the_names_that_were_asked_for() {
        let usual = RedisServer::builder().tls().start();
        let wrong = RedisServer::builder().tls_for(&["DNS:another.example"]).start();
        for (server, is_for) in [(&usual, true), (&wrong, false)] {
            let checks = Command::new("openssl")
                .args([
                    "verify",
                    "-x509_strict",
                    "-purpose",
                    "sslserver",
                    "-verify_ip",
                    "127.0.0.1",
                    "-CAfile",
                ])
                .args([server.ca_path(), server.ca_path().with_file_name("server.crt")])
                .output()
                .unwrap();
            assert_eq!(checks.status.success(), is_for, "{}", String::from_utf8_lossy(&checks.stderr));
        }
    }

    fn cli(server: &RedisServer, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(launch::require("redis-cli", "redis-server"))
            .args(["-e", "--tls", "-h", "127.0.0.1", "-p", &server.tls_port().to_string()])
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}
