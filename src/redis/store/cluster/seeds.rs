//! The configured addresses of a cluster.

use std::sync::Arc;

use futures_util::future::select_ok;
use redis::{ConnectionAddr, ConnectionInfo, ErrorKind, RedisResult};

use crate::{
    redis::store::{
        connector,
        credentials::Credentials,
        slots::{self, SlotRange},
        transport::Transport,
    },
    store::error::NodeAddress,
};

/// The configured addresses of a cluster, with the user and the encryption for all of its servers.
pub(in crate::redis::store) struct Seeds {
    pub(in crate::redis::store) nodes: Vec<ConnectionInfo>,
    pub(in crate::redis::store) credentials: Arc<Credentials>,
}

impl Seeds {
    /// Opens a connection to the server that responds first, and fetches the slot ranges from it.
    pub(super) async fn connect(&self) -> RedisResult<(Transport, Vec<SlotRange>)> {
        let each = self.nodes.iter().map(|seed| {
            let attempt = async {
                let node = connector::with_tcp_settings(seed.clone());
                let wire = connector::node(&node, &self.credentials).await?;
                let ranges = fetch_slots(&wire, host_of(seed)).await?;
                Ok((wire, ranges))
            };
            Box::pin(attempt)
        });
        select_ok(each).await.map(|(first, _)| first)
    }

    /// Returns another address with this user, encryption and protocol.
    pub(super) fn at(&self, address: &NodeAddress) -> Option<ConnectionInfo> {
        let seed = self.nodes.first()?;
        let mut place = seed.addr().clone();
        match &mut place {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                host.clone_from(&address.host);
                *port = address.port;
            }
            _ => return None,
        }
        Some(seed.clone().set_addr(place))
    }
}

/// Fetches the slot ranges from the server at `host`.
pub(super) async fn fetch_slots(wire: &Transport, host: &str) -> RedisResult<Vec<SlotRange>> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let answer = wire.send(&command).await?.extract_error()?;
    let ranges = slots::parse(&answer, host);
    let missing = if slots::lacks_name(&answer) {
        "a server of the cluster has no name for its clients (`?`): it needs \
         cluster-announce-hostname, or cluster-preferred-endpoint-type ip"
    } else {
        "the cluster has given out no slots"
    };
    ranges.ok_or_else(|| (ErrorKind::Client, missing).into())
}

fn host_of(node: &ConnectionInfo) -> &str {
    match node.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        _ => "",
    }
}
