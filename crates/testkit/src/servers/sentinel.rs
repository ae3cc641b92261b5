//! A primary that sentinels watch.

use super::{
    redis_server::{Server, hosts},
    server_settings::{PRIMARY_NAME, Setup},
};
use crate::child_processes::eventually;

const SENTINELS: usize = 3;

/// One primary, its replicas, and three sentinels; two decide together that a primary is gone.
#[derive(Debug)]
pub struct Sentinels {
    // Before the others: they would mourn them in their logs.
    sentinels: Vec<Server>,
    servers: Vec<Server>,
}

impl Sentinels {
    /// Starts them and waits until all sentinels know all others.
    pub async fn start(replicas: usize) -> Self {
        let first = Server::start().await;
        let primary = first.port();
        let mut servers = vec![first];
        for _ in 0..replicas {
            let source = format!("127.0.0.1 {primary}");
            let setup = Setup::redis().config("replicaof", &source);
            servers.push(setup.config("repl-diskless-sync-delay", "0").start().await);
        }
        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            sentinels.push(Setup::redis().sentinel(primary).start().await);
        }
        let all = Self { sentinels, servers };
        eventually("sentinels that know each other", async || {
            all.is_complete().await
        })
        .await;
        all
    }

    /// The URLs of the sentinels. The primary's name is [`PRIMARY_NAME`].
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    /// The address of the primary, with all sentinels.
    pub fn url(&self) -> String {
        format!("redis-sentinel://{}/{PRIMARY_NAME}", hosts(&self.sentinels))
    }

    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    pub fn sentinel_mut(&mut self, index: usize) -> &mut Server {
        &mut self.sentinels[index]
    }

    /// The index of the primary, as soon as all sentinels agree on one that runs and takes writes.
    pub async fn primary(&self) -> usize {
        eventually("a primary", async || self.agreed().await).await
    }

    /// Kills the primary and returns its index.
    pub async fn kill_primary(&mut self) -> usize {
        let index = self.primary().await;
        self.servers[index].kill9();
        index
    }

    async fn agreed(&self) -> Option<usize> {
        let mut ports = Vec::new();
        for sentinel in self
            .sentinels
            .iter()
            .filter(|sentinel| sentinel.is_running())
        {
            let question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME];
            let (_, port): (String, u16) = sentinel.send(question).await.ok()?;
            ports.push(port);
        }
        let port = *ports
            .first()
            .filter(|first| ports.iter().all(|port| port == *first))?;
        let running = |server: &Server| server.is_running() && server.port() == port;
        let index = self.servers.iter().position(running)?;
        let role = self.servers[index].info("replication").await;
        (role.get("role")? == "master").then_some(index)
    }

    async fn is_complete(&self) -> Option<()> {
        for sentinel in &self.sentinels {
            let info = sentinel.info("sentinel").await;
            let replicas = self.servers.len() - 1;
            let state = format!("status=ok,address=127.0.0.1:{},", self.servers[0].port());
            let counts = format!("slaves={replicas},sentinels={SENTINELS}");
            let primary = info.get("master0")?;
            (primary.contains(&state) && primary.ends_with(&counts)).then_some(())?;
        }
        for replica in &self.servers[1..] {
            let link = replica.info("replication").await;
            (link.get("master_link_status")? == "up").then_some(())?;
        }
        Some(())
    }
}
