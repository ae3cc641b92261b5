//! Transports: the kinds of open connections.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use redis::{
    Cmd, RedisResult, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{MultipleNodeRoutingInfo, ResponsePolicy, RoutingInfo},
};

/// An open connection, shared by all calls.
#[derive(Clone)]
pub(super) enum Transport {
    Node(MultiplexedConnection),
    Cluster(ClusterConnection),
    Given(Arc<dyn Given>),
}

/// A connection that was handed in.
pub(super) trait Given: Send + Sync {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>>;
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Given for C {
    fn send<'a>(&'a self, command: &'a Cmd) -> BoxFuture<'a, RedisResult<Value>> {
        let mut connection = self.clone();
        Box::pin(async move { command.query_async(&mut connection).await })
    }
}

impl Transport {
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Node(connection) => command.query_async(&mut connection.clone()).await,
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await,
            Self::Given(connection) => connection.send(command).await,
        }
    }

    pub(super) const fn is_node(&self) -> bool {
        matches!(self, Self::Node(_))
    }

    /// Sends a command to every server that may own a key. In a cluster one that is down must not
    /// keep the others from working, so the first answer is enough; on each connection the command
    /// is before those that are sent after that answer.
    pub(super) async fn send_to_all(&self, command: &Cmd) -> RedisResult<Value> {
        let Self::Cluster(connection) = self else {
            return self.send(command).await;
        };
        let all = RoutingInfo::MultiNode((
            MultipleNodeRoutingInfo::AllMasters,
            Some(ResponsePolicy::OneSucceeded),
        ));
        let answer = connection.clone().route_command(command.clone(), all).await;
        answer?.extract_error()
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Node(_) => "Node",
            Self::Cluster(_) => "Cluster",
            Self::Given(_) => "Given",
        })
    }
}
