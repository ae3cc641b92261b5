//! A cluster.

use std::ops::Range;

use redis::{RedisResult, Value};

use super::{
    cluster_nodes_parser::{Node, parse},
    redis_server::{Server, hosts},
    server_settings::Setup,
};
use crate::child_processes::eventually;

const SLOTS: u16 = 16_384;
const PRIMARIES: usize = 3;

/// Three primaries, each with a third of the slots and one replica.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts it, with Redis and its default configuration.
    pub async fn start() -> Self {
        Self::start_with(Setup::redis()).await
    }

    /// Starts it and waits until every node serves and every primary has its replica.
    pub async fn start_with(setup: Setup) -> Self {
        let mut nodes = Vec::new();
        for _ in 0..2 * PRIMARIES {
            nodes.push(setup.clone().cluster_node().start().await);
        }
        let cluster = Self { nodes };
        cluster.give_out_slots().await;
        cluster.introduce().await;
        cluster.give_replicas().await;
        eventually("a cluster with replicas", async || {
            let settled = cluster.owner(0).await.is_some();
            (settled && cluster.has_replicas().await).then_some(())
        })
        .await;
        cluster
    }

    /// The URLs of all nodes.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    /// The address of the cluster, with all nodes.
    pub fn url(&self) -> String {
        format!("redis-cluster://{}", hosts(&self.nodes))
    }

    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    pub fn node_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// The slot of a key.
    pub async fn slot(&self, key: &str) -> u16 {
        let answer = self
            .running()
            .next()
            .expect("a node")
            .1
            .send(["CLUSTER", "KEYSLOT", key]);
        answer.await.expect("a slot")
    }

    /// The index of the node that owns a slot, as soon as all running nodes serve and agree on one
    /// that runs. So after a primary was killed this waits for its replica to take over.
    pub async fn primary_of(&self, slot: u16) -> usize {
        eventually("a primary", async || self.owner(slot).await).await
    }

    /// Kills the slot's primary and returns its index.
    pub async fn kill_primary_of(&mut self, slot: u16) -> usize {
        let index = self.primary_of(slot).await;
        self.nodes[index].kill9();
        index
    }

    /// Starts to move a slot: its primary sends clients on with `ASK` for keys that it doesn't have.
    pub async fn begin_move(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot).await;
        let (source, target) = (self.id(from).await, self.id(to).await);
        let slot = slot.to_string();
        self.send_command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source])
            .await;
        self.send_command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target])
            .await;
    }

    /// Moves the keys of a slot that is on the move.
    pub async fn move_keys(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot).await;
        let list = [
            "CLUSTER".into(),
            "GETKEYSINSLOT".into(),
            slot.to_string(),
            "1000".into(),
        ];
        let keys: Vec<String> = self.nodes[from].send(list).await.expect("a list of keys");
        for key in keys {
            let port = self.nodes[to].port().to_string();
            self.send_command(from, &["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"])
                .await;
        }
    }

    /// Ends a slot's move, after [`move_keys`](Self::move_keys): its primary sends clients on with
    /// `MOVED`.
    pub async fn finish_move(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot).await;
        let target = self.id(to).await;
        for index in [to, from] {
            let command = ["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &target];
            self.send_command(index, &command).await;
        }
        eventually("the slot's new owner", async || {
            (self.owner(slot).await == Some(to)).then_some(())
        })
        .await;
    }

    /// Moves all of these slots with their keys, one after another, from one primary to another. Sends
    /// nothing to the other servers.
    pub async fn move_slots(&self, slots: Range<u16>, (from, to): (usize, usize)) {
        let (source, target) = (self.id(from).await, self.id(to).await);
        let port = self.nodes[to].port().to_string();
        for slot in slots {
            let slot = slot.to_string();
            let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source];
            self.send_command(to, &importing).await;
            let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target];
            self.send_command(from, &migrating).await;
            let list = ["CLUSTER", "GETKEYSINSLOT", &slot, "1000"];
            let keys: Vec<String> = self.nodes[from].send(list).await.expect("a list of keys");
            for key in keys {
                let migrate = ["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"];
                self.send_command(from, &migrate).await;
            }
            for index in [to, from] {
                let command = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
                self.send_command(index, &command).await;
            }
        }
    }

    /// Turns a replica into a primary without slots, as a server that has just been added.
    pub async fn empty(&self, replica: usize) {
        self.send_command(replica, &["CLUSTER", "RESET"]).await;
        self.meet(replica).await;
        eventually("a primary without slots", async || {
            let port = self.nodes[replica].port();
            for (index, _) in self.running() {
                let view = self.view(index).await.ok()?;
                let node = view.iter().find(|node| node.port == port)?;
                node.is_primary.then_some(())?;
            }
            Some(())
        })
        .await;
    }

    /// Stops the cluster from treating a server as lost, however long it stands still.
    pub async fn never_fail_over(&self) {
        for index in 0..self.nodes.len() {
            let command = ["CONFIG", "SET", "cluster-node-timeout", "3600000"];
            self.send_command(index, &command).await;
        }
    }

    async fn give_out_slots(&self) {
        let share = SLOTS / PRIMARIES as u16;
        for index in 0..PRIMARIES {
            let first = share * index as u16;
            let last = if index + 1 == PRIMARIES {
                SLOTS - 1
            } else {
                first + share - 1
            };
            let range = [
                "CLUSTER",
                "ADDSLOTSRANGE",
                &first.to_string(),
                &last.to_string(),
            ];
            self.send_command(index, &range).await;
        }
        // Nodes that all start with epoch 0 would first have to sort that out among themselves.
        for index in 0..self.nodes.len() {
            let epoch = (index + 1).to_string();
            self.send_command(index, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await;
        }
    }

    async fn introduce(&self) {
        for index in 1..self.nodes.len() {
            self.meet(index).await;
        }
        eventually("nodes that know each other", async || {
            for index in 0..self.nodes.len() {
                // A node that is being introduced stands there under a random name.
                let known = self.view(index).await.ok()?;
                let info = self.nodes[index]
                    .send::<String>(["CLUSTER", "INFO"])
                    .await
                    .ok()?;
                (known.len() == self.nodes.len() && info.contains("cluster_state:ok"))
                    .then_some(())?;
            }
            Some(())
        })
        .await;
    }

    async fn meet(&self, index: usize) {
        let node = &self.nodes[index];
        let bus: (String, u16) = node
            .send(["CONFIG", "GET", "cluster-port"])
            .await
            .expect("a port");
        let (port, bus) = (node.port().to_string(), bus.1.to_string());
        self.send_command(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])
            .await;
    }

    async fn give_replicas(&self) {
        for index in 0..PRIMARIES {
            let primary = self.id(index).await;
            let replica = &self.nodes[index + PRIMARIES];
            eventually("a node that becomes a replica", async || {
                replica
                    .send::<Value>(["CLUSTER", "REPLICATE", &primary])
                    .await
                    .ok()
            })
            .await;
        }
    }

    async fn has_replicas(&self) -> bool {
        for index in 0..PRIMARIES {
            let primary = self.nodes[index].info("replication").await;
            let replica = self.nodes[index + PRIMARIES].info("replication").await;
            let linked = replica
                .get("master_link_status")
                .is_some_and(|link| link == "up");
            let known = primary
                .get("connected_slaves")
                .is_some_and(|count| count == "1");
            if !(linked && known) {
                return false;
            }
        }
        self.all_know_the_replicas().await
    }

    async fn all_know_the_replicas(&self) -> bool {
        for (index, _) in self.running() {
            let Ok(view) = self.view(index).await else {
                return false;
            };
            if view.iter().filter(|node| node.is_primary).count() != PRIMARIES {
                return false;
            }
        }
        true
    }

    /// The running node that is the slot's primary in the view of all running nodes, if they all serve.
    async fn owner(&self, slot: u16) -> Option<usize> {
        let mut owners = Vec::new();
        for (index, node) in self.running() {
            let info = node.send::<String>(["CLUSTER", "INFO"]).await.ok()?;
            info.contains("cluster_state:ok").then_some(())?;
            let view = self.view(index).await.ok()?;
            owners.push(
                view.into_iter()
                    .find(|node| node.is_primary && node.owns(slot))?
                    .port,
            );
        }
        let agreed = owners
            .first()
            .filter(|first| owners.iter().all(|owner| owner == *first))?;
        let owner = self.running().find(|(_, node)| node.port() == *agreed)?;
        Some(owner.0)
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Server)> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.is_running())
    }

    async fn id(&self, index: usize) -> String {
        self.nodes[index]
            .send(["CLUSTER", "MYID"])
            .await
            .expect("an id")
    }

    async fn view(&self, index: usize) -> RedisResult<Vec<Node>> {
        let text: String = self.nodes[index].send(["CLUSTER", "NODES"]).await?;
        Ok(parse(&text))
    }

    async fn send_command(&self, index: usize, command: &[&str]) {
        let answer: RedisResult<Value> = self.nodes[index].send(command).await;
        answer.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
}
