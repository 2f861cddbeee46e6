//! The commands of a [test process](super::test_process): it executes each line, answers with a line, and logs its beliefs for the oracle.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_testkit::oracle::Recorder;

use super::test_process::{HANGS, SAYS};
use crate::backend::file::faults;
use crate::sync::Mutex;
use crate::{Attempt, Domain, Guard};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a process").count()
}

/// The state of a test process.
struct Executor {
    log: Recorder,
    domains: Mutex<Vec<Domain>>,
    guards: Mutex<HashMap<String, Guard>>,
    children: Mutex<Vec<Child>>,
}

#[test]
#[ignore = "run by other tests, as a process that they drive"]
fn a_test_process() {
    let var = |name: &str| std::env::var(name).expect("to be run by another test");
    let me = format!("{}/task", var("TENURE_TEST_PROCESS"));
    let log = Recorder::in_dir(var("TENURE_TEST_PROCESS_LOGS"), &me).expect("a log");
    let executor =
        Executor { log, domains: Mutex::default(), guards: Mutex::default(), children: Mutex::default() };
    let (executor, url) = (Arc::new(executor), format!("file://{}", var("TENURE_TEST_PROCESS_DIR")));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (executor, url) = (Arc::clone(&executor), url.clone());
        runtime.spawn(async move {
            let answer = executor.execute(&line, &url).await;
            println!("\n{SAYS}{answer}");
        });
    }
    // The test has closed the input.
    for mut child in executor.children.lock().drain(..) {
        let _ = child.kill();
    }
    std::process::exit(0);
}

impl Executor {
    async fn execute(&self, line: &str, url: &str) -> String {
        match self.try_execute(line, url).await {
            Ok(answer) => answer,
            Err(error) => format!("error {:?} {error}", error.kind()),
        }
    }

    async fn try_execute(&self, line: &str, url: &str) -> Result<String, crate::Error> {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (verb, first, second) = (word(), word(), word());
        match verb {
            "open" => {
                let domain = Domain::open(url).await?;
                self.domains.lock().push(domain);
                Ok("opened".to_owned())
            }
            "arm" => {
                faults::arm(first);
                Ok("armed".to_owned())
            }
            "acquire" | "take-over" | "try" => {
                let ttl = Duration::from_millis(first.parse().expect("milliseconds"));
                let lock = self.domain().lock(second).ttl(ttl);
                self.log.requested(second);
                let guard = match verb {
                    "acquire" => lock.acquire().await,
                    "take-over" => lock.take_over().await,
                    _ => match lock.try_acquire().await? {
                        Attempt::Acquired(guard) => Ok(guard),
                        Attempt::Busy(busy) => {
                            self.log.gave_up(second);
                            return Ok(format!("busy {busy}"));
                        }
                    },
                };
                let guard = guard.inspect_err(|_| self.log.gave_up(second))?;
                self.log.granted(second, guard.fence().get(), || guard.remaining());
                let fence = guard.fence();
                self.guards.lock().insert(second.to_owned(), guard);
                Ok(format!("granted {fence}"))
            }
            // Many clients of one process wait for one name, and release it as soon as they have it.
            "crowd" => {
                let count: usize = first.parse().expect("a number");
                let mut waits = Vec::new();
                for _ in 0..count {
                    let domain = Domain::open(url).await?;
                    let name = second.to_owned();
                    waits.push(tokio::spawn(async move {
                        let guard = domain.lock(name).acquire().await?;
                        guard.release().await.map_err(|returned| returned.error).map(drop)
                    }));
                }
                println!("\n{SAYS}waiting");
                for wait in waits {
                    wait.await.expect("a task")?;
                }
                Ok("all had it".to_owned())
            }
            "release" => {
                let guard = self.guards.lock().remove(first).expect("a name that is held");
                self.log.released(first, guard.fence().get());
                let release = guard.release().await.map_err(|returned| returned.error)?;
                Ok(format!("released {release:?}"))
            }
            "renew" => {
                let guard = self.guards.lock().remove(first).expect("a name that is held");
                guard.renew().await?;
                self.guards.lock().insert(first.to_owned(), guard);
                Ok("renewed".to_owned())
            }
            "inspect" => {
                let status = self.domain().inspect(first).await?;
                let holder = status.holder.map_or(String::from("nobody"), |holder| {
                    format!("{} {}", holder.owner.pid().unwrap_or(0), holder.fence)
                });
                Ok(format!("held by {holder}, waited for by {}", status.waiters.len()))
            }
            // Another process gets the lifeline, or the pipe, as its standard input.
            "lifeline" => {
                let lifeline = self.domain().lifeline().await?.expect("a directory has one");
                self.give_away(lifeline.into())
            }
            "leak" => {
                let pipe = std::fs::OpenOptions::new().read(true).write(true).open(first);
                self.give_away(pipe.expect("a pipe").into())
            }
            "churn" => {
                let churn = async |count: usize| {
                    for _ in 0..count {
                        let domain = Domain::open(url).await?;
                        drop(domain.lock("orders/42").acquire().await?);
                        domain.close().await;
                    }
                    // Background tasks end soon after.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok::<_, crate::Error>(())
                };
                churn(10).await?;
                let before = descriptors();
                churn(first.parse().expect("a number")).await?;
                let give_up = Instant::now() + HANGS / 2;
                while descriptors() > before && Instant::now() < give_up {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(format!("from {before} to {}", descriptors()))
            }
            "take-away" => {
                for mut child in self.children.lock().drain(..) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                Ok("taken".to_owned())
            }
            other => panic!("unknown command {other}"),
        }
    }

    fn domain(&self) -> Domain {
        self.domains.lock()[0].clone()
    }

    fn give_away(&self, descriptor: Stdio) -> Result<String, crate::Error> {
        let child = Command::new("sleep").arg("60").stdin(descriptor).stdout(Stdio::null()).spawn();
        let child = child.expect("to start a process");
        let pid = child.id();
        self.children.lock().push(child);
        Ok(format!("given {pid}"))
    }
}
